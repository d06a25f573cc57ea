// Small plots: SVG lines over the last minutes, with their numbers as text.

import { el } from "./dom.js";
import { ago } from "./words.js";

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 300;
const HEIGHT = 72;
const SHORTEST_MS = 60_000;

function svg(tag, given, ...children) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(given)) node.setAttribute(name, String(value));
  node.append(...children);
  return node;
}

// Adds a card to `parent` and returns a function that redraws it. A series is {name, points: [{ms, value or null}]}.
export function makePlot(parent, title, { format }) {
  const id = `plot-${title.toLowerCase().replace(/[^a-z]+/g, "-")}`;
  const word = el("p", { class: "plot-word" });
  const drawing = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true", class: "plot" });
  const most = el("span", { class: "plot-most" });
  const legend = el("ul", { class: "legend" });
  const since = el("span");
  const times = el("p", { class: "plot-times" }, since, el("span", { text: "now" }));
  parent.append(
    el("section", { class: "card plot-card", "aria-labelledby": id }, el("h2", { id, text: title }), word, el("div", { class: "plot-place" }, most, drawing), times, legend),
  );

  return (series, text, nowMs) => {
    word.textContent = text;
    const firstMs = Math.min(nowMs - SHORTEST_MS, ...series.flatMap(({ points }) => points.slice(0, 1).map((point) => point.ms)));
    since.textContent = ago(firstMs, nowMs);
    const values = series.flatMap(({ points }) => points.map((point) => point.value ?? 0));
    const top = Math.max(...values, 0) || 1;
    most.textContent = values.some((value) => value > 0) ? format(top) : "";
    drawing.replaceChildren(
      svg("line", { x1: 0, y1: HEIGHT - 1, x2: WIDTH, y2: HEIGHT - 1, class: "plot-ground" }),
      svg("path", { d: areaOf(series[0].points, top, firstMs, nowMs), class: "plot-area" }),
      ...series.map(({ points }, at) => svg("path", { d: pathOf(points, top, firstMs, nowMs), class: `plot-line plot-line-${at}` })),
    );
    legend.replaceChildren(...(series.length > 1 ? series.map(({ name }, at) => el("li", {}, el("i", { class: `plot-key-${at}` }), el("span", { text: name }))) : []));
  };
}

// Returns the area below the first line, which makes even a short line visible.
function areaOf(points, top, firstMs, nowMs) {
  const line = pathOf(points.filter((point) => point.value !== null), top, firstMs, nowMs);
  const [, firstX] = line.match(/^M([\d.]+)/) ?? [];
  const lastX = line.replaceAll("h0.01", "").match(/([\d.]+) [\d.]+$/)?.[1];
  return firstX === undefined ? "" : `${line.replaceAll("h0.01", "")}L${lastX} ${HEIGHT - 1}L${firstX} ${HEIGHT - 1}Z`;
}

// Returns the path of a line, with gaps where a value is null.
function pathOf(points, top, firstMs, nowMs) {
  let path = "";
  let isDown = false;
  for (const { ms, value } of points) {
    const x = (WIDTH * (ms - firstMs)) / (nowMs - firstMs);
    if (value === null || x < 0) {
      isDown = false;
      continue;
    }
    const y = HEIGHT - 2 - (HEIGHT - 8) * (value / top);
    path += `${isDown ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`;
    if (!isDown) path += "h0.01";
    isDown = true;
  }
  return path;
}
