// The operations view: what is wrong, queues, speed of turns, processes, and dead sessions.

import { ask } from "./api.js";
import { beginDead, drawDead } from "./dead.js";
import { beginDoctor, examine } from "./doctor.js";
import { byId, el, reconcile, setText } from "./dom.js";
import { tellHealth } from "./health.js";
import { makePlot } from "./plot.js";
import { describeError, formatCount, formatMs, formatSpan, plural } from "./words.js";

const LOOK_MS = 2_000;
const HISTORY_MS = 600_000;
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
  }

  setOpen(isOpen) {
    clearInterval(this._looking);
    if (!isOpen) return;
    this._begin();
    this._lookAtAll();
    this._looking = setInterval(() => document.hidden || this._lookAtAll(), LOOK_MS);
  }

  _begin() {
    if (this._plots) return;
    const at = byId("plots");
    this._plots = {
      turns: makePlot(at, "Turns per second", { format: (value) => value.toFixed(value < 10 ? 1 : 0) }),
      times: makePlot(at, "Time of a turn in the memory", { format: formatMs }),
      queues: makePlot(at, "Queue depths", { format: formatCount }),
    };
    beginDead(() => this._look());
    beginDoctor();
  }

  // The findings come on their own: they say what is wrong when nothing else can be read.
  _lookAtAll() {
    this._look();
    examine();
  }

  async _look() {
    try {
      const [load, queues, dead] = await Promise.all([ask("GET", "/v1/load"), ask("GET", "/v1/queues"), ask("GET", "/v1/dead?limit=50")]);
      tellHealth("well");
      this._remember(queues);
      drawTiles(load, queues);
      this._drawPlots(load, queues);
      drawQueues(queues);
      drawDead(dead, queues.queues.overdue.count);
      setText(byId("operations-word"), "Sessions and queues are from your namespace. Turns and times are from this server only.");
    } catch (error) {
      if (error.status === 403) clearInterval(this._looking);
      else if (error.status !== 401) tellHealth(error.status === 503 ? "away" : error.status ? "well" : "lost");
      const text = error.status === 403 ? "Your key cannot show operations: this needs the scope admin." : describeError(error);
      setText(byId("operations-word"), text);
    }
  }

  // The server keeps no history of its queues, so the page collects it.
  _remember({ now_ms: ms, queues }) {
    this._depths.push({ ms, overdue: queues.overdue.count, dead: queues.dead.count });
    this._depths = this._depths.filter((each) => each.ms > ms - HISTORY_MS);
  }

  _drawPlots(load, queues) {
    const { slots, whole, now_ms: nowMs } = load;
    const points = (pick) => slots.map((slot) => ({ ms: slot.end_ms, value: pick(slot) }));
    const perS = (slot) => (1000 * slot.turns_count) / Math.max(1, slot.took_ms);
    this._plots.turns([{ name: "turns", points: points(perS) }], `${perS(whole).toFixed(2)} on average, ${plural(whole.turns_count, "append")} in ${formatSpan(whole.took_ms)}`, nowMs);
    this._plots.times(
      [
        { name: "p50", points: points((slot) => slot.p50_ms) },
        { name: "p99", points: points((slot) => slot.p99_ms) },
      ],
      `p50 ${formatMs(whole.p50_ms)}, p99 ${formatMs(whole.p99_ms)}`,
      nowMs,
    );
    const depth = (name) => this._depths.map((each) => ({ ms: each.ms, value: each[name] }));
    this._plots.queues(
      [
        { name: "overdue", points: depth("overdue") },
        { name: "dead", points: depth("dead") },
      ],
      `${formatCount(queues.queues.overdue.count)} overdue, ${formatCount(queues.queues.dead.count)} dead, since this view was opened`,
      queues.now_ms,
    );
  }
}

function drawTiles(load, queues) {
  const { whole } = load;
  const fault = load.store === "closed" ? "" : "bad";
  const tiles = [
    { name: "Sessions", value: formatCount(queues.sessions), more: `of ${formatCount(queues.max_sessions)}${queues.over ? `, ${formatCount(queues.over)} too many` : ""}`, part: queues.sessions / queues.max_sessions, kind: queues.over ? "bad" : queues.sessions >= 0.8 * queues.max_sessions ? "warn" : "" },
    { name: "Turns per second", value: ((1000 * whole.turns_count) / Math.max(1, whole.took_ms)).toFixed(2), more: `each append is one; ${formatCount(whole.failed_count)} failed`, kind: whole.failed_count ? "warn" : "" },
    { name: "p50", value: formatMs(whole.p50_ms), more: "half of the turns are faster" },
    { name: "p99", value: formatMs(whole.p99_ms), more: "1 in 100 turns is slower" },
    { name: "Evictions", value: formatCount(whole.evictions_count), more: `by this server in ${formatSpan(whole.took_ms)}` },
    { name: "Store", value: load.store === "closed" ? "answers" : "away", more: load.away_since_ms ? `for ${formatSpan(load.now_ms - load.away_since_ms)}` : plural(load.streams_count, "open stream"), kind: fault },
  ];
  reconcile(byId("tiles"), tiles, (tile) => tile.name, makeTile, updateTile);
}

const makeTile = () =>
  el("li", { class: "tile" }, el("span", { class: "tile-name" }), el("strong"), el("span", { class: "tile-more" }), el("span", { class: "meter", "aria-hidden": "true" }, el("i")));

function updateTile(node, tile) {
  const [name, value, more, meter] = node.children;
  node.className = `tile ${tile.kind ?? ""}`.trim();
  setText(name, tile.name);
  setText(value, tile.value);
  setText(more, tile.more);
  meter.hidden = tile.part === undefined;
  if (tile.part !== undefined) meter.firstElementChild.style.width = `${Math.min(100, 100 * tile.part)}%`;
}

function drawQueues({ now_ms: nowMs, queues }) {
  const rows = Object.entries(queues).filter(([name]) => name !== "active");
  reconcile(byId("queues"), rows, ([name]) => name, () => el("tr", {}, el("th", { scope: "row" }), el("td", { class: "number" }), el("td", { class: "number" }), el("td")), (node, [name, depth]) => {
    const [first, count, lag, meaning] = node.children;
    setText(first, name);
    setText(count, formatCount(depth.count));
    const lagMs = depth.first_ms === null ? 0 : nowMs - depth.first_ms;
    setText(lag, depth.first_ms === null || lagMs <= 0 ? "–" : formatSpan(lagMs));
    setText(meaning, MEANINGS[name] ?? "");
  });
}
