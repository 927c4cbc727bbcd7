/** Sums the same series of several processes; the slowest process's quantile stands for all. */
const takesWorst = (series: string): boolean => series.startsWith("sluice_event_loop_delay_seconds")

/** One Prometheus text out of several, each of one process. */
export const mergePrometheus = (texts: ReadonlyArray<string>): string => {
  const lines: Array<string> = []
  const places = new Map<string, number>()
  const values = new Map<string, number>()
  for (const line of texts.flatMap((text) => text.split("\n"))) {
    if (line === "") continue
    const space = line.startsWith("#") ? -1 : line.lastIndexOf(" ")
    const series = space < 0 ? line : line.slice(0, space)
    if (!places.has(series)) {
      places.set(series, lines.length)
      lines.push(series)
    }
    if (space < 0) continue
    const value = Number(line.slice(space + 1))
    const before = values.get(series)
    values.set(series, before === undefined ? value : takesWorst(series) ? Math.max(before, value) : before + value)
  }
  return lines.map((series) => (values.has(series) ? `${series} ${values.get(series)}` : series)).join("\n") + "\n"
}
