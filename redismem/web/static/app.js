// Connects the parts of the page: follows the address, opens views, and redraws when something changes.

import { readAbout } from "./about.js";
import { announce, beginFaults, tellFault } from "./announce.js";
import { ask, hasKey } from "./api.js";
import { clearConversation } from "./clearing.js";
import { beginComposer, drawComposer, focusComposer } from "./composer.js";
import { toolNames } from "./contents.js";
import { Conversation } from "./conversation.js";
import { Conversations } from "./conversations.js";
import { beginKeys } from "./dialogs.js";
import { byId, show } from "./dom.js";
import { entriesOf } from "./entries.js";
import { beginFinding, drawFinding } from "./finding.js";
import { Given } from "./given.js";
import { tellHealth } from "./health.js";
import { Operations } from "./operations.js";
import { beginPanes, showPane } from "./panes.js";
import { go, hrefOf, place } from "./place.js";
import { Projects } from "./projects.js";
import { Records } from "./records.js";
import { beginRequest, drawRequest, openRequest } from "./request.js";
import { askAnew, settle } from "./settling.js";
import { beginTheme } from "./theme.js";
import { beginThread, copy, draw, keepPlace, reveal, toEnd } from "./thread.js";
import { drawHead, drawNoHead, rename } from "./title.js";
import { beginTokens } from "./tokens.js";
import { Turns } from "./turns.js";
import { linkProject, nameWindow, showView } from "./views.js";
import { describeError } from "./words.js";
import { isWritten, writeIn } from "./writing.js";

const list = new Conversations(scheduleDraw);
const given = new Given();
const operations = new Operations();
const turns = new Turns(onTurnEvent);
const projects = new Projects(() => mayWrite());
const records = new Records(nameWindow, copy);
let about = null;
let conversation = null;
let drawing = 0;
// The seq of the message that the address names, until it is shown.
let wantedSeq = null;

const mayWrite = () => !about || about.scopes.includes("write");
// Other people's conversations are for reading, until the user asks to write.
const isWriting = () => mayWrite() && isWritten(conversation.sessionId);

const waitingFor = () => conversation.context?.state.waiting_for_param ?? null;

// Draws at most once per frame.
function scheduleDraw() {
  if (drawing) return;
  drawing = setTimeout(() => {
    drawing = 0;
    drawAll();
  }, 16);
}

function drawAll() {
  if (!conversation) return;
  const waiting = waitingFor();
  const entries = entriesOf(conversation, turns, isWriting());
  const names = toolNames(conversation.inOrder());
  draw(entries, { isLoaded: conversation.isLoaded, fault: conversation.fault, mayGoBack: conversation.earlier !== null, act, names });
  given.draw(conversation, about);
  drawRequest(conversation);
  drawFinding(conversation);
  const isSensitive = waiting !== null && (about?.sensitive_params ?? []).includes(waiting);
  const { sessionId } = conversation;
  const state = { isRunning: turns.running(sessionId) !== null, isBusy: turns.isBusy(sessionId), isAccepting: turns.isAccepting(sessionId) };
  drawComposer({ ...state, waitingFor: waiting, isSensitive, mayWrite: mayWrite(), isWriting: isWriting(), hasModel: !about || about.model !== null });
  drawHead(conversation, list.row(conversation.sessionId), conversation.exists && isWriting());
  byId("clear").disabled = !conversation.exists || !isWriting();
  byId("show-request").disabled = !conversation.exists;
  if (wantedSeq !== null && conversation.isLoaded) showMessage(wantedSeq);
}

// Shows a message of the conversation, after reading up to it. Resolves to its node, or to null after telling a fault.
async function showMessage(seq, options) {
  wantedSeq = null;
  const { sessionId } = conversation;
  try {
    await conversation.loadUntil(seq);
  } catch (error) {
    tellFault(describeError(error));
    return null;
  }
  if (conversation?.sessionId !== sessionId) return null;
  drawAll();
  const node = reveal(seq, options);
  if (!node) tellFault(`Message ${seq} is not stored here (any more).`);
  return node;
}

function showEarlier() {
  const load = () => conversation.loadDay().then(() => conversation && drawAll());
  return keepPlace(load).catch((error) => tellFault(describeError(error)));
}

function onTurnEvent(turn, event) {
  if (turn.sessionId !== conversation?.sessionId) {
    if (event !== "end") return;
    turn.isRead = true;
    if (turn.isStored) turns.forget(turn);
    return;
  }
  if (event === "stored" && !conversation.messages.has(turn.lastSeq)) conversation.refresh();
  if (event === "end") {
    if (turn.reply && !turn.isPast) announce(`Assistant: ${turn.reply}`);
    if (!turn.isPast) turn.notices.forEach((notice) => announce(notice.text));
    if (turn.error) announce(describeError(turn.error));
    conversation.refresh().then(() => {
      turn.isRead = true;
      if (turn.sessionId === conversation?.sessionId) settle(conversation, turns);
      scheduleDraw();
    });
    list.look();
  }
  scheduleDraw();
}

