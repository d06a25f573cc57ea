// The findings of `redismem doctor`, in its words: all of them, worst first, and each beside what it is about.

import { announce } from "./announce.js";
import { check, findingOf } from "./checkup.js";
import { byId, el, reconcile, setText, show } from "./dom.js";
import { ago, describeError, formatCount, plural } from "./words.js";

const SLOW_MS = 10_000;

export function beginDoctor() {
  byId("check-again").addEventListener("click", async () => {
    byId("check-again").disabled = true;
    await check({ again: true });
    byId("check-again").disabled = false;
    announce(byId("doctor-word").textContent);
  });
}

// Draws an answer of the checkup. Of one that failed, it shows why, and no finding of an earlier one.
export function drawDoctor({ document, error }) {
  const { findings, failed_count: failed, warnings_count: warnings, acl, now_ms: nowMs } = document ?? { findings: [], acl: "" };
  const wrong = findings.filter((each) => each.verdict === "fail" || each.verdict === "warn");
  byId("doctor").dataset.verdict = error ? "" : failed ? "fail" : warnings ? "warn" : "ok";
  const word = wrong.length ? `${formatCount(failed)} failed, ${plural(warnings, "warning")}` : "No problems found";
  setText(byId("doctor-word"), error ? `Not known. ${describeError(error)}` : word);
  drawFindings(byId("findings"), wrong, nowMs);
  const others = findings.filter((each) => !wrong.includes(each));
  show(byId("passed-part"), others.length > 0);
  setText(byId("passed-word"), plural(others.length, "check without a problem", "checks without a problem"));
  drawFindings(byId("passed"), others, nowMs);
  show(byId("acl-part"), acl !== "");
  setText(byId("acl"), acl);
}

// Shows findings beside what they are about: these names, in this order.
export function drawChecks(parent, document, names) {
  const findings = document ? names.map((name) => findingOf(document, name)).filter(Boolean) : [];
  drawFindings(parent, findings, document?.now_ms);
}

function drawFindings(parent, findings, nowMs) {
  reconcile(parent, findings, (each) => each.name, makeFinding, (node, each) => {
    const [verdict, name, seen, advice, age] = node.children;
    node.dataset.verdict = each.verdict;
    setText(verdict, each.verdict);
    setText(name, each.name);
    setText(seen, each.seen);
    setAdvice(advice, each.advice);
    show(advice, each.advice !== "");
    const isOld = nowMs - each.checked_ms > SLOW_MS;
    setText(age, isOld ? `checked ${ago(each.checked_ms, nowMs)}` : "");
    show(age, isOld);
  });
}

// Shows commands and settings, between backticks, as code. Leaves unchanged advice alone: a selection in it survives.
function setAdvice(node, text) {
  const parts = text.split("\u0060"); // the backtick
  if (node.textContent === parts.join("")) return;
  node.replaceChildren(...parts.map((part, index) => (index % 2 ? el("code", { text: part }) : part)));
}

const makeFinding = () =>
  el("li", { class: "finding" }, el("span", { class: "chip" }), el("strong"), el("span", { class: "seen", dir: "auto" }), el("p", { class: "advice" }), el("span", { class: "word" }));
