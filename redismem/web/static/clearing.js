// Clears a conversation, after the user has confirmed it.

import { announce } from "./announce.js";
import { ask } from "./api.js";
import { confirmAndAct } from "./dialogs.js";
import { plural } from "./words.js";

const CLEAR_MS = 30_000;

// Returns true if the conversation is cleared.
export async function clearConversation({ sessionId, context }, turns) {
  const params = Object.keys(context.state.params).filter((param) => param !== "asked");
  const unstoredCount = turns.of(sessionId).filter((turn) => turn.isOwn && !turn.isStored).length;
  const lines = [
    `This removes ${plural(context.total_messages, "message")}, ${plural(context.summaries.length, "summary", "summaries")} and ` +
      `${plural(params.length, "param")}${params.length ? ` (${params.join(", ")})` : ""} of ${sessionId}.`,
    ...(unstoredCount ? [`${plural(unstoredCount, "message")} of this tab that the memory has not stored will be removed too.`] : []),
    "This affects all users of the conversation and cannot be undone.",
  ];
  const isCleared = await confirmAndAct("Clear this conversation?", lines, "Clear it", async () => {
    await ask("POST", "/api/chat/clear", { body: { session_id: sessionId }, signal: AbortSignal.timeout(CLEAR_MS) });
    // Not earlier: messages that the memory has not stored exist in this tab only.
    turns.forgetAll(sessionId);
  });
  if (isCleared) announce("The conversation is cleared.");
  return isCleared;
}
