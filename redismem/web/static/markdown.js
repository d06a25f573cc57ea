// Markdown as nodes of the page: paragraphs, headings, lists, quotes, tables, code, emphasis and links. Built by DOM calls
// alone, so that no text becomes markup, and in linear time. What is not understood stays text.

import { RUN_CHARS, el } from "./dom.js";
import { columnsAt, rowsFrom } from "./tables.js";

const MOST_NODES = 2_000;
// A cell with more is broken into lines.
const SHORT_CHARS = 24;
// \x60 is a backtick.
const FENCE = /^ {0,3}(\x60{3,20}|~{3,20}) ?[\w+#.-]{0,40}$/;
// With s, the dot takes any rest of a line. Without it, a line separator behind n spaces would cost n² steps.
const HEADING = /^#{1,6} +(.*)$/s;
const ITEM = /^( {0,8})(?:[-*+]|(\d{1,9})[.)]) +(.*)$/s;
const QUOTE = /^ {0,3}> ?(.*)$/s;
const RULE = /^ {0,3}(?:(?:- *){3,}|(?:\* *){3,}|(?:_ *){3,})$/;
const MARK = /\x60+|\*{1,2}|_{1,2}|~~|\[[^[\]\n]{1,500}\]\([^()\s]{1,2000}\)|\\[\\\x60*_~[\]()#>+.!-]/g;
const TICK = "\x60";
const TAGS = { "**": "strong", __: "strong", "*": "em", _: "em", "~~": "s" };
const LINK = /^\[([^\]]*)\]\((.*)\)$/;

export function markdownOf(text) {
  const blocks = [];
  const budget = { left: MOST_NODES };
  const lines = text.split("\n");
  for (let at = 0; at < lines.length; ) {
    if (budget.left <= 0) return [...blocks, el("p", { text: lines.slice(at).join("\n") })];
    budget.left -= 1;
    const [node, next] = blockAt(lines, at, budget);
    if (node) blocks.push(node);
    at = next;
  }
  return blocks;
}

// Returns the block that begins at this line, or null for a blank line, and the place of the next one.
function blockAt(lines, at, budget) {
  const line = lines[at];
  if (line.trim() === "") return [null, at + 1];
  const fence = FENCE.exec(line);
  if (fence) return fenceAt(lines, at, fence[1]);
  const heading = HEADING.exec(line);
  // A message's headings are not those of the page.
  if (heading) return [el("p", { class: "md-heading" }, ...inline(heading[1].trim(), budget)), at + 1];
  if (RULE.test(line)) return [el("hr"), at + 1];
  if (ITEM.test(line)) return listAt(lines, at, budget);
  if (QUOTE.test(line)) {
    const [texts, next] = take(lines, at, (each) => QUOTE.exec(each)?.[1] ?? null);
    return [el("blockquote", {}, el("p", {}, ...inline(texts.join("\n"), budget))), next];
  }
  const columns = columnsAt(lines, at);
  if (columns) return tableAt(lines, at, columns, budget);
  const ends = (each, place) => each.trim() === "" || (place > at && (startsBlock(each) || columnsAt(lines, place) !== null));
  const [texts, next] = take(lines, at, (each, place) => (ends(each, place) ? null : each));
  return [el("p", {}, ...inline(texts.join("\n"), budget)), next];
}

const startsBlock = (line) => FENCE.test(line) || HEADING.test(line) || RULE.test(line) || ITEM.test(line) || QUOTE.test(line);

function take(lines, from, read) {
  const texts = [];
  let at = from;
  for (; at < lines.length; at += 1) {
    const text = read(lines[at], at);
    if (text === null) break;
    texts.push(text);
  }
  return [texts, at];
}

function fenceAt(lines, at, fence) {
  const [texts, end] = take(lines, at + 1, (line) => (line.trim().startsWith(fence) && line.trim().replaceAll(fence[0], "") === "" ? null : line));
  return [el("pre", {}, el("code", { text: texts.join("\n") })), end + 1];
}

// A wide table scrolls within its frame, also with the keyboard. Each cell counts, also a missing one.
function tableAt(lines, at, columns, budget) {
  const cellOf = (tag, row) => (side, column) => {
    const text = row[column] ?? "";
    const names = [side, text.length > SHORT_CHARS ? "md-long" : null].filter(Boolean).join(" ");
    // A head without a text heads nothing.
    return el(text ? tag : "td", { class: names || null }, ...inline(text, budget));
  };
  const [head, ...rows] = rowsFrom(lines, at, columns.length, budget, startsBlock);
  const body = rows.map((row) => el("tr", {}, ...columns.map(cellOf("td", row))));
  const table = el("table", {}, el("thead", {}, el("tr", {}, ...columns.map(cellOf("th", head)))), el("tbody", {}, ...body));
  return [el("div", { class: "md-table", tabindex: "0", role: "group", "aria-label": "Table" }, table), at + 2 + rows.length];
}

