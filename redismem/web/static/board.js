// The task board: one column per status. A task that is being moved is shown in its target column.

import { byId, el, reconcile, setText, show } from "./dom.js";
import { capitalize, formatDay, spaced } from "./words.js";

// `placed` is {id, to, isHeld}, a task that is being moved; null if no task is. `nowMs` decides which tasks are overdue.
export function drawBoard(columns, { placed, mayMove, hrefOfItem, currentId, nowMs }) {
  const board = byId("board");
  board.classList.toggle("still", !mayMove);
  const titles = new Map(columns.flatMap((column) => column.items).map((task) => [task.id, task.title]));
  reconcile(board, arrange(columns, placed), (column) => column.status, makeColumn, (node, column) => {
    const [heading, list, none] = node.children;
    setText(heading.firstElementChild, capitalize(column.status));
    setText(heading.lastElementChild, `${column.items.length}${column.more ? "+" : ""}`);
    show(none, column.items.length === 0);
    reconcile(list, column.items, (task) => task.id, makeTask, (card, task) => {
      card.className = placed?.id === task.id ? (placed.isHeld ? "card-place held" : "card-place going") : "card-place";
      updateTask(card.firstElementChild, task, titles, nowMs);
      const link = card.firstElementChild;
      link.href = hrefOfItem(task.id);
      if (mayMove) link.setAttribute("aria-describedby", "board-hint");
      else link.removeAttribute("aria-describedby");
      if (task.id === currentId) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    });
  });
}

function arrange(columns, placed) {
  const moved = placed && columns.flatMap((column) => column.items).find((task) => task.id === placed.id);
  if (!moved) return columns;
  return columns.map((column) => {
    if (column.status === moved.status && placed.to === moved.status) return column;
    const others = column.items.filter((task) => task.id !== moved.id);
    return { ...column, items: column.status === placed.to ? [moved, ...others] : others };
  });
}

const makeColumn = (column) =>
  el(
    "section",
    { class: "column", "data-status": column.status, "aria-labelledby": `column-${column.status}` },
    el("h2", { id: `column-${column.status}` }, el("span"), el("span", { class: "count" })),
    el("ul"),
    el("p", { class: "word column-none", text: "None" }),
  );

const makeTask = () =>
  el(
    "li",
    {},
    el(
      "a",
      { class: "task", draggable: "false" },
      el("span", { class: "task-title", dir: "auto" }),
      el("span", { class: "task-waits", dir: "auto" }),
      el("span", { class: "task-more" }, el("span", { class: "chip" }), el("span", { class: "task-who", dir: "auto" }), el("span", { class: "task-due" })),
      el("span", { class: "grip", "aria-hidden": "true", text: "⠿" }),
    ),
  );

function updateTask(link, task, titles, nowMs) {
  const [title, waits, more] = link.children;
  const [priority, who, due] = more.children;
  setText(title, task.title);
  setText(waits, task.blocked_by.length ? `Waits for ${task.blocked_by.map((each) => titles.get(each) ?? each).join(", ")}` : "");
  show(waits, task.blocked_by.length > 0);
  setText(priority, task.priority);
  priority.className = `chip priority-${task.priority}`;
  setText(who, task.assignee ?? "");
  show(who, task.assignee !== null);
  const dueMs = task.due_date === null ? null : Date.parse(task.due_date);
  const isOverdue = dueMs !== null && dueMs < nowMs && !["completed", "cancelled"].includes(task.status);
  setText(due, dueMs === null ? "" : `${isOverdue ? "overdue: " : "due "}${formatDay(dueMs)}`);
  due.classList.toggle("overdue", isOverdue);
  show(due, dueMs !== null);
}

export const linkOfTask = (id) => byId("board").querySelector(`li[data-key="${CSS.escape(id)}"] a`);

// Explains a refused move by naming both statuses.
export function describeRefusal(task, error) {
  const { before, after } = error.problem;
  return `“${task.title}” is ${spaced(before)}. A task cannot go from ${spaced(before)} to ${spaced(after)}. It is back where it was.`;
}
