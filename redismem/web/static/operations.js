// The operations view: what is wrong, queues, speed of turns, processes, dead sessions and quarantine. All figures about
// the namespace are of one answer of the doctor, so that none contradicts another.

import { ask } from "./api.js";
import { drawBadge } from "./badge.js";
import { makeCards } from "./cards.js";
import { beginCheckup, findingOf, onChecked, setPace, whyUnknown } from "./checkup.js";
import { beginDead, drawDead } from "./dead.js";
import { beginDoctor, drawChecks, drawDoctor } from "./doctor.js";
import { byId, el, reconcile, setText, show } from "./dom.js";
import { tellHealth } from "./health.js";
import { makePlot } from "./plot.js";
import { beginQuarantine, drawQuarantine } from "./quarantine.js";
import { ago, describeError, formatCount, formatMs, formatSpan, plural } from "./words.js";

const LOOK_MS = 2_000;
const HISTORY_MS = 600_000;
const NOT_KNOWN = "Not known now";
const MEANINGS = {
  overdue: "Sessions whose older messages are due for a summary",
  leased: "Sessions that a worker is summarising; the lease expires if the worker dies",
  dead: "Sessions that could not be summarised; they keep all their messages",
  evictions: "Sessions that are about to be evicted",
};

export class Operations {
  constructor() {
    this._looking = 0;
    this._depths = [];
    this._plots = null;
    this._isOpen = false;
    this._mayOperate = false;
    this._checked = null;
    this._load = null;
  }

  // Begins to follow the doctor's findings, if the key may read them. Calls `tell()` after each answer.
  begin(about, tell) {
    this._mayOperate = about.scopes.includes("admin");
    setText(byId("operations-namespace"), `Namespace ${about.namespace}`);
    for (const part of byId("operations-view").children) show(part, this._mayOperate || part.id === "operations-head");
    if (!this._mayOperate) return setText(byId("operations-word"), "Your key cannot show operations: this needs the scope admin.");
    this._begin();
    onChecked(drawBadge);
    onChecked((checked) => this._onChecked(checked));
    onChecked(tell);
    return beginCheckup();
  }

  setOpen(isOpen) {
    this._isOpen = isOpen && this._mayOperate;
    clearInterval(this._looking);
    setPace(this._isOpen);
    if (!this._isOpen) return;
    this._lookAtLoad();
    this._looking = setInterval(() => document.hidden || this._lookAtLoad(), LOOK_MS);
    if (this._checked) this._onChecked(this._checked);
  }

  _begin() {
    makeCards(byId("operations-view"));
    const at = byId("plots");
    this._plots = {
      turns: makePlot(at, "Turns per second", { unit: "turns/s", format: (value) => `${value.toFixed(2)} turns/s` }),
      times: makePlot(at, "Time of a turn in the memory", { unit: "ms", format: formatMs }),
      queues: makePlot(at, "Queue depths", { unit: "sessions", format: (value) => plural(value, "session"), least: 1 }),
    };
    beginDead();
    beginDoctor();
    beginQuarantine();
    setText(byId("operations-word"), "Sessions and queues are those of this namespace. Turns and times are those of this server alone.");
  }

  _onChecked(checked) {
    this._checked = checked;
    this._remember(checked);
    if (!this._isOpen) return;
    const { document, error } = checked;
    const isAway = !error && findingOf(document, "connection")?.verdict === "fail";
    tellHealth(error ? (error.status ? "well" : "lost") : isAway ? "away" : "well");
    drawDoctor(checked);
    drawChecks(byId("queues-checks"), document, ["summaries", "providers"]);
    drawChecks(byId("processes-checks"), document, ["ticks"]);
    drawChecks(byId("dead-checks"), document, ["dead"]);
    drawChecks(byId("quarantine-checks"), document, ["quarantine"]);
    drawQueues(checked);
    drawProcesses(checked);
    drawDead(checked);
    drawQuarantine(checked);
    this._draw();
  }

  async _lookAtLoad() {
    try {
      this._load = { document: await ask("GET", "/v1/load") };
    } catch (error) {
      this._load = { error };
    }
    this._draw();
  }

  // The server keeps no history of its queues, so the page collects it.
  _remember({ document }) {
    const queues = document?.queues ?? null;
    const ms = document ? document.now_ms : Date.now();
    this._depths.push({ ms, overdue: queues?.queues.overdue.count ?? null, dead: queues?.queues.dead.count ?? null });
    this._depths = this._depths.filter((each) => each.ms > ms - HISTORY_MS);
  }

  _draw() {
    if (!this._checked || !this._load) return;
    drawTiles(this._load, this._checked);
    if (this._load.document) this._drawTurns(this._load.document);
    else for (const plot of [this._plots.turns, this._plots.times]) plot(null, NOT_KNOWN);
    this._drawDepths(this._checked);
  }

  _drawTurns({ slots, whole, now_ms: nowMs }) {
    const points = (pick) => slots.map((slot) => ({ ms: slot.end_ms, value: pick(slot) }));
    const perS = (slot) => (1000 * slot.turns_count) / Math.max(1, slot.took_ms);
    this._plots.turns([{ name: "turns", points: points(perS) }], `${perS(whole).toFixed(2)} on average, ${plural(whole.turns_count, "append")} in ${formatSpan(whole.took_ms)}`, nowMs);
    const times = [
      { name: "p50", points: points((slot) => slot.p50_ms) },
      { name: "p99", points: points((slot) => slot.p99_ms) },
    ];
    this._plots.times(times, `p50 ${formatMs(whole.p50_ms)}, p99 ${formatMs(whole.p99_ms)}`, nowMs);
  }

