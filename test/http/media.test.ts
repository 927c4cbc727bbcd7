/** Images, audio, moderation and rerank over HTTP: OpenAI's client unmodified, the books, and files of any size. */
import { createHash, randomBytes } from "node:crypto"
import { existsSync, readdirSync, readFileSync } from "node:fs"
import { request } from "node:http"
import { join } from "node:path"
import OpenAI, { toFile } from "openai"
import { afterAll, assert, beforeAll, describe, it } from "vitest"
import { type OpenDatabase, openDatabase, until } from "#test/support/acceptance.ts"
import { type Gateway, startGateway } from "#test/support/Gateway.ts"
import { answerJson, NativeStub } from "#test/support/NativeStub.ts"
import { UploadStub } from "#test/support/UploadStub.ts"

let gateway: Gateway
let database: OpenDatabase
let stub: UploadStub
let key: string
let keyId: string

beforeAll(async () => {
  database = await openDatabase()
  gateway = await startGateway({ databaseUrl: database.url })
  stub = await UploadStub.start()
  for (const [name, info] of [
    ["whisper", { cost_per_second: 0.0001 }],
    ["painter", { cost_per_image: 0.04 }],
    ["ranker", { cost_per_request: 0.002 }]
  ] as const) {
    const gateway_params = { model: `openai/${name}`, api_base: stub.url, api_key: "sk-upstream" }
    const reply = await gateway.admin("POST", "/model/new", { model_name: name, gateway_params, model_info: info })
    assert.strictEqual(reply.status, 201)
  }
  const sandbox = { model: "sandbox/image" }
  await gateway.admin("POST", "/model/new", {
    model_name: "priced-image",
    gateway_params: sandbox,
    model_info: { cost_per_image: 0.04 }
  })
  const speaker = { model_name: "speaker", gateway_params: { model: "sandbox/speech" } }
  await gateway.admin("POST", "/model/new", { ...speaker, model_info: { cost_per_second: 0.01 } })
  const made = await gateway.key({})
  key = made.key
  keyId = made.id
}, 90_000)

afterAll(async () => {
  await gateway.stop()
  await database.close()
  await stub.stop()
})

const openai = () => new OpenAI({ apiKey: key, baseURL: `${gateway.url}/v1`, maxRetries: 0 })

const spendOf = (model: string, rows = 1) =>
  until(
    () =>
      database.query<{ spend: string; images: number; seconds: number; status: string }>(
        `SELECT trim_scale(spend)::text AS spend, images, seconds, status FROM spend_logs
         WHERE key_id = $1::text::uuid AND model = $2 ORDER BY recorded_at DESC`,
        [keyId, model]
      ),
    (found) => found.length >= rows
  )

/** 0 where the system does not tell. */
const residentMiB = (): number => {
  const path = `/proc/${gateway.child.pid}/status`
  return existsSync(path) ? Number(/VmRSS:\s+(\d+)/.exec(readFileSync(path, "utf8"))?.[1]) / 1024 : 0
}

const spooled = () => readdirSync(join(gateway.dataDir, "uploads", "0"))

