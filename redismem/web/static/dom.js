// Elements of the page. Text from users is inserted as text, never as markup.

export const byId = (id) => document.getElementById(id);

export function el(tag, given = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(given)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "class") node.className = value;
    else if (name === "text") node.textContent = value;
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

export function setText(node, text) {
  const newText = String(text);
  if (node.textContent !== newText) node.textContent = newText;
}

export function show(node, isShown) {
  node.hidden = !isShown;
}

// Makes the children of `parent` match the items, in order. Reuses the node of each key, so focus, selection and
// expanded texts survive. Of items with the same key, the first is shown.
export function reconcile(parent, items, keyOf, make, update) {
  const oldNodes = new Map([...parent.children].map((node) => [node.dataset.key, node]));
  const placed = new Set();
  let at = parent.firstElementChild;
  for (const item of items) {
    const key = keyOf(item);
    if (placed.has(key)) continue;
    placed.add(key);
    let node = oldNodes.get(key);
    if (node) oldNodes.delete(key);
    else {
      node = make(item);
      node.dataset.key = key;
    }
    if (node === at) at = at.nextElementSibling;
    else parent.insertBefore(node, at);
    update(node, item);
  }
  for (const node of oldNodes.values()) node.remove();
}
