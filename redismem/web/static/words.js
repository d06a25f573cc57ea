// Texts for users: errors, times and numbers.

const PROBLEMS = {
  no_key: "This server does not know this key.",
  not_allowed: "Your key does not allow this.",
  session_not_found: "This conversation does not exist (any more).",
  bad_session_id: "No conversation can have this id.",
  too_large: "That is too much for one message.",
  too_many_requests: "Too many requests. Please wait a moment.",
  store_unavailable: "The memory is unreachable right now.",
  unconfirmed: "This is stored, but too few replicas have it yet. Send it again.",
  store_not_allowed: "Redis does not let this server do that. An operator must check the ACL of its user.",
  other_layout: "Another release wrote this. Check the versions of your servers.",
  overloaded: "This server is overloaded. Try again in a moment.",
  stopping: "This server is about to stop. Another one will take over.",
  too_late: "The server gave up because this took too long.",
  conflict: "Another user was faster.",
  turn_running: "An answer is being written in this conversation. Stop it, or send your message when it has ended.",
  not_found: "This does not exist, or did not exist at that time.",
  unreadable: "The stored conversation is damaged. What can be read is shown. The next message begins it anew; an operator finds the damaged one in quarantine.",
  internal: "Something went wrong in the server.",
};

export const UNREACHABLE = "The server is unreachable. The page continues as soon as the server answers.";

export function describeError(error) {
  if (error.code) return PROBLEMS[error.code] ?? `${error.title}.`;
  return UNREACHABLE;
}

const REASONS = {
  lost: "the server that wrote it went away",
  cleared: "the conversation was cleared meanwhile, so it is not stored",
  failed: "something went wrong",
};

// Returns why an answer has no proper end, in words.
export function describeReason(reason) {
  if (reason.startsWith("not stored")) return "it is too long for the memory, so it is not stored";
  return REASONS[reason] ?? reason;
}

const NUMBER = new Intl.NumberFormat("en");

export const formatCount = (count) => NUMBER.format(count);

export const plural = (count, one, more = `${one}s`) => `${formatCount(count)} ${count === 1 ? one : more}`;

export function formatBytes(bytes) {
  if (bytes < 1_000) return plural(bytes, "byte");
  return bytes < 1_000_000 ? `${(bytes / 1_000).toFixed(1)} KB` : `${(bytes / 1_000_000).toFixed(1)} MB`;
}

export function formatTime(ms) {
  return new Date(ms).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
}

// With seconds: the points of a plot are seconds apart.
export const formatClock = (ms) => new Date(ms).toLocaleTimeString([]);

export function formatMoment(ms) {
  return new Date(ms).toLocaleString([], { dateStyle: "medium", timeStyle: "short" });
}

export const formatDay = (ms) => new Date(ms).toLocaleDateString([], { dateStyle: "medium" });

// Returns the day of a moment on this browser's clock, to compare days.
export const dayOf = (ms) => new Date(ms).toDateString();

// Returns a day as the head of its messages.
export function formatDayHead(ms, nowMs = Date.now()) {
  if (dayOf(ms) === dayOf(nowMs)) return "Today";
  const midnight = new Date(nowMs).setHours(0, 0, 0, 0);
  if (dayOf(ms) === dayOf(midnight - 1)) return "Yesterday";
  return new Date(ms).toLocaleDateString([], { weekday: "long", day: "numeric", month: "long", year: "numeric" });
}

// "2026-11-27" is that day in every time zone.
export function formatDate(day) {
  const ms = Date.parse(`${day}T00:00:00`);
  return Number.isNaN(ms) ? "" : formatDay(ms);
}

// in_progress becomes "in progress".
export const spaced = (word) => word.replaceAll("_", " ");

export function capitalize(word) {
  return word[0].toUpperCase() + spaced(word.slice(1));
}

// Returns how long ago a moment is, or null for less than 45 s.
function spanSince(ms, nowMs) {
  const s = Math.max(0, Math.round((nowMs - ms) / 1000));
  return s < 45 ? null : formatSpan(s * 1000);
}

export function ago(ms, nowMs = Date.now()) {
  const span = spanSince(ms, nowMs);
  return span === null ? "just now" : `${span} ago`;
}

export const age = (ms, nowMs) => spanSince(ms, nowMs) ?? "now";

export function formatSpan(ms) {
  const s = ms / 1000;
  if (s < 1) return `${Math.round(ms)} ms`;
  if (s < 120) return `${Math.round(s)} s`;
  if (s < 90 * 60) return `${Math.round(s / 60)} min`;
  if (s < 36 * 3600) return `${Math.round(s / 3600)} h`;
  return `${Math.round(s / 86400)} days`;
}

export function formatMs(ms) {
  if (ms === null || ms === undefined) return "–";
  return ms < 10 ? `${ms.toFixed(1)} ms` : `${formatCount(Math.round(ms))} ms`;
}

export const range = (first, last) => (first === last ? `${first}` : `${first} to ${last}`);

export const shortId = (id) => (id.length > 28 ? `${id.slice(0, 13)}…${id.slice(-6)}` : id);

const NAMES = { user: "User", assistant: "Assistant", system: "System", developer: "Developer", tool: "Tool" };

// Returns what the page calls the author of a message.
export const nameOf = (role) => NAMES[role] ?? (role || "Message");

// Returns the text of a message in any provider's format. Other parts are named in brackets.
export function textOf(message) {
  const text = partsOf(message.content ?? message.parts);
  const calls = (message.tool_calls ?? []).map((call) => `[calls ${call.function?.name ?? call.name ?? "a tool"}]`);
  return [text, ...calls].filter(Boolean).join("\n");
}

function partsOf(content) {
  if (content === null || content === undefined) return "";
  if (typeof content === "string") return content;
  if (!Array.isArray(content)) return JSON.stringify(content);
  return content.map((part) => (typeof part === "string" ? part : part?.text ?? `[${part?.type ?? "part"}]`)).join("\n");
}
