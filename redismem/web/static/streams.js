// Streams of events, read with fetch: EventSource could not send a key.

import { open } from "./api.js";

// Each event of a response as {event, id, document}.
export async function* eventsOf(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      rest += value;
      const blocks = rest.split("\n\n");
      rest = blocks.pop();
      for (const block of blocks) {
        const found = eventOf(block);
        if (found) yield found;
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

function eventOf(block) {
  const found = { event: "message", id: "", data: "" };
  for (const line of block.split("\n")) {
    const at = line.indexOf(": ");
    if (at > 0) found[line.slice(0, at)] = line.slice(at + 2);
  }
  return found.data ? { event: found.event, id: found.id, document: JSON.parse(found.data) } : null;
}

const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 5000;
const HIDDEN_MS = 60_000;

// Follows a stream until it is told to stop, and begins anew when it ends. `onEvent(event)`; `onLost(error)`: it has
// ended, and is tried again. A tab that nobody has looked at for a minute gives its connection back: a browser has few.
export function follow(path, onEvent, onLost) {
  let leaving = new AbortController();
  let isOver = false;
  let hiddenTimer = 0;
  let wake = () => {};

  async function run() {
    let pauseMs = FIRST_PAUSE_MS;
    let lostCount = 0;
    while (!isOver) {
      if (leaving.signal.aborted) await new Promise((resolve) => (wake = resolve));
      if (isOver) return;
      try {
        const response = await open("GET", path, { signal: leaving.signal });
        for await (const event of eventsOf(response)) {
          pauseMs = FIRST_PAUSE_MS;
          lostCount = 0;
          onEvent(event);
        }
        throw new TypeError("the stream has ended");
      } catch (error) {
        if (isOver) return;
        if (leaving.signal.aborted) continue;
        // A stream may end at any time; it is lost if there is no next one.
        lostCount += 1;
        if (lostCount > 1 || error.status) onLost(error);
        if (error.status === 401 || error.status === 403 || error.status === 400) return;
        await new Promise((resolve) => setTimeout(resolve, pauseMs));
        pauseMs = Math.min(2 * pauseMs, LONGEST_PAUSE_MS);
      }
    }
  }

  function look() {
    clearTimeout(hiddenTimer);
    if (document.hidden) hiddenTimer = setTimeout(() => leaving.abort(), HIDDEN_MS);
    else if (leaving.signal.aborted) {
      leaving = new AbortController();
      wake();
    }
  }

  document.addEventListener("visibilitychange", look);
  run();
  return () => {
    isOver = true;
    document.removeEventListener("visibilitychange", look);
    clearTimeout(hiddenTimer);
    leaving.abort();
    wake();
  };
}
