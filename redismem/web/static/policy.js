// The policy of a conversation: rules of its own, which every server obeys.

import { byId, el, reconcile, setText, show } from "./dom.js";
import { formatCount, plural } from "./words.js";

const UNITS = [[86_400, "day"], [3_600, "hour"], [60, "minute"], [1, "second"]];

// `policy` is null for a conversation that does not exist.
export function drawPolicy(policy) {
  const lines = policy ? linesOf(policy) : [];
  reconcile(byId("policy"), lines, (line) => line.name, () => el("li"), (node, line) => setText(node, line.text));
  show(byId("policy-part"), lines.length > 0);
}

function linesOf({ keep_whole, idle_timeout_s, exempt, zone }) {
  return [
    keep_whole && { name: "whole", text: "Kept whole: no summary replaces its messages." },
    idle_timeout_s !== null && { name: "timeout", text: `Expires ${formatTimeout(idle_timeout_s)} after its last use.` },
    exempt && { name: "exempt", text: "Exempt from the session limit: never evicted to make room." },
    zone !== null && { name: "zone", text: `Its days are those of ${zone}.` },
  ].filter(Boolean);
}

// Returns a timeout exactly, in the largest unit that divides it.
function formatTimeout(s) {
  const [size, name] = UNITS.find(([each]) => s >= each && s % each === 0) ?? [1, "second"];
  return Number.isInteger(s) ? plural(s / size, name) : `${formatCount(s)} seconds`;
}