describe("OpenAI's client", () => {
  it("makes and edits images, charged by the image", async () => {
    const made = await openai().images.generate({ model: "priced-image", prompt: "A cat", n: 2, size: "256x256" })
    const png = Buffer.from(made.data?.[0]?.b64_json ?? "", "base64")
    assert.strictEqual(png.toString("latin1", 1, 4), "PNG")
    assert.strictEqual(png.readUInt32BE(16), 256)
    assert.deepInclude((await spendOf("priced-image"))[0], { spend: "0.08", images: 2 })
    const image = await toFile(png, "cat.png", { type: "image/png" })
    const edited = await openai().images.edit({ model: "priced-image", image, prompt: "A dog" })
    assert.strictEqual(edited.data?.length, 1)
    assert.deepInclude((await spendOf("priced-image", 2))[0], { spend: "0.04", images: 1 })
  })

  it("speaks and hears what it said", async () => {
    const spoken = await openai().audio.speech.create({
      model: "speaker",
      input: "One two three",
      voice: "alloy",
      response_format: "wav"
    })
    assert.strictEqual(spoken.headers.get("content-type"), "audio/wav")
    const wav = Buffer.from(await spoken.arrayBuffer())
    assert.strictEqual(wav.toString("latin1", 0, 4) + wav.toString("latin1", 8, 12), "RIFFWAVE")
    assert.deepInclude((await spendOf("speaker"))[0], { spend: "0.009", seconds: 0.9 })
    const heard = await openai().audio.transcriptions.create({
      model: "sandbox/transcribe",
      file: await toFile(wav, "a.wav"),
      response_format: "verbose_json"
    })
    assert.strictEqual(heard.text, "One two three")
    assert.strictEqual(heard.duration, 0.9)
  })

  it("speaks an MP3 where nothing else is asked for, which is heard again", async () => {
    const spoken = await openai().audio.speech.create({ model: "sandbox/speech", input: "One zwölf three", voice: "a" })
    assert.strictEqual(spoken.headers.get("content-type"), "audio/mpeg")
    const mp3 = Buffer.from(await spoken.arrayBuffer())
    assert.strictEqual(mp3.toString("latin1", 0, 3), "ID3")
    // Frame by frame to the end: MPEG 2, layer III, 36 bytes each.
    const sound = mp3.subarray(10 + mp3.readUInt8(9) + mp3.readUInt8(8) * 128)
    assert.strictEqual(sound.length % 36, 0)
    for (let at = 0; at < sound.length; at += 36) assert.strictEqual(sound.readUInt32BE(at), 0xff_f3_18_c0)
    const heard = await openai().audio.transcriptions.create({
      model: "sandbox/transcribe",
      file: await toFile(mp3, "a.mp3"),
      response_format: "verbose_json"
    })
    assert.strictEqual(heard.text, "One zwölf three")
    assert.strictEqual(heard.duration, 0.9)
  })

  it("names the type of speech by its format, audio/mpeg when none is asked for", async () => {
    for (const [format, type] of [
      [undefined, "audio/mpeg"],
      ["mp3", "audio/mpeg"],
      ["opus", "audio/opus"],
      ["flac", "audio/flac"],
      ["pcm", "audio/pcm"]
    ] as const) {
      const body = { model: "sandbox/speech", input: "Hi", voice: "a", ...(format ? { response_format: format } : {}) }
      const reply = await gateway.request("POST", "/v1/audio/speech", { token: key, body })
      assert.strictEqual(reply.headers.get("content-type"), type)
    }
  })

  it("moderates, with a default model and on both paths", async () => {
    const answer = await openai().moderations.create({ input: ["I love you", "I will kill you"] })
    assert.deepStrictEqual(
      answer.results.map(({ flagged }) => flagged),
      [false, true]
    )
    const alias = await gateway.request("POST", "/moderations", { token: key, body: { input: "fine" } })
    assert.strictEqual(alias.status, 200)
  })
})

describe("rerank", () => {
  const body = { query: "red apples", documents: ["Blue sky", { text: "Red apples are sweet" }, "An apple"], top_n: 2 }

  it("orders documents by BM25", async () => {
    const reply = await gateway.request("POST", "/v1/rerank", { token: key, body })
    const { meta, results } = reply.json as { meta: object; results: Array<{ index: number; relevance_score: number }> }
    assert.deepStrictEqual(
      results.map(({ index }) => index),
      [1, 0]
    )
    assert.isAbove(results[0]!.relevance_score, 0.3)
    assert.isObject(meta)
  })

  it("brings what Voyage answers into shape", async () => {
    const answer = { object: "list", data: [{ index: 0, relevance_score: 1 }], usage: { total_tokens: 9 } }
    const voyage = await NativeStub.start((_request, response) => answerJson(response, answer))
    await gateway.admin("POST", "/model/new", {
      model_name: "voyage",
      gateway_params: { model: "openai/rerank", api_base: voyage.url, api_key: "k" },
      model_info: { cost_per_request: 0.002, input_cost_per_token: 0 }
    })
    const reply = await gateway.request("POST", "/v1/rerank", { token: key, body: { ...body, model: "voyage" } })
    await voyage.stop()
    assert.deepStrictEqual((reply.json as { results: unknown }).results, [{ index: 0, relevance_score: 1 }])
    assert.strictEqual((await spendOf("voyage"))[0]?.spend, "0.002")
  })
})

