"""The doctor's rules: one function per question turns what the server reports into a finding.

No I/O. The command line turns findings into text.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from statistics import median
from typing import Any

from redismem.info import Depth
from redismem.protocol.namespace.holds import Hold
from redismem.protocol.queue.provider_pauses import Pause
from redismem.settings.settings import Settings
from redismem.store.limits import NEAR_LIMIT


class Verdict(StrEnum):
    """The verdict of a finding; `n/a` means the question does not apply to this store."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    NOT_HERE = "n/a"


@dataclass(frozen=True, slots=True)
class Finding:
    """The answer to one question: a verdict, a case, and the numbers and names that the text of the case needs."""

    name: str
    verdict: Verdict
    case: str
    seen: Mapping[str, Any] = field(default_factory=dict)


OK, WARN, FAIL, NOT_HERE = Verdict

Facts = Mapping[str, str]
"""Names and values from INFO and CONFIG GET. A value that the server does not report is missing."""

OLDEST = (7, 0)
SLOW_MS = 10
LONG_MS = 120_000
LATE_MS = 60_000
_LATE_TICKS = 5
# The first patch of each line with the fixes of October 2025: CVE-2025-49844 (code execution from Lua), -46817, -46818,
# -46819. https://github.com/redis/docker-library-redis/pull/478, https://github.com/valkey-io/valkey/releases
_LUA_FIXED = {
    "redis": {(6, 2): 20, (7, 2): 11, (7, 4): 6, (8, 0): 4, (8, 2): 2},
    "valkey": {(7, 2): 11, (8, 0): 6, (8, 1): 4},
}


def worst(findings: Sequence[Finding]) -> Finding:
    """Return the finding with the worst verdict, or the first one of several."""
    return max(findings, key=lambda finding: (OK, WARN, FAIL).index(finding.verdict))


def version(info: Facts) -> Finding:
    """Check whether the server's version is supported, and has the security fixes of Lua."""
    make = "valkey" if "valkey_version" in info else "redis"
    text = info.get(f"{make}_version", "")
    numbers = [int(part) if part.isdigit() else 0 for part in (*text.split("."), "0", "0")][:3]
    line, patch = (numbers[0], numbers[1]), numbers[2]
    seen = {"make": make, "version": text}
    if line < OLDEST:
        return Finding("version", FAIL, "too_old", seen)
    fixed = _LUA_FIXED[make]
    if line > max(fixed) or patch >= fixed.get(line, patch + 1):
        return Finding("version", OK, "fixed", seen)
    wanted = f"{line[0]}.{line[1]}.{fixed[line]}" if line in fixed else None
    return Finding("version", WARN, "lua_not_fixed", seen | {"wanted": wanted})


def persistence(info: Facts, config: Facts) -> Finding:
    """Check whether acknowledged writes survive a restart."""
    for name in ("aof_last_write_status", "rdb_last_bgsave_status"):
        if info.get(name, "ok") != "ok":
            return Finding("persistence", FAIL, "cannot_save", {"field": name, "status": info[name]})
    if info.get("aof_enabled") != "1":
        replicas = int(info.get("connected_slaves", 0))
        return Finding("persistence", FAIL if replicas else WARN, "aof_off", {"replicas_count": replicas})
    fsync = config.get("appendfsync")
    if fsync == "no":
        return Finding("persistence", WARN, "fsync_no")
    return Finding("persistence", OK, "aof_on", {"appendfsync": fsync})


def drops_keys(info: Facts) -> bool:
    """True if the server evicts keys when its memory is full. False if it reports no policy."""
    return info.get("maxmemory_policy", "noeviction") != "noeviction"


def memory(info: Facts) -> Finding:
    """Judge the eviction policy and the free memory."""
    used, limit = int(info.get("used_memory", 0)), int(info.get("maxmemory", 0))
    policy = info.get("maxmemory_policy", "unknown")
    seen = {"used_bytes": used, "limit_bytes": limit, "policy": policy}
    if policy != "noeviction":
        return Finding("memory", FAIL if limit else WARN, "evicts", seen)
    if not limit:
        return Finding("memory", WARN, "no_limit", seen)
    if used >= 0.8 * limit:
        return Finding("memory", FAIL if used >= limit else WARN, "nearly_full", seen)
    return Finding("memory", OK, "room", seen)


def replication(info: Facts, config: Facts) -> Finding:
    """Check the server's role, and whether a primary refuses writes once it has lost its replicas."""
    role, replicas = info.get("role", "unknown"), int(info.get("connected_slaves", 0))
    if role == "slave":
        return Finding("replication", FAIL, "is_replica")
    seen = {"replicas_count": replicas}
    if replicas and config.get("min-replicas-to-write") == "0":
        return Finding("replication", WARN, "writes_alone", seen)
    return Finding("replication", OK, "primary", seen)


