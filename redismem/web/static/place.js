// Where the page is, as its address says: #/s/<session id>, #/operations. A fragment never leaves the browser.

const SESSION = "#/s/";

export function place() {
  const hash = location.hash;
  if (hash === "#/operations") return { view: "operations", sessionId: null };
  const id = hash.startsWith(SESSION) ? hash.slice(SESSION.length) : "";
  try {
    return { view: "chat", sessionId: decodeURIComponent(id) || null };
  } catch {
    return { view: "chat", sessionId: id };
  }
}

// As encodeURIComponent, and for halves of surrogate pairs too, which it has no bytes for.
export const hrefOf = (sessionId) => `#/s/${encodeURIComponent(sessionId.toWellFormed?.() ?? sessionId)}`;

export function go(sessionId, { replace = false } = {}) {
  const url = hrefOf(sessionId);
  if (replace) {
    history.replaceState(null, "", url);
    window.dispatchEvent(new HashChangeEvent("hashchange"));
  } else location.hash = url;
}
