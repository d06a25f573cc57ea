// Where the page is, as its address says: #/s/<session id>, #/operations. A fragment never leaves the browser.

export function place() {
  const [, view, id] = location.hash.split("/");
  if (view === "operations") return { view: "operations", sessionId: null };
  try {
    return { view: "chat", sessionId: view === "s" && id ? decodeURIComponent(id) : null };
  } catch {
    return { view: "chat", sessionId: null };
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
