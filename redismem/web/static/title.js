// The head of the chat: title, owner and id of the open conversation. The title can be set.

import { ask, sessionPath } from "./api.js";
import { tellFault } from "./announce.js";
import { askForText } from "./dialogs.js";
import { byId, setText, show } from "./dom.js";
import { describeError, shortId, textOf } from "./words.js";

const MOST_BYTES = 64;
const FIRST_CHARS = 80;

// Draws the head. `row` is that of the list, if it has one: it knows the first message of a long conversation.
export function drawHead(conversation, row, mayRename) {
  const { sessionId, numbers } = conversation;
  const owner = numbers?.owner ?? row?.owner ?? "";
  setText(byId("chat-title"), titleOf(conversation, row));
  setText(byId("chat-owner"), owner);
  show(byId("chat-owner"), owner !== "");
  setText(byId("chat-id"), shortId(sessionId));
  byId("copy-id").title = sessionId;
  show(byId("copy-id"), true);
  byId("rename").disabled = !mayRename;
}

// Draws the head of no conversation.
export function drawNoHead() {
  setText(byId("chat-title"), "Choose a conversation");
  show(byId("chat-owner"), false);
  show(byId("copy-id"), false);
  byId("rename").disabled = true;
}

function titleOf(conversation, row) {
  const title = conversation.numbers?.title ?? row?.title ?? firstOf(conversation);
  if (title) return title;
  return conversation.isLoaded && !conversation.exists ? "New conversation" : "Conversation";
}

// Returns the beginning of the first message of a user, if the page has read it.
function firstOf(conversation) {
  if (conversation.earlier !== null) return "";
  const first = conversation.inOrder().find(({ message }) => message.role === "user" && textOf(message).trim());
  return first ? textOf(first.message).replace(/\s+/g, " ").trim().slice(0, FIRST_CHARS) : "";
}

const check = (title) => (new TextEncoder().encode(title).length > MOST_BYTES ? `A title has at most ${MOST_BYTES} bytes.` : "");

// Asks for a title and sets it. Without one, the beginning of the first message is the title again.
export async function rename(conversation) {
  const { sessionId, numbers } = conversation;
  const label = "Title; empty for the beginning of the first message";
  const options = { value: numbers?.title ?? "", no: "Cancel", isOptional: true, check };
  const title = await askForText("Rename this conversation", label, "Rename", MOST_BYTES, options);
  if (title === null) return;
  try {
    await ask("PATCH", sessionPath(sessionId, "/state"), { body: { title: title || null } });
  } catch (error) {
    tellFault(describeError(error));
  }
}
