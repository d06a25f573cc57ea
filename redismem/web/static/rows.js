// The lists of decisions, each with the ones it replaced, and of entities, each with its last mention.

import { byId, el, reconcile, setText, show } from "./dom.js";
import { formatDay, plural } from "./words.js";

// Groups decisions into chains: each decision that no other one has replaced, with its predecessors, newest first.
function chainsOf(decisions) {
  const byIdOf = new Map(decisions.map((each) => [each.id, each]));
  const heads = decisions.filter((each) => !byIdOf.has(each.superseded_by));
  return heads.map((head) => {
    const before = [];
    for (let at = byIdOf.get(head.supersedes); at; at = byIdOf.get(at.supersedes)) before.push(at);
    return { ...head, before };
  });
}

export function drawDecisions(decisions, context) {
  reconcile(byId("rows"), chainsOf(decisions), (each) => each.id, makeDecision, (node, each) => {
    const [link, before] = node.children;
    updateDecision(link, each, context);
    show(before, each.before.length > 0);
    reconcile(before, each.before, (old) => old.id, () => el("li", {}, decisionLink()), (row, old) => updateDecision(row.firstElementChild, old, context));
  });
}

const decisionLink = () => el("a", { class: "row" }, el("strong", { dir: "auto" }), el("span", { class: "chip" }), el("span", { class: "row-more" }));

const makeDecision = () => el("li", {}, decisionLink(), el("ol", { class: "chain", "aria-label": "Replaced decisions" }));

function updateDecision(link, decision, context) {
  const [title, status, more] = link.children;
  point(link, decision.id, context);
  setText(title, decision.title);
  setText(status, decision.status);
  status.className = `chip status-${decision.status}`;
  setText(more, `since ${formatDay(Date.parse(decision.valid_from))}${decision.valid_until ? ` until ${formatDay(Date.parse(decision.valid_until))}` : ""}`);
}

export function drawEntities(entities, context) {
  reconcile(byId("rows"), entities, (each) => each.id, makeEntity, (node, each) => {
    const link = node.firstElementChild;
    const [name, type, description, mention] = link.children;
    point(link, each.id, context);
    setText(name, each.name);
    setText(type, each.type);
    const last = each.mentions.at(-1);
    setText(description, each.description);
    show(description, each.description !== "");
    const text = last ? `${plural(each.mention_count, "mention")}, the last ${formatDay(Date.parse(last.at))}: ${last.context}` : "not mentioned yet";
    setText(mention, text);
  });
}

const makeEntity = () =>
  el(
    "li",
    {},
    el(
      "a",
      { class: "row" },
      el("strong", { dir: "auto" }),
      el("span", { class: "chip" }),
      el("span", { class: "row-text", dir: "auto" }),
      el("span", { class: "row-more", dir: "auto" }),
    ),
  );

function point(link, id, { hrefOfItem, currentId }) {
  link.href = hrefOfItem(id);
  if (id === currentId) link.setAttribute("aria-current", "true");
  else link.removeAttribute("aria-current");
}
