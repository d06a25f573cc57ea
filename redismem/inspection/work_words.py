"""Descriptions of the doctor's findings on queued work and on the environment, with advice."""

from __future__ import annotations

import re

from redismem.inspection.figures import duration, plural, printable, size
from redismem.inspection.rules import Finding, Verdict

_CONFIG = {
    "client-output-buffer-limit": (
        "A client that never reads its replies fills the memory: set `client-output-buffer-limit normal 64mb 16mb 10`."
    ),
    "busy-reply-threshold": "A hanging script blocks all other clients too long: set `busy-reply-threshold 5000`.",
    "min-replicas-max-lag": "A primary without its replicas accepts writes that long: set `min-replicas-max-lag 2`.",
}


def config(finding: Finding) -> tuple[str, str]:
    """Describe the finding on redis.conf."""
    if finding.case == "not_told":
        return "CONFIG GET is not allowed", "The settings of redis.conf were not checked."
    wrong = finding.seen["wrong"]
    return ", ".join(wrong) or "as recommended", " ".join(_CONFIG[name] for name in wrong)


def nodes(finding: Finding) -> tuple[str, str]:
    """Describe the finding on the nodes' shares."""
    lines = []
    for node in finding.seen["nodes"]:
        used = "" if node["used_bytes"] is None else f", {size(node['used_bytes'])} used"
        shards, sessions = plural(node["shards_count"], "shard"), plural(node["sessions_count"], "session")
        lines.append(f"{node['place'] or 'one node'}: {shards}, {sessions}{used}")
    advice = "One node holds much more than its share: give each node an equal, contiguous range of slots."
    return "; ".join(lines), advice if finding.case == "uneven" else ""


_NO_SUMMARIES = (
    "Start `redismem worker` with a strategy, or connect with `workers=True`: the running workers have the strategy "
    "none, or their last attempt failed, as their log says."
)


def ticks(finding: Finding) -> tuple[str, str]:
    """Describe the finding on the processes with workers."""
    if finding.case == "nobody":
        waiting, age_ms = finding.seen["overdue_count"], finding.seen["tick_age_ms"]
        last = "" if age_ms is None else f"; one last polled {duration(age_ms)} ago"
        seen = f"no worker runs for this namespace{last}"
        advice = "Start `redismem worker` on this Redis and namespace, or connect with `workers=True`."
        return (f"{seen}, and {plural(waiting, 'session')} overdue", advice) if waiting else (seen, "")
    holders: dict[str, list[str]] = {}
    for work, holder in finding.seen["holders"].items():
        holders.setdefault(holder, []).append(work_name(work))
    processes = "; ".join(f"{process_name(holder)}: {printable(', '.join(works))}" for holder, works in holders.items())
    if finding.case == "no_summaries":
        waiting = plural(finding.seen["overdue_count"], "session")
        return f"{processes}; none of them writes summaries, and {waiting} overdue", _NO_SUMMARIES
    return f"{processes}{' (all pods help)' if finding.seen['crowded'] else ''}", ""


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


def providers(finding: Finding) -> tuple[str, str]:
    """Describe the finding on paused providers."""
    if finding.case == "answer":
        return "no summary provider is paused", ""
    seen = finding.seen
    more = f"; {seen['paused_count'] - 1} more" if seen["paused_count"] > 1 else ""
    next_ms = seen["next_ms"]
    probe = f"next try in {duration(next_ms)}" if next_ms > 0 else f"next try due for {duration(next_ms)}"
    text = (
        f"{printable(seen['provider'])} has been paused for {duration(seen['failing_ms'])}: {seen['reason']}; "
        f"{plural(seen['failures_count'], 'failure')}, {probe}; "
        f"{plural(seen['waiting_count'], 'session')} overdue{more}"
    )
    if finding.verdict is Verdict.WARN:
        return text, (
            "No worker asks it now. If the workers' REDISMEM_MODEL_* still name it, the next summary tries it again; "
            "if they name another, ignore this: pauses are forgotten a day after the last failure."
        )
    advice = (
        "It fails for all sessions: check its status page, and the key, model and address in REDISMEM_MODEL_*. No "
        "session has lost an attempt; the extractive summariser takes over sessions that wait too long."
    )
    return text, advice


