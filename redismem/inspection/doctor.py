"""Examine a server and a namespace, and judge them by the rules. Changes nothing."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from redismem.context.info import SessionInfo
from redismem.errors import InvalidSettings, NotAllowed, RedismemError, StoreUnavailable, WrongShards
from redismem.inspection import namespace_rules, server_rules, servers, work_rules
from redismem.inspection.dead import list_dead
from redismem.inspection.figures import plural
from redismem.inspection.findings import FAIL, NOT_HERE, OK, WARN, Facts, Finding, worst
from redismem.inspection.namespace_rules import Sampled
from redismem.inspection.quarantine import list_quarantined
from redismem.inspection.records import check_records
from redismem.inspection.sessions import infos_of
from redismem.inspection.work_rules import FailureFacts
from redismem.messages.values import Undecodable
from redismem.protocol import ids, layout, permissions, scripts
from redismem.protocol.call import Call
from redismem.protocol.namespace import calls as namespace_calls
from redismem.protocol.namespace import dictionaries
from redismem.protocol.namespace import holds as tick_calls
from redismem.protocol.queue import depths as depth_calls
from redismem.protocol.queue import provider_pauses
from redismem.settings.environment import unknown_variables
from redismem.settings.settings import Settings
from redismem.store.depths import Depths, depths_of
from redismem.store.sessions import read_sessions
from redismem.store.store import Store

SAMPLE_COUNT = 200
PINGS_COUNT = 50
# The quarantine has no index, so its search is bounded to keep the examination short.
LOOKED_AT_COUNT = 200_000
QUARANTINED_COUNT = 1_000
RECORDS_COUNT = 1_000
_CONFIG = (
    *("appendfsync", "min-replicas-to-write", "min-replicas-max-lag"),
    *("client-output-buffer-limit", "busy-reply-threshold"),
)

_NOT_ALLOWED = (
    "Grant the URL's user the rights that pods and workers need: run the last line with its name for USER. "
    "Redis refuses the patterns `~rm:` for a user that may use all keys (`~*`), and `&rm:` for one that may use all "
    "channels (`&*`): leave them out."
)
_EMBEDDED = (
    Finding("version", NOT_HERE, "fakeredis, with the same scripts"),
    Finding(
        "persistence",
        NOT_HERE,
        "none: the embedded store ends with its process",
        "For data that must last, use a Redis: --url redis://127.0.0.1:6379/0, or REDISMEM_URL.",
    ),
    Finding("memory", NOT_HERE, "limited only by this process"),
    Finding("replication", NOT_HERE, "one copy, in this process"),
)


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The findings of a quick examination, and the queues that it read; `None` if Redis does not let it read them."""

    findings: Sequence[Finding]
    depths: Depths | None


async def examine(store: Store, *, embedded: bool) -> list[Finding]:
    """Return one finding per question. Never raises: if the server is unreachable, one of the findings says so."""
    quick = await examine_quickly(store, embedded=embedded)
    slow = await examine_slowly(store, embedded=embedded) if quick.findings[0].verdict == OK else []
    return [*quick.findings, *slow, *examine_settings(store.settings)]


async def examine_quickly(store: Store, *, embedded: bool) -> Diagnosis:
    """Answer the questions that can be asked often, in about thirty round trips. Never raises a RedismemError."""
    try:
        await store.ping()  # connects first, so that the trip below is measured without it
        start = time.time()
        server_ms = await store.server_time_ms()
        trip_ms = (time.time() - start) * 1000
    except StoreUnavailable as error:
        return Diagnosis([unreachable(str(error))], None)
    except RedismemError as error:
        return Diagnosis([_refused(store, "connection", error)], None)
    found = [Finding("connection", OK, "the server answers"), *(_EMBEDDED if embedded else await _server(store))]
    found.append(server_rules.clock(server_ms - (start * 1000 + trip_ms / 2), trip_ms))
    found.append(await _looked_at(store, "shards", _shards(store, embedded)))
    try:
        with contextlib.suppress(WrongShards):  # the finding on shards reports it
            await store.agreement.look()  # another process may have recorded a larger limit than the default
        depths, paused = await depths_of(store), await store.run(provider_pauses.list_pauses(store.keys))
    except RedismemError as error:
        return Diagnosis([*found, _refused(store, "queues", error)], None)
    overdue_count = depths.total("overdue").count
    found += [
        namespace_rules.room(depths.sessions_count, depths.max_sessions, depths.recent_age_ms, depths.records_count),
        work_rules.ticks(depths.ticking.holds, depths.now_ms, overdue_count, depths.ticking.last_ms),
        work_rules.providers(paused, overdue_count, depths.now_ms),
        await _looked_at(store, "summaries", _summaries(store, depths, is_paused=bool(paused))),
        await _looked_at(store, "dead", _dead(store, depths)),
    ]
    return Diagnosis(found, depths)