  _drawDepths(checked) {
    const depth = (name) => ({ name, points: this._depths.map((each) => ({ ms: each.ms, value: each[name] })) });
    const queues = checked.document?.queues?.queues;
    const text = queues ? `${formatCount(queues.overdue.count)} overdue, ${formatCount(queues.dead.count)} dead, since this page was opened` : NOT_KNOWN;
    this._plots.queues([depth("overdue"), depth("dead")], text, this._depths.at(-1).ms);
  }
}

const wordOfUnknown = (checked) => (checked.error ? describeError(checked.error) : whyUnknown(checked));

function drawTiles(load, checked) {
  const queues = checked.document?.queues ?? null;
  const whole = load.document?.whole ?? null;
  const perS = whole && ((1000 * whole.turns_count) / Math.max(1, whole.took_ms)).toFixed(2);
  const room = checked.document && findingOf(checked.document, "room");
  const over = queues?.over ? `, ${formatCount(queues.over)} too many` : "";
  const records = queues?.records ? `; ${plural(queues.records, "record")} of frameworks` : "";
  const tiles = [
    { name: "Sessions", value: queues && formatCount(queues.sessions), more: queues && `of ${formatCount(queues.max_sessions)}${over}${records}`, part: queues && queues.sessions / queues.max_sessions, kind: over ? "bad" : room?.verdict === "ok" ? "" : "warn" },
    { name: "Turns per second", value: perS, more: whole && `each append is one; ${formatCount(whole.failed_count)} failed`, kind: whole?.failed_count ? "warn" : "" },
    { name: "p50", value: whole && formatMs(whole.p50_ms), more: "half of the turns are faster" },
    { name: "p99", value: whole && formatMs(whole.p99_ms), more: "1 in 100 turns is slower" },
    { name: "Evictions", value: whole && formatCount(whole.evictions_count), more: whole && `by this server in ${formatSpan(whole.took_ms)}` },
    storeTile(load.document ?? null, checked),
  ];
  reconcile(byId("tiles"), tiles, (tile) => tile.name, makeTile, updateTile);
}

// The store answers if the doctor's connection says so, and this server's own calls do not fail.
function storeTile(load, { document }) {
  const connection = document && findingOf(document, "connection");
  if (!connection || !load) return { name: "Store", value: null, more: null };
  if (connection.verdict === "ok" && load.store === "closed") return { name: "Store", value: "answers", more: plural(load.streams_count, "open stream") };
  return { name: "Store", value: "away", more: load.away_since_ms ? `for ${formatSpan(load.now_ms - load.away_since_ms)}` : "it does not answer", kind: "bad" };
}

const makeTile = () =>
  el("li", { class: "tile" }, el("span", { class: "tile-name" }), el("strong"), el("span", { class: "tile-more" }), el("span", { class: "meter", "aria-hidden": "true" }, el("i")));

// A value of null is not known.
function updateTile(node, tile) {
  const [name, value, more, meter] = node.children;
  node.className = `tile ${tile.value === null ? "" : (tile.kind ?? "")}`.trim();
  setText(name, tile.name);
  setText(value, tile.value ?? "–");
  setText(more, tile.value === null ? "not known" : tile.more);
  show(meter, typeof tile.part === "number");
  if (typeof tile.part === "number") meter.firstElementChild.style.width = `${Math.min(100, 100 * tile.part)}%`;
}

function drawQueues(checked) {
  const queues = checked.document?.queues ?? null;
  const unknown = wordOfUnknown(checked);
  const word = queues?.degraded ? "A node of the cluster does not answer: its sessions are not counted." : unknown && `Not known: ${unknown}`;
  setText(byId("queues-word"), word);
  show(byId("queues-word"), word !== "");
  const makeRow = () => el("tr", {}, el("th", { scope: "row" }), el("td", { class: "number" }), el("td", { class: "number" }), el("td"));
  reconcile(byId("queues"), Object.keys(MEANINGS), (name) => name, makeRow, (node, name) => {
    const [first, count, lag, meaning] = node.children;
    const depth = queues?.queues[name] ?? null;
    setText(first, name);
    setText(count, depth ? formatCount(depth.count) : "–");
    const lagMs = depth && depth.first_ms !== null ? queues.now_ms - depth.first_ms : 0;
    setText(lag, lagMs > 0 ? formatSpan(lagMs) : "–");
    setText(meaning, MEANINGS[name]);
  });
}

function drawProcesses(checked) {
  const { document } = checked;
  const unknown = wordOfUnknown(checked);
  const processes = document?.processes ?? [];
  setText(byId("processes-count"), unknown ? "" : processes.length);
  // Without processes the finding above says it.
  const last = processes.length && document.ticked_ms ? `A worker last polled the queues ${ago(document.ticked_ms, document.now_ms)}.` : "";
  const word = unknown ? `Not known: ${unknown}` : document.queues.degraded ? "A node of the cluster does not answer, so processes may be missing." : last;
  setText(byId("processes-word"), word);
  show(byId("processes-word"), word !== "");
  reconcile(byId("processes"), processes, (each) => each.name, () => el("li", {}, el("strong"), el("span")), (node, each) => {
    const [name, works] = node.children;
    setText(name, each.name);
    const crowded = each.is_crowded ? "; more than it can do, so all processes help" : "";
    setText(works, each.works.length ? `polls for all: ${each.works.join(", ")}${crowded}` : "takes over if another one stops");
  });
}
