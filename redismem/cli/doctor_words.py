"""What the doctor says of the work that is waiting, and of the environment: what was seen, and what to change."""

from __future__ import annotations

import re

from redismem.cli.depths import attempts_of
from redismem.cli.terminal import duration, plural, printable, size
from redismem.inspection.rules import Finding
from redismem.settings.environment import PREFIX, Complaint

_CONFIG = {
    "client-output-buffer-limit": (
        "A client that asks and does not read fills the memory: set `client-output-buffer-limit normal 64mb 16mb 10`."
    ),
    "busy-reply-threshold": "A script that hangs blocks all others for long: set `busy-reply-threshold 5000`.",
    "min-replicas-max-lag": "A primary that is cut off takes writes for that long: set `min-replicas-max-lag 2`.",
}


def config(finding: Finding) -> tuple[str, str]:
    if finding.case == "not_told":
        return "CONFIG GET is not allowed", "What redis.conf says was not looked at."
    wrong = finding.seen["wrong"]
    return ", ".join(wrong) or "as it should be", " ".join(_CONFIG[name] for name in wrong)


def nodes(finding: Finding) -> tuple[str, str]:
    told = []
    for node in finding.seen["nodes"]:
        used = "" if node["used_bytes"] is None else f", {size(node['used_bytes'])} used"
        shards, sessions = plural(node["shards_count"], "shard"), plural(node["sessions_count"], "session")
        told.append(f"{node['place'] or 'one node'}: {shards}, {sessions}{used}")
    advice = "One node has much more than its share: give the nodes equal ranges of slots, one after the other."
    return "; ".join(told), advice if finding.case == "uneven" else ""


def ticks(finding: Finding) -> tuple[str, str]:
    if finding.case == "nobody":
        seen, waiting = "no pod looks after this namespace now", finding.seen["overdue_count"]
        advice = "Start `redismem worker` on this Redis and namespace, or connect with `workers=True`."
        return (f"{seen}, and {plural(waiting, 'session')} overdue", advice) if waiting else (seen, "")
    holders: dict[str, list[str]] = {}
    for work, holder in finding.seen["holders"].items():
        holders.setdefault(holder, []).append(_work(work))
    told = "; ".join(f"{_process(holder)}: {printable(', '.join(works))}" for holder, works in holders.items())
    return f"{told}{' (all pods help)' if finding.seen['crowded'] else ''}", ""


def _process(holder: str) -> str:
    """The process that holds a work, by its machine, which in Kubernetes is the pod, and its pid."""
    machine, _, rest = holder.partition("/")
    pid, _, _ = rest.partition("/")
    return printable(f"process {pid} on {machine}" if pid.isdigit() else holder)


def _work(work: str) -> str:
    """A work, and what tells it from those of pods that are set up differently: limits, or who writes."""
    kind, _, what = work.partition("/")
    if kind == "evictions" and (limits := re.fullmatch(r"(\d{1,18})/(\d{1,18})", what, re.ASCII)):
        return f"{kind} ({plural(int(limits[1]), 'session')}, idle {duration(int(limits[2]))})"
    return f"{kind} ({what})" if what else kind


def providers(finding: Finding) -> tuple[str, str]:
    if finding.case == "answer":
        return "nobody is paused who writes summaries", ""
    seen = finding.seen
    more = f"; {seen['paused_count'] - 1} more" if seen["paused_count"] > 1 else ""
    next_ms = seen["next_ms"]
    probe = f"next try in {duration(next_ms)}" if next_ms > 0 else f"a try is due since {duration(next_ms)}"
    text = (
        f"{printable(seen['provider'])} is paused since {duration(seen['failing_ms'])}: {seen['reason']}; "
        f"{plural(seen['failures_count'], 'failure')}, {probe}; "
        f"{plural(seen['waiting_count'], 'session')} overdue{more}"
    )
    advice = (
        "It answers nobody: look at its status page, and at the key, the model and the address in REDISMEM_MODEL_*. No "
        "session has lost an attempt; what waits for too long is summarised by the extractive summariser."
    )
    return text, advice


