// The bar of used tokens, compared with a budget that the user can set.

import { byId, el, reconcile, setText, show } from "./dom.js";
import { formatCount } from "./words.js";

const KEY = "redismem.budget";
const DEFAULT_TOKENS = 4_000;
const NAMES = ["summaries", "pinned", "pending", "recent"];

let redraw = () => {};

const ownBudget = () => Number(localStorage.getItem(KEY)) || 0;

export function beginTokens() {
  byId("budget").addEventListener("change", () => {
    const tokens = Math.round(Number(byId("budget").value));
    if (tokens >= 1) localStorage.setItem(KEY, String(tokens));
    else localStorage.removeItem(KEY);
    redraw();
  });
}

// `parts` has the count and tokens of each part, as the server counts them.
export function drawTokens(parts, about) {
  redraw = () => drawTokens(parts, about);
  const budget = ownBudget() || about?.threshold_tokens || DEFAULT_TOKENS;
  const tokens = (name) => parts[name].tokens;
  const total = NAMES.reduce((all, name) => all + tokens(name), 0);
  const whole = Math.max(budget, total);
  const bar = byId("tokens-bar");
  reconcile(bar, [...NAMES, "free"], (name) => name, (name) => el("span", { class: `part part-${name}` }), (node, name) => {
    const share = name === "free" ? whole - total : tokens(name);
    show(node, share > 0);
    node.style.flexGrow = String(share);
  });
  bar.classList.toggle("over", total > budget);
  const shares = NAMES.filter((name) => tokens(name)).map((name) => `${name} ${formatCount(tokens(name))}`);
  const sentence = `${formatCount(total)} of ${formatCount(budget)} tokens${shares.length ? `: ${shares.join(", ")}` : ""}`;
  if (bar.getAttribute("aria-label") !== sentence) bar.setAttribute("aria-label", sentence);
  setText(byId("tokens-count"), formatCount(total));
  setText(byId("tokens-word"), `of ${formatCount(budget)} tokens${total > budget ? `, ${formatCount(total - budget)} too many` : ""}`);
  reconcile(byId("tokens-legend"), NAMES, (name) => name, (name) => el("li", {}, el("i", { class: `part-${name}` }), el("span")), (node, name) => {
    setText(node.lastElementChild, `${name} ${formatCount(tokens(name))}`);
    show(node, tokens(name) > 0);
  });
  if (document.activeElement !== byId("budget")) byId("budget").value = String(budget);
}
