// The panel of one item: its fields, links, chain or mentions, and changes.

import { byId, el, show } from "./dom.js";
import { capitalize, formatCount, formatMoment, spaced } from "./words.js";

const STATUSES = ["backlog", "planned", "in_progress", "blocked", "completed", "cancelled"];
const TEXTS = { description: "Description", rationale: "Why", context: "Context" };
const LISTS = { alternatives: "Alternatives", consequences: "Consequences", aliases: "Also known as" };
const LINKS = { dependencies: "Needs", blocked_by: "Waits for", related_decisions: "Decisions", related_tasks: "Tasks" };

let drawn = "";

// `found` is {item, versions, links, chain} or {fault}; null if no item is open. `move(task, status)` is null if the
// user may not move tasks.
export function drawItem(found, { atMs, closeHref, hrefOfItem, move }) {
  const panel = byId("item");
  show(panel, found !== null);
  document.body.dataset.item = found === null ? "closed" : "open";
  // Redrawn only after a change, so that focus and scroll position survive.
  const now = JSON.stringify([found, atMs, closeHref, move !== null]);
  if (now === drawn) return;
  drawn = now;
  if (found === null) return panel.replaceChildren();
  const close = el("a", { class: "item-close", href: closeHref, "aria-label": "Close", text: "✕" });
  if (found.fault) {
    return panel.replaceChildren(el("div", { class: "item-head" }, el("h2", { id: "item-title", tabindex: "-1", text: "Nothing to show" }), close), el("p", { class: "word", text: found.fault }));
  }
  const { item } = found;
  return panel.replaceChildren(
    el("div", { class: "item-head" }, el("h2", { id: "item-title", tabindex: "-1", dir: "auto", text: item.title ?? item.name }), close),
    el("p", { class: "item-facts" }, ...makeChips(item)),
    ...(move && item.id.startsWith("t-") ? [makeMoveButtons(item, move)] : []),
    ...Object.entries(TEXTS).map(([name, word]) => item[name] && part(word, el("p", { class: "item-text", dir: "auto", text: item[name] }))).filter(Boolean),
    ...chainPart(found, hrefOfItem),
    ...Object.entries(LINKS).flatMap(([name, word]) => list(word, (item[name] ?? []).map((id) => makeLink(id, found.links, hrefOfItem)))),
    ...Object.entries(LISTS).flatMap(([name, word]) => list(word, (item[name] ?? []).map((text) => el("span", { dir: "auto", text })))),
    ...entityParts(item, found.links, hrefOfItem),
    ...list("Status", (item.history ?? []).toReversed().map(({ status, at, reason }) => line(capitalize(status), reason, formatMoment(Date.parse(at))))),
    ...versionsPart(found.versions, atMs),
  );
}

const part = (title, ...children) => el("section", {}, el("h3", { text: title }), ...children);

function list(title, children) {
  return children.length ? [part(title, el("ul", { class: "item-list" }, ...children.map((child) => el("li", {}, child))))] : [];
}

const line = (what, why, when) =>
  el("span", { class: "item-line" }, el("span", { dir: "auto", text: what }), why && el("span", { class: "item-why", dir: "auto", text: why }), el("span", { class: "item-when", text: when }));

function makeChips(item) {
  const texts = [item.status ?? item.type, item.priority, item.assignee, item.due_date && `due ${formatMoment(Date.parse(item.due_date))}`, ...item.tags.map((tag) => `#${tag}`)];
  return texts.filter(Boolean).map((text, at) => el("span", { class: at ? "chip" : `chip status-${text}`, dir: "auto", text: spaced(text) }));
}

// Buttons that move the task, for users who cannot drag.
function makeMoveButtons(task, move) {
  const targets = STATUSES.filter((status) => status !== task.status);
  if (task.status === "blocked") targets.unshift("unblocked");
  const button = (status) =>
    el("button", { type: "button", class: "quiet tiny", text: status === "unblocked" ? "Unblock" : capitalize(status), onclick: () => move(task, status) });
  return el("div", { class: "moves", role: "group", "aria-label": "Move to" }, el("span", { class: "word", "aria-hidden": "true", text: "Move to" }), ...targets.map(button));
}

function makeLink(id, links, hrefOfItem) {
  if (links[id] !== undefined) return el("a", { href: hrefOfItem(id), dir: "auto", text: links[id] });
  return el("span", { dir: "auto", text: id });
}

function chainPart({ item, chain }, hrefOfItem) {
  if (!chain || chain.length < 2) return [];
  const rows = chain.map((each) =>
    el(
      "li",
      {},
      el("a", { href: hrefOfItem(each.id), dir: "auto", "aria-current": each.id === item.id && "true", text: each.title }),
      el("span", { class: "item-when", text: `${each.status}, since ${formatMoment(Date.parse(each.valid_from))}` }),
    ),
  );
  return [part("Chain", el("ol", { class: "item-chain" }, ...rows))];
}

function entityParts(item, links, hrefOfItem) {
  if (item.mentions === undefined) return [];
  const properties = Object.entries(item.properties).map(([name, value]) => {
    const isHidden = item.hidden_properties.includes(name);
    const text = isHidden ? "hidden" : typeof value === "string" ? value : JSON.stringify(value);
    return el("div", {}, el("dt", { dir: "auto", text: name }), el("dd", { dir: "auto", class: isHidden ? "none" : "", text: text.slice(0, 2000) }));
  });
  const relations = item.relations.map(({ name, entity_id: id, outgoing }) =>
    el("span", {}, el("span", { class: "item-when", dir: "auto", text: outgoing ? `${name} → ` : `← ${name} ` }), makeLink(id, links, hrefOfItem)),
  );
  const mentions = item.mentions.toReversed().map(({ context, at, source }) => line(context || "(no text)", source && `in ${source}`, formatMoment(Date.parse(at))));
  const word = item.mention_count > mentions.length ? `Mentions (the last ${mentions.length} of ${formatCount(item.mention_count)})` : `Mentions (${mentions.length})`;
  const merged = item.merged_into ? [makeLink(item.merged_into, links, hrefOfItem)] : [];
  return [
    ...list("Merged into", merged),
    ...(properties.length ? [part("Properties", el("dl", { class: "item-properties" }, ...properties))] : []),
    ...list("Relations", relations),
    ...(mentions.length ? list(word, mentions) : [part(word, el("p", { class: "word", text: "Not mentioned yet." }))]),
  ];
}

// Lists the changes up to the chosen moment. A change that was entered late shows when it was written.
function versionsPart(versions, atMs) {
  const shownVersions = versions.filter(({ at }) => atMs === null || Date.parse(at) <= atMs).sort((a, b) => Date.parse(b.at) - Date.parse(a.at) || b.version - a.version);
  const rows = shownVersions.map(({ version, at, known_at: knownAt, fields, reason }) => {
    const isLate = Date.parse(knownAt) - Date.parse(at) > 60_000;
    const when = `${formatMoment(Date.parse(at))}${isLate ? `, written ${formatMoment(Date.parse(knownAt))}` : ""}`;
    return line(`${version === 1 ? "Created with" : "Changed"} ${fields.map(spaced).join(", ") || "nothing"}`, reason, when);
  });
  return list("Changes", rows);
}
