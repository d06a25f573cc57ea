// A conversation whose summary failed, that cannot be read, or of which a copy is in quarantine: in list and panel.

import { isQuarantined } from "./checkup.js";
import { byId, el, reconcile, setText, show } from "./dom.js";
import { ago, capitalize, plural } from "./words.js";

const UNREADABLE = ["unreadable", "of another layout"];

// Returns what is wrong with the conversation of a row in the list; "" if nothing is.
export function wordOfRow({ session_id: sessionId, failing, dead }) {
  const words = [];
  if (dead) words.push(`Dead, its summary failed for good: ${failing}`);
  else if (UNREADABLE.includes(failing)) words.push(`Cannot be read: ${failing}`);
  else if (failing) words.push(`Summaries fail: ${failing}`);
  if (isQuarantined(sessionId)) words.push("A damaged copy is in quarantine");
  return words.join(". ");
}

// Shows in the panel what is wrong with this conversation, why, and what to do.
export function drawSick(conversation, mayOperate) {
  const faults = [...faultsOfSummary(conversation.numbers), ...faultsOfCopy(conversation)];
  show(byId("sick"), faults.length > 0);
  reconcile(byId("sick"), faults, (each) => each.title, () => el("li", { class: "sick" }, el("strong"), el("p", { dir: "auto" }), el("p"), el("a", { href: "#/operations" })), (node, each) => {
    const [title, why, advice, link] = node.children;
    setText(title, each.title);
    setText(why, each.why);
    setText(advice, each.advice);
    setText(link, each.link);
    show(link, mayOperate);
  });
}

function faultsOfSummary(numbers) {
  if (!numbers?.failed) return [];
  const { queued, attempts, failure, failed, failed_ms: failedMs } = numbers;
  const isDead = queued === "dead";
  const tried = attempts ? `, after ${plural(attempts, "failed attempt")}` : "";
  const when = failedMs ? `, ${ago(failedMs)}` : "";
  const why = `${capitalize(failed.kind)}: ${failure ?? "no reason recorded"}${tried}${when}.`;
  const rest = isDead ? "It is retried with growing delays; an operator can retry it at once." : "It is tried again.";
  return [
    {
      title: isDead ? "Dead: its summary failed for good" : "Its summary fails",
      why,
      advice: `Nothing is lost: the model still gets all messages in full. ${failed.advice} ${rest}`,
      link: "Dead sessions in Operations",
    },
  ];
}

function faultsOfCopy({ sessionId, fault }) {
  const faults = [];
  if (fault?.code === "unreadable") {
    const advice = "What can be read is shown in the chat. The next message begins it anew, and the damaged one goes into quarantine.";
    faults.push({ title: "Damaged: it cannot be read as a whole", why: fault.detail ? `${capitalize(fault.detail)}.` : "", advice, link: "Quarantine in Operations" });
  }
  if (isQuarantined(sessionId)) {
    const advice = "An operator can look at it there, restore it, or drop it.";
    faults.push({ title: "A copy is in quarantine", why: "An earlier life of this conversation could not be read, and was put into quarantine.", advice, link: "Quarantine in Operations" });
  }
  return faults;
}
