/** The wire formats that upstreams speak (decisions.md, section 7.3). A preset names one; a layer implements each. */
export const wireNames = ["openai", "azure", "anthropic", "gemini", "bedrock", "cohere"] as const

export type WireName = (typeof wireNames)[number]
