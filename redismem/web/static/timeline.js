// The slider over a project's life, from its first change to its last. Its moment is part of the page's address, so a
// reload or a link shows the same moment.

import { announce } from "./announce.js";
import { byId, setText, show } from "./dom.js";
import { formatDay, formatMoment } from "./words.js";

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
  byId("to-now").addEventListener("click", () => {
    choose(null);
    slider.focus();
  });
}

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
  life = newLife;
  show(byId("timeline"), life !== null);
  if (life === null) return;
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