// Nested items are indented, each by its depth.
function listAt(lines, from, budget) {
  const isOrdered = ITEM.exec(lines[from])[2] !== undefined;
  const list = el(isOrdered ? "ol" : "ul", { start: isOrdered ? ITEM.exec(lines[from])[2] : null });
  budget.left += 1; // each item counts, the list does not
  let at = from;
  for (; at < lines.length; at += 1) {
    const item = ITEM.exec(lines[at]);
    if (!item || RULE.test(lines[at]) || budget.left <= 0) break;
    budget.left -= 1;
    const depth = Math.min(3, Math.floor(item[1].length / 2));
    if (depth === 0 && (item[2] !== undefined) !== isOrdered) break;
    list.append(el("li", { class: depth ? `md-deep-${depth}` : null }, ...inline(item[3], budget)));
  }
  return [list, at];
}

// Emphasis of each kind may be open once, so nothing nests deeper than there are kinds, and each text moves up at most
// that often.
function inline(text, budget) {
  const open = [{ mark: null, children: [] }];
  let run = 0;
  const add = (child) => {
    if (child === "") return;
    open.at(-1).children.push(child);
    run += (child.textContent ?? child).length;
    if (run <= RUN_CHARS) return;
    open.at(-1).children.push(el("wbr"));
    run = 0;
  };
  const ends = placesOfTicks(text);
  let from = 0;
  MARK.lastIndex = 0;
  const cut = (to, next) => {
    add(text.slice(from, to));
    from = next;
    MARK.lastIndex = next;
  };
  for (let found = MARK.exec(text); found && budget.left > 0; found = MARK.exec(text)) {
    const [mark] = found;
    const { index } = found;
    const after = index + mark.length;
    if (mark[0] === "\\") {
      cut(index, after);
      add(mark[1]);
    } else if (mark[0] === TICK) {
      const end = nextEnd(ends, mark.length, after);
      if (end === null) continue;
      cut(index, end + mark.length);
      add(el("code", { text: text.slice(after, end) }));
      budget.left -= 1;
    } else if (mark[0] === "[") {
      cut(index, after);
      linkOf(mark).forEach(add);
      budget.left -= 1;
    } else if (!isWordMark(text, index, mark)) {
      const place = open.findIndex((each) => each.mark === mark);
      const isAfterSpace = index === 0 || /\s/.test(text[index - 1]);
      const isBeforeSpace = after >= text.length || /\s/.test(text[after]);
      if (place > 0 && !isAfterSpace) {
        cut(index, after);
        while (open.length > place + 1) flatten(open);
        const { children } = open.pop();
        add(el(TAGS[mark], {}, ...children));
        budget.left -= 1;
      } else if (place < 0 && !isBeforeSpace) {
        cut(index, after);
        open.push({ mark, children: [] });
      }
    }
  }
  MARK.lastIndex = 0;
  add(text.slice(from));
  while (open.length > 1) flatten(open);
  return open[0].children;
}

// An emphasis without its end is text.
function flatten(open) {
  const { mark, children } = open.pop();
  const parent = open.at(-1).children;
  parent.push(mark);
  for (const child of children) parent.push(child);
}

// Underscores within a word, as in order_id, are no emphasis.
const isWordMark = (text, index, mark) => mark[0] === "_" && /\w/.test(text[index - 1] ?? "") && /\w/.test(text[index + mark.length] ?? "");

// Returns the places of the runs of backticks, by the length of the run.
function placesOfTicks(text) {
  const places = new Map();
  for (const { 0: run, index } of text.matchAll(/\x60+/g)) {
    if (!places.has(run.length)) places.set(run.length, { at: 0, places: [] });
    places.get(run.length).places.push(index);
  }
  return places;
}

function nextEnd(ends, length, from) {
  const runs = ends.get(length);
  while (runs.at < runs.places.length && runs.places[runs.at] < from) runs.at += 1;
  return runs.places[runs.at] ?? null;
}

// The host is shown beside a text that hides it.
function linkOf(mark) {
  const [, text, address] = LINK.exec(mark) ?? [null, mark, ""];
  const url = safeUrl(address);
  if (url === null) return [mark];
  const link = el("a", { href: url.href, target: "_blank", rel: "noopener noreferrer nofollow", text });
  const place = url.host || url.pathname;
  return text.includes(place) ? [link] : [link, el("span", { class: "md-host", text: ` (${place.slice(0, 100)})` })];
}

export function safeUrl(address) {
  if (!/^(https?:\/\/|mailto:)/i.test(address)) return null;
  try {
    return new URL(address);
  } catch {
    return null;
  }
}
