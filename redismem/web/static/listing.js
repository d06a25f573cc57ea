// The rows of the list of conversations: title, preview, owner, id and time of the last use.

import { byId, el, reconcile, setText, show } from "./dom.js";
import { hrefOf } from "./place.js";
import { wordOfRow } from "./sick.js";
import { age, plural, shortId } from "./words.js";

const drawn = new WeakMap();

// Draws only the rows that have changed: there may be thousands.
export function drawRows(rows, currentId) {
  const nowMs = Date.now();
  reconcile(byId("conversation-list"), rows, (row) => row.session_id, () => makeRow(), (node, row) => {
    const state = [row, row.session_id === currentId, age(row.active_ms, nowMs), wordOfRow(row)];
    if (drawn.get(node)?.every((each, at) => each === state[at])) return;
    drawn.set(node, state);
    update(node.firstElementChild, ...state);
  });
}

// Makes an empty row of a list of conversations. The badges stand before the owner.
export const makeRow = (...badges) =>
  el(
    "li",
    {},
    el(
      "a",
      { class: "conversation" },
      el("span", { class: "conversation-head" }, el("span", { class: "conversation-title", dir: "auto" }), el("time")),
      el("span", { class: "conversation-text", dir: "auto" }),
      el("span", { class: "conversation-failing", hidden: true }),
      el("span", { class: "conversation-more" }, ...badges, el("span", { class: "conversation-owner", dir: "auto" }), el("span", { class: "conversation-id" })),
    ),
  );

function update(link, row, isCurrent, since, fault) {
  const at = (name) => link.querySelector(`.conversation-${name}`);
  if (isCurrent) link.setAttribute("aria-current", "page");
  else link.removeAttribute("aria-current");
  link.href = hrefOf(row.session_id, row.match?.seq);
  link.title = row.session_id;
  setText(at("title"), row.title ?? "No title");
  at("title").classList.toggle("none", row.title === null);
  const text = previewOf(row);
  setText(at("text"), text);
  show(at("text"), text !== "");
  setText(at("failing"), fault);
  show(at("failing"), fault !== "");
  setText(at("owner"), row.owner ?? "");
  show(at("owner"), row.owner !== null);
  setText(at("id"), shortId(row.session_id));
  const time = link.querySelector("time");
  time.dateTime = new Date(row.active_ms).toISOString();
  setText(time, since);
}

// Returns the message that a search has found, or else the last one, unless the title says the same.
function previewOf({ match, title, last_text: text, last_role: role }) {
  if (match) return match.text;
  if (text === title) return "";
  return role === "user" || !text ? text : `${role === "assistant" ? "Answer" : role ?? "Message"}: ${unmarked(text)}`;
}

// Returns a line of an answer without the marks of Markdown.
function unmarked(text) {
  return text.replace(/\*\*|\x60|^(?:#{1,6}|[-*>]) /g, "");
}

// Offers the owners of the rows to choose from.
export function offerOwners(rows) {
  const owners = [...new Set(rows.map((row) => row.owner).filter(Boolean))].sort().slice(0, 200);
  reconcile(byId("owners"), owners, (owner) => owner, (owner) => el("option", { value: owner }), () => {});
}

// Returns the words below the list. `conditions` are those of a search, or null.
export function wordOfRows({ length }, conditions, isWhole) {
  if (!conditions) return length ? "" : "No conversations yet. Send a message to begin one.";
  if (length) return `${plural(length, "conversation")} found${isWhole ? "." : " so far."}`;
  if (!isWhole) return "Nothing found in the newest conversations.";
  const isByName = conditions.name !== undefined;
  return isByName ? "No title, owner or id matches. Press Enter to open the conversation with exactly this id." : "No conversation matches.";
}