// Returns true if the message is accepted. Its refusal is told.
async function send(text) {
  if (!conversation || turns.isBusy(conversation.sessionId)) return false;
  const waiting = waitingFor();
  const isSensitive = waiting !== null && (about?.sensitive_params ?? []).includes(waiting);
  const sending = turns.send(conversation.sessionId, text, isSensitive ? `[${waiting}]` : null);
  drawAll();
  try {
    await sending;
    toEnd();
    return true;
  } catch (error) {
    if (error.name !== "AbortError") tellFault(describeError(error));
    return false;
  } finally {
    drawAll();
  }
}

function act(name, entry) {
  if (name === "copy") return copy(entry.text);
  const turn = turns.get(entry.turnId);
  if (entry.again === "ask" || !turn) {
    const question = conversation.inOrder().find((each) => each.message.role === "user" && each.beside?.metadata?.turn === entry.turnId);
    if (question) send(question.message.content);
    return null;
  }
  turns.again(turn);
  scheduleDraw();
  return focusComposer();
}

async function clear() {
  if (!(await clearConversation(conversation, turns))) return;
  await conversation?.refresh();
  list.look();
  focusComposer();
}

// Returns the id of a new conversation, or null after telling why there is none.
async function begin() {
  try {
    const { session_id: id } = await ask("POST", "/v1/sessions");
    writeIn(id);
    return id;
  } catch (error) {
    tellFault(describeError(error));
    return null;
  }
}

// Without the right to write, the page cannot begin a conversation and shows no chat.
function drawNothing() {
  tellHealth("well");
  drawNoHead();
  byId("clear").disabled = byId("show-request").disabled = true;
  show(byId("thread-skeleton"), false);
  show(byId("given-body"), false);
  drawComposer({ isRunning: false, isBusy: false, isAccepting: false, waitingFor: null, isSensitive: false, mayWrite: false });
}

function leaveConversation() {
  conversation?.close();
  if (conversation) turns.leave(conversation.sessionId);
  conversation = null;
  drawFinding(null);
}

function openConversation(sessionId) {
  leaveConversation();
  byId("to-chat").href = hrefOf(sessionId);
  byId("thread").replaceChildren();
  show(byId("given-body"), true);
  toEnd();
  conversation = new Conversation(
    sessionId,
    () => {
      if (conversation?.sessionId === sessionId && conversation.isLoaded) settle(conversation, turns);
      if (conversation?.sessionId === sessionId && conversation.isLoaded && !conversation.exists) list.forget(sessionId);
      scheduleDraw();
    },
    tellHealth,
  );
  turns.resume(sessionId);
  conversation.open();
  list.setCurrent(sessionId);
  scheduleDraw();
}

// Shows a conversation of a framework in the thread, instead of one of the memory itself.
function openRecord(record) {
  leaveConversation();
  list.setCurrent(null);
  records.open(record);
  showPane("chat");
}

async function followAddress() {
  const { view, sessionId, seq, project, record } = place();
  showView(view, sessionId);
  operations.setOpen(view === "operations");
  projects.show(view === "project" ? project : null);
  if (view !== "chat") return;
  if (record) {
    openRecord(record);
    return;
  }
  records.close();
  if (sessionId === null) {
    const id = mayWrite() ? await begin() : null;
    if (id !== null) go(id, { replace: true });
    else drawNothing();
    return;
  }
  if (conversation?.sessionId !== sessionId) openConversation(sessionId);
  showPane("chat");
  wantedSeq = seq;
  if (seq !== null) scheduleDraw();
}

async function start() {
  beginTheme();
  beginFaults();
  beginKeys();
  beginTokens();
  beginPanes();
  beginThread();
  beginRequest();
  beginFinding((seq) => showMessage(seq, { mayFocus: false }));
  beginComposer(send, () => turns.stop(conversation.sessionId).catch((error) => tellFault(describeError(error))));
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
  byId("write").addEventListener("click", () => {
    writeIn(conversation.sessionId);
    drawAll();
    focusComposer();
  });
  byId("show-request").addEventListener("click", () => openRequest(conversation));
  byId("rename").addEventListener("click", () => rename(conversation).then(() => list.look()));
  byId("copy-id").addEventListener("click", () => copy(records.current?.id ?? conversation.sessionId, "The id"));
  byId("earlier").addEventListener("click", showEarlier);
  byId("read-again").addEventListener("click", () => (conversation ?? records).refresh());
  tellHealth("connecting");
  show(byId("forget-key"), hasKey());
  window.addEventListener("hashchange", followAddress);
  // A browser has few connections per server: a hidden tab follows no turn.
  document.addEventListener("visibilitychange", () => {
    if (!conversation) return;
    if (document.hidden) turns.leave(conversation.sessionId);
    askAnew();
    if (!document.hidden) conversation.refresh();
    scheduleDraw();
  });
  about = await readAbout();
  if (about === null) return;
  linkProject(about.project);
  operations.begin(about, scheduleDraw);
  projects.begin();
  list.begin(about.owner).then(() => records.begin());
  await followAddress();
}

start();
