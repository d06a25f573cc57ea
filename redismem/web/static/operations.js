// The operations view: what waits, how fast turns are, and what has failed for good.

import { ask } from "./api.js";
import { beginDead, drawDead } from "./dead.js";
import { byId, el, keyed, setText } from "./dom.js";
import { tellHealth } from "./health.js";
import { makePlot } from "./plot.js";
import { counted, many, millis, span, wordsOf } from "./words.js";

const LOOK_MS = 2_000;
const HISTORY_MS = 600_000;
const MEANINGS = {
  overdue: "Sessions whose older messages are due for a summary",
  leased: "Sessions that a worker has in hand; it gives one back after its lease at the latest",
  dead: "Sessions that nobody could summarise; their messages are all there",
  evictions: "Sessions that are to be handed over and removed",
  active: "Sessions that are listed",
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
    this._look();
    this._looking = setInterval(() => document.hidden || this._look(), LOOK_MS);
  }

  _begin() {
    if (this._plots) return;
    const at = byId("plots");
    this._plots = {
      turns: makePlot(at, "Turns a second", { shown: (value) => value.toFixed(value < 10 ? 1 : 0) }),
      times: makePlot(at, "Time of a turn in the memory", { shown: millis }),
      queues: makePlot(at, "Queue depths", { shown: counted }),
    };
    beginDead(() => this._look());
  }

  async _look() {
    try {
      const [load, queues, dead] = await Promise.all([ask("GET", "/v1/load"), ask("GET", "/v1/queues"), ask("GET", "/v1/dead?limit=50")]);
      tellHealth("well");
      this._remember(queues);
      drawTiles(load, queues);
      this._drawPlots(load, queues);
      drawQueues(queues);
      drawDead(dead);
      setText(byId("operations-word"), "Sessions and queues are those of your namespace. Turns and times are those of this one server.");
    } catch (error) {
      if (error.status === 403) clearInterval(this._looking);
      else if (error.status !== 401) tellHealth(error.status === 503 ? "away" : error.status ? "well" : "lost");
      const text = error.status === 403 ? "Your key may not look at operations: this needs the scope admin." : wordsOf(error);
      setText(byId("operations-word"), text);
    }
  }

  // The server has no past of its queues: what this page has seen of it is drawn.
  _remember({ now_ms: ms, queues }) {
    this._depths.push({ ms, overdue: queues.overdue.count, dead: queues.dead.count });
    this._depths = this._depths.filter((each) => each.ms > ms - HISTORY_MS);
  }

  _drawPlots(load, queues) {
    const { slots, whole, now_ms: nowMs } = load;
    const points = (pick) => slots.map((slot) => ({ ms: slot.end_ms, value: pick(slot) }));
    const perS = (slot) => (1000 * slot.turns_count) / Math.max(1, slot.took_ms);
    this._plots.turns([{ name: "turns", points: points(perS) }], `${perS(whole).toFixed(2)} on average, ${many(whole.turns_count, "append")} in ${span(whole.took_ms)}`, nowMs);
    this._plots.times(
      [
        { name: "p50", points: points((slot) => slot.p50_ms) },
        { name: "p99", points: points((slot) => slot.p99_ms) },
      ],
      `p50 ${millis(whole.p50_ms)}, p99 ${millis(whole.p99_ms)}`,
      nowMs,
    );
    const depth = (name) => this._depths.map((each) => ({ ms: each.ms, value: each[name] }));
    this._plots.queues(
      [
        { name: "overdue", points: depth("overdue") },
        { name: "dead", points: depth("dead") },
      ],
      `${counted(queues.queues.overdue.count)} overdue, ${counted(queues.queues.dead.count)} dead, since this view was opened`,
      queues.now_ms,
    );
  }
}

function drawTiles(load, queues) {
  const { whole } = load;
  const fault = load.store === "closed" ? "" : "bad";
  const tiles = [
    { name: "Sessions", value: counted(queues.sessions), more: `of ${counted(queues.max_sessions)}${queues.over ? `, ${counted(queues.over)} too many` : ""}`, part: queues.sessions / queues.max_sessions, kind: queues.over ? "bad" : "" },
    { name: "Turns a second", value: ((1000 * whole.turns_count) / Math.max(1, whole.took_ms)).toFixed(2), more: `each append is one; ${counted(whole.failed_count)} failed`, kind: whole.failed_count ? "warn" : "" },
    { name: "p50", value: millis(whole.p50_ms), more: "half of the turns are faster" },
    { name: "p99", value: millis(whole.p99_ms), more: "one in a hundred is slower" },
    { name: "Evictions", value: counted(whole.evictions_count), more: `by this server in ${span(whole.took_ms)}` },
    { name: "Store", value: load.store === "closed" ? "answers" : "away", more: load.away_since_ms ? `for ${span(load.now_ms - load.away_since_ms)}` : many(load.streams_count, "open stream"), kind: fault },
  ];
  keyed(byId("tiles"), tiles, (tile) => tile.name, makeTile, updateTile);
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
  keyed(byId("queues"), rows, ([name]) => name, () => el("tr", {}, el("th", { scope: "row" }), el("td", { class: "number" }), el("td", { class: "number" }), el("td")), (node, [name, depth]) => {
    const [first, count, lag, meaning] = node.children;
    setText(first, name);
    setText(count, counted(depth.count));
    const lagMs = depth.first_ms === null ? 0 : nowMs - depth.first_ms;
    setText(lag, depth.first_ms === null || lagMs <= 0 ? "–" : span(lagMs));
    setText(meaning, MEANINGS[name] ?? "");
  });
}
