// The conversations in which this tab writes: those that it began, and those in which its user asked to write.

const KEY = "redismem.writing";
const MOST_COUNT = 100;

function load() {
  try {
    return JSON.parse(sessionStorage.getItem(KEY)) ?? [];
  } catch {
    return [];
  }
}

export const isWritten = (sessionId) => load().includes(sessionId);

export function writeIn(sessionId) {
  const others = load().filter((each) => each !== sessionId);
  sessionStorage.setItem(KEY, JSON.stringify([...others, sessionId].slice(-MOST_COUNT)));
}