def dead(finding: Finding) -> tuple[str, str]:
    """Describe the finding on dead sessions."""
    if finding.case == "none":
        return "no session is dead", ""
    seen = finding.seen
    why = seen["reason"] or "no reason recorded"
    count, attempts = plural(seen["dead_count"], "session"), plural(seen["attempts"], "attempt")
    advice = "They are retried automatically, with growing delays. `redismem dead list` shows all of them."
    return f"{count}; the oldest dead for {duration(seen['died_ms'])}, after {attempts}: {why}", advice


def quarantine(finding: Finding) -> tuple[str, str]:
    """Describe the finding on quarantine."""
    seen = finding.seen
    if finding.case == "not_looked":
        return "SCAN is not allowed", "Sessions and records in quarantine were not counted."
    among = "" if seen["is_all"] else f" among the first {seen['looked_at_count']:,} keys"
    if finding.case == "none":
        return f"no session or record in this namespace{among}", ""
    counts = {"session": seen["sessions_count"], "record": seen["records_count"]}
    counted = " and ".join(plural(count, word) for word, count in counts.items() if count)
    return (
        f"{counted} in this namespace{among}, first {printable(seen['first_id'])}",
        "They could not be read and were started anew. `redismem quarantine list` shows them until they expire.",
    )


def dictionaries(finding: Finding) -> tuple[str, str]:
    """Describe the finding on dictionaries."""
    seen = finding.seen
    if finding.case == "lost":
        lost = ", ".join(map(str, seen["lost"]))
        advice = (
            "Originals compressed with it cannot be read and go into quarantine block by block. A worker that has it "
            "in memory restores it within minutes; else restore the key `rm:{<namespace>}:dictionaries` from a backup. "
            "`redismem check` names the sessions."
        )
        return f"missing or unreadable: {lost} of {seen['newest']}", advice
    return "none trained" if finding.case == "none" else f"{seen['newest']} of {seen['newest']} present", ""


def model(finding: Finding) -> tuple[str, str]:
    """Describe the finding on the summary model."""
    seen = finding.seen
    if finding.case == "refused":
        return seen["error"], "`redismem worker` does not start with these settings, nor does a pod with workers."
    if finding.case == "none":
        return "no model is used", ""
    if finding.case == "no_provider":
        return "a model is named, but not used", "Summaries are written without it: set REDISMEM_MODEL_PROVIDER."
    name = f"{seen['provider']}, {printable(seen['model'])}"
    if finding.case == "no_key":
        return f"{name}: no key is set", "The provider will refuse every request: set REDISMEM_MODEL_API_KEY."
    return name, ""


def summaries(finding: Finding) -> tuple[str, str]:
    """Describe the finding on late summaries."""
    seen = finding.seen
    failing = ""
    if seen["failing_count"]:
        attempts = attempts_of(seen["attempts"], seen["reason"])
        failing = (
            f"; at least {seen['failing_count']:,} failing, the first for {duration(seen['failing_ms'])}: {attempts}"
        )
    if finding.case == "in_time":
        return f"{plural(seen['overdue_count'], 'session')} overdue, none late{failing}", ""
    if finding.case == "failing":
        advice = "Their messages stay. `redismem sessions` lists them; `redismem show` and the workers' logs say why."
        return f"{plural(seen['overdue_count'], 'session')} overdue{failing}", advice
    advice = (
        "No worker claimed it: start `redismem worker` on this Redis and namespace, or connect with `workers=True`. "
        "If one is running, it cannot keep up: start more."
    )
    count = plural(seen["overdue_count"], "session")
    return f"{count} overdue, the oldest for {duration(seen['late_ms'])}: is a worker running?{failing}", advice


def settings(finding: Finding) -> tuple[str, str]:
    """Describe the finding on environment variables."""
    if finding.case == "usable":
        return "all REDISMEM_* variables are valid", ""
    warnings = printable("; ".join(finding.seen["warnings"].values()))
    return warnings, "`redismem settings` lists all settings and the values in use."


def attempts_of(count: int, reason: str | None) -> str:
    """Describe the failed attempts and the last failure. A retried session has no failed attempts yet."""
    why = reason or "no reason recorded"
    return f"{plural(count, 'failed attempt')}, last: {why}" if count > 0 else why
