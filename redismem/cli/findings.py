"""What the doctor makes of what it sees: one function a question, from facts to a verdict. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from redismem.cli.terminal import duration, plural, size

OK, WARN, FAIL, NOT_HERE = "ok", "warn", "fail", "n/a"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the doctor's report, and what to change, and why, where something is to be changed."""

    name: str
    verdict: str
    seen: str
    advice: str = ""


Facts = Mapping[str, str]
"""Names and values of INFO and CONFIG GET; what the server does not tell is not there."""

OLDEST = (7, 0)
# The first patch of each line with the fixes of October 2025: CVE-2025-49844 (code execution from Lua), -46817, -46818,
# -46819. https://github.com/redis/docker-library-redis/pull/478, https://github.com/valkey-io/valkey/releases
_LUA_FIXED = {
    "redis": {(6, 2): 20, (7, 2): 11, (7, 4): 6, (8, 0): 4, (8, 2): 2},
    "valkey": {(7, 2): 11, (8, 0): 6, (8, 1): 4},
}


def version(info: Facts) -> Finding:
    make = "valkey" if "valkey_version" in info else "redis"
    text = info.get(f"{make}_version", "")
    numbers = [int(part) if part.isdigit() else 0 for part in (*text.split("."), "0", "0")][:3]
    line, patch = (numbers[0], numbers[1]), numbers[2]
    seen = f"{make.capitalize()} {text or 'of unknown version'}"
    if line < OLDEST:
        return Finding("version", FAIL, seen, "redismem needs 7.0 or newer: update the server.")
    fixed = _LUA_FIXED[make]
    if line > max(fixed) or patch >= fixed.get(line, patch + 1):
        return Finding("version", OK, f"{seen}, Lua fixes of October 2025 included")
    newest = f"update to {line[0]}.{line[1]}.{fixed[line]}" if line in fixed else "update to a newer line"
    return Finding(
        "version",
        WARN,
        f"{seen}: without the Lua fixes of October 2025",
        f"CVE-2025-49844 lets who may run scripts run code on the server: {newest}, unless your distribution has "
        "patched this version (Debian: 7.0.15-1~deb12u6), and let only those you trust connect.",
    )


def persistence(info: Facts, config: Facts) -> Finding:
    replicas = int(info.get("connected_slaves", 0))
    for name in ("aof_last_write_status", "rdb_last_bgsave_status"):
        if info.get(name, "ok") != "ok":
            advice = "The server refuses writes while it cannot save (MISCONF): look at its disk and its log."
            return Finding("persistence", FAIL, f"{name} is {info[name]}", advice)
    if info.get("aof_enabled") != "1":
        why = "A restart loses every session since the last snapshot."
        if replicas:
            why = "A primary that restarts empty empties its replicas too."
        advice = f"{why} Set `appendonly yes` and `appendfsync everysec`."
        return Finding("persistence", FAIL if replicas else WARN, "AOF is off", advice)
    fsync = config.get("appendfsync")
    if fsync == "no":
        advice = "A power cut loses what the system has not written yet. Set `appendfsync everysec`."
        return Finding("persistence", WARN, "AOF on, appendfsync no", advice)
    return Finding("persistence", OK, "AOF on" + (f", appendfsync {fsync}" if fsync else ""))


def memory(info: Facts) -> Finding:
    used, limit = int(info.get("used_memory", 0)), int(info.get("maxmemory", 0))
    policy = info.get("maxmemory_policy", "unknown")
    seen = f"{size(used)} used, " + (f"limit {size(limit)}, {policy}" if limit else f"no limit, {policy}")
    if policy != "noeviction":
        advice = "It drops single keys, so half a conversation may go. Set `maxmemory-policy noeviction`."
        return Finding("memory", FAIL if limit else WARN, seen, advice)
    if not limit:
        advice = "The system may end a server that grows without limit. Set `maxmemory` below the machine's memory."
        return Finding("memory", WARN, seen, advice)
    if used >= 0.8 * limit:
        advice = "At the limit, appends are refused. Raise `maxmemory`, or lower the timeout or the session limit."
        return Finding("memory", FAIL if used >= limit else WARN, seen, advice)
    return Finding("memory", OK, seen)


