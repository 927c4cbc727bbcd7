const prefix = "/v1beta/models/"

/**
 * The URL with the model of a generateContent path in one segment. Google's clients do not escape the slashes of a model's
 * name, and the registry's names have some.
 */
export const withModelInOneSegment = (url: string): string => {
  if (!url.startsWith(prefix)) return url
  const query = url.indexOf("?")
  const path = query === -1 ? url : url.slice(0, query)
  const colon = path.lastIndexOf(":")
  const model = path.slice(prefix.length, colon)
  if (colon < prefix.length || !model.includes("/")) return url
  return prefix + model.replaceAll("/", "%2F") + url.slice(colon)
}
