// Finding in the open conversation: the server looks through all its messages, and the page goes from hit to hit, or to
// the first message of a day.

import { tellFault } from "./announce.js";
import { ask, sessionPath } from "./api.js";
import { byId, setText, show } from "./dom.js";
import { mark, unmark } from "./marks.js";
import { describeError, formatCount } from "./words.js";

const TYPING_MS = 300;
const REQUESTS_COUNT = 20;

let conversation = null;
let showMessage = () => {};
let text = "";
// The hits, ascending, and the place of the one that is shown.
let seqs = [];
let at = -1;
let isWhole = true;
let fault = "";
let typing = 0;

// `showHit(seq)` loads and shows a message, without moving the focus; it resolves to its element, or to null.
export function beginFinding(showHit) {
  showMessage = showHit;
  const field = byId("find-text");
  byId("find-open").addEventListener("click", () => (byId("find").hidden ? open() : close()));
  byId("find-close").addEventListener("click", close);
  byId("find-older").addEventListener("click", () => step(-1));
  byId("find-newer").addEventListener("click", () => step(1));
  byId("find").addEventListener("submit", (event) => event.preventDefault());
  byId("find").addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || event.isComposing) return;
    event.preventDefault();
    event.stopPropagation(); // it stops no answer
    close();
  });
  field.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.isComposing) return;
    event.preventDefault();
    if (field.value.trim() === text) step(event.shiftKey ? 1 : -1);
    else search();
  });
  field.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(search, TYPING_MS);
  });
  byId("find-day").addEventListener("change", goToDay);
}

// Follows the open conversation; another one has other hits.
export function drawFinding(opened) {
  byId("find-open").disabled = !opened?.exists;
  if (opened !== conversation || !opened?.exists) {
    conversation = opened;
    if (!byId("find").hidden) close();
  }
}

function open() {
  show(byId("find"), true);
  byId("find-open").setAttribute("aria-expanded", "true");
  byId("find-text").focus();
}

function close() {
  const hadFocus = byId("find").contains(document.activeElement);
  show(byId("find"), false);
  byId("find-open").setAttribute("aria-expanded", "false");
  byId("find-text").value = byId("find-day").value = "";
  if (hadFocus) byId("find-open").focus();
  return search();
}

// Asks the server, newest messages first, until it has looked at all of them.
async function search() {
  clearTimeout(typing);
  text = byId("find-text").value.trim();
  [seqs, at, isWhole, fault] = [[], -1, text === "", ""];
  unmark();
  draw();
  const { sessionId } = conversation ?? {};
  const [wanted, asked] = [text, conversation];
  const isCurrent = () => wanted === text && asked === conversation;
  try {
    for (let before = null, read = 0; !isWhole && read < REQUESTS_COUNT; read += 1) {
      const found = await ask("POST", sessionPath(sessionId, "/find"), { body: { text: wanted, ...(before && { before }) } });
      if (!isCurrent()) return;
      before = found.before;
      isWhole = before === null;
      seqs = [...found.seqs, ...seqs];
      if (at >= 0) at += found.seqs.length;
      else if (seqs.length) goTo(seqs.length - 1);
      draw();
    }
  } catch (error) {
    if (!isCurrent()) return;
    fault = describeError(error);
    draw();
  }
}

function step(by) {
  if (seqs.length) goTo((at + by + seqs.length) % seqs.length);
}

async function goTo(place) {
  at = place;
  draw();
  const wanted = text;
  const node = await showMessage(seqs[place]);
  if (node && wanted === text && place === at) mark(node, wanted);
}

async function goToDay() {
  const startMs = Date.parse(`${byId("find-day").value}T00:00:00`);
  if (Number.isNaN(startMs)) return;
  try {
    const seq = await conversation.firstOfDay(startMs);
    if (seq === null) tellFault("No message of this day or a later one is stored.");
    else await showMessage(seq);
  } catch (error) {
    tellFault(describeError(error));
  }
}

function draw() {
  const count = `${formatCount(seqs.length)}${isWhole ? "" : "+"}`;
  const word = seqs.length ? `${formatCount(at + 1)} of ${count}` : isWhole ? "No hits" : "Searching…";
  setText(byId("find-word"), fault || (text ? word : ""));
  byId("find-older").disabled = byId("find-newer").disabled = seqs.length === 0;
}
