import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs"
import { type IncomingMessage } from "node:http"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { Readable } from "node:stream"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Exit, Fiber, Scope } from "effect"
import * as UploadSpoolDisk from "#layers/files/UploadSpoolDisk.ts"
import { UploadSpool } from "#services/files/UploadSpool.ts"

const messageOf = (body: Readable, boundary = "x"): IncomingMessage =>
  Object.assign(body, {
    headers: { "content-type": `multipart/form-data; boundary=${boundary}` }
  }) as unknown as IncomingMessage

const file = (name: string, bytes: string) =>
  `--x\r\nContent-Disposition: form-data; name="${name}"; filename="${name}.bin"\r\n\r\n${bytes}\r\n`
const field = (name: string, value: string) =>
  `--x\r\nContent-Disposition: form-data; name="${name}"\r\n\r\n${value}\r\n`

const formOf = (...parts: ReadonlyArray<string>) =>
  messageOf(Readable.from([Buffer.from(`${parts.join("")}--x--\r\n`)]))

const textOf = async (stream: Readable): Promise<string> => {
  let text = ""
  for await (const chunk of stream) text += String(chunk)
  return text
}

/** Runs in a directory of its own, which held something before. */
const inSpool = <A, E>(
  run: (spool: UploadSpool["Service"], files: () => ReadonlyArray<string>) => Effect.Effect<A, E, Scope.Scope>,
  options: Partial<UploadSpoolDisk.UploadSpoolOptions> = {}
) =>
  Effect.gen(function* () {
    const root = yield* Effect.acquireRelease(
      Effect.sync(() => mkdtempSync(join(tmpdir(), "sluice-spool-"))),
      (path) => Effect.sync(() => rmSync(path, { recursive: true }))
    )
    const directory = join(root, "0")
    writeFileSync(join(root, "0"), "left by a former life")
    rmSync(directory)
    return yield* Effect.gen(function* () {
      return yield* run(yield* UploadSpool, () => readdirSync(directory))
    }).pipe(Effect.provide(UploadSpoolDisk.layer({ directory, ...options })))
  }).pipe(Effect.scoped)

describe("the spool", () => {
  it("clears away after workers that are gone, and nobody else", () => {
    const root = mkdtempSync(join(tmpdir(), "sluice-spool-"))
    for (const name of ["0", "1", "2", "notes"]) {
      mkdirSync(join(root, name))
      writeFileSync(join(root, name, "half-a-file"), "")
    }
    const spool = UploadSpoolDisk.layer({ directory: join(root, "0"), abandoned: (name) => name === "2" })
    return Effect.gen(function* () {
      yield* UploadSpool
      assert.deepStrictEqual(readdirSync(root).sort(), ["0", "1", "notes"])
      assert.deepStrictEqual(readdirSync(join(root, "0")), [])
      assert.deepStrictEqual(readdirSync(join(root, "1")), ["half-a-file"])
      rmSync(root, { recursive: true })
    }).pipe(Effect.provide(spool), Effect.runPromise)
  })

  it.effect("keeps files until the scope closes, to be read as often as needed", () =>
    inSpool((spool, files) =>
      Effect.gen(function* () {
        const scope = yield* Scope.make()
        const message = formOf(
          field("a", "1"),
          file("f", "hello"),
          field("a", "2"),
          field("__proto__", "x"),
          file("g", "")
        )
        const form = yield* spool.receive(message).pipe(Scope.provide(scope))
        assert.deepStrictEqual(Object.entries(form.fields), [
          ["a", ["1", "2"]],
          ["__proto__", "x"]
        ])
        assert.deepStrictEqual(
          form.files.map(({ field, filename, size }) => `${field} ${filename} ${size}`),
          ["f f.bin 5", "g g.bin 0"]
        )
        for (let time = 0; time < 2; time++) {
          assert.strictEqual(yield* Effect.promise(() => textOf(form.files[0]!.open())), "hello")
        }
        assert.strictEqual(files().length, 2)
        yield* Scope.close(scope, Exit.void)
        assert.deepStrictEqual(files(), [])
      })
    )
  )

  it.effect("bounds a form, and all forms together", () =>
    inSpool(
      (spool, files) =>
        Effect.gen(function* () {
          const long = yield* Effect.flip(Effect.scoped(spool.receive(formOf(file("f", "x".repeat(3_000))))))
          assert.strictEqual(long.code, "value_too_long")
          const scope = yield* Scope.make()
          yield* spool.receive(formOf(file("f", "x".repeat(1_800)))).pipe(Scope.provide(scope))
          const full = yield* Effect.flip(Effect.scoped(spool.receive(formOf(file("f", "x".repeat(1_800))))))
          assert.strictEqual(full.code, "overloaded")
          yield* Scope.close(scope, Exit.void)
          assert.strictEqual(
            (yield* Effect.scoped(spool.receive(formOf(file("f", "x".repeat(1_800)))))).files.length,
            1
          )
          assert.deepStrictEqual(files(), [])
        }),
      { largestForm: 2_000, capacity: 3_500 }
    )
  )

  it.effect("takes everything away when it is interrupted", () =>
    inSpool((spool, files) =>
      Effect.gen(function* () {
        const body = new Readable({ read: () => undefined })
        body.push(Buffer.from('--x\r\nContent-Disposition: form-data; name="f"; filename="f"\r\n\r\nabc'))
        const fiber = yield* Effect.forkChild(Effect.scoped(spool.receive(messageOf(body))))
        yield* Effect.promise(async () => {
          while (files().length === 0) await new Promise((resolve) => setImmediate(resolve))
        })
        yield* Fiber.interrupt(fiber)
        assert.deepStrictEqual(files(), [])
        body.destroy()
      })
    )
  )
})
