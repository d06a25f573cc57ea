// Decisions, each with those it came in the place of, and entities with what was said of them last.

import { byId, el, keyed, setText, show } from "./dom.js";
import { day, many } from "./words.js";

// The decisions that no other one of these has replaced, each with the ones before it, the newest first.
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
  keyed(byId("rows"), chainsOf(decisions), (each) => each.id, makeDecision, (node, each) => {
    const [link, before] = node.children;
    updateDecision(link, each, context);
    show(before, each.before.length > 0);
    keyed(before, each.before, (old) => old.id, () => el("li", {}, decisionLink()), (row, old) => updateDecision(row.firstElementChild, old, context));
  });
}

const decisionLink = () => el("a", { class: "row" }, el("strong", { dir: "auto" }), el("span", { class: "chip" }), el("span", { class: "row-more" }));

const makeDecision = () => el("li", {}, decisionLink(), el("ol", { class: "chain", "aria-label": "In the place of" }));

function updateDecision(link, decision, context) {
  const [title, status, more] = link.children;
  point(link, decision.id, context);
  setText(title, decision.title);
  setText(status, decision.status);
  status.className = `chip status-${decision.status}`;
  setText(more, `since ${day(Date.parse(decision.valid_from))}${decision.valid_until ? ` until ${day(Date.parse(decision.valid_until))}` : ""}`);
}

export function drawEntities(entities, context) {
  keyed(byId("rows"), entities, (each) => each.id, makeEntity, (node, each) => {
    const link = node.firstElementChild;
    const [name, type, description, said] = link.children;
    point(link, each.id, context);
    setText(name, each.name);
    setText(type, each.type);
    const last = each.mentions.at(-1);
    setText(description, each.description);
    show(description, each.description !== "");
    const spoken = last ? `${many(each.mention_count, "mention")}, the last ${day(Date.parse(last.at))}: ${last.context}` : "not mentioned yet";
    setText(said, spoken);
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