describe("refusals", () => {
  const codeOf = (json: unknown) => {
    const { error } = json as { error: { code: string; param?: string } }
    return `${error.code} ${error.param ?? ""}`
  }

  it("name the field", async () => {
    const post = async (path: string, body: unknown) => {
      const reply = await gateway.request("POST", path, { token: key, body })
      assert.strictEqual(reply.status, 400)
      return codeOf(reply.json)
    }
    assert.strictEqual(await post("/v1/images/generations", { model: "painter" }), "missing_field prompt")
    assert.strictEqual(
      await post("/v1/images/generations", { prompt: "x", stream: true }),
      "unsupported_parameter stream"
    )
    assert.strictEqual(await post("/v1/audio/speech", { input: "x", speed: 9 }), "invalid_value speed")
    assert.strictEqual(await post("/v1/rerank", { query: "x" }), "missing_field documents")
    assert.strictEqual(await post("/v1/moderations", {}), "missing_field input")
    assert.strictEqual(await post("/v1/audio/transcriptions", {}), "invalid_value file")
  })

  it("of forms without a file, without an end, and of no form at all", async () => {
    const send = async (body: string, type = "multipart/form-data; boundary=x") => {
      const response = await fetch(`${gateway.url}/v1/audio/transcriptions`, {
        method: "POST",
        headers: { authorization: `Bearer ${key}`, "content-type": type },
        body
      })
      assert.strictEqual(response.status, 400)
      return codeOf(await response.json())
    }
    const field = '--x\r\nContent-Disposition: form-data; name="model"\r\n\r\nwhisper\r\n'
    assert.strictEqual(await send(`${field}--x--\r\n`), "missing_field file")
    assert.strictEqual(await send(field), "malformed_json ")
    assert.strictEqual(await send("nothing"), "malformed_json ")
    assert.strictEqual(await send("nothing", "multipart/form-data"), "malformed_json ")
    assert.deepStrictEqual(spooled(), [])
  })

  it("of a key without a request left before they are read, and counts a form once", async () => {
    const limited = await gateway.key({ rpm_limit: 2 })
    /** The answer to a form that never ends. */
    const endless = () =>
      new Promise<{ status: number | undefined; files: number }>((resolve, reject) => {
        const sent = request(`${gateway.url}/v1/audio/transcriptions`, {
          method: "POST",
          headers: { authorization: `Bearer ${limited.key}`, "content-type": "multipart/form-data; boundary=x" }
        })
        sent.on("response", (response) => {
          resolve({ status: response.statusCode, files: spooled().length })
          sent.destroy()
        })
        sent.on("error", reject)
        sent.write('--x\r\nContent-Disposition: form-data; name="file"; filename="a.mp3"\r\n\r\n')
        sent.write(Buffer.alloc(1024 * 1024))
      })
    const whole = new FormData()
    whole.append("model", "whisper")
    whole.append("file", new Blob(["sound"]), "a.mp3")
    const statuses: Array<number> = []
    for (let call = 0; call < 2; call += 1) {
      const response = await fetch(`${gateway.url}/v1/audio/transcriptions`, {
        method: "POST",
        headers: { authorization: `Bearer ${limited.key}` },
        body: whole
      })
      statuses.push(response.status)
      await response.text()
    }
    assert.deepStrictEqual(statuses, [200, 200])
    assert.deepStrictEqual(await endless(), { status: 429, files: 0 })
  })

  it("of more than 512 MiB before they are read", async () => {
    const status = await new Promise<number | undefined>((resolve, reject) => {
      const sent = request(`${gateway.url}/v1/audio/transcriptions`, {
        method: "POST",
        headers: {
          authorization: `Bearer ${key}`,
          "content-type": "multipart/form-data; boundary=x",
          "content-length": String(600 * 1024 * 1024)
        }
      })
      sent.on("response", (response) => {
        resolve(response.statusCode)
        sent.destroy()
      })
      sent.on("error", reject)
      sent.write("--x\r\n")
    })
    assert.strictEqual(status, 400)
  })
})

