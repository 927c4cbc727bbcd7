/** Steps and what they need. */

/** A cycle among steps, each needing the next and the last the first; undefined where there is none. */
export const cycleOf = (needs: ReadonlyMap<string, ReadonlySet<string>>): ReadonlyArray<string> | undefined => {
  const done = new Set<string>()
  const path: Array<string> = []
  const onPath = new Set<string>()
  const walk = (id: string): ReadonlyArray<string> | undefined => {
    if (done.has(id)) return undefined
    if (onPath.has(id)) return path.slice(path.indexOf(id))
    path.push(id)
    onPath.add(id)
    for (const needed of needs.get(id) ?? []) {
      const cycle = walk(needed)
      if (cycle !== undefined) return cycle
    }
    path.pop()
    onPath.delete(id)
    done.add(id)
    return undefined
  }
  for (const id of needs.keys()) {
    const cycle = walk(id)
    if (cycle !== undefined) return cycle
  }
  return undefined
}
