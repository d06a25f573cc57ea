// The cards of the operations view below its plots: queues, processes, dead sessions and quarantine, without any figure.

import { el } from "./dom.js";

// Adds the cards to `parent`. Each begins with the doctor's findings about it, in its list `<name>-checks`.
export function makeCards(parent) {
  const columns = ["Queue", "Sessions", "Oldest waits for", "Meaning"].map((text) => el("th", { scope: "col", text }));
  const table = el("table", {}, el("thead", {}, el("tr", {}, ...columns)), el("tbody", { id: "queues" }));
  const retry = el("button", { id: "retry-all", class: "quiet small", type: "button", hidden: true, text: "Retry all" });
  const more = el("button", { id: "more-quarantined", class: "quiet small", type: "button", hidden: true, text: "Search on" });
  parent.append(
    card("queues", "Queues", [el("div", { class: "table-scroll", tabindex: "0", role: "group", "aria-labelledby": "queues-title" }, table)], { isCounted: false }),
    card("processes", "Processes with workers", [el("ul", { id: "processes", class: "processes" })]),
    card("dead", "Dead sessions", [el("ul", { id: "dead", class: "dead" })], { button: retry }),
    card("quarantine", "Quarantine", [el("ul", { id: "quarantine", class: "copies" }), more]),
  );
}

function card(name, title, content, { isCounted = true, button = null } = {}) {
  const heading = el("h2", { id: `${name}-title`, text: title }, isCounted && el("span", { id: `${name}-count`, class: "count" }));
  return el(
    "section",
    { class: "card", "aria-labelledby": `${name}-title` },
    el("div", { class: "card-head" }, heading, button),
    el("ul", { id: `${name}-checks`, class: "findings checks", "aria-labelledby": `${name}-title` }),
    el("p", { id: `${name}-word`, class: "word", hidden: true }),
    ...content,
  );
}
