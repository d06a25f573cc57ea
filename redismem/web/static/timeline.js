// The slider over a project's life: from its first change to its last, which is now. What it shows is an address, so a
// reload and a link lead to the same moment.

import { announce } from "./announce.js";
import { byId, setText, show } from "./dom.js";
import { day, moment } from "./words.js";

const WAIT_MS = 120;

let life = null;
let atMs = null;

// `choose(atMs)`: somebody wants to see that moment; null: now.
export function beginTimeline(choose) {
  const slider = byId("moment");
  let waiting = 0;
  slider.addEventListener("input", () => {
    const wanted = momentAt(Number(slider.value));
    say(wanted);
    clearTimeout(waiting);
    waiting = setTimeout(() => choose(wanted), WAIT_MS);
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
  // What is not now is never drawn as now.
  return Math.max(0, Math.min(most - 1, Math.round((most * (ms - life.firstMs)) / Math.max(1, life.lastMs - life.firstMs))));
}

function say(ms) {
  const word = ms === null ? "now" : moment(ms);
  setText(byId("moment-word"), word);
  byId("moment").setAttribute("aria-valuetext", word);
}

// `found`: {firstMs, lastMs}, or null: nothing has happened yet.
export function drawTimeline(found, chosenMs) {
  life = found;
  show(byId("timeline"), found !== null);
  if (found === null) return;
  if (chosenMs !== atMs && (chosenMs === null) !== (atMs === null)) {
    announce(chosenMs === null ? "The project as it is now." : `The project as of ${moment(chosenMs)}. The past cannot be changed.`);
  }
  atMs = chosenMs;
  const place = String(placeOf(atMs));
  if (byId("moment").value !== place) byId("moment").value = place;
  say(atMs);
  show(byId("to-now"), atMs !== null);
  byId("timeline").classList.toggle("past", atMs !== null);
  const span = `From ${day(found.firstMs)} to the last change, ${moment(found.lastMs)}.`;
  setText(byId("timeline-word"), atMs === null ? span : "This is the past: it can be read and not changed.");
}
