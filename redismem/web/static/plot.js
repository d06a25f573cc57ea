// Small plots over the last minutes: lines with two axes, and the values at a moment under the pointer or by the keys.

import { el } from "./dom.js";
import { spanTicks, valueTicks } from "./ticks.js";
import { formatClock } from "./words.js";

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 300;
const HEIGHT = 100;
const SHORTEST_MS = 60_000;
const LABEL_PX = 60;

function svg(tag, given, ...children) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(given)) node.setAttribute(name, String(value));
  node.append(...children);
  return node;
}

// Adds a card to `parent` and returns a function that redraws it. A series is {name, points: [{ms, value or null}]}.
// Without series, only the text changes.
// `unit` names the values of the vertical axis, `format` writes one with its unit, `least` is the smallest step.
export function makePlot(parent, title, { unit, format, least = 0 }) {
  const id = `plot-${title.toLowerCase().replace(/[^a-z]+/g, "-")}`;
  const plot = {
    format,
    least,
    word: el("p", { class: "plot-word" }),
    drawing: svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true", class: "plot" }),
    values: el("div", { class: "plot-values", "aria-hidden": "true" }),
    times: el("div", { class: "plot-times", "aria-hidden": "true" }),
    legend: el("ul", { class: "legend" }),
    mark: el("div", { class: "plot-mark", "aria-hidden": "true", hidden: true }),
    tip: el("p", { class: "plot-tip", hidden: true }),
    at: null,
    moments: [],
  };
  plot.place = el("div", { class: "plot-place", role: "slider", tabindex: "0", "aria-label": `${title}: values over time`, "aria-valuemin": "0", "aria-valuemax": "0", "aria-valuenow": "0", "aria-valuetext": "no values yet" }, plot.drawing, plot.mark, plot.tip);
  const axes = el("div", { class: "plot-axes" }, el("span", { class: "plot-unit", text: unit }), plot.values, plot.place, plot.times);
  parent.append(el("section", { class: "card plot-card", "aria-labelledby": id }, el("h2", { id, text: title }), plot.word, axes, plot.legend));
  listen(plot);
  return (series, text, nowMs) => redraw(plot, series, text, nowMs);
}

function listen(plot) {
  const { place } = plot;
  place.addEventListener("pointermove", (event) => {
    const box = place.getBoundingClientRect();
    const ms = plot.firstMs + (plot.nowMs - plot.firstMs) * ((event.clientX - box.left) / box.width);
    const distances = plot.moments.map((each) => Math.abs(each - ms));
    pick(plot, distances.indexOf(Math.min(...distances)));
  });
  place.addEventListener("pointerleave", () => document.activeElement === place || pick(plot, null));
  place.addEventListener("blur", () => pick(plot, null));
  place.addEventListener("focus", () => place.matches(":focus-visible") && plot.at === null && pick(plot, plot.moments.length - 1));
  place.addEventListener("keydown", (event) => {
    const last = plot.moments.length - 1;
    const now = plot.at ?? last;
    const next = { ArrowLeft: now - 1, ArrowDown: now - 1, ArrowRight: now + 1, ArrowUp: now + 1, PageDown: now - 10, PageUp: now + 10, Home: 0, End: last }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    pick(plot, Math.max(0, Math.min(last, next)));
  });
}

// Shows the values at the moment of this number; null shows none. The moment stays chosen while the plot moves on.
function pick(plot, at) {
  plot.at = at === null || at < 0 || !plot.moments.length ? null : at;
  plot.chosenMs = plot.at === null ? null : plot.moments[plot.at];
  drawPick(plot);
}

function drawPick(plot) {
  const isShown = plot.at !== null;
  plot.mark.hidden = plot.tip.hidden = !isShown;
  const last = plot.moments.length - 1;
  const at = plot.at ?? last;
  plot.place.setAttribute("aria-valuemax", Math.max(0, last));
  plot.place.setAttribute("aria-valuenow", Math.max(0, at));
  const ms = plot.moments[at];
  const text = ms === undefined ? "no values yet" : textAt(plot, ms);
  plot.place.setAttribute("aria-valuetext", text);
  if (!isShown) return;
  const part = (ms - plot.firstMs) / (plot.nowMs - plot.firstMs);
  plot.mark.style.insetInlineStart = `${100 * part}%`;
  plot.tip.textContent = text;
  plot.tip.classList.toggle("before", part > 0.5);
}

