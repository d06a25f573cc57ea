"""Looks at a server and a namespace, and holds what it sees against the rules. Changes nothing."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace

from redismem.errors import NotAllowed, RedismemError, StoreUnavailable, WrongShards
from redismem.info import SessionInfo
from redismem.inspection import nodes, rules, servers
from redismem.inspection.dead import list_dead
from redismem.inspection.depths import depths_of, sessions_count
from redismem.inspection.quarantine import list_quarantined
from redismem.inspection.rules import FAIL, NOT_HERE, OK, WARN, Facts, FailureFacts, Finding, Sampled
from redismem.inspection.sessions import infos_of
from redismem.messages.values import Undecodable
from redismem.protocol import ids, layout, permissions, scripts
from redismem.protocol.call import Call
from redismem.protocol.namespace import calls as namespace_calls
from redismem.protocol.namespace import dictionaries
from redismem.protocol.namespace import holds as tick_calls
from redismem.protocol.queue import depths as depth_calls
from redismem.protocol.queue import provider_pauses
from redismem.store.store import Store

SAMPLE_COUNT = 200
PINGS_COUNT = 50
# What is in quarantine has no index, and a doctor is soon done.
LOOKED_AT_COUNT = 200_000
QUARANTINED_COUNT = 1_000
_CONFIG = (
    *("appendfsync", "min-replicas-to-write", "min-replicas-max-lag"),
    *("client-output-buffer-limit", "busy-reply-threshold"),
)


async def examine(store: Store, *, embedded: bool) -> list[Finding]:
    """A finding a question. A server that does not answer is one, too; nothing is raised for it."""
    try:
        await store.ping()  # connects, which must not count as the way of an answer
        start = time.time()
        server_ms = await store.server_time_ms()
        trip_ms = (time.time() - start) * 1000
    except StoreUnavailable as error:
        return [Finding("connection", FAIL, "unavailable", {"error": str(error)})]
    except NotAllowed as error:
        return [_refused(store, "connection", error)]
    found = [Finding("connection", OK, "answers")]
    if embedded:
        found += [Finding(name, NOT_HERE, "embedded") for name in ("version", "persistence", "memory", "replication")]
    else:
        found += await _server(store)
    found.append(rules.clock(server_ms - (start * 1000 + trip_ms / 2), trip_ms))
    found.append(rules.latency([await _ping_ms(store) for _ in range(PINGS_COUNT)]))
    if not embedded:
        found.append(await _looked_at(store, "commands", _commands(store)))
    found.append(await _looked_at(store, "shards", _shards(store, embedded)))
    for name, looking in _LOOKS.items():
        found.append(await _looked_at(store, name, looking(store)))
    return found


async def _looked_at(store: Store, name: str, looking: Awaitable[Finding]) -> Finding:
    """The finding, or why there is none."""
    try:
        return await looking
    except RedismemError as error:
        return _refused(store, name, error)


def _refused(store: Store, name: str, error: RedismemError) -> Finding:
    if isinstance(error, NotAllowed):
        told = {"error": permissions.strip_advice(error), "acl": permissions.acl(store.keys.namespace)}
        return Finding(name, FAIL, "not_allowed", told)
    return Finding(name, FAIL, "failed", {"error": str(error)})


async def _server(store: Store) -> list[Finding]:
    info = await servers.facts(store, ("INFO",))
    if not info:
        return [Finding("server", WARN, "no_info")]
    infos = await servers.memory_of(store)
    told = [await servers.facts(store, ("CONFIG", "GET", each)) for each in _CONFIG]
    config = {name: value for found in told for name, value in found.items()}
    return [
        rules.version(info),
        rules.persistence(info, config),
        rules.worst([rules.memory(each) for each in infos.values() if each] or [rules.memory(info)]),
        rules.replication(info, config),
        nodes.config(config),
        await _looked_at(store, "nodes", _nodes(store, infos)),
    ]


async def _nodes(store: Store, infos: Mapping[str, Facts]) -> Finding:
    return nodes.spread(await nodes.nodes_of(store, infos))


async def _ping_ms(store: Store) -> float:
    start = time.perf_counter()
    await store.ping()
    return (time.perf_counter() - start) * 1000


async def _commands(store: Store) -> Finding:
    """Whether this user may run every command there is in the scripts and beside them; none of them is carried out."""
    on_cluster = store.breakers is not None
    try:
        await store.run(permissions.check_permissions(store.keys.session(ids.new_session_id()), on_cluster=on_cluster))
    except StoreUnavailable as refused:
        if refused.reason not in ("ERR", "EXECABORT"):
            raise
    return Finding("commands", OK, "allowed")


async def _scripts(store: Store) -> Finding:
    """Loads all of them, if it may, and runs one on a session that is not there, which changes nothing."""
    names, case = scripts.names(), "run"
    try:
        for name in names:
            await store.run(Call(None, (("SCRIPT", "LOAD", scripts.load(name).source),), bool))
    except NotAllowed:
        case = "run_only"
    nobody = store.session_calls(ids.new_session_id())
    try:
        await store.run(replace(nobody.touch(), session_id=None))
    except StoreUnavailable as refused:
        if refused.reason != "NOSCRIPT":
            raise
        return Finding("scripts", FAIL, "not_loaded")
    return Finding("scripts", OK, case, {"scripts_count": len(names)})


async def _shards(store: Store, embedded: bool) -> Finding:
    recorded = await store.run(namespace_calls.read_shard_count(store.keys))
    return rules.shards(recorded, store.settings.shards, embedded=embedded)


async def _room(store: Store) -> Finding:
    with contextlib.suppress(WrongShards):  # another finding says so
        await store.look()  # others may have been given a larger limit than the default
    return rules.room(await sessions_count(store), store.session_limit)


async def _providers(store: Store) -> Finding:
    paused = await store.run(provider_pauses.list_pauses(store.keys))
    waiting = (await depths_of(store)).total("overdue").count if paused else 0
    return rules.providers(paused, waiting, await store.server_time_ms())


async def _ticks(store: Store) -> Finding:
    holds = await store.run(tick_calls.holds(store.keys))
    depths = await depths_of(store)
    return rules.ticks(holds, depths.now_ms, depths.total("overdue").count)


async def is_looked_after(store: Store) -> bool:
    """Whether a process with workers looks after the namespace now. Raises StoreUnavailable, NotAllowed."""
    holds = await store.run(tick_calls.holds(store.keys))
    now_ms = await store.server_time_ms()
    return any(hold.until_ms > now_ms for hold in holds.values())


async def _summaries(store: Store) -> Finding:
    depths = await depths_of(store)
    paused = await store.run(provider_pauses.list_pauses(store.keys))
    overdue = depths.total("overdue")
    failing = await _failing(store) if overdue.count else []
    return rules.summaries(overdue, depths.now_ms, store.settings, is_paused=bool(paused), failing=failing)


async def _failing(store: Store) -> list[FailureFacts]:
    """What fails among the sessions that are overdue: of those due first, about as many as are looked at for expiry."""
    limit = max(1, SAMPLE_COUNT // store.keys.shard_count)
    found = await store.run(depth_calls.members(store.keys, "overdue", limit))
    infos = await infos_of(store, found)
    return [
        FailureFacts(info.failing_since_ms, info.attempts, info.failure)
        for info in infos
        if isinstance(info, SessionInfo) and info.failing_since_ms is not None
    ]


async def _dead(store: Store) -> Finding:
    found = await list_dead(store, 1)
    facts = [
        FailureFacts(each.died_ms, each.info.attempts, each.info.failure)
        if isinstance(each.info, SessionInfo)
        else FailureFacts(each.died_ms, 0, None)
        for each in found.sessions
    ]
    return rules.dead(found.count, next(iter(facts), None), found.now_ms)


async def _expiry(store: Store) -> Finding:
    since_ms = await store.server_time_ms() - store.settings.idle_timeout_ms
    page = await store.run(namespace_calls.page(store.keys, SAMPLE_COUNT, None, since_ms))
    return rules.expiry([await store.run(_sampled(store, entry.session_id)) for entry in page.sessions])


async def _quarantine(store: Store) -> Finding:
    try:
        found = await list_quarantined(store, QUARANTINED_COUNT, looked_at_limit=LOOKED_AT_COUNT)
    except NotAllowed:
        return Finding("quarantine", WARN, "not_looked")
    return rules.quarantine([each.session_id for each in found.sessions], found.looked_at_count, found.cursor is None)


async def _dictionaries(store: Store) -> Finding:
    """The finding about the dictionaries as they stand in Redis, whatever this process has read before."""
    versions = await store.run(dictionaries.versions(store.keys))
    found = await store.run(dictionaries.read(store.keys, versions)) if versions else {}
    return rules.dictionaries(versions, found.keys())


def _sampled(store: Store, session_id: str) -> Call[Sampled]:
    """The call that looks at one session, in one transaction, so that no append comes between."""
    keys = store.keys.session(session_id)

    def decode(state_ms: int, messages_ms: int, field: bytes | None) -> Sampled:
        try:
            element_count = layout.counters(field or b"").element_count
        except (Undecodable, RedismemError):
            element_count = 0
        return Sampled(session_id, state_ms, messages_ms, element_count)

    counters = ("HGET", keys.state, layout.COUNTERS)
    return Call(None, (("PEXPIRETIME", keys.state), ("PEXPIRETIME", keys.messages), counters), decode)


_LOOKS: dict[str, Callable[[Store], Awaitable[Finding]]] = {
    "scripts": _scripts,
    "room": _room,
    "expiry": _expiry,
    "ticks": _ticks,
    "providers": _providers,
    "summaries": _summaries,
    "dead": _dead,
    "dictionaries": _dictionaries,
    "quarantine": _quarantine,
}
