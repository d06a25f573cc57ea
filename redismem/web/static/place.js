// Addresses of the page: #/s/<session id>?message=<seq>, #/r/<framework>/<record id>, #/p/<project>/<part>/<item id>?at=<time>, #/operations. The browser never
// sends a fragment to a server.

const SESSION = "#/s/";
const RECORD = "#/r/";
const PROJECT = "#/p";
export const PARTS = ["tasks", "decisions", "entities"];

export function place() {
  const hash = location.hash;
  if (hash === "#/operations") return { view: "operations", sessionId: null };
  if (hash === PROJECT || hash.startsWith(`${PROJECT}/`)) return { view: "project", sessionId: null, project: projectPlace(hash) };
  if (hash.startsWith(RECORD)) return { view: "chat", sessionId: null, record: recordPlace(hash.slice(RECORD.length)) };
  const [id, query = ""] = hash.startsWith(SESSION) ? hash.slice(SESSION.length).split("?") : [""];
  const seq = Number(new URLSearchParams(query).get("message"));
  return { view: "chat", sessionId: decode(id) || null, seq: Number.isSafeInteger(seq) && seq > 0 ? seq : null };
}

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

// Returns {kind, id}, or null if the address names no record.
function recordPlace(path) {
  const [kind, id = ""] = path.split("/").map(decode);
  return kind && id ? { kind, id } : null;
}

export const hrefOfRecord = ({ kind, id }) => `${RECORD}${encodeURIComponent(kind)}/${encodeURIComponent(id.toWellFormed?.() ?? id)}`;

// `atMs` is null for the present.
function projectPlace(hash) {
  const [path, query = ""] = hash.slice(PROJECT.length).split("?");
  const [, name = "", part = "", itemId = ""] = path.split("/").map(decode);
  const atMs = Date.parse(new URLSearchParams(query).get("at") ?? "");
  return { name: name || null, part: PARTS.includes(part) ? part : PARTS[0], itemId: itemId || null, atMs: Number.isNaN(atMs) ? null : atMs };
}

export function hrefOfProject({ name, part, itemId = null, atMs = null }) {
  if (name === null) return PROJECT;
  const words = [PROJECT, name, part, ...(itemId === null ? [] : [itemId])];
  const query = atMs === null ? "" : `?at=${new Date(atMs).toISOString()}`;
  return words.map((word, at) => (at ? encodeURIComponent(word) : word)).join("/") + query;
}

// encodeURIComponent throws on halves of surrogate pairs, so they are replaced first.
export function hrefOf(sessionId, seq = null) {
  return `#/s/${encodeURIComponent(sessionId.toWellFormed?.() ?? sessionId)}${seq === null ? "" : `?message=${seq}`}`;
}

export function go(sessionId, { seq, ...options } = {}) {
  goTo(hrefOf(sessionId, seq), options);
}

export function goTo(href, { replace = false } = {}) {
  if (replace) {
    history.replaceState(null, "", href);
    window.dispatchEvent(new HashChangeEvent("hashchange"));
  } else location.hash = href;
}
