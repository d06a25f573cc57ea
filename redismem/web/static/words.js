// What people read: errors, times and numbers.

const PROBLEMS = {
  no_key: "This key is not known here.",
  not_allowed: "Your key does not allow this.",
  session_not_found: "There is no such conversation (any more).",
  bad_session_id: "This cannot be the id of a conversation.",
  too_large: "That is too much for one message.",
  too_many_requests: "That was too fast. It goes on in a moment.",
  store_unavailable: "The memory cannot be reached just now.",
  unconfirmed: "It is stored, but not safely yet. Send it again.",
  store_not_allowed: "The memory does not let this server do that. Its operators must look at the rights of its user.",
  other_layout: "Another release has written this. Look at the versions of your servers.",
  overloaded: "This server has more to do than it can. Try again in a moment.",
  stopping: "This server is about to stop. Another one will take over.",
  too_late: "That took too long, so the server gave it up.",
  conflict: "Somebody else was faster.",
  not_found: "It is not there, or was not there then.",
  internal: "Something went wrong in the server.",
};

export const UNREACHABLE = "The server cannot be reached. The page goes on as soon as it answers.";

export function wordsOf(error) {
  if (error.code) return PROBLEMS[error.code] ?? `${error.title}.`;
  return UNREACHABLE;
}

const NUMBER = new Intl.NumberFormat("en");

export const counted = (count) => NUMBER.format(count);

export const many = (count, one, more = `${one}s`) => `${counted(count)} ${count === 1 ? one : more}`;

export function clock(ms) {
  return new Date(ms).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
}

export function moment(ms) {
  return new Date(ms).toLocaleString([], { dateStyle: "medium", timeStyle: "short" });
}

export const day = (ms) => new Date(ms).toLocaleDateString([], { dateStyle: "medium" });

// in_progress is said as "in progress".
export const plainWord = (word) => word.replaceAll("_", " ");

export function titled(word) {
  return word[0].toUpperCase() + plainWord(word.slice(1));
}

export function ago(ms, nowMs = Date.now()) {
  const s = Math.max(0, Math.round((nowMs - ms) / 1000));
  if (s < 45) return "just now";
  return `${span(s * 1000)} ago`;
}

export function span(ms) {
  const s = ms / 1000;
  if (s < 1) return `${Math.round(ms)} ms`;
  if (s < 90) return `${Math.round(s)} s`;
  if (s < 90 * 60) return `${Math.round(s / 60)} min`;
  if (s < 36 * 3600) return `${Math.round(s / 3600)} h`;
  return `${Math.round(s / 86400)} days`;
}

export function millis(ms) {
  if (ms === null || ms === undefined) return "–";
  return ms < 10 ? `${ms.toFixed(1)} ms` : `${counted(Math.round(ms))} ms`;
}

export const range = (first, last) => (first === last ? `${first}` : `${first} to ${last}`);

export const shortId = (id) => (id.length > 28 ? `${id.slice(0, 13)}…${id.slice(-6)}` : id);

// A message's text, whatever its provider's format; what is no text is named in brackets.
export function textOf(message) {
  const said = partsOf(message.content ?? message.parts);
  const calls = (message.tool_calls ?? []).map((call) => `[calls ${call.function?.name ?? call.name ?? "a tool"}]`);
  return [said, ...calls].filter(Boolean).join("\n");
}

function partsOf(content) {
  if (content === null || content === undefined) return "";
  if (typeof content === "string") return content;
  if (!Array.isArray(content)) return JSON.stringify(content);
  return content.map((part) => (typeof part === "string" ? part : part?.text ?? `[${part?.type ?? "part"}]`)).join("\n");
}