function textAt(plot, ms) {
  const values = plot.series.map(({ name, points }) => {
    const value = points.find((point) => point.ms === ms)?.value ?? null;
    return `${plot.series.length > 1 ? `${name} ` : ""}${value === null ? "no value" : plot.format(value)}`;
  });
  return `${formatClock(ms)}: ${values.join(", ")}`;
}

function redraw(plot, series, text, nowMs) {
  plot.word.textContent = text;
  if (series === null) return;
  const shownMs = nowMs - Math.min(nowMs - SHORTEST_MS, ...series.flatMap(({ points }) => points.slice(0, 1).map((point) => point.ms)));
  const { spanMs, ticks: ages } = spanTicks(shownMs);
  const firstMs = nowMs - spanMs;
  const values = series.flatMap(({ points }) => points.map((point) => point.value ?? 0));
  const ticks = valueTicks(Math.max(...values, 0), plot.least);
  const top = ticks.at(-1);
  Object.assign(plot, { series, firstMs, nowMs, moments: [...new Set(series.flatMap(({ points }) => points.map((point) => point.ms)))].filter((ms) => ms >= firstMs).sort((a, b) => a - b) });
  const runs = series.map(({ points }) => runsOf(points, top, firstMs, nowMs));
  plot.drawing.replaceChildren(
    ...ticks.map((tick) => svg("line", { x1: 0, y1: yOf(tick, top), x2: WIDTH, y2: yOf(tick, top), class: "plot-ground" })),
    ...ages.map((age) => svg("line", { x1: WIDTH * (1 - age / spanMs), y1: 0, x2: WIDTH * (1 - age / spanMs), y2: HEIGHT, class: "plot-ground" })),
    svg("path", { d: areaOf(runs[0]), class: "plot-area" }),
    ...runs.map((each, at) => svg("path", { d: pathOf(each), class: `plot-line plot-line-${at}` })),
    ...runs.map((each, at) => svg("path", { d: pathOf(each.filter((run) => run.length === 1)), class: `plot-dot plot-dot-${at}` })),
  );
  plot.values.replaceChildren(...ticks.map((tick) => placed(String(tick), "bottom", tick / top)));
  const every = plot.place.clientWidth < LABEL_PX * (ages.length - 1) ? 2 : 1;
  const labels = ages.map((age, at) => ((ages.length - 1 - at) % every ? "" : labelOf(age)));
  plot.times.replaceChildren(...ages.map((age, at) => placed(labels[at], "insetInlineStart", 1 - age / spanMs)));
  plot.legend.replaceChildren(...(series.length > 1 ? series.map(({ name }, at) => el("li", {}, el("i", { class: `plot-key-${at}` }), el("span", { text: name }))) : []));
  // The chosen moment stays; one that has left the plot gives way to the oldest.
  if (plot.at !== null) plot.at = Math.max(0, plot.moments.findIndex((ms) => ms >= plot.chosenMs));
  drawPick(plot);
}

const labelOf = (age) => (age === 0 ? "now" : `−${age % 60_000 ? `${age / 1_000} s` : `${age / 60_000} min`}`);

function placed(text, side, part) {
  const node = el("span", { text });
  node.style[side] = `${100 * part}%`;
  return node;
}

const yOf = (value, top) => HEIGHT * (1 - value / top);

// Returns the runs of values without a gap, each a list of [x, y]. A value of null makes a gap.
function runsOf(points, top, firstMs, nowMs) {
  const runs = [];
  let isDown = false;
  for (const { ms, value } of points) {
    const x = (WIDTH * (ms - firstMs)) / (nowMs - firstMs);
    const isShown = value !== null && x >= 0;
    if (isShown && !isDown) runs.push([]);
    if (isShown) runs.at(-1).push([x.toFixed(1), yOf(value, top).toFixed(1)]);
    isDown = isShown;
  }
  return runs;
}

const pathOf = (runs) => runs.map((run) => `M${run.join("L")}h0.01`).join("");

const areaOf = (runs) => runs.map((run) => `M${run[0][0]},${HEIGHT}L${run.join("L")}L${run.at(-1)[0]},${HEIGHT}Z`).join("");
