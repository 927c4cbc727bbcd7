/** Where an upstream is, from its `api_base`. */
export interface Base {
  readonly origin: string
  /** Path without a trailing slash; empty: none. */
  readonly path: string
  /** The query with its `?`; empty: none. */
  readonly search: string
}

/** The base, or in one line what is wrong with it. */
export const readBase = (apiBase: string): Base | string => {
  if (!URL.canParse(apiBase)) return "api_base is missing or no URL"
  const base = new URL(apiBase)
  if (base.protocol !== "https:" && base.protocol !== "http:") return "api_base is neither http nor https"
  return { origin: base.origin, path: base.pathname.replace(/\/+$/, ""), search: base.search }
}

/** A version segment appended to a base that names none: `https://api.anthropic.com` and `…/v1` mean the same. */
export const versioned = (base: Base, version: string): string =>
  /\/v\d+[a-z0-9]*$/.test(base.path) ? base.path : `${base.path}/${version}`
