import { assert, describe, it } from "vitest"
import { Result } from "effect"
import { compileDefinition } from "#domain/pipelines/compile.ts"
import { bounds, operators, workflowType } from "#domain/pipelines/definition.ts"

const compiled = (source: string) => Result.getOrThrow(compileDefinition(source))

const fault = (source: string): string => {
  const result = compileDefinition(source)
  if (Result.isSuccess(result)) throw new Error("it compiled")
  assert.strictEqual(result.failure.status, 400)
  assert.strictEqual(result.failure.param, "dsl_source")
  return result.failure.message
}

const step = (rest: string) => `name: p\nsteps:\n  - id: a\n${rest}`

describe("compileDefinition", () => {
  it("reads steps, retries, timeouts and needs", () => {
    const { steps } = compiled(`
name: support
inputs: {type: object, required: [ticket]}
steps:
  - id: answer
    operator: chat
    with: {model: sandbox/chat, prompt: "Answer: \${inputs.ticket}"}
    retry: {attempts: 5, delay: 2s, backoff: 3, max_delay: 1m}
    timeout: 30s
  - {id: check, operator: human_review, needs: answer, timeout: 30d}
outputs: {text: "\${steps.answer.output.text}"}
`)
    assert.deepStrictEqual(steps[0], {
      id: "answer",
      needs: [],
      when: null,
      operator: "chat",
      with: { model: "sandbox/chat", prompt: "Answer: ${inputs.ticket}" },
      retry: { attempts: 5, delay: 2000, backoff: 3, maxDelay: 60_000 },
      timeout: 30_000
    })
    assert.deepInclude(steps[1], { needs: ["answer"], timeout: 30 * 86_400_000 })
  })

  it("knows 13 operators", () => assert.strictEqual(operators.length, 13))

  it("makes workflow types", () => {
    assert.strictEqual(workflowType("0198c0de-1111-7000-8000-000000000000", 3), "pipeline_0198c0de_v3")
  })

  const faults: ReadonlyArray<readonly [what: string, source: string, message: RegExp]> = [
    ["broken YAML", "name: p\nsteps: [", /^Line 2, column \d+: /],
    ["a duplicate name", "name: p\nname: q\nsteps: []", /^Line 2, column 1: /],
    ["no mapping", "- 1", /^Line 1, column 1: A definition must be a mapping/],
    ["an empty text", "", /^Line 1, column 1: A definition must be a mapping/],
    ["a missing name", "steps: []", /^Line 1, column 1: A definition needs 'name'/],
    ["no steps", "name: p\nsteps: []", /^Line 2, column 8: A definition has at least one step/],
    ["an unknown field", "name: p\nstep: 1", /^Line 2, column 1: A definition has no 'step'/],
    ["an unknown operator", step("    operator: think"), /^Line 4, column 15: Unknown operator 'think'/],
    [
      "an unknown need",
      step("    operator: transform\n    with: 1\n    needs: [a, b]"),
      /^Line 6, column 16: Unknown reference: there is no step 'b'/
    ],
    ["a cycle of one", step("    operator: transform\n    with: 1\n    needs: a"), /^Line 6, column 12: .*a -> a/],
    [
      "a cycle through expressions",
      "name: p\nsteps:\n- {id: a, operator: transform, with: '${steps.b.output}'}\n" +
        "- {id: b, operator: transform, with: 1, needs: a}",
      /^Line 3, column 41: These steps need each other: a -> b -> a/
    ],
    [
      "two steps of one id",
      "name: p\nsteps:\n- {id: a, operator: extract}\n- {id: a}",
      /^Line 4, column 8: There are two/
    ],
    ["a bad id", "name: p\nsteps:\n- {id: a-b, operator: extract}", /^Line 3, column 8: 'a-b' cannot be an id/],
    [
      "a bad expression",
      step('    operator: transform\n    with:\n      x: "a ${inputs.b +} c"'),
      /^Line 6, column 2\d: Bad expression: .*S?/
    ],
    [
      "an open expression",
      step("    operator: transform\n    with: '${inputs'"),
      /^Line 5, column 12: '\$\{' has no closing/
    ],
    [
      "an unknown step in an expression",
      step("    operator: transform\n    with: ${ 1 + steps.zzz.output }"),
      /^Line 5, column 24: Unknown reference: there is no step 'zzz'/
    ],
    [
      "an unknown root in an expression",
      step("    operator: transform\n    with: ${env.HOME}"),
      /^Line 5, column 13: Unknown reference 'env'/
    ],
    [
      "another part of a step",
      "name: p\nsteps:\n- {id: a, operator: extract}\n- {id: b, operator: transform, with: '${steps.a.error}'}",
      /Of a step only its output can be read: steps\.a\.output/
    ],
    ["all steps", step("    operator: transform\n    with: ${$keys(steps)}"), /Write steps\.<id>\.output/],
    ["the whole root", step("    operator: transform\n    with: ${$$}"), /Name what to read/],
    ["a wildcard", step("    operator: transform\n    with: ${**.password}"), /Name what to read/],
    ["chance", step("    operator: transform\n    with: ${$random()}"), /\$random cannot be used/],
    ["code in data", step("    operator: transform\n    with: ${$eval(inputs.x)}"), /\$eval cannot be used/],
    ["an item outside map", step("    operator: transform\n    with: ${item}"), /Unknown reference 'item'/],
    [
      "a bad schema",
      "name: p\ninputs:\n  type: object\n  properties:\n    a: {type: nothing}\nsteps: []",
      /^Line 5, column 15: Bad schema/
    ],
    [
      "a schema elsewhere",
      "name: p\ninputs: {$ref: 'https://example.com/x'}\nsteps: []",
      /^Line 2, column 9: Bad schema: can't resolve reference/
    ],
    [
      "a missing field of an operator",
      step("    operator: chat\n    with: {prompt: x}"),
      /^Line 5, column 11: .*'model'/
    ],
    ["a chat without words", step("    operator: chat\n    with: {model: x}"), /either 'messages' or 'prompt'/],
    [
      "a field of another type",
      step("    operator: rerank\n    with: {model: m, query: q, documents: 1}"),
      /must be a list/
    ],
    [
      "a timeout that is none",
      step("    operator: extract\n    timeout: soon"),
      /^Line 5, column 14: 'timeout' must be a dur/
    ],
    [
      "too many attempts",
      step("    operator: extract\n    retry: {attempts: 99}"),
      /^Line 5, column 23: 'attempts' must/
    ],
    ["a condition in words", step("    operator: extract\n    when: yes please"), /'when' must be one expression/],
    [
      "a review inside map",
      step("    operator: map\n    with: {items: [1], step: {operator: human_review}}"),
      /human_review cannot stand inside map/
    ],
    [
      "a branch into nowhere",
      step("    operator: branch\n    with: {cases: [{when: '${true}', steps: [x]}]}"),
      /Unknown reference: there is no step 'x'/
    ],
    ["too deep", `name: p\ninputs: ${"[".repeat(5000)}${"]".repeat(5000)}`, /nests deeper/],
    [
      "a tree without end",
      `name: p\ninputs:\n  a0: &a0 [1,1,1,1,1,1,1,1,1,1]\n${Array.from(
        { length: 8 },
        (_, n) => `  a${n + 1}: &a${n + 1} [${`*a${n},`.repeat(10)}]\n`
      ).join("")}`,
      /more than 20000 values/
    ],
    ["too long", `name: p\n# ${"x".repeat(bounds.source)}`, /is longer than/],
    [
      "too many steps",
      `name: p\nsteps:\n${Array.from({ length: bounds.steps + 1 }, (_, n) => `- {id: s${n}, operator: extract}`).join("\n")}`,
      new RegExp(`^Line ${bounds.steps + 3}, column 3: A definition has at most`)
    ],
    ["a name of prototypes", "name: p\ninputs: {__proto__: {}}", /'__proto__' cannot be a name/],
    ["a NUL", 'name: p\ndescription: "a\\0"', /^Line 2, column 14: A text holds characters/],
    ["half a character", 'name: p\ndescription: "\\ud800"', /^Line 2, column 14: A text holds characters/],
    ["half a character in a comment", "name: p\n# \ud800", /^Line 2, column 3: A text holds characters/],
    ["an own tag", "name: !secret p", /^Line 1, column 7: /]
  ]

  for (const [what, source, message] of faults) {
    it(`refuses ${what}, with its place`, () => {
      assert.match(fault(source), message)
      assert.match(fault(source), /^Line \d+, column \d+: /)
    })
  }

  it("takes expressions with braces and quotes in them, and $${ as text", () => {
    const [one] = compiled(
      step(`    operator: transform\n    with: 'a \${ {"x": "}"}.x } b $\${c} \${ inputs.items{name: $count(price)} }'`)
    ).steps
    assert.strictEqual(one?.operator, "transform")
  })
})
