"""The doctor's rules on the server: one function per question turns what the server reports into a finding. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from redismem.inspection.figures import duration, plural, size
from redismem.inspection.findings import FAIL, OK, WARN, Facts, Finding

_OLDEST = (7, 0)
_SLOW_MS = 10
# The first patch of each line with the fixes of October 2025: CVE-2025-49844 (code execution from Lua), -46817, -46818,
# -46819. https://github.com/redis/docker-library-redis/pull/478, https://github.com/valkey-io/valkey/releases
_LUA_FIXED = {
    "redis": {(6, 2): 20, (7, 2): 11, (7, 4): 6, (8, 0): 4, (8, 2): 2},
    "valkey": {(7, 2): 11, (8, 0): 6, (8, 1): 4},
}
# The fullest node may hold this many times its share: shards are spread evenly, sessions nearly so.
_EVEN = 1.5
_FEW_SESSIONS = 1_000
# A server answers no client until a script has run for this long; other nodes of a cluster declare it dead after 15 s.
_BUSY_MS = 5_000


def version(info: Facts) -> Finding:
    """Check whether the server's version is supported, and has the security fixes of Lua."""
    make = "valkey" if "valkey_version" in info else "redis"
    number = info.get(f"{make}_version", "")
    numbers = [int(part) if part.isdigit() else 0 for part in (*number.split("."), "0", "0")][:3]
    line, patch = (numbers[0], numbers[1]), numbers[2]
    text, fixed = f"{make.capitalize()} {number or 'of unknown version'}", _LUA_FIXED[make]
    if line < _OLDEST:
        return Finding("version", FAIL, text, "redismem needs 7.0 or newer: update the server.")
    if line > max(fixed) or patch >= fixed.get(line, patch + 1):
        return Finding("version", OK, f"{text}, Lua fixes of October 2025 included")
    release = f"{line[0]}.{line[1]}.{fixed[line]}" if line in fixed else "a supported release"
    return Finding(
        "version",
        WARN,
        f"{text}: without the Lua fixes of October 2025",
        f"CVE-2025-49844 lets a user of scripts execute code on the server: update to {release}, unless your "
        "distribution has patched this version (Debian: 7.0.15-1~deb12u6), and let only trusted clients connect.",
    )


def persistence(info: Facts, config: Facts) -> Finding:
    """Check whether acknowledged writes survive a restart."""
    for field in ("aof_last_write_status", "rdb_last_bgsave_status"):
        if info.get(field, "ok") != "ok":
            advice = "The server refuses writes while it cannot save (MISCONF): check its disk and its log."
            return Finding("persistence", FAIL, f"{field} is {info[field]}", advice)
    if info.get("aof_enabled") != "1":
        replicas_count = int(info.get("connected_slaves", 0))
        why = "A restart loses every session since the last snapshot."
        if replicas_count:
            why = "A primary that restarts empty also empties its replicas."
        advice = f"{why} Set `appendonly yes` and `appendfsync everysec`."
        return Finding("persistence", FAIL if replicas_count else WARN, "AOF is off", advice)
    fsync = config.get("appendfsync")
    text = "AOF on" + (f", appendfsync {fsync}" if fsync else "")
    if fsync != "no":
        return Finding("persistence", OK, text)
    advice = "A power failure loses writes that the system has not flushed. Set `appendfsync everysec`."
    return Finding("persistence", WARN, text, advice)


def drops_keys(info: Facts) -> bool:
    """True if the server evicts keys when its memory is full. False if it reports no policy."""
    return info.get("maxmemory_policy", "noeviction") != "noeviction"


def memory(info: Facts) -> Finding:
    """Judge the eviction policy and the free memory."""
    used, limit = int(info.get("used_memory", 0)), int(info.get("maxmemory", 0))
    policy = info.get("maxmemory_policy", "unknown")
    text = f"{size(used)} used, {f'limit {size(limit)}' if limit else 'no limit'}, {policy}"
    if policy != "noeviction":
        advice = "It evicts single keys, so half a conversation may vanish. Set `maxmemory-policy noeviction`."
        return Finding("memory", FAIL if limit else WARN, text, advice)
    if not limit:
        advice = "The kernel may kill a server that grows without limit. Set `maxmemory` below the machine's memory."
        return Finding("memory", WARN, text, advice)
    if used < 0.8 * limit:
        return Finding("memory", OK, text)
    advice = "At the limit, appends are refused. Raise `maxmemory`, or lower the timeout or the session limit."
    return Finding("memory", FAIL if used >= limit else WARN, text, advice)