@dataclass(frozen=True, slots=True)
class Sampled:
    """The expiry of a session's keys (-1 means never, -2 means no key), and the recorded length of its list."""

    session_id: str
    state_ms: int
    messages_ms: int
    element_count: int

    @property
    def is_gone(self) -> bool:
        """True if the session expired since it was listed."""
        return self.state_ms == self.messages_ms == -2

    @property
    def fault(self) -> str:
        """The fault of the session: torn, never_expires or apart; "" means it has none."""
        if self.is_gone:
            return ""
        if self.state_ms == -2 or (self.messages_ms == -2 and self.element_count > 0):
            return "torn"
        if -1 in (self.state_ms, self.messages_ms):
            return "never_expires"
        return "" if self.messages_ms in (self.state_ms, -2) else "apart"


def expiry(sample: Sequence[Sampled]) -> Finding:
    """Check whether the keys of each sampled session expire together."""
    wrong = [session for session in sample if session.fault]
    seen: dict[str, Any] = {"sessions_count": len(sample), "expired_count": sum(session.is_gone for session in sample)}
    if wrong:
        seen |= {"wrong_count": len(wrong), "session_id": wrong[0].session_id, "wrong": wrong[0].fault}
        return Finding("expiry", FAIL, "wrong", seen)
    return Finding("expiry", OK, "together" if sample else "no_sessions", seen)


def records(wrong: Sequence[tuple[str, str]], most_count: int) -> Finding:
    """Check whether records are whole: each violation is a record's id and a text."""
    seen: dict[str, Any] = {"most_count": most_count, "wrong_count": len({record_id for record_id, _ in wrong})}
    if not wrong:
        return Finding("records", OK, "whole", seen)
    return Finding("records", FAIL, "wrong", seen | {"record_id": wrong[0][0], "wrong": wrong[0][1]})


def clock(difference_ms: float, trip_ms: float) -> Finding:
    """Check whether the clocks agree. `difference_ms` is the server's clock minus the local clock."""
    seen = {"difference_ms": difference_ms, "trip_ms": trip_ms}
    if abs(difference_ms) - trip_ms < 1_000:
        return Finding("clock", OK, "near", seen)
    return Finding("clock", WARN, "apart", seen)


def shards(recorded: int | None, set_to: int, *, embedded: bool) -> Finding:
    """Compare the number of shards recorded in Redis with the setting. An embedded store starts without a record."""
    seen = {"recorded": recorded, "set_to": set_to}
    if recorded is None:
        return Finding("shards", OK if embedded else WARN, "not_recorded", seen)
    return Finding("shards", OK, "same", seen) if recorded == set_to else Finding("shards", FAIL, "other", seen)


_RECENT_MS = 3_600_000


def room(sessions_count: int, max_sessions: int, recent_age_ms: int | None = None) -> Finding:
    """Check how many sessions are left before the session limit, and if it removes sessions that are in use.

    `recent_age_ms` is the time since it last evicted a session active within an hour before; `None` means never.
    """
    seen = {"sessions_count": sessions_count, "max_sessions": max_sessions, "left": max_sessions - sessions_count}
    if recent_age_ms is not None and recent_age_ms <= _RECENT_MS:
        return Finding("room", WARN, "recent", seen)
    if sessions_count >= max_sessions:
        return Finding("room", WARN, "full", seen)
    if sessions_count >= NEAR_LIMIT * max_sessions:
        return Finding("room", WARN, "nearly_full", seen)
    return Finding("room", OK, "left", seen)


def ticks(holds: Mapping[str, Hold], now_ms: int, overdue_count: int, ticked_ms: int | None = None) -> Finding:
    """Report which pod polls each queue.

    It is a fault only while sessions are overdue if no pod polls any queue, or if no pod writes summaries.
    """
    living = {work: hold for work, hold in sorted(holds.items()) if hold.until_ms > now_ms}
    if not living:
        age_ms = None if ticked_ms is None else now_ms - ticked_ms
        seen: dict[str, Any] = {"overdue_count": overdue_count, "tick_age_ms": age_ms}
        return Finding("ticks", WARN if overdue_count else OK, "nobody", seen)
    seen = {"holders": {work: hold.holder for work, hold in living.items()}}
    crowded = sorted(work for work, hold in living.items() if hold.is_crowded)
    if overdue_count and not any(work.startswith("summaries/") for work in living):
        return Finding("ticks", WARN, "no_summaries", seen | {"crowded": (), "overdue_count": overdue_count})
    return Finding("ticks", OK, "held", seen | {"crowded": tuple(crowded)})


