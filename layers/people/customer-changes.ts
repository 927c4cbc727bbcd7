import { hash } from "node:crypto"

/** The channel on which processes tell each other what happened to customers. */
export const CUSTOMERS_CHANNEL = "customers_changed"

/** The payload when anybody may be concerned. */
export const everyCustomer = "*"

/** Names an end user of a tenant in one bounded text, whatever clients send. */
export const endUserKey = (tenant: string, endUserId: string): string => {
  const text = `${tenant}\n${endUserId}`
  return text.length <= 200 ? text : hash("sha256", text, "base64")
}

/** The payload of a notification: the tenant, so that it is known to have customers, and whom it is about. */
export const customerText = (tenant: string, endUserId: string): string =>
  JSON.stringify([tenant, endUserKey(tenant, endUserId)])

/** Reads a payload; one that says nothing known may be about anybody. */
export const parseCustomerText = (text: string): { readonly tenant: string; readonly key: string } | undefined => {
  try {
    const parsed: unknown = JSON.parse(text)
    if (!Array.isArray(parsed)) return undefined
    const [tenant, key]: ReadonlyArray<unknown> = parsed
    return typeof tenant === "string" && typeof key === "string" ? { tenant, key } : undefined
  } catch {
    return undefined
  }
}
