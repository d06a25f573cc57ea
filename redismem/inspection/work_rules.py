"""The doctor's rules on summaries: which pods work, which providers are paused, which sessions wait or failed. No I/O.

`process_name`, `work_name` and `attempts_of` say the same elsewhere in the same words.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from redismem.context.info import Depth
from redismem.inspection.figures import duration, plural, printable
from redismem.inspection.findings import FAIL, OK, WARN, Finding
from redismem.protocol.namespace.holds import Hold
from redismem.protocol.queue.provider_pauses import Pause
from redismem.settings.settings import Settings

_LONG_MS = 120_000
_LATE_MS = 60_000
_LATE_TICKS = 5


def process_name(holder: str) -> str:
    """Name the process that polls a queue, by its pid and machine. In Kubernetes the machine is the pod."""
    machine, _, rest = holder.partition("/")
    pid, _, _ = rest.partition("/")
    return printable(f"process {pid} on {machine}" if pid.isdigit() else holder)


def work_name(work: str) -> str:
    """Name a kind of work, with the settings that distinguish it: the limits, or the summary provider."""
    kind, _, what = work.partition("/")
    if kind == "evictions" and (limits := re.fullmatch(r"(\d{1,18})/(\d{1,18})", what, re.ASCII)):
        return f"{kind} ({plural(int(limits[1]), 'session')}, idle {duration(int(limits[2]))})"
    return f"{kind} ({what})" if what else kind


def attempts_of(count: int, reason: str | None) -> str:
    """Describe the failed attempts and the last failure. A retried session has no failed attempts yet."""
    why = reason or "no reason recorded"
    return f"{plural(count, 'failed attempt')}, last: {why}" if count > 0 else why


class FailureKind(NamedTuple):
    """The kind of a failure in words, and the advice for it."""

    name: str
    advice: str

    def document(self) -> dict[str, str]:
        """Return the kind as JSON values."""
        return {"kind": self.name, "advice": self.advice}


_KINDS = (
    ("answered (401|403)", "the provider refuses the key", "Check REDISMEM_MODEL_API_KEY, and the rights of this key."),
    ("answered 404", "the provider does not know the model", "Check REDISMEM_MODEL and REDISMEM_MODEL_BASE_URL."),
    (
        "answered (400|413|422)",
        "the provider refuses the request",
        "Choose a model that takes longer requests, or lower REDISMEM_THRESHOLD_TOKENS; then retry.",
    ),
    ("filtered|refused|blocked", "the model refuses the text", "Choose another model in REDISMEM_MODEL; then retry."),
    ("answered (408|429|5)|did not answer|broke off", "the provider is down", "Check the provider's status page."),
)


def failure_kind(reason: str | None) -> FailureKind:
    """Return the kind of a summary's failure, by its stored reason."""
    for pattern, name, advice in _KINDS:
        if re.search(pattern, reason or ""):
            return FailureKind(name, advice)
    return FailureKind("the summary strategy failed", "The workers' logs say why.")


def ticks(holds: Mapping[str, Hold], now_ms: int, overdue_count: int, ticked_ms: int | None = None) -> Finding:
    """Report which pod polls each queue.

    It is a fault only while sessions are overdue if no pod polls any queue, or if no pod writes summaries.
    """
    living = {work: hold for work, hold in sorted(holds.items()) if hold.until_ms > now_ms}
    overdue = f"{plural(overdue_count, 'session')} overdue"
    if not living:
        last = "" if ticked_ms is None else f"; one last polled {duration(now_ms - ticked_ms)} ago"
        text = f"no worker runs for this namespace{last}"
        advice = "Start `redismem worker` on this Redis and namespace, or connect with `workers=True`."
        return Finding("ticks", WARN, f"{text}, and {overdue}", advice) if overdue_count else Finding("ticks", OK, text)
    works: dict[str, list[str]] = {}
    for work, hold in living.items():
        works.setdefault(hold.holder, []).append(work_name(work))
    processes = "; ".join(f"{process_name(holder)}: {printable(', '.join(names))}" for holder, names in works.items())
    if not overdue_count or any(work.startswith("summaries/") for work in living):
        is_crowded = any(hold.is_crowded for hold in living.values())
        return Finding("ticks", OK, f"{processes}{' (all pods help)' if is_crowded else ''}")
    advice = (
        "Start `redismem worker` with a strategy, or connect with `workers=True`: the running workers have the "
        "strategy none, or their last attempt failed, as their log says."
    )
    return Finding("ticks", WARN, f"{processes}; none of them writes summaries, and {overdue}", advice)