describe("files", () => {
  /** Sends a form of one file of `mebibytes`, made up as it goes; the model comes after the file. */
  const upload = (mebibytes: number, model: string) =>
    new Promise<{ status: number; text: string; digest: string }>((resolve, reject) => {
      const head =
        '--sep\r\nContent-Disposition: form-data; name="file"; filename="long \u00fc.mp3"\r\nContent-Type: audio/mpeg\r\n\r\n'
      const tail = `\r\n--sep\r\nContent-Disposition: form-data; name="model"\r\n\r\n${model}\r\n--sep--\r\n`
      const piece = randomBytes(1024 * 1024)
      const hash = createHash("sha256")
      const sent = request(
        `${gateway.url}/v1/audio/transcriptions`,
        {
          method: "POST",
          headers: { authorization: `Bearer ${key}`, "content-type": "multipart/form-data; boundary=sep" }
        },
        (response) => {
          let text = ""
          response.on("data", (chunk: Buffer) => (text += chunk.toString()))
          response.on("end", () => resolve({ status: response.statusCode ?? 0, text, digest: hash.digest("hex") }))
        }
      )
      sent.on("error", reject)
      sent.write(head)
      let left = mebibytes
      const more = () => {
        while (left > 0) {
          left -= 1
          hash.update(piece)
          if (!sent.write(piece)) return void sent.once("drain", more)
        }
        sent.end(tail)
      }
      more()
    })

  it("of 300 MiB pass through without staying in memory", { timeout: 120_000 }, async () => {
    await upload(1, "whisper")
    const before = residentMiB()
    let peak = before
    const watch = setInterval(() => (peak = Math.max(peak, residentMiB())), 20)
    const start = performance.now()
    const reply = await upload(300, "whisper")
    clearInterval(watch)
    console.log(
      `300 MiB: ${(performance.now() - start).toFixed(0)} ms, RSS ${before.toFixed(0)} MiB before, ${peak.toFixed(0)} MiB at most`
    )
    assert.strictEqual(reply.status, 200, reply.text)
    const form = stub.forms.at(-1)!
    assert.strictEqual(form.path, "/v1/audio/transcriptions")
    assert.strictEqual(form.fields["model"], "whisper")
    assert.deepInclude(form.files[0], {
      field: "file",
      filename: "long ü.mp3",
      contentType: "audio/mpeg",
      size: 300 * 1024 * 1024,
      digest: reply.digest
    })
    assert.isBelow(peak - before, 150)
    await until(
      () => Promise.resolve(spooled()),
      (files) => files.length === 0
    )
    assert.deepInclude((await spendOf("whisper", 2))[0], { spend: "0.00125", seconds: 12.5, status: "success" })
  })

  it("are sent again, whole, when an upstream fails", async () => {
    const before = stub.forms.length
    stub.statuses.push(500, 503)
    const reply = await upload(3, "whisper")
    assert.strictEqual(reply.status, 200)
    const forms = stub.forms.slice(before)
    assert.strictEqual(forms.length, 3)
    assert.deepStrictEqual(
      forms.map((form) => form.files[0]?.digest),
      [reply.digest, reply.digest, reply.digest]
    )
  })

  it("that came as data URLs in JSON go out as a form", async () => {
    stub.answer = { created: 1, data: [{ b64_json: "AA==" }] }
    const image = `data:image/png;base64,${Buffer.from("not really").toString("base64")}`
    const body = { model: "painter", prompt: "A dog", image, n: 1 }
    const reply = await gateway.request("POST", "/v1/images/edits", { token: key, body })
    stub.answer = { text: "heard" }
    assert.strictEqual(reply.status, 200, reply.text)
    const form = stub.forms.at(-1)!
    assert.deepInclude(form.files[0], { field: "image", contentType: "image/png", size: 10 })
    assert.deepStrictEqual(form.fields, { model: "painter", prompt: "A dog", n: "1" })
    assert.deepInclude((await spendOf("painter"))[0], { spend: "0.04", images: 1 })
  })

  it("leave nothing behind when their sender goes away", async () => {
    await new Promise<void>((resolve) => {
      const sent = request(`${gateway.url}/v1/audio/transcriptions`, {
        method: "POST",
        headers: { authorization: `Bearer ${key}`, "content-type": "multipart/form-data; boundary=x" }
      })
      sent.on("error", () => resolve())
      sent.write('--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n')
      sent.write(
        randomBytes(512 * 1024),
        () =>
          void until(
            () => Promise.resolve(spooled()),
            (files) => files.length === 1
          ).then(() => sent.destroy())
      )
    })
    await until(
      () => Promise.resolve(spooled()),
      (files) => files.length === 0
    )
  })
})
