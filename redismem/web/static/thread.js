// Draws the chat. Follows new messages only while it is scrolled to the end.

import { announce, tellFault } from "./announce.js";
import { drawBody } from "./body.js";
import { byId, el, reconcile, setText, show } from "./dom.js";
import { drawRecalled } from "./recalled.js";
import { describeError, formatTime } from "./words.js";

const NEAR_PX = 80;

let isAtEnd = true;

// `act(name, entry)` runs a button of an entry: "copy" or "again". `fault` is the error of a read, or null. `names` has
// the names of called tools.
export function draw(entries, { isLoaded, fault, mayGoBack, act, names }) {
  reconcile(byId("thread"), entries, (entry) => entry.key, (entry) => make(entry, act), (node, entry) => {
    const before = node.entry;
    node.entry = entry;
    // There may be thousands, of which a drawing changes one.
    if (!before || !isSame(before, entry)) update(node, entry, names);
  });
  show(byId("welcome"), isLoaded && entries.length === 0);
  show(byId("thread-skeleton"), !isLoaded && !fault && entries.length === 0);
  show(byId("thread-fault"), fault !== null);
  setText(byId("thread-fault-word"), fault ? describeError(fault) : "");
  show(byId("read-again"), fault?.code !== "bad_session_id");
  show(byId("earlier"), mayGoBack);
  if (isAtEnd) toEnd();
}

export function toEnd() {
  const scroll = byId("thread-scroll");
  scroll.scrollTop = scroll.scrollHeight;
  isAtEnd = true;
}

export function beginThread() {
  const scroll = byId("thread-scroll");
  scroll.addEventListener("scroll", () => {
    isAtEnd = scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < NEAR_PX;
  });
  // The composer below it grows and shrinks, and so do messages once they are laid out.
  const observer = new ResizeObserver(() => isAtEnd && toEnd());
  observer.observe(scroll);
  observer.observe(byId("thread"));
}

// Notices are added to a list that stays the same.
function isSame(before, entry) {
  return entry.noticesCount === before.noticesCount && Object.keys({ ...before, ...entry }).every((name) => before[name] === entry[name]);
}

function make(entry, act) {
  if (entry.kind !== "message") return el("li", { class: entry.kind }, el("span"));
  const node = el("li", { class: "entry", tabindex: "-1" });
  const button = (name, text, label) =>
    el("button", { class: `quiet tiny ${name}`, type: "button", "aria-label": label, text, onclick: () => act(name, node.entry) });
  node.append(
    el(
      "article",
      { class: "bubble" },
      el(
        "header",
        {},
        el("span", { class: "who" }),
        el("time"),
        el("span", { class: "seq" }),
        el("span", { class: "chip pinned-chip", text: "pinned", hidden: true }),
        button("copy", "Copy", "Copy this message"),
      ),
      el("div", { class: "body" }),
      el("p", { class: "typing", hidden: true }, el("span", { class: "unseen", text: "The answer is being written" }), dots()),
      el("ul", { class: "notices" }),
      el("footer", {}, el("span", { class: "fault" }), button("again", "Send again")),
    ),
  );
  return node;
}

const dots = () => el("span", { class: "dots", "aria-hidden": "true" }, el("i"), el("i"), el("i"));

function update(node, entry, names) {
  if (entry.kind !== "message") {
    setText(node.firstElementChild, entry.text);
    return;
  }
  const at = (selector) => node.querySelector(selector);
  node.className = `entry ${entry.role === "user" ? "mine" : "theirs"} ${entry.state} ${entry.isCovered ? "covered" : ""}`.trim();
  if (node.dataset.role !== entry.role) node.dataset.role = entry.role;
  if (entry.seq) node.dataset.seq = entry.seq;
  setText(at(".who"), entry.who);
  const time = at("time");
  setText(time, entry.timeMs ? formatTime(entry.timeMs) : "");
  if (entry.timeMs) {
    time.dateTime = new Date(entry.timeMs).toISOString();
    time.title = new Date(entry.timeMs).toLocaleString();
  }
  setText(at(".seq"), entry.seq ? `#${entry.seq}` : "");
  show(at(".pinned-chip"), entry.isPinned);
  drawBody(at(".body"), entry.message, names);
  show(at(".typing"), entry.state === "streaming");
  drawRecalled(at(".notices"), entry.recalled);
  reconcile(at(".notices"), entry.notices, (notice) => notice.code, () => el("li", { dir: "auto" }), (line, notice) => setText(line, notice.text));
  setText(at(".fault"), entry.fault);
  show(at(".copy"), entry.text !== "");
  const again = at(".again");
  show(again, entry.again !== "");
  setText(again, entry.again === "ask" ? "Ask again" : "Send again");
  show(at("footer"), entry.fault !== "" || entry.again !== "");
}

// Scrolls to a message, and focuses it unless told otherwise. Returns its node, or null if the thread does not show it.
export function reveal(seq, { mayFocus = true } = {}) {
  const node = byId("thread").querySelector(`.entry[data-seq="${seq}"]`);
  if (!node) return null;
  isAtEnd = false;
  node.scrollIntoView({ block: "center" });
  if (mayFocus) node.focus({ preventScroll: true });
  return node;
}

// Runs a change that adds messages above, and keeps the first message where it is.
export async function keepPlace(change) {
  const scroll = byId("thread-scroll");
  const first = byId("thread").querySelector(".entry");
  const topOf = () => first?.getBoundingClientRect().top ?? 0;
  const before = topOf();
  await change();
  scroll.scrollTop += topOf() - before;
}

export async function copy(text, what = "The message") {
  try {
    await navigator.clipboard.writeText(text);
    announce(`${what} is copied.`);
    return true;
  } catch {
    tellFault("Copying failed: the browser does not allow it here.");
    return false;
  }
}
