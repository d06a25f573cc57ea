// The header's badge: how many findings of the doctor fail or warn, on every view.

import { announce } from "./announce.js";
import { byId, el, reconcile, setText, show } from "./dom.js";
import { formatCount, plural } from "./words.js";

let failedBefore = 0;

export function drawBadge({ document, error }) {
  const counts = error
    ? [{ kind: "unknown", text: "?", word: "findings unknown" }]
    : [
        { kind: "fail", count: document.failed_count, word: "failed" },
        { kind: "warn", count: document.warnings_count, word: document.warnings_count === 1 ? "warning" : "warnings" },
      ].filter((each) => each.count > 0);
  const badges = byId("badges");
  show(badges, counts.length > 0);
  reconcile(badges, counts, (each) => each.kind, (each) => el("span", { class: `badge ${each.kind}` }, el("b"), el("span", { class: "unseen" })), (node, each) => {
    setText(node.firstElementChild, each.text ?? formatCount(each.count));
    setText(node.lastElementChild, ` ${each.word}`);
  });
  const failed = document?.failed_count ?? failedBefore;
  if (failed > failedBefore) announce(`${plural(failed, "check fails", "checks fail")}: see Operations.`);
  failedBefore = failed;
}