def replication(info: Facts, config: Facts) -> Finding:
    """Check the server's role, and whether a primary refuses writes once it has lost its replicas."""
    if info.get("role") == "slave":
        advice = "It refuses writes: name the primary in the URL."
        return Finding("replication", FAIL, "this is a replica", advice)
    replicas_count = int(info.get("connected_slaves", 0))
    text = f"primary, {plural(replicas_count, 'replica')}"
    if not replicas_count or config.get("min-replicas-to-write") != "0":
        return Finding("replication", OK, text)
    advice = "A primary without its replicas takes writes that a failover loses. Set `min-replicas-to-write 1`."
    return Finding("replication", WARN, text, advice)


def config(facts: Facts) -> Finding:
    """Judge the settings of redis.conf that no other rule judges."""
    if not facts:
        return Finding("config", WARN, "CONFIG GET is not allowed", "The settings of redis.conf were not checked.")
    wrong = {}
    if facts.get("client-output-buffer-limit", "").startswith("normal 0 0 0"):
        wrong["client-output-buffer-limit"] = (
            "A client that never reads its replies fills the memory: set `client-output-buffer-limit normal 64mb 16mb "
            "10`."
        )
    busy = facts.get("busy-reply-threshold") or facts.get("lua-time-limit")
    if busy is not None and (int(busy) == 0 or int(busy) > _BUSY_MS):
        wrong["busy-reply-threshold"] = (
            "A hanging script blocks all other clients too long: set `busy-reply-threshold 5000`."
        )
    if facts.get("min-replicas-to-write", "0") != "0" and int(facts.get("min-replicas-max-lag", 10)) > 10:
        wrong["min-replicas-max-lag"] = (
            "A primary without its replicas accepts writes that long: set `min-replicas-max-lag 2`."
        )
    return Finding("config", WARN if wrong else OK, ", ".join(wrong) or "as recommended", " ".join(wrong.values()))


@dataclass(frozen=True, slots=True)
class Node:
    """The part of a namespace on one node. `used_bytes` covers the whole node; `None` means it does not report it."""

    place: str
    shards_count: int
    sessions_count: int
    used_bytes: int | None

    def __str__(self) -> str:
        used = "" if self.used_bytes is None else f", {size(self.used_bytes)} used"
        shards, sessions = plural(self.shards_count, "shard"), plural(self.sessions_count, "session")
        return f"{self.place or 'one node'}: {shards}, {sessions}{used}"


def spread(nodes: Sequence[Node]) -> Finding:
    """Judge how evenly the sessions are spread over the nodes."""
    text = "; ".join(map(str, nodes))
    total, fullest = sum(node.sessions_count for node in nodes), max(node.sessions_count for node in nodes)
    if total < _FEW_SESSIONS or fullest <= _EVEN * total / len(nodes):
        return Finding("nodes", OK, text)
    advice = "One node holds much more than its share: give each node an equal, contiguous range of slots."
    return Finding("nodes", WARN, text, advice)


def clock(difference_ms: float, trip_ms: float) -> Finding:
    """Check whether the clocks agree. `difference_ms` is the server's clock minus the local clock."""
    if abs(difference_ms) - trip_ms < 1_000:
        within = duration(max(1, abs(difference_ms) + trip_ms))
        return Finding("clock", OK, f"within {within} of this machine's clock")
    word = "ahead of" if difference_ms > 0 else "behind"
    return Finding(
        "clock",
        WARN,
        f"{duration(difference_ms)} {word} this machine's clock",
        "redismem uses only the server's clock, so sessions are safe; but correcting that clock in one step expires or "
        "prolongs them. Synchronise both clocks (NTP).",
    )


def latency(pings_ms: Sequence[float]) -> Finding:
    """Judge the round-trip time to the server."""
    middle = median(pings_ms)
    text = f"median {middle:.2f} ms, slowest {max(pings_ms):.2f} ms of {len(pings_ms)} pings"
    if middle < _SLOW_MS:
        return Finding("latency", OK, text)
    return Finding("latency", WARN, text, "A turn costs one round trip: move the server closer to its clients.")
