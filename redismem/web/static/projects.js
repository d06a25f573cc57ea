// The project view: a task board, decisions with their chains, entities with their mentions, now or at a moment.

import { announce } from "./announce.js";
import { ask } from "./api.js";
import { describeRefusal, drawBoard, linkOfTask } from "./board.js";
import { beginCreating } from "./create.js";
import { askForText } from "./dialogs.js";
import { byId, el, reconcile, setText, show } from "./dom.js";
import { tellHealth } from "./health.js";
import { drawItem } from "./item.js";
import { beginMoving, isDragging } from "./moving.js";
import { PARTS, goTo, hrefOfProject } from "./place.js";
import { drawDecisions, drawEntities } from "./rows.js";
import { beginTimeline, drawTimeline } from "./timeline.js";
import { capitalize, describeError } from "./words.js";

const LOOK_MS = 5_000;
const MORE_COUNT = 100;
const MOST_COUNT = 1_000;
const PART_OF = { t: "tasks", d: "decisions", e: "entities" };
const NONE = { tasks: "No tasks.", decisions: "No decisions.", entities: "No entities." };
const QUESTIONS = {
  blocked: { member: "blocked_by", title: "What does the task wait for?", label: "Waits for", yes: "Block it", maxLength: 300 },
  cancelled: { member: "reason", title: "Why is the task cancelled?", label: "Reason", yes: "Cancel the task", maxLength: 1000 },
};

export class Projects {
  // `mayWrite()` returns true if the key has the scope write.
  constructor(mayWrite) {
    this._mayWrite = mayWrite;
    this._at = null;
    this._names = [];
    this._isRead = false;
    this._found = null;
    this._placed = null;
    this._fault = "";
    this._lost = "";
    this._turn = 0;
    this._looking = 0;
  }

