import type { JsonObject } from "#domain/json.ts"
import { conversationFault } from "#layers/inference/wires/chat/parts.ts"
import type { ChatRequest, Turn } from "#layers/inference/wires/chat/request.ts"

/**
 * The turns of a request as messages that alternate. Neighbours of one role become one message: results of parallel calls
 * belong into one, before what the user adds. `blocksOf` makes the blocks of a turn; one that has none is left out.
 */
export const alternatingMessages = (
  request: ChatRequest,
  blocksOf: (turn: Turn) => ReadonlyArray<JsonObject>
): ReadonlyArray<JsonObject> => {
  const messages: Array<{ role: string; content: Array<JsonObject> }> = []
  for (const turn of request.turns) {
    const blocks = blocksOf(turn)
    if (blocks.length === 0) continue
    const role = turn.role === "assistant" ? "assistant" : "user"
    const last = messages.at(-1)
    if (last?.role === role) last.content.push(...blocks)
    else messages.push({ role, content: [...blocks] })
  }
  if (messages.length === 0) throw conversationFault("messages", "hold nothing but system messages.")
  return messages
}