def replication(info: Facts, config: Facts) -> Finding:
    role, replicas = info.get("role", "unknown"), int(info.get("connected_slaves", 0))
    if role == "slave":
        return Finding("replication", FAIL, "this is a replica", "It refuses writes: name the primary in the URL.")
    seen = f"primary, {plural(replicas, 'replica')}"
    if replicas and config.get("min-replicas-to-write") == "0":
        advice = "A primary that is cut off goes on taking writes that a failover loses. Set `min-replicas-to-write 1`."
        return Finding("replication", WARN, seen, advice)
    return Finding("replication", OK, seen)


@dataclass(frozen=True, slots=True)
class Sampled:
    """When a session's keys expire (-1: never, -2: not there), and how long its state says its window is."""

    session_id: str
    state_ms: int
    messages_ms: int
    window_count: int

    @property
    def gone(self) -> bool:
        return self.state_ms == self.messages_ms == -2

    @property
    def wrong(self) -> str:
        """What should not be; "" where all is well."""
        if self.gone:
            return ""
        if self.state_ms == -2 or (self.messages_ms == -2 and self.window_count > 0):
            return "has lost a part of its keys"
        if -1 in (self.state_ms, self.messages_ms):
            return "never expires"
        return "" if self.messages_ms in (self.state_ms, -2) else "has keys that expire one before the other"


def expiry(sample: Sequence[Sampled]) -> Finding:
    wrong = [each for each in sample if each.wrong]
    gone = sum(each.gone for each in sample)
    if wrong:
        advice = (
            "Something else than redismem deletes or changes its keys: an eviction policy, another program, a script."
        )
        seen = f"{len(wrong)} of {plural(len(sample), 'session')}; {wrong[0].session_id} {wrong[0].wrong}"
        return Finding("expiry", FAIL, seen, advice)
    if not sample:
        return Finding("expiry", OK, "no sessions in this namespace yet")
    expired = f"; {gone} expired, still listed until swept" if gone else ""
    return Finding(
        "expiry", OK, f"{plural(len(sample), 'session')} looked at: state and messages expire together{expired}"
    )


def clock(difference_ms: float, trip_ms: float) -> Finding:
    """`difference_ms`: the server's clock minus the one here."""
    if abs(difference_ms) - trip_ms < 1_000:
        return Finding("clock", OK, f"within {duration(max(1, abs(difference_ms) + trip_ms))} of this machine's")
    word = "ahead of" if difference_ms > 0 else "behind"
    advice = (
        "redismem goes by the server's clock alone, so sessions are safe; but a clock that is put right may end or "
        "prolong them at once. Synchronise both (NTP)."
    )
    return Finding("clock", WARN, f"{duration(difference_ms)} {word} this machine's", advice)


def shards(recorded: int | None, set_to: int) -> Finding:
    if recorded is None:
        return Finding("shards", OK, f"not recorded yet: the first session fixes {set_to}")
    if recorded == set_to:
        return Finding("shards", OK, f"{recorded}, as in the settings")
    advice = f"A session would be looked for where it is not; every call is refused. Set REDISMEM_SHARDS={recorded}."
    return Finding("shards", FAIL, f"recorded {recorded}, the settings say {set_to}", advice)


def latency(pings_ms: Sequence[float]) -> Finding:
    middle = median(pings_ms)
    seen = f"median {middle:.2f} ms, slowest {max(pings_ms):.2f} ms of {len(pings_ms)} pings"
    if middle < 10:
        return Finding("latency", OK, seen)
    return Finding("latency", WARN, seen, "A turn costs one round trip: move the server nearer to those who call it.")
