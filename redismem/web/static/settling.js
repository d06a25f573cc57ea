// Which turns of a conversation the page still shows beside its messages, and which one it follows.

import { isAsked, unanswered } from "./entries.js";

// The numbers of the conversation that last led to the question which turn runs.
let askedNumbers = null;

// Lets the next `settle` ask anew.
export function askAnew() {
  askedNumbers = null;
}

// Forgets the turns that the conversation shows without them, and follows the turn that runs. Of a message without an
// answer it asks how its turn ended.
export function settle(conversation, turns) {
  const { sessionId, messages, numbers } = conversation;
  for (const turn of turns.of(sessionId)) {
    if (turn.phase !== "ended" || !turn.isStored || !turn.isRead) continue;
    // A turn with notices stays as long as its reply, so that the notices show beside the reply.
    const isOnlyHere = turn.end.seq ? turn.notices.length > 0 && messages.has(turn.end.seq) : isAsked(conversation, turn);
    if (!isOnlyHere) turns.forget(turn);
  }
  if (document.hidden || turns.isBusy(sessionId)) return;
  const question = unanswered(conversation);
  const isKnown = question !== null && turns.knows(question.id);
  if (numbers?.turn !== "running") {
    if (question && !isKnown) turns.follow(sessionId, question, false);
  } else if (numbers !== askedNumbers) {
    askedNumbers = numbers;
    turns.follow(sessionId, isKnown ? null : question, true);
  }
}