def providers(paused: Mapping[str, Pause], waiting_count: int, now_ms: int) -> Finding:
    """Judge the paused providers, and count the sessions that wait for a summary.

    If no worker has renewed a pause for long, it may be over, or its provider may no longer be in any pod's settings.
    """
    if not paused:
        return Finding("providers", OK, "answer")
    name, pause = min(paused.items(), key=lambda item: item[1].since_ms)
    seen = {
        "provider": name,
        "reason": pause.reason,
        "failing_ms": now_ms - pause.since_ms,
        "failures_count": pause.failures_count,
        "next_ms": pause.until_ms - now_ms,
        "paused_count": len(paused),
        "waiting_count": waiting_count,
    }
    is_tried = waiting_count > 0 and pause.until_ms + LONG_MS > now_ms
    return Finding("providers", FAIL if is_tried else WARN, "paused", seen)


def summaries(
    overdue: Depth, now_ms: int, settings: Settings, *, is_paused: bool, failing: Sequence[FailureFacts] = ()
) -> Finding:
    """Check whether sessions wait for a summary, or their attempts fail, for longer than a few ticks.

    While a provider is paused, waiting is expected; `providers` reports the pause.
    """
    late_ms = 0 if overdue.first_ms is None else max(0, now_ms - overdue.first_ms)
    first = min(failing, key=lambda failure: failure.since_ms, default=FailureFacts(now_ms, 0, None))
    seen: dict[str, Any] = {"overdue_count": overdue.count, "late_ms": late_ms, "failing_count": len(failing)}
    seen |= {"failing_ms": now_ms - first.since_ms, "attempts": first.attempts, "reason": first.reason}
    long_ms = max(LATE_MS, _LATE_TICKS * 1_000 * settings.tick_s)
    if is_paused or max(late_ms, now_ms - first.since_ms) <= long_ms:
        return Finding("summaries", OK, "in_time", seen)
    return Finding("summaries", WARN, "late" if late_ms > long_ms else "failing", seen)


def environment(warnings: Mapping[str, str]) -> Finding:
    """Judge the environment variables. `warnings` has a text for each unknown one."""
    return Finding("settings", WARN if warnings else OK, "unknown" if warnings else "usable", {"warnings": warnings})


def model(settings: Settings, refused: str) -> Finding:
    """Judge the settings of the summary model. `refused` is the error at a worker's start; "" means it starts."""
    if refused:
        return Finding("model", FAIL, "refused", {"error": refused})
    if settings.model_provider == "extractive":
        return Finding("model", WARN, "no_provider") if settings.unused_of_model else Finding("model", OK, "none")
    seen = {"provider": settings.model_provider, "model": settings.model}
    # A server at a configured address may need no key.
    if settings.model_api_key is None and settings.model_base_url is None:
        return Finding("model", WARN, "no_key", seen)
    return Finding("model", OK, "named", seen)


def dead(dead_count: int, first: FailureFacts | None, now_ms: int) -> Finding:
    """Judge the dead sessions, and say why the session that has been dead longest failed."""
    if first is None:
        return Finding("dead", OK, "none")
    seen = {"dead_count": dead_count, "died_ms": now_ms - first.since_ms, "reason": first.reason}
    return Finding("dead", WARN, "some", seen | {"attempts": first.attempts})


@dataclass(frozen=True, slots=True)
class FailureFacts:
    """A failing or dead session: since when, after how many attempts, and why; `None` means no reason is recorded."""

    since_ms: int
    attempts: int
    reason: str | None


def quarantine(
    session_ids: Sequence[str], looked_at_count: int, is_all: bool, record_ids: Sequence[str] = ()
) -> Finding:
    """Report the sessions and records in quarantine that the scan found. `is_all`: the scan was complete."""
    seen: dict[str, Any] = {"looked_at_count": looked_at_count, "is_all": is_all, "sessions_count": len(session_ids)}
    seen["records_count"] = len(record_ids)
    if session_ids or record_ids:
        return Finding("quarantine", WARN, "some", seen | {"first_id": [*session_ids, *record_ids][0]})
    return Finding("quarantine", OK, "none", seen)


def dictionaries(versions: Sequence[int], readable: Collection[int], dropped: Collection[int] = ()) -> Finding:
    """Check whether every dictionary that originals may need is readable. Dictionaries are numbered from 1."""
    newest = max(versions, default=0)
    lost = sorted(set(range(1, newest + 1)) - set(readable) - set(dropped))
    seen = {"newest": newest, "lost": tuple(lost)}
    if lost:
        return Finding("dictionaries", FAIL, "lost", seen)
    return Finding("dictionaries", OK, "there" if newest else "none", seen)


def latency(pings_ms: Sequence[float]) -> Finding:
    """Judge the round-trip time to the server."""
    seen = {"median_ms": median(pings_ms), "slowest_ms": max(pings_ms), "pings_count": len(pings_ms)}
    return Finding("latency", OK, "near", seen) if median(pings_ms) < SLOW_MS else Finding("latency", WARN, "far", seen)
