import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import * as ExpressionsProcess from "#layers/pipelines/ExpressionsProcess.ts"
import { Expressions, type ExpressionScope } from "#services/pipelines/Expressions.ts"

const scope: ExpressionScope = {
  inputs: { name: "Ada", tags: ["a", "b"], n: 2 },
  steps: { first: { price: 3 }, second: null },
  now: Date.UTC(2026, 0, 2)
}

layer(ExpressionsProcess.layer({ processes: 1, timeout: 1500 }))("ExpressionsProcess", (it) => {
  it.effect("puts values in place of expressions, whole or as text", () =>
    Effect.gen(function* () {
      const expressions = yield* Expressions
      const template = {
        whole: "${inputs.tags}",
        text: "Hi ${inputs.name}: ${inputs.tags}, ${inputs.absent}!",
        absent: "${inputs.absent}",
        price: "${steps.first.output.price * inputs.n}",
        escaped: "$${x}",
        when: "${$now()}",
        plain: [1, null, true]
      }
      assert.deepStrictEqual(yield* expressions.render(template, scope), {
        whole: ["a", "b"],
        text: 'Hi Ada: ["a","b"], !',
        absent: null,
        price: 6,
        escaped: "${x}",
        when: "2026-01-02T00:00:00.000Z",
        plain: [1, null, true]
      })
    })
  )

  it.effect("renders once for each item, and decides conditions", () =>
    Effect.gen(function* () {
      const expressions = yield* Expressions
      const items = ["x", "y"].map((item, index) => ({ item, index }))
      assert.deepStrictEqual(yield* expressions.renderEach("${index}:${item}", scope, items), ["0:x", "1:y"])
      assert.isTrue(yield* expressions.test('${inputs.name = "Ada"}', scope))
      assert.isFalse(yield* expressions.test("${steps.second.output}", scope))
      assert.isFalse(yield* expressions.test("${inputs.absent}", scope))
    })
  )

  it.effect("says what violates a schema, and where", () =>
    Effect.gen(function* () {
      const expressions = yield* Expressions
      const schema = { type: "object", required: ["name"], properties: { age: { type: "integer" } } }
      assert.strictEqual((yield* expressions.violation(schema, {}))?.path, "name")
      assert.strictEqual((yield* expressions.violation(schema, { name: 1, age: "x" }))?.path, "age")
      assert.isUndefined(yield* expressions.violation(schema, { name: 1 }))
    })
  )

  for (const [what, expression] of [
    ["a loop", "${($f := function($n){ $f($n + 1) }; $f(1))}"],
    ["a recursion", "${($f := function($n){ 1 + $f($n + 1) }; $f(1))}"],
    ["a long sequence", "${[1..9000000]}"],
    ["a regular expression without end", '${$match("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!", /^(a+)+$/)}'],
    ["a large text", '${$pad("", 500000000, "x")}'],
    ["a wrong type", '${"a" * 2}']
  ] as const) {
    it.effect(`ends ${what}, and goes on`, () =>
      Effect.gen(function* () {
        const expressions = yield* Expressions
        const error = yield* Effect.flip(expressions.render(expression, scope))
        assert.strictEqual(error._tag, "ExpressionFailed")
        assert.strictEqual(yield* expressions.render("${inputs.n}", scope), 2)
      })
    )
  }

  it.effect("one job leaves nothing for the next", () =>
    Effect.gen(function* () {
      const expressions = yield* Expressions
      yield* Effect.exit(expressions.render('${inputs ~> |$|{"__proto__": {"polluted": 1}}|}', scope))
      assert.deepStrictEqual(yield* expressions.render("${inputs.polluted}", scope), null)
      assert.deepStrictEqual(yield* expressions.render("${inputs.name.constructor.name}", scope), null)
    })
  )
})
