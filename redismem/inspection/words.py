"""Describe the doctor's findings in words, each with advice. The command line and the page show the same words."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from redismem.inspection import work_words
from redismem.inspection.figures import duration, plural, printable, size
from redismem.inspection.rules import WARN, Finding

_NOT_ALLOWED = (
    "Grant the URL's user the rights that pods and workers need: run the last line with its name for USER. "
    "Redis refuses the two patterns `~rm:` for a user that may use all keys (`~*`): leave them out."
)
_NTP = (
    "redismem uses only the server's clock, so sessions are safe; but correcting that clock in one step expires or "
    "prolongs them. Synchronise both clocks (NTP)."
)
_MEMORY_ADVICE = {
    "evicts": "It evicts single keys, so half a conversation may vanish. Set `maxmemory-policy noeviction`.",
    "no_limit": "The kernel may kill a server that grows without limit. Set `maxmemory` below the machine's memory.",
    "nearly_full": "At the limit, appends are refused. Raise `maxmemory`, or lower the timeout or the session limit.",
    "room": "",
}
_EXPIRY_WRONG = {
    "torn": "has lost some of its keys",
    "never_expires": "never expires",
    "apart": "has keys with different expiry times",
}
_EMBEDDED = {
    "version": ("fakeredis, with the same scripts", ""),
    "persistence": (
        "none: the embedded store ends with its process",
        "For data that must last, use a Redis: --url redis://127.0.0.1:6379/0, or REDISMEM_URL.",
    ),
    "memory": ("limited only by this process", ""),
    "replication": ("one copy, in this process", ""),
}


def words_of(finding: Finding) -> tuple[str, str]:
    """Describe a finding, and return the advice with it; "" if there is nothing to change."""
    if finding.case == "embedded":
        return _EMBEDDED[finding.name]
    if finding.case in ("not_allowed", "failed"):
        return str(finding.seen["error"]), _NOT_ALLOWED if finding.case == "not_allowed" else ""
    return _WORDS[finding.name](finding)


def _connection(finding: Finding) -> tuple[str, str]:
    if finding.case == "answers":
        return "the server answers", ""
    advice = "Is the server up, is the address right, may this user connect? Nothing else could be checked."
    return str(finding.seen["error"]), advice


def _server(finding: Finding) -> tuple[str, str]:
    del finding
    return "INFO is not allowed", "Version, persistence and memory were not checked."


def _version(finding: Finding) -> tuple[str, str]:
    seen = f"{finding.seen['make'].capitalize()} {finding.seen['version'] or 'of unknown version'}"
    if finding.case == "too_old":
        return seen, "redismem needs 7.0 or newer: update the server."
    if finding.case == "fixed":
        return f"{seen}, Lua fixes of October 2025 included", ""
    fixed_version = finding.seen["wanted"]
    update = f"update to {fixed_version}" if fixed_version else "update to a supported release"
    return (
        f"{seen}: without the Lua fixes of October 2025",
        f"CVE-2025-49844 lets a user of scripts execute code on the server: {update}, unless your distribution "
        "has patched this version (Debian: 7.0.15-1~deb12u6), and let only trusted clients connect.",
    )


def _persistence(finding: Finding) -> tuple[str, str]:
    seen = finding.seen
    if finding.case == "cannot_save":
        advice = "The server refuses writes while it cannot save (MISCONF): check its disk and its log."
        return f"{seen['field']} is {seen['status']}", advice
    if finding.case == "aof_off":
        why = "A restart loses every session since the last snapshot."
        if seen["replicas_count"]:
            why = "A primary that restarts empty also empties its replicas."
        return "AOF is off", f"{why} Set `appendonly yes` and `appendfsync everysec`."
    if finding.case == "fsync_no":
        return (
            "AOF on, appendfsync no",
            "A power failure loses writes that the system has not flushed. Set `appendfsync everysec`.",
        )
    fsync = seen["appendfsync"]
    return "AOF on" + (f", appendfsync {fsync}" if fsync else ""), ""


def _memory(finding: Finding) -> tuple[str, str]:
    seen, limit = finding.seen, finding.seen["limit_bytes"]
    room = f"limit {size(limit)}" if limit else "no limit"
    return f"{size(seen['used_bytes'])} used, {room}, {seen['policy']}", _MEMORY_ADVICE[finding.case]


def _replication(finding: Finding) -> tuple[str, str]:
    if finding.case == "is_replica":
        return "this is a replica", "It refuses writes: name the primary in the URL."
    advice = "A primary without its replicas takes writes that a failover loses. Set `min-replicas-to-write 1`."
    seen = f"primary, {plural(finding.seen['replicas_count'], 'replica')}"
    return seen, advice if finding.case == "writes_alone" else ""


def _expiry(finding: Finding) -> tuple[str, str]:
    seen = finding.seen
    sessions = plural(seen["sessions_count"], "session")
    if finding.case == "wrong":
        return (
            f"{seen['wrong_count']} of {sessions}; {printable(seen['session_id'])} {_EXPIRY_WRONG[seen['wrong']]}",
            "Something other than redismem deletes or changes its keys: an eviction policy, another program, a script.",
        )
    if finding.case == "no_sessions":
        return "no sessions in this namespace yet", ""
    expired = f"; {seen['expired_count']} expired, listed until the next sweep" if seen["expired_count"] else ""
    return f"{sessions} checked: state and messages expire together{expired}", ""


def _records(finding: Finding) -> tuple[str, str]:
    seen = finding.seen
    if finding.case == "wrong":
        return (
            f"{plural(seen['wrong_count'], 'record')} damaged; {printable(seen['record_id'])}: {seen['wrong']}",
            "`redismem check` lists all of them. `Record.clear()` removes one, with all that is in it.",
        )
    return f"no damage in the first {seen['most_count']:,} records", ""


def _clock(finding: Finding) -> tuple[str, str]:
    difference_ms, trip_ms = finding.seen["difference_ms"], finding.seen["trip_ms"]
    if finding.case == "near":
        return f"within {duration(max(1, abs(difference_ms) + trip_ms))} of this machine's clock", ""
    word = "ahead of" if difference_ms > 0 else "behind"
    return f"{duration(difference_ms)} {word} this machine's clock", _NTP


def _shards(finding: Finding) -> tuple[str, str]:
    recorded, set_to = finding.seen["recorded"], finding.seen["set_to"]
    if finding.case == "not_recorded":
        advice = (
            "Is its name right? `redismem namespaces` lists the existing ones. The first process that uses a new "
            f"namespace records it, with {set_to} shards."
        )
        return "this namespace was never used", advice if finding.verdict == WARN else ""
    if finding.case == "same":
        return f"{recorded}, same as in the settings", ""
    advice = f"Sessions would be sought in the wrong shard, so every call is refused. Set REDISMEM_SHARDS={recorded}."
    return f"{recorded} recorded, {set_to} in the settings", advice


def _latency(finding: Finding) -> tuple[str, str]:
    seen = finding.seen
    text = f"median {seen['median_ms']:.2f} ms, slowest {seen['slowest_ms']:.2f} ms of {seen['pings_count']} pings"
    advice = "A turn costs one round trip: move the server closer to its clients."
    return text, advice if finding.case == "far" else ""


def _room(finding: Finding) -> tuple[str, str]:
    seen = finding.seen
    text = f"{plural(seen['sessions_count'], 'session')} of {seen['max_sessions']:,}"
    if finding.case == "recent":
        text += "; within the last hour sessions were evicted that had been active in the hour before"
    advice = "Above it the least recently active sessions are evicted. Raise `REDISMEM_MAX_SESSIONS` for the workers."
    return text, advice if finding.case != "left" else ""


def _commands(finding: Finding) -> tuple[str, str]:
    del finding
    return "this user may run all commands that pods and workers need", ""


def _scripts(finding: Finding) -> tuple[str, str]:
    if finding.case == "not_loaded":
        advice = "Run `redismem deploy --watch` as a user that may load scripts."
        return "not loaded, and this user may not load them", advice
    if finding.case == "run_only":
        return "one script run; this user may not load scripts, as recommended for applications", ""
    return f"{plural(finding.seen['scripts_count'], 'script')} loaded, one script run", ""


_WORDS: dict[str, Callable[[Finding], tuple[str, str]]] = {
    "connection": _connection,
    "server": _server,
    "version": _version,
    "persistence": _persistence,
    "memory": _memory,
    "replication": _replication,
    "config": work_words.config,
    "nodes": work_words.nodes,
    "clock": _clock,
    "latency": _latency,
    "commands": _commands,
    "scripts": _scripts,
    "shards": _shards,
    "room": _room,
    "expiry": _expiry,
    "records": _records,
    "ticks": work_words.ticks,
    "dictionaries": work_words.dictionaries,
    "providers": work_words.providers,
    "summaries": work_words.summaries,
    "dead": work_words.dead,
    "quarantine": work_words.quarantine,
    "model": work_words.model,
    "settings": work_words.settings,
}


def acl_of(findings: Sequence[Finding]) -> str:
    """Return the ACL command that grants the missing rights; "" if no call was refused.

    The command takes no rights away from the user.
    """
    return next((f"ACL SETUSER USER {each.seen['acl']}" for each in findings if each.case == "not_allowed"), "")
