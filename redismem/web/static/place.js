// Where the page is, as its address says: #/s/<session id>, #/p/<project>/<part>/<item id>?at=<time>, #/operations. A
// fragment never leaves the browser.

const SESSION = "#/s/";
const PROJECT = "#/p";
export const PARTS = ["tasks", "decisions", "entities"];

export function place() {
  const hash = location.hash;
  if (hash === "#/operations") return { view: "operations", sessionId: null };
  if (hash === PROJECT || hash.startsWith(`${PROJECT}/`)) return { view: "project", sessionId: null, project: projectPlace(hash) };
  const id = hash.startsWith(SESSION) ? hash.slice(SESSION.length) : "";
  return { view: "chat", sessionId: plain(id) || null };
}

function plain(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

// `atMs`: as of when; null: now.
function projectPlace(hash) {
  const [path, query = ""] = hash.slice(PROJECT.length).split("?");
  const [, name = "", part = "", itemId = ""] = path.split("/").map(plain);
  const atMs = Date.parse(new URLSearchParams(query).get("at") ?? "");
  return { name: name || null, part: PARTS.includes(part) ? part : PARTS[0], itemId: itemId || null, atMs: Number.isNaN(atMs) ? null : atMs };
}

export function hrefOfProject({ name, part, itemId = null, atMs = null }) {
  if (name === null) return PROJECT;
  const words = [PROJECT, name, part, ...(itemId === null ? [] : [itemId])];
  const query = atMs === null ? "" : `?at=${new Date(atMs).toISOString()}`;
  return words.map((word, at) => (at ? encodeURIComponent(word) : word)).join("/") + query;
}

// As encodeURIComponent, and for halves of surrogate pairs too, which it has no bytes for.
export const hrefOf = (sessionId) => `#/s/${encodeURIComponent(sessionId.toWellFormed?.() ?? sessionId)}`;

export function go(sessionId, options) {
  goTo(hrefOf(sessionId), options);
}

export function goTo(href, { replace = false } = {}) {
  if (replace) {
    history.replaceState(null, "", href);
    window.dispatchEvent(new HashChangeEvent("hashchange"));
  } else location.hash = href;
}
