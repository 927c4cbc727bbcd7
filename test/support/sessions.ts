/** Sessions of developers, written as the gateway writes them, for tests that need them in every state. */
import { hash, randomBytes } from "node:crypto"
import { uuidv7 } from "#domain/ids.ts"
import type { OpenDatabase } from "#test/support/acceptance.ts"

export type SessionState = "live" | "expired" | "revoked"

/** The cookie header of a new session of a user. */
export const sessionCookie = async (
  database: OpenDatabase,
  userId: string,
  state: SessionState = "live"
): Promise<string> => {
  const token = `gws_${randomBytes(32).toString("base64url")}`
  const now = Date.now()
  await database.query(
    `INSERT INTO developer_sessions (id, token_hash, user_id, created_at, expires_at, revoked_at)
     VALUES ($1, $2, $3, $4, $5, $6)`,
    [
      uuidv7(now),
      hash("sha256", token, "buffer"),
      userId,
      new Date(now - 7_200_000),
      new Date(state === "expired" ? now - 1_000 : now + 3_600_000),
      state === "revoked" ? new Date(now - 1_000) : null
    ]
  )
  return `gateway_session=${token}`
}
