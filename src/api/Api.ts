/** The whole contract. What is not added here is not served; OpenAPI is generated from it. */
import { HttpApi } from "effect/http-api"
import { AgentGroup } from "#api/agent.ts"
import { BillingGroup } from "#api/billing.ts"
import { BudgetGroup } from "#api/budgets.ts"
import { CallbackGroup } from "#api/callbacks.ts"
import { CatalogTagsGroup } from "#api/catalogTags.ts"
import { ConfigGroup } from "#api/config.ts"
import { CredentialGroup } from "#api/credentials.ts"
import { CustomerGroup } from "#api/customers.ts"
import { DatasetGroup, EvalSuiteGroup } from "#api/datasets.ts"
import { DeveloperGroup } from "#api/developer.ts"
import { EvalJobGroup, EvalWorkerGroup } from "#api/evals.ts"
import { GroupsGroup } from "#api/groups.ts"
import { GuardrailGroup } from "#api/guardrails.ts"
import { GuardrailHelperGroup } from "#api/guardrailHelpers.ts"
import { InferenceGroup, ModelListGroup } from "#api/inference.ts"
import { KeyGroup } from "#api/keys.ts"
import { MediaGroup } from "#api/media.ts"
import { ModelGroup } from "#api/models.ts"
import { NativeGroup } from "#api/native.ts"
import { OpenApiGroup, SchemaGroup } from "#api/openapi.ts"
import { OrganizationGroup } from "#api/organizations.ts"
import { PipelineGroup } from "#api/pipelines.ts"
import { TagGroup } from "#api/tags.ts"
import { TeamGroup } from "#api/teams.ts"
import { TenantsGroup } from "#api/tenants.ts"
import { TierGroup } from "#api/tiers.ts"
import { TraceGroup } from "#api/traces.ts"
import { UdfGroup } from "#api/udf.ts"
import { UsageGroup } from "#api/usage.ts"
import { UserGroup } from "#api/users.ts"

export class Api extends HttpApi.make("sluice").add(
  OpenApiGroup,
  SchemaGroup,
  ModelListGroup,
  InferenceGroup,
  MediaGroup,
  NativeGroup,
  AgentGroup,
  UdfGroup,
  UsageGroup,
  KeyGroup,
  ModelGroup,
  CredentialGroup,
  UserGroup,
  TeamGroup,
  OrganizationGroup,
  CustomerGroup,
  BudgetGroup,
  TierGroup,
  GuardrailGroup,
  GuardrailHelperGroup,
  CallbackGroup,
  ConfigGroup,
  TagGroup,
  GroupsGroup,
  CatalogTagsGroup,
  BillingGroup,
  TenantsGroup,
  DeveloperGroup,
  DatasetGroup,
  EvalSuiteGroup,
  EvalJobGroup,
  EvalWorkerGroup,
  TraceGroup,
  PipelineGroup
) {}
