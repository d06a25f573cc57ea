// Marks the places of a text in a message, without a change to its nodes, in browsers that can.

const NAME = "found";
const MOST_PLACES = 200;

let marked = null;

export function unmark() {
  globalThis.CSS?.highlights?.delete(NAME);
  marked?.removeAttribute("data-found");
  marked = null;
}

// Marks an entry of the chat, and the text in it.
export function mark(entry, text) {
  unmark();
  marked = entry;
  entry.setAttribute("data-found", "");
  if (globalThis.CSS?.highlights) CSS.highlights.set(NAME, new Highlight(...placesIn(entry.querySelector(".body"), text.toLowerCase())));
}

function placesIn(node, wanted) {
  const places = [];
  const walker = document.createTreeWalker(node, NodeFilter.SHOW_TEXT);
  while (walker.nextNode() && places.length < MOST_PLACES) {
    const { currentNode } = walker;
    const text = currentNode.data.toLowerCase();
    if (text.length !== currentNode.data.length) continue; // its places are not those of the text
    for (let at = text.indexOf(wanted); at >= 0 && places.length < MOST_PLACES; at = text.indexOf(wanted, at + wanted.length)) {
      const range = new Range();
      range.setStart(currentNode, at);
      range.setEnd(currentNode, at + wanted.length);
      places.push(range);
    }
  }
  return places;
}
