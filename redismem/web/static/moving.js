// Moves tasks on the board, by dragging or with the arrow keys. Touch must start at the grip, since the rest of a card
// scrolls the board.

import { byId } from "./dom.js";

const FAR_PX = 6;
const EDGE_PX = 40;
const SCROLL_PX = 14;

let drag = null;

export const isDragging = () => drag !== null && drag.ghost !== null;

// `step(id, by)` carries a task that many columns to the right, `put(id)` drops it there, `back()` returns it.
// `drop(id, status)` moves a dragged task to a column.
export function beginMoving({ mayMove, step, isHeld, put, back, drop }) {
  const board = byId("board");
  board.addEventListener("keydown", (event) => {
    const link = event.target.closest(".task");
    if (!link || event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
    const id = link.parentElement.dataset.key;
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const beside = { ArrowUp: "previousElementSibling", ArrowDown: "nextElementSibling" }[event.key];
    if (by) step(id, by);
    else if (beside) link.parentElement[beside]?.firstElementChild.focus();
    else if (isHeld(id) && (event.key === "Enter" || event.key === " ")) put(id);
    else if (isHeld(id) && event.key === "Escape") back();
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  // Moving the focus elsewhere returns a held task.
  document.addEventListener("focusin", (event) => {
    const id = event.target.closest?.(".task")?.parentElement.dataset.key;
    if (!event.target.closest?.("dialog") && !(id && isHeld(id))) back();
  });

  board.addEventListener("pointerdown", (event) => {
    const link = event.target.closest(".task");
    const isByHand = event.pointerType !== "touch" || event.target.closest(".grip");
    if (!link || event.button !== 0 || !isByHand || !mayMove()) return;
    const { left, top } = link.getBoundingClientRect();
    drag = { id: link.parentElement.dataset.key, link, x: event.clientX, y: event.clientY, left, top, ghost: null, column: null };
  });
  window.addEventListener("pointermove", (event) => {
    if (drag) follow(event, board);
  });
  window.addEventListener("pointerup", () => {
    const { id, ghost, column } = end() ?? {};
    if (!ghost) return;
    swallowClick();
    if (column) drop(id, column.dataset.status);
  });
  window.addEventListener("pointercancel", end);
  window.addEventListener(
    "keydown",
    (event) => {
      if (event.key !== "Escape" || !isDragging()) return;
      event.stopPropagation();
      end();
      window.addEventListener("pointerup", swallowClick, { once: true });
    },
    { capture: true },
  );
}

function follow(event, board) {
  const [dx, dy] = [event.clientX - drag.x, event.clientY - drag.y];
  if (!drag.ghost) {
    if (Math.hypot(dx, dy) < FAR_PX) return;
    lift();
  }
  drag.ghost.style.left = `${drag.left + dx}px`;
  drag.ghost.style.top = `${drag.top + dy}px`;
  const { left, right, top, bottom } = board.getBoundingClientRect();
  if (event.clientX < left + EDGE_PX) board.scrollLeft -= SCROLL_PX;
  if (event.clientX > right - EDGE_PX) board.scrollLeft += SCROLL_PX;
  // On a phone the columns are below each other.
  if (event.clientY < top + EDGE_PX) board.scrollTop -= SCROLL_PX;
  if (event.clientY > bottom - EDGE_PX) board.scrollTop += SCROLL_PX;
  const column = document.elementFromPoint(event.clientX, event.clientY)?.closest(".column") ?? null;
  if (column === drag.column) return;
  drag.column?.classList.remove("over");
  column?.classList.add("over");
  drag.column = column;
}

function lift() {
  drag.ghost = drag.link.cloneNode(true);
  drag.ghost.classList.add("ghost");
  drag.ghost.setAttribute("aria-hidden", "true");
  drag.ghost.removeAttribute("href");
  drag.ghost.style.width = `${drag.link.offsetWidth}px`;
  document.body.append(drag.ghost);
  drag.link.parentElement.classList.add("lifted");
  document.body.classList.add("dragging");
}

function end() {
  const ended = drag;
  drag = null;
  ended?.ghost?.remove();
  ended?.column?.classList.remove("over");
  ended?.link.parentElement?.classList.remove("lifted");
  document.body.classList.remove("dragging");
  return ended;
}

// Suppresses the click that follows a drag.
function swallowClick() {
  const swallow = (event) => {
    if (event.detail === 0) return; // the click came from a key
    event.preventDefault();
    event.stopPropagation();
  };
  window.addEventListener("click", swallow, { capture: true });
  setTimeout(() => window.removeEventListener("click", swallow, { capture: true }), 0);
}
