// The slider over a project's life, from its first change to its last. Its moment is part of the page's address, so a
// reload or a link shows the same moment.

import { announce } from "./announce.js";
import { byId, el, setText, show } from "./dom.js";
import { isDayStep, momentTicks } from "./ticks.js";
import { formatDay, formatMoment, formatTime } from "./words.js";

const WAIT_MS = 120;

let life = null;
let atMs = null;

// Calls `choose(atMs)` when the user chooses a moment; null means the present.
export function beginTimeline(choose) {
  const slider = byId("moment");
  let waiting = 0;
  slider.addEventListener("input", () => {
    const chosenMs = momentAt(Number(slider.value));
    showMoment(chosenMs);
    clearTimeout(waiting);
    waiting = setTimeout(() => choose(chosenMs), WAIT_MS);
  });
  // Under the pointer, the moment that a click would choose. The keys move the slider itself, whose moment is shown.
  slider.addEventListener("pointermove", (event) => showHovered(slider, event.clientX));
  slider.addEventListener("pointerleave", () => show(byId("moment-tip"), false));
  byId("to-now").addEventListener("click", () => {
    choose(null);
    slider.focus();
  });
}

// Half of the thumb lies beside the line on either side.
const THUMB_PX = 16;

function showHovered(slider, x) {
  const { left, width } = slider.getBoundingClientRect();
  const part = Math.max(0, Math.min(1, (x - left - THUMB_PX / 2) / (width - THUMB_PX)));
  const tip = byId("moment-tip");
  const ms = momentAt(Math.round(part * Number(slider.max)));
  setText(tip, ms === null ? "now" : formatMoment(ms));
  tip.style.insetInlineStart = `${100 * part}%`;
  show(tip, true);
}

// Draws round days or hours below the slider.
function drawTicks() {
  const { step, ticks } = momentTicks(life.firstMs, life.lastMs);
  const span = Math.max(1, life.lastMs - life.firstMs);
  byId("moment-ticks").replaceChildren(
    ...ticks.map((ms) => {
      const tick = el("span", { text: isDayStep(step) ? formatDayShort(ms) : formatTime(ms) });
      tick.style.insetInlineStart = `${(100 * (ms - life.firstMs)) / span}%`;
      return tick;
    }),
  );
}

const formatDayShort = (ms) => new Date(ms).toLocaleDateString([], { day: "numeric", month: "short" });

function momentAt(place) {
  const most = Number(byId("moment").max);
  return place >= most ? null : Math.round(life.firstMs + ((life.lastMs - life.firstMs) * place) / most);
}

function placeOf(ms) {
  const most = Number(byId("moment").max);
  if (ms === null) return most;
  // Only the present is drawn at the very end.
  return Math.max(0, Math.min(most - 1, Math.round((most * (ms - life.firstMs)) / Math.max(1, life.lastMs - life.firstMs))));
}

function showMoment(ms) {
  const word = ms === null ? "now" : formatMoment(ms);
  setText(byId("moment-word"), word);
  byId("moment").setAttribute("aria-valuetext", word);
}

// `newLife` is {firstMs, lastMs}; null if the project has no changes.
export function drawTimeline(newLife, chosenMs) {
  const isOther = newLife?.firstMs !== life?.firstMs || newLife?.lastMs !== life?.lastMs;
  life = newLife;
  show(byId("timeline"), life !== null);
  if (life === null) return;
  if (isOther) drawTicks();
  if (chosenMs !== atMs && (chosenMs === null) !== (atMs === null)) {
    announce(chosenMs === null ? "The project now." : `The project as of ${formatMoment(chosenMs)}. The past cannot be changed.`);
  }
  atMs = chosenMs;
  const place = String(placeOf(atMs));
  if (byId("moment").value !== place) byId("moment").value = place;
  showMoment(atMs);
  show(byId("to-now"), atMs !== null);
  byId("timeline").classList.toggle("past", atMs !== null);
  const span = `From ${formatDay(life.firstMs)} to the last change, ${formatMoment(life.lastMs)}.`;
  setText(byId("timeline-word"), atMs === null ? span : "This is the past: you can read it but not change it.");
}
