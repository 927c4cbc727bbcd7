/** docs/limits.md says what the code does. */
import { readFileSync } from "node:fs"
import { assert, describe, it } from "vitest"
import { defaultPageSize } from "#api/fields.ts"
import { assetBounds, maxSample } from "#domain/assets.ts"
import { defaultBatchSize, maxBatchSize } from "#domain/evals.ts"
import { bounds, defaults } from "#domain/pipelines/definition.ts"
import { itemsAtOnce, mostItems } from "#domain/udf.ts"
import { maxAttempts, retryDelays } from "#domain/webhooks.ts"
import { maxBodyBytes, maxDepth } from "#http/body.ts"
import { serverOptions } from "#http/listener.ts"
import { deepestFallback } from "#layers/inference/compile.ts"
import { defaultRouting } from "#layers/inference/RouterContext.ts"
import { maxCallbacks } from "#services/callbacks/CallbackRegistry.ts"
import { maxConfigurationEntries } from "#services/configuration/Configuration.ts"
import { mostUsageRows } from "#services/developer/DeveloperUsage.ts"

const document = readFileSync(new URL("../../docs/limits.md", import.meta.url), "utf8")
const settings = readFileSync(new URL("../../README.md", import.meta.url), "utf8")

const plain = (value: number): string => value.toLocaleString("en-US")
const mebibytes = (bytes: number): string => `${bytes / 1024 / 1024} MiB`
const seconds = (millis: number): string => `${millis / 1000} s`
const days = (millis: number): number => millis / 86_400_000

const rows: ReadonlyArray<readonly [what: string, ...values: ReadonlyArray<string>]> = [
  ["a JSON body", mebibytes(maxBodyBytes)],
  ["its nesting", `${maxDepth} levels`],
  ["all headers together", `${serverOptions.maxHeaderSize / 1024} KiB`, seconds(serverOptions.headersTimeout)],
  ["an idle connection", seconds(serverOptions.keepAliveTimeout)],
  ["callbacks of one owner", plain(maxCallbacks)],
  ["entries of a configuration", plain(maxConfigurationEntries)],
  ["items of `/v1/batch/udf`", plain(mostItems), `${itemsAtOnce} run at once`],
  ["`page_size`", `${defaultPageSize}, 500`],
  ["`batch_size` of an eval pull", `${defaultBatchSize}, ${maxBatchSize}`],
  ["`sample_size` of a dataset", plain(maxSample)],
  ["rows of `/developer/v1/usage`", plain(mostUsageRows)],
  ["the wait before a try", `${defaultRouting.backoff} ms`, seconds(defaultRouting.longestBackoff)],
  ["the wait before a try", `up to ${seconds(defaultRouting.longestRetryAfter)}`],
  ["fallbacks of a model", `; ${deepestFallback} |`],
  ["a whole answer", mebibytes(defaultRouting.largestAnswer)],
  ["an asset's content", plain(assetBounds.content)],
  ["one item or test case", plain(assetBounds.item)],
  ["items of one request", plain(assetBounds.itemsPerRequest), plain(assetBounds.items)],
  ["items of one request", mebibytes(assetBounds.itemBytes)],
  ["a definition", plain(bounds.source), `${bounds.depth} levels`, `${plain(bounds.nodes)} values`],
  ["its steps, expressions", plain(bounds.steps), plain(bounds.expressions), plain(bounds.branchCases)],
  ["an expression", plain(bounds.expression)],
  ["items and concurrency of a `map`", plain(bounds.mapItems), plain(bounds.concurrency)],
  ["tries of a step", plain(bounds.attempts)],
  ["one try of a step", `${defaults.taskTimeout / 60_000} minutes`, `${days(bounds.taskTimeout)} day at most`],
  ["one try of a step", `${days(defaults.mapTimeout)} day (${days(bounds.mapTimeout)})`],
  ["one try of a step", `${days(defaults.reviewTimeout)} days (${days(bounds.reviewTimeout)})`],
  ["tries of a delivery", `${maxAttempts} over 24 h`]
]

describe("docs/limits.md", () => {
  it.each(rows)("%s", (what, ...values) => {
    const found = document.split("\n").filter((line) => line.startsWith(`| ${what}`))
    assert.isTrue(
      found.some((line) => values.every((value) => line.includes(value))),
      `${found.join("\n")} lacks ${values.join(" or ")}`
    )
  })

  it("names settings that there are", () => {
    for (const [, setting] of document.matchAll(/`((?:GATEWAY|DEVELOPER)_[A-Z_]+)`/g)) {
      assert.include(settings, `\`${setting}\``)
    }
    const total = retryDelays.reduce((sum, delay) => sum + delay, 0)
    assert.closeTo(total / 3_600_000, 24, 1)
  })
})
