// Puts the page together: where it is, what is open there, and who is told when something changes.

import { announce } from "./announce.js";
import { ask, hasKey } from "./api.js";
import { beginComposer, drawComposer, focusComposer } from "./composer.js";
import { Conversation } from "./conversation.js";
import { Conversations } from "./conversations.js";
import { beginKeys, confirmed } from "./dialogs.js";
import { byId, setText, show } from "./dom.js";
import { entriesOf, unanswered } from "./entries.js";
import { Given } from "./given.js";
import { tellHealth } from "./health.js";
import { Operations } from "./operations.js";
import { beginPanes, showPane } from "./panes.js";
import { go, hrefOf, hrefOfProject, place } from "./place.js";
import { Projects } from "./projects.js";
import { beginTheme } from "./theme.js";
import { beginThread, copy, draw, toEnd } from "./thread.js";
import { beginTokens } from "./tokens.js";
import { Turns } from "./turns.js";
import { many, shortId, wordsOf } from "./words.js";

const AGAIN_MS = 2_000;
const list = new Conversations();
const given = new Given();
const operations = new Operations();
const turns = new Turns(turned);
const projects = new Projects(() => mayWrite());
let about = null;
let conversation = null;
let drawing = 0;

const mayWrite = () => !about || about.scopes.includes("write");

// What the newest answer has said of it counts until the state is read anew.
function waitingFor() {
  const newest = turns.of(conversation.sessionId).at(-1);
  if (newest?.end && !newest.isRead) return newest.end.waiting_for;
  return conversation.context?.state.waiting_for_param ?? null;
}

// Draws once a frame at most, however much has changed.
function changed() {
  if (drawing) return;
  drawing = setTimeout(() => {
    drawing = 0;
    if (conversation) drawAll();
  }, 16);
}

function drawAll() {
  const waiting = waitingFor();
  const entries = entriesOf(conversation, turns);
  draw(entries, { isLoaded: conversation.isLoaded, mayGoBack: conversation.earlier !== null, act });
  given.draw(conversation, about);
  const isSensitive = waiting !== null && (about?.sensitive_params ?? []).includes(waiting);
  drawComposer({ isLive: turns.isLive(conversation.sessionId), waitingFor: waiting, isSensitive, mayWrite: mayWrite() });
  setText(byId("chat-title"), shortId(conversation.sessionId));
  byId("chat-title").title = conversation.sessionId;
  byId("clear").disabled = !conversation.exists || !mayWrite();
}

// What a stored message says needs no turn of this tab any more.
function settle() {
  const stored = new Set(conversation.inOrder().map((each) => `${each.beside?.metadata?.turn}:${each.message.role}`));
  for (const turn of turns.of(conversation.sessionId)) {
    if (!turn.end?.seq || !turn.isRead) continue;
    // One that was cleared meanwhile is gone; one with a notice stays, to show it beside what is stored.
    if (!stored.has(`${turn.id}:assistant`) || !turn.notices.length) turns.forget(turn.id);
  }
  const open = unanswered(conversation);
  if (open && mayWrite() && !turns.get(open.id)) turns.join(conversation.sessionId, open.id, open.text, open.ms);
}

function turned(turn, what) {
  if (turn.sessionId !== conversation?.sessionId) return;
  if (what === "end") {
    if (turn.reply) announce(`Assistant: ${turn.reply}`);
    turn.notices.forEach((notice) => announce(notice.text));
    if (turn.error) announce(wordsOf(turn.error));
    conversation.refresh().then(() => {
      turn.isRead = true;
      if (turn.sessionId === conversation.sessionId) settle();
      changed();
    });
    list.look();
  }
  changed();
}

function send(text) {
  if (!conversation) return false;
  const waiting = waitingFor();
  const isSensitive = waiting !== null && (about?.sensitive_params ?? []).includes(waiting);
  turns.send(conversation.sessionId, text, isSensitive ? `[${waiting}]` : null);
  drawAll();
  toEnd();
  return true;
}

function act(name, entry) {
  if (name === "copy") return copy(entry.text);
  const turn = turns.get(entry.turnId);
  if (entry.again === "ask" || !turn) {
    const asked = conversation.inOrder().find((each) => each.message.role === "user" && each.beside?.metadata?.turn === entry.turnId);
    if (asked) send(asked.message.content);
    return null;
  }
  turns.forget(turn.id);
  turns.again(turn);
  changed();
  return focusComposer();
}

