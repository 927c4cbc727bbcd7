/** The upstream's names: a call answered whole, a stream of 20 chunks, and one of 20 chunks with 5 ms between them. */
export const models = {
  whole: "bench",
  stream: "bench?chunks=20",
  paced: "bench?chunks=20&delay=5",
  held: "bench?chunks=1200&delay=500"
} as const

export type Model = (typeof models)[keyof typeof models]

const prose =
  "The gateway receives the call, finds out who is calling, reserves what the call may cost, asks the guardrails, " +
  "chooses a deployment, passes the bytes on and writes down what became of it. "

/** A chat request body of 2 KB. */
export const chatBody = (model: Model): string => {
  const body = (filler: string) =>
    JSON.stringify({
      model,
      messages: [
        { role: "system", content: "You are a terse assistant of a benchmark. Answer in one sentence." },
        { role: "user", content: "What does a gateway do?" },
        { role: "assistant", content: "It stands between callers and models." },
        { role: "user", content: filler }
      ],
      temperature: 0.7,
      max_tokens: 256,
      ...(model === models.whole ? {} : { stream: true })
    })
  const room = 2_048 - body("").length
  return body(prose.repeat(Math.ceil(room / prose.length)).slice(0, room))
}

/** The bytes of a chat request, head and body. */
export const chatRequest = (port: number, headers: Readonly<Record<string, string>>, model: Model): string => {
  const body = chatBody(model)
  const lines = Object.entries({
    host: `127.0.0.1:${port}`,
    "content-type": "application/json",
    accept: "application/json",
    "user-agent": "sluice-bench",
    "content-length": String(Buffer.byteLength(body)),
    ...headers
  }).map(([name, value]) => `${name}: ${value}\r\n`)
  return `POST /v1/chat/completions HTTP/1.1\r\n${lines.join("")}\r\n${body}`
}
