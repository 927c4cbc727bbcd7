/** What Google's Gemini API answers, after its public reference. */
import { answerEvents, answerJson, type NativeAnswer } from "#test/support/NativeStub.ts"

export const geminiUsage = { promptTokenCount: 7, candidatesTokenCount: 5, thoughtsTokenCount: 3, totalTokenCount: 15 }

const answer = (text: string, more: object = {}) => ({
  candidates: [{ content: { parts: [{ text }], role: "model" }, index: 0, ...more }],
  modelVersion: "gemini-stub",
  responseId: "resp-stub"
})

/** The events of a text said in the given pieces. */
export const geminiEvents = (pieces: ReadonlyArray<string>): ReadonlyArray<string> =>
  pieces.map((piece, at) => {
    const last = at === pieces.length - 1
    const data = {
      ...answer(piece, last ? { finishReason: "STOP" } : {}),
      ...(last ? { usageMetadata: geminiUsage } : {})
    }
    return `data: ${JSON.stringify(data)}\r\n\r\n`
  })

export const geminiStub: NativeAnswer = (request, response) =>
  request.path.includes(":streamGenerateContent")
    ? answerEvents(response, geminiEvents(["Hello ", "from ", "Gemini."]))
    : answerJson(response, { ...answer("Hello from Gemini.", { finishReason: "STOP" }), usageMetadata: geminiUsage })
