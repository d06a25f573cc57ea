// Streams of events, read with fetch, because EventSource cannot send a key.

import { open } from "./api.js";

// Yields each event of a response as {event, id, document}.
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
        const event = eventOf(block);
        if (event) yield event;
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

function eventOf(block) {
  const fields = { event: "message", id: "", data: "" };
  for (const line of block.split("\n")) {
    const at = line.indexOf(": ");
    if (at > 0) fields[line.slice(0, at)] = line.slice(at + 2);
  }
  return fields.data ? { event: fields.event, id: fields.id, document: JSON.parse(fields.data) } : null;
}

const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 5000;
const HIDDEN_MS = 60_000;

// Follows a stream and reconnects when it ends, until the returned function is called. Calls `onLost(error)` before a
// retry. A tab that has been hidden for a minute disconnects, because a browser has few connections per server.
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
        // A stream may end at any time. The connection counts as lost if the next attempt fails too.
        lostCount += 1;
        if (lostCount > 1 || error.status) onLost(error);
        if (error.status === 401 || error.status === 403 || error.status === 400) return;
        await new Promise((resolve) => setTimeout(resolve, pauseMs));
        pauseMs = Math.min(2 * pauseMs, LONGEST_PAUSE_MS);
      }
    }
  }

  function onVisibility() {
    clearTimeout(hiddenTimer);
    if (document.hidden) hiddenTimer = setTimeout(() => leaving.abort(), HIDDEN_MS);
    else if (leaving.signal.aborted) {
      leaving = new AbortController();
      wake();
    }
  }

  document.addEventListener("visibilitychange", onVisibility);
  run();
  return () => {
    isOver = true;
    document.removeEventListener("visibilitychange", onVisibility);
    clearTimeout(hiddenTimer);
    leaving.abort();
    wake();
  };
}
