// What is wrong, worst first, with advice: the findings of `redismem doctor`, and the processes with workers.

import { announce } from "./announce.js";
import { ask } from "./api.js";
import { byId, el, reconcile, setText, show } from "./dom.js";
import { ago, describeError, formatCount, plural } from "./words.js";

const SLOW_MS = 10_000;
let isAsking = false;

export function beginDoctor() {
  byId("check-again").addEventListener("click", checkAgain);
}

async function checkAgain() {
  byId("check-again").disabled = true;
  await examine({ again: true });
  byId("check-again").disabled = false;
  announce(byId("doctor-word").textContent);
}

// Asks the server and draws its answer. Throws nothing: a refusal is shown.
export async function examine({ again = false } = {}) {
  if (isAsking && !again) return;
  isAsking = true;
  try {
    draw(await ask("GET", again ? "/v1/doctor?again=true" : "/v1/doctor"));
  } catch (error) {
    byId("doctor").dataset.verdict = "";
    setText(byId("doctor-word"), describeError(error));
  } finally {
    isAsking = false;
  }
}

function draw({ findings, failed_count: failed, warnings_count: warnings, acl, processes, ticked_ms: tickedMs, now_ms: nowMs }) {
  const wrong = findings.filter((each) => each.verdict === "fail" || each.verdict === "warn");
  byId("doctor").dataset.verdict = failed ? "fail" : warnings ? "warn" : "ok";
  setText(byId("doctor-word"), wrong.length ? `${formatCount(failed)} failed, ${plural(warnings, "warning")}` : "No problems found");
  drawFindings(byId("findings"), wrong, nowMs);
  const others = findings.filter((each) => !wrong.includes(each));
  show(byId("passed-part"), others.length > 0);
  setText(byId("passed-word"), plural(others.length, "check without a problem", "checks without a problem"));
  drawFindings(byId("passed"), others, nowMs);
  show(byId("acl-part"), acl !== "");
  setText(byId("acl"), acl);
  drawProcesses(processes, tickedMs, nowMs);
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
  el("li", { class: "finding" }, el("span", { class: "chip" }), el("strong"), el("span", { dir: "auto" }), el("p", { class: "advice" }), el("span", { class: "word" }));

function drawProcesses(processes, tickedMs, nowMs) {
  const last = tickedMs === null ? "No worker has polled the queues within a day." : `A worker last polled the queues ${ago(tickedMs, nowMs)}.`;
  setText(byId("processes-count"), processes.length);
  setText(byId("processes-word"), processes.length ? last : `No process runs workers: nothing is summarised or evicted. ${last}`);
  reconcile(byId("processes"), processes, (each) => each.name, () => el("li", {}, el("strong"), el("span")), (node, each) => {
    const [name, works] = node.children;
    setText(name, each.name);
    const crowded = each.is_crowded ? "; more than it can do, so all processes help" : "";
    setText(works, each.works.length ? `polls for all: ${each.works.join(", ")}${crowded}` : "takes over if another one stops");
  });
}
