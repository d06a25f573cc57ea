// The entries of the chat: stored messages and the turns of this tab, merged into one list.

import { describeError, range, textOf } from "./words.js";

const WHO = { user: "User", assistant: "Assistant", system: "System", developer: "Developer", tool: "Tool" };
const JOINING_MS = 60_000;
const NOT_STORED = new Set(["memory_unavailable", "memory_full", "not_stored", "failed"]);

const turnOf = (message) => message.beside?.metadata?.turn ?? null;

// Returns entries {key, kind, …}; the kind is "message" or "divider". Only a writer may ask again.
export function entriesOf(conversation, turns, isWriting) {
  const entries = [];
  const stored = conversation.inOrder();
  const firstSeq = conversation.context?.first_seq ?? 1;
  const placed = new Set();
  let isDivided = firstSeq === 1;
  for (const message of stored) {
    const isCovered = message.seq < firstSeq && !message.pinned;
    // Pinned messages stay above the divider, at their place among the covered ones.
    if (!isDivided && message.seq >= firstSeq) {
      entries.push(divider(conversation.context));
      isDivided = true;
    }
    const turn = turns.get(turnOf(message));
    if (turn) placed.add(`${turn.id}:${message.message.role}`);
    entries.push(storedEntry(message, isCovered, turn, isWriting));
    if (turn && message.message.role === "user" && !hasReply(stored, turn.id)) {
      placed.add(`${turn.id}:assistant`);
      entries.push(replyEntry(turn, true));
    }
  }
  for (const turn of turns.of(conversation.sessionId)) {
    if (!placed.has(`${turn.id}:user`) && !placed.has(`${turn.id}:assistant`)) entries.push(userEntry(turn));
    if (!placed.has(`${turn.id}:assistant`)) entries.push(replyEntry(turn, false));
  }
  return entries;
}

const hasReply = (stored, id) => stored.some((each) => turnOf(each) === id && each.message.role === "assistant");

function divider(context) {
  const last = context.summaries.at(-1)?.last_seq ?? context.first_seq - 1;
  const first = context.summaries[0]?.first_seq ?? 1;
  const text = context.summaries.length
    ? `The model gets a summary of messages ${range(first, last)}`
    : `Messages ${range(1, last)} are not stored any more`;
  return { key: `divider:${last}`, kind: "divider", text };
}

function storedEntry(message, isCovered, turn, isWriting) {
  const role = message.message.role ?? "";
  const id = turnOf(message);
  const reason = message.beside?.metadata?.incomplete;
  return {
    key: id ? `${id}:${role}` : `seq:${message.seq}`,
    kind: "message",
    role,
    who: WHO[role] ?? (role || "Message"),
    text: textOf(message.message),
    message: message.message,
    timeMs: message.stored_ms,
    seq: message.seq,
    isCovered,
    isPinned: message.pinned,
    state: "stored",
    turnId: id,
    notices: role === "assistant" ? turn?.notices ?? [] : [],
    fault: reason ? `Incomplete: ${reason}.` : "",
    again: role === "assistant" && reason && isWriting ? "ask" : "",
  };
}

function userEntry(turn) {
  const isLostTurn = turn.phase === "ended" && isLost(turn);
  return {
    key: `${turn.id}:user`,
    kind: "message",
    role: "user",
    who: WHO.user,
    text: turn.shown ?? turn.text,
    message: { role: "user", content: turn.shown ?? turn.text },
    timeMs: turn.sentMs,
    state: isLostTurn ? "lost" : "sending",
    turnId: turn.id,
    notices: [],
    fault: isLostTurn ? "Not stored in the memory." : "",
    again: "",
  };
}

function replyEntry(turn, isUserStored) {
  const isOver = turn.phase === "ended";
  const lost = isOver && isLost(turn);
  let fault = "";
  if (turn.error) fault = describeError(turn.error);
  else if (isOver && !turn.end.complete) fault = turn.reply ? `Incomplete: ${turn.end.reason}.` : `No answer: ${turn.end.reason}.`;
  else if (lost) fault = "Not stored in the memory.";
  const mayRetry = isOver && !turn.end.seq && (turn.text !== "" || isUserStored);
  return {
    key: `${turn.id}:assistant`,
    kind: "message",
    role: "assistant",
    who: WHO.assistant,
    text: turn.reply,
    message: { role: "assistant", content: turn.reply },
    timeMs: isOver ? turn.sentMs : null,
    state: isOver ? (lost ? "lost" : "sending") : "streaming",
    turnId: turn.id,
    notices: turn.notices,
    fault,
    again: mayRetry ? "same" : "",
  };
}

// True if a turn has failed or ended without being stored.
function isLost(turn) {
  return Boolean(turn.error) || turn.notices.some((notice) => NOT_STORED.has(notice.code)) || (turn.end && !turn.end.seq);
}

// Returns the newest message as {id, text, ms} if its user may still wait for the answer, or null.
export function unanswered(conversation) {
  const last = conversation.inOrder().at(-1);
  if (!last || last.message.role !== "user" || !turnOf(last)) return null;
  if (Date.now() - last.stored_ms > JOINING_MS) return null;
  return { id: turnOf(last), text: textOf(last.message), ms: last.stored_ms };
}
