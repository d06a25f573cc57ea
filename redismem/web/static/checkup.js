// The doctor's findings, read again and again: one answer for the header, the operations view and sick conversations.

import { ask } from "./api.js";

const OPEN_MS = 2_000;
const IDLE_MS = 10_000;
const listeners = [];

// The last answer, as {document} or {error}; null before the first.
let latest = null;
let isOpen = false;
let askedCount = 0;
let answeredCount = 0;
let wake = () => {};

export const onChecked = (tell) => listeners.push(tell);

// True if the doctor has found a copy of this conversation in quarantine.
export const isQuarantined = (sessionId) => latest?.document?.quarantined.includes(sessionId) ?? false;

export const findingOf = (document, name) => document.findings.find((each) => each.name === name) ?? null;

// Asks the server once. Of answers that overtake each other, the newest request counts.
export async function check({ again = false } = {}) {
  const number = ++askedCount;
  let answer;
  try {
    answer = { document: await ask("GET", again ? "/v1/doctor?again=true" : "/v1/doctor") };
  } catch (error) {
    answer = { error };
  }
  if (number < answeredCount) return;
  answeredCount = number;
  latest = answer;
  for (const tell of listeners) tell(latest);
}

// Asks often while the operations view is open, else now and then.
export function setPace(isViewed) {
  isOpen = isViewed;
  if (isOpen) wake();
}

export async function beginCheckup() {
  for (;;) {
    if (!document.hidden) await check();
    if (latest?.error?.status === 401 || latest?.error?.status === 403) return;
    await new Promise((resolve) => {
      wake = resolve;
      setTimeout(resolve, isOpen ? OPEN_MS : IDLE_MS);
    });
  }
}

// Which check failed, so that the figures of the namespace are not known; "" if they are.
export function whyUnknown({ document }) {
  return document.queues === null ? `the check “${document.findings[0]?.name}” fails, see above.` : "";
}