  begin() {
    beginCreating();
    beginTimeline((atMs) => this._at?.name && goTo(hrefOfProject({ ...this._at, atMs }), { replace: true }));
    beginMoving({
      mayMove: () => this._mayMove(),
      step: (id, by) => this._step(id, by),
      isHeld: (id) => this._placed?.isHeld === true && this._placed.id === id,
      put: (id) => this._move(this._task(id), this._placed.to),
      back: () => this._back(),
      drop: (id, status) => this._move(this._task(id), status),
    });
    byId("project-names").addEventListener("change", () => goTo(hrefOfProject({ ...this._at, name: byId("project-names").value, itemId: null, atMs: null })));
    byId("more-items").addEventListener("click", () => {
      this._count += MORE_COUNT;
      this._look();
    });
    document.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || event.defaultPrevented || this._at === null || document.querySelector("dialog[open]")) return;
      if (this._at.atMs !== null) goTo(hrefOfProject({ ...this._at, atMs: null }), { replace: true });
      else if (this._at.itemId !== null) goTo(hrefOfProject({ ...this._at, itemId: null }));
    });
  }

  // Shows a place of a project. null closes the view.
  show(at) {
    clearInterval(this._looking);
    const before = this._at;
    this._at = at;
    this._turn += 1;
    if (at === null) return;
    this._placed = null;
    this._fault = "";
    if (before?.name !== at.name || before?.part !== at.part) {
      this._found = null;
      this._count = MORE_COUNT;
    }
    byId("to-project").href = hrefOfProject(at);
    this._look().then(() => this._focus(before, at));
    // The past does not change, so only the present is polled.
    if (at.atMs === null) this._looking = setInterval(() => document.hidden || this._placed || isDragging() || this._look(), LOOK_MS);
  }

  // Opening an item focuses its title; closing it returns the focus to its link.
  _focus(before, at) {
    if (!before || before.name !== at.name || before.itemId === at.itemId || this._at !== at) return;
    if (at.itemId !== null) byId("item").querySelector("h2")?.focus();
    else document.querySelector(`.project-part li[data-key="${CSS.escape(before.itemId)}"] a`)?.focus();
  }

  // Reads the project again. If several requests overlap, only the newest one counts.
  async _look() {
    const turn = ++this._turn;
    const at = this._at;
    try {
      const { projects } = await ask("GET", "/v1/projects");
      const found = at.name === null ? null : await this._read(at);
      if (turn !== this._turn) return;
      this._names = projects;
      this._isRead = true;
      this._found = found;
      this._lost = "";
      tellHealth("well");
    } catch (error) {
      if (turn !== this._turn) return;
      this._lost = describeError(error);
      if (error.status !== 401) tellHealth(error.status === 503 ? "away" : error.status ? "well" : "lost");
    }
    this._draw();
  }

  async _read({ name, part, itemId, atMs }) {
    const base = `/v1/projects/${encodeURIComponent(name)}`;
    const query = new URLSearchParams(atMs === null ? {} : { at: new Date(atMs).toISOString() });
    const listQuery = new URLSearchParams([...query, ["limit", Math.min(this._count, MOST_COUNT)]]);
    if (part === "decisions") listQuery.set("include_superseded", "true");
    const [life, items, item] = await Promise.all([
      ask("GET", base),
      ask("GET", `${base}/${part === "tasks" ? "board" : part}?${listQuery}`),
      itemId === null ? null : readItem(base, itemId, query),
    ]);
    return { life: life.first_at && { firstMs: Date.parse(life.first_at), lastMs: Date.parse(life.last_at) }, items, item };
  }

  _mayMove() {
    return this._mayWrite() && this._at?.atMs === null;
  }

  _task(id) {
    const items = this._found?.items.columns?.flatMap((column) => column.items) ?? [];
    return items.find((task) => task.id === id);
  }

  _step(id, by) {
    if (!this._mayMove()) return announce(this._at?.atMs === null ? "Your key can only read here." : "The past cannot be changed. Press Escape to return to the present.");
    if (this._placed && !this._placed.isHeld) return null;
    const statuses = this._found.items.columns.map((column) => column.status);
    const task = this._task(id);
    const from = this._placed?.id === id ? this._placed.to : task.status;
    const to = statuses[statuses.indexOf(from) + by];
    if (to === undefined) return announce(`${capitalize(from)} is the ${by < 0 ? "first" : "last"} column.`);
    this._place({ id, to, isHeld: true });
    const where = to === task.status ? "at its old place" : `over the column ${capitalize(to)}`;
    return announce(`“${task.title}” is ${where}. Press Enter to drop it, Escape to put it back.`);
  }

  _back() {
    if (!this._placed?.isHeld) return;
    const task = this._task(this._placed.id);
    const hadFocus = document.activeElement === linkOfTask(task.id);
    this._placed = null;
    this._draw();
    if (hadFocus) linkOfTask(task.id)?.focus();
    announce(`“${task.title}” is back in the column ${capitalize(task.status)}.`);
  }

  _place(placed) {
    this._placed = placed;
    this._draw();
    linkOfTask(placed.id)?.focus();
  }

  // Moves a task to a status, after asking for a reason where one is needed. A refused task returns to its place.
  async _move(task, to) {
    if (!task || task.status === to || !this._mayMove()) return this._back();
    const isOnBoard = this._at.part === "tasks" && to !== "unblocked";
    this._fault = "";
    if (isOnBoard) this._place({ id: task.id, to, isHeld: false });
    const outcome = await this._sendMove(task, to);
    this._placed = null;
    if (outcome.isRefused) this._fault = outcome.text;
    await this._look();
    if (outcome.isConflict) this._fault = `${outcome.text} ${this._wordOfNewest(task.id)}`;
    if (outcome.isRefused) this._draw();
    if (isOnBoard && document.activeElement === document.body) linkOfTask(task.id)?.focus();
    return announce(this._fault || outcome.text);
  }

  async _sendMove(task, to) {
    const question = QUESTIONS[to];
    const body = { status: to, expect: task.version };
    if (question) {
      body[question.member] = await askForText(`“${task.title}”: ${question.title}`, question.label, question.yes, question.maxLength);
      if (body[question.member] === null) return { text: `“${task.title}” stays in the column ${capitalize(task.status)}.` };
    }
    this._turn += 1;
    try {
      const path = `/v1/projects/${encodeURIComponent(this._at.name)}/tasks/${encodeURIComponent(task.id)}/status`;
      const changed = await ask("POST", path, { body });
      return { text: `“${task.title}” is now in the column ${capitalize(changed.status)}.` };
    } catch (error) {
      const isConflict = error.code === "conflict";
      if (error.problem?.before) return { isRefused: true, text: describeRefusal(task, error) };
      if (isConflict) return { isRefused: true, isConflict, text: `Another user has changed “${task.title}” meanwhile.` };
      return { isRefused: true, text: `“${task.title}” is back where it was. ${describeError(error)}` };
    }
  }

  _wordOfNewest(id) {
    const newest = this._task(id);
    return newest ? `It is now in the column ${capitalize(newest.status)}.` : "The board shows its present state.";
  }

  _draw() {
    const at = this._at;
    if (at === null) return;
    this._drawHead(at);
    setText(byId("project-fault"), this._fault || this._lost);
    show(byId("project-fault"), byId("project-fault").textContent !== "");
    const found = at.name === null ? null : this._found;
    drawTimeline(found?.life ?? null, at.atMs);
    const hrefOfItem = (id) => hrefOfProject({ ...at, part: PART_OF[id[0]], itemId: id });
    const context = { hrefOfItem, currentId: at.itemId };
    const items = found?.items.items ?? found?.items.columns?.flatMap((column) => column.items) ?? [];
    show(byId("board"), found !== null && at.part === "tasks");
    show(byId("rows"), found !== null && at.part !== "tasks");
    show(byId("board-hint"), found !== null && at.part === "tasks" && items.length > 0 && this._mayMove());
    setText(byId("part-word"), found && !items.length ? NONE[at.part] : "");
    show(byId("part-word"), byId("part-word").textContent !== "");
    if (found?.items.columns) {
      drawBoard(found.items.columns, { ...context, placed: this._placed, mayMove: this._mayMove(), nowMs: at.atMs ?? Date.now() });
    }
    if (found && at.part === "decisions") drawDecisions(items, context);
    if (found && at.part === "entities") drawEntities(items, context);
    const isMore = found?.items.columns?.some((column) => column.more) ?? Boolean(found?.items.cursor);
    show(byId("more-items"), isMore && this._count < MOST_COUNT);
    const move = this._mayMove() ? (task, status) => this._move(task, status) : null;
    drawItem(found?.item ?? null, { atMs: at.atMs, closeHref: hrefOfProject({ ...at, itemId: null }), hrefOfItem, move });
  }

  _drawHead(at) {
    setText(byId("project-title"), at.name ?? "Projects");
    document.title = `${at.name ?? "Projects"} · redismem`;
    show(byId("project-parts"), at.name !== null);
    for (const link of byId("project-parts").children) {
      const { part } = link.dataset;
      link.href = hrefOfProject({ ...at, part, itemId: null });
      if (part === at.part) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    const names = byId("project-names");
    const others = at.name === null || this._names.includes(at.name) ? this._names : [at.name, ...this._names];
    reconcile(names, others, (name) => name, (name) => el("option", { value: name, text: name }), () => {});
    show(names, at.name !== null && others.length > 1);
    if (at.name !== null) names.value = at.name;
    const isList = at.name === null;
    show(byId("project-list"), isList);
    show(byId("project-body"), !isList);
    reconcile(byId("project-list"), isList ? this._names : [], (name) => name, (name) => el("li", {}, el("a", { href: hrefOfProject({ name, part: PARTS[0] }), text: name })), () => {});
    const isEmpty = isList && this._isRead && !this._names.length && !this._lost;
    if (isEmpty) setText(byId("project-title"), "No projects yet");
    show(byId("new-project"), isEmpty && this._mayWrite());
  }
}

async function readItem(base, id, query) {
  const part = PART_OF[id[0]];
  const path = `${base}/${part}/${encodeURIComponent(id)}`;
  const isDecision = part === "decisions";
  try {
    const [item, { versions }, { links }, chain] = await Promise.all([
      ask("GET", `${path}?${query}`),
      ask("GET", `${path}/versions`),
      ask("GET", `${path}/links?${query}`),
      isDecision ? ask("GET", `${path}/chain?${query}`) : null,
    ]);
    return { item, versions, links, chain: chain?.items };
  } catch (error) {
    if (error.code === "not_found" || error.code === "invalid") return { fault: "This item does not exist, or did not exist at that time." };
    throw error;
  }
}