def dead(finding: Finding) -> tuple[str, str]:
    if finding.case == "none":
        return "no session is dead", ""
    seen = finding.seen
    why = seen["reason"] or "the reason is not noted"
    count, attempts = plural(seen["dead_count"], "session"), plural(seen["attempts"], "attempt")
    advice = "They are tried again by themselves, ever more rarely. `redismem dead list` has all of them."
    return f"{count}; the longest dead since {duration(seen['died_ms'])}, after {attempts}: {why}", advice


def quarantine(finding: Finding) -> tuple[str, str]:
    seen = finding.seen
    if finding.case == "not_looked":
        return "SCAN is not allowed", "Sessions in quarantine were not looked for."
    among = "" if seen["is_all"] else f" among the first {seen['looked_at_count']:,} keys"
    if finding.case == "none":
        return f"no session of this namespace{among}", ""
    first = printable(seen["session_id"])
    return (
        f"{plural(seen['sessions_count'], 'session')} of this namespace{among}; {first} is the first",
        "They could not be read, and began anew. `redismem quarantine list` shows them until their time runs out.",
    )


def dictionaries(finding: Finding) -> tuple[str, str]:
    seen = finding.seen
    if finding.case == "lost":
        lost = ", ".join(map(str, seen["lost"]))
        advice = (
            "Originals that were compressed with it cannot be read, and go into quarantine block by block. A worker "
            "that has it in memory puts it back within minutes; else bring the key `rm:{<namespace>}:dictionaries` "
            "back from a backup. `redismem check` names the sessions."
        )
        return f"gone, or cannot be read: {lost} of {seen['newest']}", advice
    return "none was trained" if finding.case == "none" else f"{seen['newest']} of {seen['newest']} there", ""


def model(finding: Finding) -> tuple[str, str]:
    seen = finding.seen
    if finding.case == "refused":
        return seen["error"], "`redismem worker` does not start with it, nor does a pod that has workers."
    if finding.case == "none":
        return "none is asked", ""
    if finding.case == "no_provider":
        return "none is asked, though one is named", "Summaries are written without it: set REDISMEM_MODEL_PROVIDER."
    name = f"{seen['provider']}, {printable(seen['model'])}"
    if finding.case == "no_key":
        return f"{name}: no key is set", "It will refuse each request: set REDISMEM_MODEL_API_KEY."
    return name, ""


def summaries(finding: Finding) -> tuple[str, str]:
    seen = finding.seen
    failing = ""
    if seen["failing_count"]:
        told = attempts_of(seen["attempts"], seen["reason"])
        failing = f"; at least {seen['failing_count']:,} failing, the first for {duration(seen['failing_ms'])}: {told}"
    if finding.case == "in_time":
        return f"{plural(seen['overdue_count'], 'session')} overdue, none for long{failing}", ""
    if finding.case == "failing":
        advice = (
            "Their messages stay. `redismem sessions` says which they are, `redismem show` and the workers' logs why."
        )
        return f"{plural(seen['overdue_count'], 'session')} overdue{failing}", advice
    advice = (
        "Nobody has taken it up: start `redismem worker` on this Redis and namespace, or connect with `workers=True`. "
        "Where one runs, it cannot keep up: start more."
    )
    count = plural(seen["overdue_count"], "session")
    return f"{count} overdue, the oldest for {duration(seen['late_ms'])}: is a worker running?{failing}", advice


def settings(finding: Finding) -> tuple[str, str]:
    if finding.case == "usable":
        return "each setting that a REDISMEM_* variable gives is obeyed", ""
    advice = "`redismem settings` lists what there is, and what is in force."
    complaints: tuple[Complaint, ...] = finding.seen["complaints"]
    if any(each.case == "kept" for each in complaints):
        advice = "Until it can be used nothing is removed, so nothing makes room. " + advice
    return "; ".join(map(_said, complaints)), advice


def _said(complaint: Complaint) -> str:
    variable = printable(complaint.variable)
    if complaint.case == "unknown":
        near = f" (did you mean {PREFIX}{complaint.near.upper()}?)" if complaint.near else ""
        return f"{variable} is no setting{near}"
    stands = "the default counts" if complaint.case == "default" else "nothing is removed"
    why = f", as {complaint.why}" if complaint.why else ""
    return f"{variable} cannot be used{why}: {stands}"