def providers(paused: Mapping[str, Pause], waiting_count: int, now_ms: int) -> Finding:
    """Judge the paused providers, and count the sessions that wait for a summary.

    If no worker has renewed a pause for long, it may be over, or its provider may no longer be in any pod's settings.
    """
    if not paused:
        return Finding("providers", OK, "no summary provider is paused")
    name, pause = min(paused.items(), key=lambda item: item[1].since_ms)
    next_ms = pause.until_ms - now_ms
    text = (
        f"{printable(name)} has been paused for {duration(now_ms - pause.since_ms)}: {pause.reason}; "
        f"{plural(pause.failures_count, 'failure')}, next try {'in' if next_ms > 0 else 'due for'} "
        f"{duration(next_ms)}; {plural(waiting_count, 'session')} overdue"
        f"{f'; {len(paused) - 1} more' if len(paused) > 1 else ''}"
    )
    if waiting_count and next_ms + _LONG_MS > 0:
        advice = (
            "It fails for all sessions: check its status page, and the key, model and address in REDISMEM_MODEL_*. No "
            "session has lost an attempt; the extractive summariser takes over sessions that wait too long."
        )
        return Finding("providers", FAIL, text, advice)
    advice = (
        "No worker asks it now. If the workers' REDISMEM_MODEL_* still name it, the next summary tries it again; if "
        "they name another, ignore this: pauses are forgotten a day after the last failure."
    )
    return Finding("providers", WARN, text, advice)


@dataclass(frozen=True, slots=True)
class FailureFacts:
    """A failing or dead session: since when, after how many attempts, and why; `None` means no reason is recorded."""

    since_ms: int
    attempts: int
    reason: str | None


def summaries(
    overdue: Depth, now_ms: int, settings: Settings, *, is_paused: bool, failing: Sequence[FailureFacts] = ()
) -> Finding:
    """Check whether sessions wait for a summary, or their attempts fail, for longer than a few ticks.

    While a provider is paused, waiting is expected; `providers` reports the pause.
    """
    late_ms = 0 if overdue.first_ms is None else max(0, now_ms - overdue.first_ms)
    text, reasons, failing_ms = f"{plural(overdue.count, 'session')} overdue", "", 0
    if failing:
        first = min(failing, key=lambda failure: failure.since_ms)
        failing_ms, attempts = now_ms - first.since_ms, attempts_of(first.attempts, first.reason)
        reasons = f"; at least {len(failing):,} failing, the first for {duration(failing_ms)}: {attempts}"
    long_ms = max(_LATE_MS, _LATE_TICKS * 1_000 * settings.tick_s)
    if is_paused or max(late_ms, failing_ms) <= long_ms:
        return Finding("summaries", OK, f"{text}, none late{reasons}")
    if late_ms <= long_ms:
        advice = "Their messages stay. `redismem list` lists them; `redismem show ID` and the workers' logs say why."
        return Finding("summaries", WARN, f"{text}{reasons}", advice)
    advice = (
        "No worker claimed it: start `redismem worker` on this Redis and namespace, or connect with `workers=True`. If "
        "one is running, it cannot keep up: start more."
    )
    waiting = f", the oldest for {duration(late_ms)}: is a worker running?"
    return Finding("summaries", WARN, f"{text}{waiting}{reasons}", advice)


def dead(dead_count: int, first: FailureFacts | None, now_ms: int) -> Finding:
    """Judge the dead sessions, and say why the session that has been dead longest failed."""
    if first is None:
        return Finding("dead", OK, "no session is dead")
    died, attempts = duration(now_ms - first.since_ms), plural(first.attempts, "attempt")
    why = first.reason or "no reason recorded"
    text = f"{plural(dead_count, 'session')}; the oldest dead for {died}, after {attempts}: {why}"
    retried = "They are retried automatically, with growing delays. `redismem list dead` shows all of them."
    return Finding("dead", WARN, text, f"{failure_kind(first.reason).advice} {retried}")