async function clear() {
  const { context } = conversation;
  const params = Object.keys(context.state.params).filter((param) => param !== "asked");
  const lines = [
    `This removes ${many(context.total_messages, "message")}, ${many(context.summaries.length, "summary", "summaries")} and ` +
      `${many(params.length, "param")}${params.length ? ` (${params.join(", ")})` : ""} of ${conversation.sessionId}.`,
    "It is removed for everybody, and cannot be brought back.",
  ];
  if (!(await confirmed("Clear this conversation?", lines, "Clear it"))) return;
  try {
    turns.forgetAll(conversation.sessionId);
    await ask("POST", "/api/chat/clear", { body: { session_id: conversation.sessionId } });
    announce("The conversation is cleared.");
  } catch (error) {
    announce(wordsOf(error));
    setText(byId("composer-word"), wordsOf(error));
  }
  await conversation.refresh();
  list.look();
  focusComposer();
}

// The id of a new conversation; null if there cannot be one now, which is told.
async function begin() {
  try {
    return (await ask("POST", "/v1/sessions")).session_id;
  } catch (error) {
    announce(wordsOf(error));
    return null;
  }
}

// Whose key may only read has no new conversation to begin with.
function drawNothing() {
  tellHealth("well");
  setText(byId("chat-title"), "Choose a conversation");
  byId("clear").disabled = byId("copy-id").disabled = true;
  drawComposer({ isLive: false, waitingFor: null, isSensitive: false, mayWrite: false });
}

function openConversation(sessionId) {
  conversation?.close();
  byId("copy-id").disabled = false;
  byId("to-chat").href = hrefOf(sessionId);
  byId("thread").replaceChildren();
  toEnd();
  conversation = new Conversation(
    sessionId,
    () => {
      if (conversation?.sessionId === sessionId && conversation.isLoaded) settle();
      changed();
    },
    tellHealth,
  );
  turns.resume(sessionId);
  conversation.open();
  list.setCurrent(sessionId);
  changed();
}

async function moved() {
  const { view, sessionId, project } = place();
  document.body.dataset.view = view;
  show(byId("chat-view"), view === "chat");
  show(byId("project-view"), view === "project");
  show(byId("operations-view"), view === "operations");
  for (const name of ["chat", "project", "operations"]) {
    if (name === view) byId(`to-${name}`).setAttribute("aria-current", "page");
    else byId(`to-${name}`).removeAttribute("aria-current");
  }
  operations.setOpen(view === "operations");
  document.title = view === "operations" ? "Operations · redismem" : "redismem";
  projects.show(view === "project" ? project : null);
  if (view !== "chat") return;
  if (sessionId === null) {
    const id = mayWrite() ? await begin() : null;
    if (id !== null) go(id, { replace: true });
    else drawNothing();
    return;
  }
  if (conversation?.sessionId !== sessionId) openConversation(sessionId);
  showPane("chat");
}

// What the chat knows of is one click away.
function linkProject(name) {
  show(byId("chat-project"), name !== null);
  if (name === null) return;
  setText(byId("chat-project-link"), name);
  for (const id of ["chat-project-link", "to-project"]) byId(id).href = hrefOfProject({ name, part: "tasks" });
}

// Whose key may not even read sees nothing but why.
function refuse(error) {
  setText(byId("banner"), wordsOf(error));
  show(byId("banner"), true);
}

async function start() {
  beginTheme();
  beginKeys();
  beginTokens();
  beginPanes();
  beginThread();
  beginComposer(send, () => turns.stop(conversation.sessionId).catch((error) => announce(wordsOf(error))));
  byId("skip").addEventListener("click", (event) => {
    event.preventDefault();
    focusComposer();
  });
  byId("new").addEventListener("click", async () => {
    const id = await begin();
    if (id === null) return;
    go(id);
    showPane("chat");
    focusComposer();
  });
  byId("clear").addEventListener("click", clear);
  byId("copy-id").addEventListener("click", () => copy(conversation.sessionId, "The id"));
  byId("earlier").addEventListener("click", () => conversation.loadEarlier().catch((error) => announce(wordsOf(error))));
  tellHealth("connecting");
  show(byId("forget-key"), hasKey());
  window.addEventListener("hashchange", moved);
  while (about === null) {
    try {
      about = await ask("GET", "/v1/about");
    } catch (error) {
      if (error.status === 401) return;
      if (error.status === 403) return refuse(error);
      tellHealth(error.status ? "well" : "lost");
      await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
    }
  }
  setText(byId("identity"), `${about.namespace} · ${about.model ? about.model.name : "no model"}`);
  linkProject(about.project);
  projects.begin();
  list.begin();
  await moved();
}

start();