async def examine_slowly(store: Store, *, embedded: bool) -> list[Finding]:
    """Answer the questions that read many keys or take many round trips. Never raises a RedismemError."""
    looks = {name: look for name, look in _SLOW_LOOKS.items() if not (embedded and name in _OF_A_SERVER)}
    return [await _looked_at(store, name, look(store)) for name, look in looks.items()]


def examine_settings(settings: Settings) -> list[Finding]:
    """Judge the settings of this process. Calls no provider."""
    return [
        namespace_rules.model(settings, _settings_error(settings)),
        namespace_rules.environment(unknown_variables(Settings.model_fields).values()),
    ]


def _settings_error(settings: Settings) -> str:
    """Return the error in the model and embedder settings; "" if they are valid."""
    from redismem.workers import strategies

    try:
        strategies.from_settings(settings)
        strategies.model_from_settings(settings)
        if settings.embed:
            from redismem.recall.embedder import open_embedder

            open_embedder(settings.embed, settings)
    except InvalidSettings as error:
        return error.text
    return ""


def unreachable(text: str) -> Finding:
    """Return the finding about a server that does not answer."""
    advice = "Is the server up, is the address right, may this user connect? Nothing else could be checked."
    return Finding("connection", FAIL, text, advice)


async def _looked_at(store: Store, name: str, looking: Awaitable[Finding]) -> Finding:
    """Await a finding; if it raises, return a finding with the error instead."""
    try:
        return await looking
    except RedismemError as error:
        return _refused(store, name, error)


def _refused(store: Store, name: str, error: RedismemError) -> Finding:
    if isinstance(error, NotAllowed) and permissions.is_by_acl(error):
        acl = f"ACL SETUSER USER {permissions.acl(store.keys.namespace)}"
        return Finding(name, FAIL, permissions.strip_advice(error), _NOT_ALLOWED, acl)
    return Finding(name, FAIL, str(error))


async def _server(store: Store) -> list[Finding]:
    info = await servers.load_facts(store, ("INFO",))
    if not info:
        return [Finding("server", WARN, "INFO is not allowed", "Version, persistence and memory were not checked.")]
    infos = await servers.memory_of(store)
    answers = [await servers.load_facts(store, ("CONFIG", "GET", name)) for name in _CONFIG]
    config = {name: value for answer in answers for name, value in answer.items()}
    return [
        server_rules.version(info),
        server_rules.persistence(info, config),
        worst([server_rules.memory(facts) for facts in infos.values() if facts] or [server_rules.memory(info)]),
        server_rules.replication(info, config),
        server_rules.config(config),
        await _looked_at(store, "nodes", _nodes(store, infos)),
    ]


async def _nodes(store: Store, infos: Mapping[str, Facts]) -> Finding:
    return server_rules.spread(await servers.nodes_of(store, infos))


async def _latency(store: Store) -> Finding:
    return server_rules.latency([await _ping_ms(store) for _ in range(PINGS_COUNT)])


async def _ping_ms(store: Store) -> float:
    start = time.perf_counter()
    await store.ping()
    return (time.perf_counter() - start) * 1000


async def _commands(store: Store) -> Finding:
    """Check that this user may run every command that the package sends. Runs none of them."""
    on_cluster = store.availability.breakers is not None
    await _run_no_command(
        store, permissions.check_permissions(store.keys.session(ids.new_session_id()), on_cluster=on_cluster)
    )
    return Finding("commands", OK, "this user may run all commands that pods and workers need")


async def _run_no_command(store: Store, probe: Call[bool]) -> None:
    """Ask the server whether this user may run the commands of a transaction that it refuses as invalid."""
    try:
        await store.run(probe)
    except StoreUnavailable as refused:
        if refused.reason not in ("ERR", "EXECABORT"):
            raise


async def _listeners(store: Store) -> Finding:
    """Check that the server tells listeners the events of turns. Tells them nothing."""
    try:
        await _run_no_command(store, permissions.check_listening(store.keys.session(ids.new_session_id())))
    except NotAllowed as error:
        refused = _refused(store, "listeners", error)
        polled = f"listeners of turns poll every {store.settings.live_poll_s:g} s instead"
        return replace(refused, verdict=WARN, text=f"{refused.text}; {polled}")
    return Finding("listeners", OK, "the server pushes the events of turns to this user")


async def _scripts(store: Store) -> Finding:
    """Load all scripts if that is allowed, then run one on a session that does not exist, which changes nothing."""
    names = scripts.names()
    text = f"{plural(len(names), 'script')} loaded, one script run"
    try:
        for name in names:
            await store.run(Call(None, (("SCRIPT", "LOAD", scripts.load(name).source),), bool))
    except NotAllowed:
        text = "one script run; this user may not load scripts, as recommended for applications"
    missing = store.session_calls(ids.new_session_id())
    try:
        await store.run(replace(missing.touch(), session_id=None))
    except StoreUnavailable as refused:
        if refused.reason != "NOSCRIPT":
            raise
        advice = "Run `redismem repair scripts --watch` as a user that may load scripts."
        return Finding("scripts", FAIL, "not loaded, and this user may not load them", advice)
    return Finding("scripts", OK, text)


