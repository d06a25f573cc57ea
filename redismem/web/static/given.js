// The panel with the model's input: summaries, pinned, pending and recent messages, state, and token counts.

import { announce } from "./announce.js";
import { byId, el, reconcile, setText, show } from "./dom.js";
import { goTo, hrefOf } from "./place.js";
import { drawPolicy } from "./policy.js";
import { drawSick } from "./sick.js";
import { drawTokens } from "./tokens.js";
import { ago, formatCount, formatTime, plural, range, textOf } from "./words.js";

const ARRIVED_MS = 6_000;
const ASKED = "asked";
const drawn = new WeakMap();
const NOTHING = { count: 0, tokens: 0 };
const NO_PARTS = { summaries: NOTHING, pinned: NOTHING, pending: NOTHING, recent: NOTHING };

export class Given {
  constructor() {
    this._sessionId = null;
    this._epoch = null;
    this._knownIds = null;
    this._arrived = new Map();
  }

  // `about` has the limits of the window.
  draw(conversation, about) {
    byId("given-body").setAttribute("aria-busy", String(!conversation.isLoaded));
    drawSick(conversation, about?.scopes.includes("admin") ?? false);
    if (!conversation.isLoaded) return;
    const context = conversation.context;
    const summaries = context?.summaries ?? [];
    this._announceNew(conversation, summaries);
    const parts = context?.parts ?? NO_PARTS;
    const { pending, recent } = windowOf(conversation);
    const policy = conversation.numbers?.policy ?? null;
    const isWhole = policy?.keep_whole === true;
    drawTokens(parts, about);
    setText(byId("summaries-count"), summaries.length);
    reconcile(byId("summaries"), summaries, (summary) => summary.id, makeSummary, (node, summary) => {
      updateSummary(node, summary, context, this._arrived.has(summary.id));
    });
    const isDead = conversation.numbers?.queued === "dead";
    setText(byId("summaries-word"), summaries.length ? "" : isDead ? "None: it failed for good." : wordUntilSummary(parts, about, isWhole));
    drawLines("pinned", context?.pinned ?? [], parts.pinned.count, conversation.sessionId);
    drawLines("pending", pending, parts.pending.count, conversation.sessionId);
    drawLines("recent", recent, parts.recent.count, conversation.sessionId);
    show(byId("pinned-part"), parts.pinned.count > 0);
    show(byId("pending-part"), parts.pending.count > 0);
    setText(byId("pending-word"), wordOfPending(parts.pending.count - pending.length, isWhole, isDead));
    setText(byId("recent-word"), parts.recent.count ? "" : "Nothing yet.");
    drawPolicy(policy);
    drawState(context?.state ?? null);
  }

  // Highlights and announces the summaries that have swapped in since the last drawing.
  _announceNew(conversation, summaries) {
    const epoch = conversation.context?.epoch ?? null;
    const isSame = conversation.sessionId === this._sessionId && this._knownIds !== null && (epoch === this._epoch || !this._epoch);
    const knownIds = this._knownIds;
    this._knownIds = new Set(summaries.map((summary) => summary.id));
    this._sessionId = conversation.sessionId;
    this._epoch = epoch;
    if (!isSame) return;
    for (const summary of summaries.filter((each) => !knownIds.has(each.id))) {
      clearTimeout(this._arrived.get(summary.id));
      this._arrived.set(summary.id, setTimeout(() => this._unhighlight(summary.id), ARRIVED_MS));
      announce(`A summary now replaces messages ${range(summary.first_seq, summary.last_seq)}.`);
    }
  }

  _unhighlight(id) {
    this._arrived.delete(id);
    for (const node of byId("summaries").children) if (node.dataset.key === id) node.classList.remove("arrived");
  }
}

// Returns the messages of the window that this page has read, at least the newest ones.
function windowOf(conversation) {
  const context = conversation.context;
  if (!context) return { pending: [], recent: [] };
  const window = conversation.inOrder().filter((message) => !message.pinned && message.seq >= context.first_seq);
  return { pending: window.slice(0, -context.recent_limit), recent: window.slice(-context.recent_limit) };
}

function wordOfPending(unreadCount, isWhole, isDead) {
  const summarised = isDead ? "In full, because their summary failed for good." : "In full, until a summary replaces them.";
  const why = isWhole ? "In full, because this conversation is kept whole." : summarised;
  return unreadCount > 0 ? `${why} The ${plural(unreadCount, "earliest is", "earliest are")} not listed here: the chat shows earlier messages.` : why;
}

