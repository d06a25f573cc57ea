// The bar of tokens against a budget, which somebody may set here.

import { byId, el, keyed, setText, show } from "./dom.js";
import { counted } from "./words.js";

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

const sum = (messages) => messages.reduce((total, message) => total + message.tokens, 0);

export function drawTokens(parts, summaries, about) {
  redraw = () => drawTokens(parts, summaries, about);
  const budget = ownBudget() || about?.threshold_tokens || DEFAULT_TOKENS;
  const tokens = {
    summaries: summaries.reduce((total, summary) => total + summary.tokens, 0),
    pinned: sum(parts.pinned),
    pending: sum(parts.pending),
    recent: sum(parts.recent),
  };
  const total = NAMES.reduce((all, name) => all + tokens[name], 0);
  const whole = Math.max(budget, total);
  const bar = byId("tokens-bar");
  keyed(bar, [...NAMES, "free"], (name) => name, (name) => el("span", { class: `part part-${name}` }), (node, name) => {
    const share = name === "free" ? whole - total : tokens[name];
    show(node, share > 0);
    node.style.flexGrow = String(share);
  });
  bar.classList.toggle("over", total > budget);
  const said = NAMES.filter((name) => tokens[name]).map((name) => `${name} ${counted(tokens[name])}`);
  const sentence = `${counted(total)} of ${counted(budget)} tokens${said.length ? `: ${said.join(", ")}` : ""}`;
  if (bar.getAttribute("aria-label") !== sentence) bar.setAttribute("aria-label", sentence);
  setText(byId("tokens-count"), counted(total));
  setText(byId("tokens-word"), `of ${counted(budget)} tokens${total > budget ? `, ${counted(total - budget)} too many` : ""}`);
  keyed(byId("tokens-legend"), NAMES, (name) => name, (name) => el("li", {}, el("i", { class: `part-${name}` }), el("span")), (node, name) => {
    setText(node.lastElementChild, `${name} ${counted(tokens[name])}`);
    show(node, tokens[name] > 0);
  });
  if (document.activeElement !== byId("budget")) byId("budget").value = String(budget);
}
