/**
 * What is authenticated with each kind of sealed text (AES-GCM's additional data), so that a ciphertext that is moved to
 * another row does not open. Changing one makes the rows that stand under it unreadable.
 */
export const sealedContexts = {
  model: (id: string): string => `model:${id}`,
  credential: (id: string): string => `credential:${id}`,
  callback: (id: string): string => `callback:${id}`,
  /** A config moves between guardrails of one owner, so its secrets are bound to their kind and not to a row. */
  guardrailConfig: "guardrail config",
  redaction: (tenant: string, keyId: string, token: string): string =>
    JSON.stringify(["redaction", tenant, keyId, token]),
  idempotentAnswer: (tenant: string, userId: string, keyHash: Uint8Array): string =>
    `idempotency:${tenant}\n${userId}\n${Buffer.from(keyHash).toString("hex")}`
} as const