async def _shards(store: Store, embedded: bool) -> Finding:
    recorded = await store.run(namespace_calls.read_shard_count(store.keys))
    return namespace_rules.shards(recorded, store.settings.shards, embedded=embedded)


async def has_workers(store: Store) -> bool:
    """True if a process with workers polls the namespace's queues now. Raises StoreUnavailable, NotAllowed."""
    ticking = await store.run(tick_calls.ticking(store.keys))
    now_ms = await store.server_time_ms()
    return any(hold.until_ms > now_ms for hold in ticking.holds.values())


async def _summaries(store: Store, depths: Depths, *, is_paused: bool) -> Finding:
    overdue = depths.total("overdue")
    failing = await _load_failing(store) if overdue.count else []
    return work_rules.summaries(overdue, depths.now_ms, store.settings, is_paused=is_paused, failing=failing)


async def _load_failing(store: Store) -> list[FailureFacts]:
    """Sample about SAMPLE_COUNT sessions that have been due longest, and return the failures among them."""
    limit = max(1, SAMPLE_COUNT // store.keys.shard_count)
    members = await store.run(depth_calls.members(store.keys.shards(), "overdue", limit))
    infos = await infos_of(store, members)
    return [
        FailureFacts(info.failing_since_ms, info.attempts, info.failure)
        for info in infos
        if isinstance(info, SessionInfo) and info.failing_since_ms is not None
    ]


async def _dead(store: Store, depths: Depths) -> Finding:
    if not depths.total("dead").count:
        return work_rules.dead(0, None, depths.now_ms)
    listing = await list_dead(store, 1)
    first = None
    for session in listing.sessions:
        info = session.info if isinstance(session.info, SessionInfo) else None
        attempts, failure = (0, None) if info is None else (info.attempts, info.failure)
        first = FailureFacts(session.died_ms, attempts, failure)
    return work_rules.dead(listing.count, first, listing.now_ms)


async def _expiry(store: Store) -> Finding:
    since_ms = await store.server_time_ms() - store.settings.idle_timeout_ms
    page = await read_sessions(store, SAMPLE_COUNT, None, since_ms)
    return namespace_rules.expiry([await store.run(_sample(store, entry.session_id)) for entry in page.sessions])


async def _records(store: Store) -> Finding:
    wrong = [(each.session_id, each.text) async for each in check_records(store, RECORDS_COUNT)]
    return namespace_rules.records(wrong, RECORDS_COUNT)


async def _quarantine(store: Store) -> Finding:
    try:
        found = await list_quarantined(store, QUARANTINED_COUNT, looked_at_limit=LOOKED_AT_COUNT)
    except NotAllowed:
        advice = "Sessions and records in quarantine were not counted."
        return Finding("quarantine", WARN, "SCAN is not allowed", advice)
    session_ids = [session.name for session in found.sessions]
    record_ids = [record.name for record in found.records]
    return namespace_rules.quarantine(session_ids, record_ids, found.looked_at_count, is_all=found.cursor is None)


async def _dictionaries(store: Store) -> Finding:
    """Check the dictionaries stored in Redis, not the ones cached in this process."""
    listing = await store.run(dictionaries.listing(store.keys))
    readable = await store.run(dictionaries.read(store.keys, listing.versions)) if listing.versions else {}
    return namespace_rules.dictionaries(listing.versions, readable.keys(), listing.dropped)


def _sample(store: Store, session_id: str) -> Call[Sampled]:
    """Build a call that samples one session in one transaction, so that no append runs between the reads."""
    keys = store.keys.session(session_id)

    def decode(state_ms: int, messages_ms: int, field: bytes | None) -> Sampled:
        try:
            element_count = layout.counters(field or b"").element_count
        except (Undecodable, RedismemError):
            element_count = 0
        return Sampled(session_id, state_ms, messages_ms, element_count)

    counters = ("HGET", keys.state, layout.COUNTERS)
    return Call(session_id, (("PEXPIRETIME", keys.state), ("PEXPIRETIME", keys.messages), counters), decode)


_OF_A_SERVER = ("commands", "listeners")
_SLOW_LOOKS: dict[str, Callable[[Store], Awaitable[Finding]]] = {
    "latency": _latency,
    "commands": _commands,
    "listeners": _listeners,
    "scripts": _scripts,
    "expiry": _expiry,
    "records": _records,
    "dictionaries": _dictionaries,
    "quarantine": _quarantine,
}
