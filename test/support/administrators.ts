/** Signed administrator tokens for test gateways. */
import { SignJWT } from "jose"
import { jwtSecret } from "#test/support/Gateway.ts"

export interface AdministratorClaims {
  readonly sub?: string
  readonly class?: "control_plane" | "tenant"
  readonly role?: "instance_admin" | "tenant_admin" | "org_admin" | "viewer"
  readonly tenant?: string
  readonly organization_id?: string
  readonly entitlements?: ReadonlyArray<string>
}

/** A token that is good for ten minutes. */
export const administratorToken = (claims: AdministratorClaims): Promise<string> =>
  new SignJWT({ class: "tenant", role: "tenant_admin", ...claims })
    .setProtectedHeader({ alg: "HS256", typ: "JWT" })
    .setSubject(claims.sub ?? "somebody")
    .setIssuedAt()
    .setExpirationTime("10 minutes")
    .sign(Buffer.from(jwtSecret))
