// The entries of the chat: stored messages and the turns of this tab, merged into one list.

import { recalledOf } from "./recalled.js";
import { dayOf, describeError, describeReason, formatDayHead, nameOf, range, textOf } from "./words.js";

const turnOf = (message) => message.beside?.metadata?.turn ?? null;

// Returns entries {key, kind, …}; the kind is "message", "divider" or "day". Only a writer may ask again.
export function entriesOf(conversation, turns, isWriting) {
  const entries = [];
  let day = null;
  for (const entry of messagesOf(conversation, turns, isWriting)) {
    const ms = entry.timeMs ?? null;
    if (ms !== null && dayOf(ms) !== day) {
      day = dayOf(ms);
      entries.push({ key: `day:${day}`, kind: "day", text: formatDayHead(ms) });
    }
    entries.push(entry);
  }
  return entries;
}

function messagesOf(conversation, turns, isWriting) {
  const entries = [];
  const stored = conversation.inOrder();
  const firstSeq = conversation.context?.first_seq ?? 1;
  const shownTurns = turns.of(conversation.sessionId).filter((turn) => !hasReply(stored, turn));
  const places = shownTurns.map((turn) => placeOf(conversation, turn));
  let isDivided = firstSeq === 1;
  for (const message of stored) {
    const isCovered = message.seq < firstSeq && !message.pinned;
    // Pinned messages stay above the divider, at their place among the covered ones.
    if (!isDivided && message.seq >= firstSeq) {
      entries.push(divider(conversation.context));
      isDivided = true;
    }
    const recalled = message.message.role === "assistant" ? recalledOf(message.beside?.metadata?.recalled, conversation) : null;
    entries.push({ ...storedEntry(message, isCovered, turns.get(turnOf(message)), isWriting), recalled });
    for (const turn of shownTurns.filter((_, at) => places[at] === message.seq)) {
      if (turn.phase !== "asking") entries.push(replyEntry(turn, conversation, isWriting));
    }
  }
  for (const turn of shownTurns.filter((_, at) => places[at] === null)) {
    if (turn.isOwn) entries.push(userEntry(turn));
    if (turn.phase === "running" || turn.phase === "ended") entries.push(replyEntry(turn, conversation, isWriting));
  }
  return entries;
}

const isReplyOf = (message, turn) => message.seq === turn.end?.seq || (turn.id !== null && turnOf(message) === turn.id && message.message.role === "assistant");

const hasReply = (stored, turn) => stored.some((message) => isReplyOf(message, turn));

const isQuestionOf = (message, turn) => message.seq === turn.firstSeq || (turn.id !== null && turnOf(message) === turn.id && message.message.role === "user");

// True if the conversation shows the message that began the turn.
export const isAsked = (conversation, turn) => conversation.inOrder().some((message) => isQuestionOf(message, turn));

// Returns the seq of the last shown message of a turn, or null if the conversation does not show its message.
function placeOf(conversation, turn) {
  if (turn.lastSeq && conversation.messages.has(turn.lastSeq)) return turn.lastSeq;
  return conversation.inOrder().findLast((message) => isQuestionOf(message, turn))?.seq ?? null;
}

function divider(context) {
  const last = context.summaries.at(-1)?.last_seq ?? context.first_seq - 1;
  const first = context.summaries[0]?.first_seq ?? 1;
  const text = context.summaries.length
    ? `The model gets a summary of messages ${range(first, last)}`
    : `Messages ${range(1, last)} are not stored any more`;
  return { key: `divider:${last}`, kind: "divider", text };
}

const NO_NOTICES = [];
const withNotices = (notices) => ({ notices: notices ?? NO_NOTICES, noticesCount: notices?.length ?? 0 });

function storedEntry(message, isCovered, turn, isWriting) {
  const role = message.message.role ?? "";
  const id = turnOf(message);
  const reason = message.beside?.metadata?.incomplete;
  return {
    key: id ? `${id}:${role}` : `seq:${message.seq}`,
    kind: "message",
    role,
    who: nameOf(role),
    text: textOf(message.message),
    message: message.message,
    timeMs: message.stored_ms,
    seq: message.seq,
    isCovered,
    isPinned: message.pinned,
    state: "stored",
    turnId: id,
    ...withNotices(role === "assistant" ? turn?.notices : null),
    fault: reason ? `Incomplete: ${describeReason(reason)}.` : "",
    again: role === "assistant" && reason && isWriting ? "ask" : "",
  };
}

function userEntry(turn) {
  const isLost = turn.phase === "ended" && !turn.isStored;
  const word = isLost ? "Not stored in the memory." : "";
  return {
    key: `${turn.id}:user`,
    kind: "message",
    role: "user",
    who: nameOf("user"),
    text: turn.shown ?? turn.text,
    message: { role: "user", content: turn.shown ?? turn.text },
    timeMs: turn.sentMs,
    recalled: null,
    state: isLost ? "lost" : "sending",
    turnId: turn.id,
    ...withNotices(null),
    fault: turn.phase === "sending" ? "Not sent yet: the server is unreachable." : word,
    again: "",
  };
}

function replyEntry(turn, conversation, isWriting) {
  const isOver = turn.phase === "ended";
  const isLost = isOver && (Boolean(turn.error) || !turn.isStored);
  const isStoredText = turn.isReplaced && conversation.messages.has(turn.lastSeq);
  const text = isStoredText ? "" : turn.reply;
  let fault = "";
  if (turn.error) fault = describeError(turn.error);
  else if (isOver && turn.end.outcome !== "done") fault = `${text ? "Incomplete" : "No answer"}: ${describeReason(turn.end.reason)}.`;
  else if (isLost) fault = "Not stored in the memory.";
  return {
    key: `${turn.key}:assistant`,
    kind: "message",
    role: "assistant",
    who: nameOf("assistant"),
    text,
    message: { role: "assistant", content: text },
    timeMs: isOver ? turn.sentMs : null,
    state: isOver ? (isLost ? "lost" : "sending") : "streaming",
    turnId: turn.id,
    ...withNotices(turn.notices),
    recalled: recalledOf(turn.recalled, conversation),
    fault,
    again: isOver && isWriting ? retryOf(turn, conversation) : "",
  };
}

// Returns how a turn without a stored reply may be tried again: under its id, as a new one, or not.
function retryOf(turn, conversation) {
  const isStored = isAsked(conversation, turn);
  if (turn.end.seq || turn.id === null || !(turn.text || isStored)) return "";
  const isEndedForGood = turn.end.outcome === "stopped" || conversation.inOrder().at(-1)?.seq !== placeOf(conversation, turn);
  return isStored && isEndedForGood && !turn.error ? "ask" : "same";
}

// Returns the newest message as {id, text, ms} if it is the question of a turn and has no answer, or null.
export function unanswered(conversation) {
  const last = conversation.inOrder().at(-1);
  if (!last || last.message.role !== "user" || !turnOf(last)) return null;
  return { id: turnOf(last), text: textOf(last.message), ms: last.stored_ms };
}