function wordUntilSummary(parts, about, isWhole) {
  if (!about) return "";
  if (isWhole) return "None: this conversation is kept whole.";
  const count = parts.pending.count + parts.recent.count;
  const left = about.threshold - count + 1;
  if (left <= 0) return "The older messages are waiting for a summary.";
  return `None yet: the older messages are due for a summary after ${plural(left, "more message")}.`;
}

function makeSummary() {
  const text = el("p", { class: "summary-text", dir: "auto" });
  const more = el("button", { class: "quiet tiny", type: "button", "aria-expanded": "false", text: "Show all" });
  more.addEventListener("click", () => {
    const isOpen = text.classList.toggle("whole");
    more.setAttribute("aria-expanded", String(isOpen));
    more.textContent = isOpen ? "Show less" : "Show all";
  });
  const head = el("p", { class: "summary-head" }, el("strong"), el("span", { class: "chip new-chip", text: "new" }));
  return el("li", { class: "summary" }, head, text, more, el("p", { class: "summary-more" }));
}

function updateSummary(node, summary, context, isNew) {
  node.classList.toggle("arrived", isNew);
  const [head, text, more, foot] = node.children;
  setText(head.firstElementChild, `Messages ${range(summary.first_seq, summary.last_seq)}`);
  setText(text, summary.text);
  show(more, summary.text.length > 220 || summary.text.split("\n").length > 4);
  const isLast = context.summaries.at(-1) === summary;
  const version = isLast && context.summary_version ? ` · version ${context.summary_version.slice(0, 12)}` : "";
  setText(foot, `${formatTime(summary.created_ms)}, ${ago(summary.created_ms)} · by ${summary.model} · ${plural(summary.tokens, "token")}${version}`);
}

// A line opens its message in the chat, also the second time.
function makeLine() {
  const link = el("a", { class: "line" }, el("span", { class: "line-seq" }), el("span", { class: "line-role" }), el("span", { class: "line-text", dir: "auto" }), el("span", { class: "line-tokens" }));
  link.addEventListener("click", (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    goTo(link.getAttribute("href"), { replace: true });
  });
  return el("li", {}, link);
}

function drawLines(name, messages, count, sessionId) {
  setText(byId(`${name}-count`), formatCount(count));
  reconcile(
    byId(name),
    messages,
    (message) => String(message.seq),
    makeLine,
    (node, message) => {
      if (drawn.get(node) === message) return;
      drawn.set(node, message);
      const [seq, role, text, tokens] = node.firstElementChild.children;
      node.firstElementChild.href = hrefOf(sessionId, message.seq);
      setText(seq, `#${message.seq}`);
      setText(role, message.message.role ?? "");
      setText(text, textOf(message.message).slice(0, 400));
      setText(tokens, formatCount(message.tokens));
      tokens.title = plural(message.tokens, "token");
    },
  );
}

function drawState(state) {
  const rows = [];
  if (state) {
    if (state.waiting_for_param !== null) rows.push({ name: "waiting for", value: state.waiting_for_param, kind: "waiting" });
    // Redis returns params in no order.
    for (const [name, value] of Object.entries(state.params).sort(([a], [b]) => (a < b ? -1 : 1))) {
      const isHidden = state.hidden_params.includes(name);
      if (isHidden && name === ASKED) continue;
      rows.push({ name, value: isHidden ? "hidden" : formatValue(value), kind: isHidden ? "hidden" : "param" });
    }
    for (const [name, word] of [["last_intent", "last intent"], ["last_result", "last result"], ["plan", "plan"]]) {
      if (state[name] !== null && state[name] !== undefined) rows.push({ name: word, value: formatValue(state[name]), kind: "other" });
    }
  }
  reconcile(byId("state"), rows, (row) => row.kind + row.name, () => el("div", {}, el("dt"), el("dd", { dir: "auto" })), (node, row) => {
    node.className = `state-${row.kind}`;
    setText(node.children[0], row.name);
    setText(node.children[1], row.value);
  });
  setText(byId("state-word"), rows.length ? "" : "Empty: no params, and the chat waits for none.");
}

const formatValue = (value) => (typeof value === "string" ? value : JSON.stringify(value)).slice(0, 2000);
