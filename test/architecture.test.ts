/** The arrows of ARCHITECTURE.md: who may import whom. */
import { readdirSync, readFileSync } from "node:fs"
import { join, relative, resolve, sep } from "node:path"
import { assert, describe, it } from "vitest"

const root = resolve(import.meta.dirname, "..")

const sources = ["src", "services", "layers"].flatMap((folder) =>
  readdirSync(join(root, folder), { recursive: true, encoding: "utf8" })
    .filter((name) => name.endsWith(".ts"))
    .map((name) => join(folder, name).split(sep).join("/"))
)

const aliases: Readonly<Record<string, string>> = {
  "#domain/": "src/domain/",
  "#api/": "src/api/",
  "#http/": "src/http/",
  "#src/": "src/",
  "#services/": "services/",
  "#layers/": "layers/"
}

/** The files of the project that a file imports. */
const importsOf = (file: string): ReadonlyArray<string> => {
  const text = readFileSync(join(root, file), "utf8")
  return [...text.matchAll(/(?:^|\n)(?:import|export)[^;]*?from\s+"([^"]+)"|import\("([^"]+)"\)/g)].flatMap((match) => {
    const target = match[1] ?? match[2] ?? ""
    const alias = Object.keys(aliases).find((prefix) => target.startsWith(prefix))
    if (alias !== undefined) return [aliases[alias]! + target.slice(alias.length)]
    return target.startsWith(".")
      ? [
          relative(root, resolve(root, file, "..", target))
            .split(sep)
            .join("/")
        ]
      : []
  })
}

const floorOf = (file: string): string => {
  for (const floor of ["src/domain/", "src/api/", "src/http/", "src/commands/", "services/", "layers/"]) {
    if (file.startsWith(floor)) return floor
  }
  return "root"
}

const columnOf = (file: string): string => file.split("/")[1] ?? ""

const allowed: Readonly<Record<string, ReadonlyArray<string>>> = {
  "src/domain/": ["src/domain/"],
  "src/api/": ["src/api/", "src/domain/"],
  "services/": ["services/", "src/domain/"],
  "layers/": ["layers/", "services/", "src/domain/"],
  "src/http/": ["src/http/", "src/api/", "services/", "src/domain/"]
}

describe("the arrows of the house", () => {
  it("found the sources", () => assert.isAbove(sources.length, 40))

  for (const file of sources) {
    const floor = floorOf(file)
    const rule = allowed[floor]
    if (rule === undefined) continue
    it(file, () => {
      for (const target of importsOf(file)) {
        assert.include(rule, floorOf(target), `${file} must not import ${target}`)
        if (floor === "layers/" && floorOf(target) === "layers/") {
          assert.strictEqual(columnOf(target), columnOf(file), `${file} reaches into another column: ${target}`)
        }
      }
    })
  }
})
