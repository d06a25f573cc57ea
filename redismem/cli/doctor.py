"""`redismem doctor`: looks at a server and a namespace, and says what to change and why. Changes nothing."""

from __future__ import annotations

import time
from collections.abc import Awaitable
from dataclasses import asdict, replace
from typing import Any

from redismem import layout, replies, scripts
from redismem.calls import Call, SessionCalls
from redismem.cli import findings
from redismem.cli.findings import FAIL, NOT_HERE, OK, WARN, Facts, Finding, Sampled
from redismem.cli.store import HOW_TO_NAME_REDIS, Store, connect
from redismem.cli.terminal import AsJson, Namespace, Url, console, plural, print_json
from redismem.errors import RedismemError, StoreUnavailable, UnsupportedFormat
from redismem.memory import Memory
from redismem.namespaces import server_time_ms
from redismem.values import Undecodable

SAMPLE_COUNT = 200
PINGS_COUNT = 50
_CONFIG = ("appendfsync", "min-replicas-to-write")


async def doctor(*, url: Url = None, namespace: Namespace = "default", as_json: AsJson = False) -> int:
    """Check the Redis server: what to change, and why.

    Looks at version, persistence, memory, replication, clock, latency, whether scripts may run, and in the namespace
    at the recorded shards and at the expiry of the 200 sessions active last. Writes nothing.

    Each line is ok, warn or fail. Exit code: 1 where one failed, else 0.
    """
    memory, store = connect(url, namespace)
    try:
        found = await _examine(memory, store)
    finally:
        await memory.aclose()
    failed = any(each.verdict == FAIL for each in found)
    if as_json:
        document = {"store": store.name, "namespace": namespace, "good": not failed}
        print_json({**document, "findings": [asdict(each) for each in found]})
    else:
        _report(found, store, namespace)
    return 1 if failed else 0


async def _examine(memory: Memory, store: Store) -> list[Finding]:
    try:
        await memory.ping()  # connects, which must not count as the way of an answer
        start = time.time()
        server_ms = await memory.run(server_time_ms())
        trip_ms = (time.time() - start) * 1000
    except StoreUnavailable as error:
        advice = "Is the server up, is the address right, may this user connect? Nothing else could be looked at."
        return [Finding("connection", FAIL, str(error), advice)]
    found = [Finding("connection", OK, "the server answers")]
    found += _not_here() if store.embedded else await _server(memory)
    found.append(findings.clock(server_ms - (start * 1000 + trip_ms / 2), trip_ms))
    found.append(findings.latency([await _ping_ms(memory) for _ in range(PINGS_COUNT)]))
    found.append(await _looked_at("scripts", _scripts(memory)))
    found.append(await _looked_at("shards", _shards(memory)))
    found.append(await _looked_at("expiry", _expiry(memory)))
    return found


async def _looked_at(name: str, looking: Awaitable[Finding]) -> Finding:
    """The finding, or that the server did not let us look."""
    try:
        return await looking
    except RedismemError as error:
        advice = "Allow this user the commands of redismem: +@read +@write +@scripting +@transaction on its keys, rm:*."
        return Finding(name, FAIL, str(error), advice)


def _not_here() -> list[Finding]:
    seen = "the embedded store has none of its own: it lives and ends with a process"
    advice = f"For anything that must last, name a Redis: {HOW_TO_NAME_REDIS}."
    return [
        Finding("version", NOT_HERE, "fakeredis, running the same scripts"),
        Finding("persistence", NOT_HERE, seen, advice),
        Finding("memory", NOT_HERE, "limited by this process alone"),
        Finding("replication", NOT_HERE, "there is one copy, in this process"),
    ]


async def _server(memory: Memory) -> list[Finding]:
    info = await _facts(memory, ("INFO",))
    if not info:
        return [Finding("server", WARN, "INFO is not allowed", "Version, persistence and memory were not looked at.")]
    config = {
        name: value for each in _CONFIG for name, value in (await _facts(memory, ("CONFIG", "GET", each))).items()
    }
    return [
        findings.version(info),
        findings.persistence(info, config),
        findings.memory(info),
        findings.replication(info, config),
    ]


async def _facts(memory: Memory, command: tuple[str, ...]) -> Facts:
    """Empty where the server does not allow the command."""
    try:
        return await memory.run(Call(None, (command,), _named))
    except StoreUnavailable:
        return {}


def _named(answer: Any) -> Facts:
    """Of INFO and CONFIG GET: text, a flat list, or what a client has made of them."""
    if isinstance(answer, bytes):
        lines = answer.decode("utf-8", "replace").splitlines()
        return {name: value for name, colon, value in (line.partition(":") for line in lines) if colon}
    return {_text(name): _text(value) for name, value in replies.fields(answer).items()}


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


async def _ping_ms(memory: Memory) -> float:
    start = time.perf_counter()
    await memory.ping()
    return (time.perf_counter() - start) * 1000


async def _scripts(memory: Memory) -> Finding:
    """Loads all of them, and runs one on a session that is not there, which changes nothing."""
    names = scripts.names()
    for name in names:
        await memory.run(Call(None, (("SCRIPT", "LOAD", scripts.load(name).source),), bool))
    nobody = SessionCalls(memory.keys.session(memory.new_session_id()), memory.settings)
    await memory.run(replace(nobody.touch(), session_id=None))
    return Finding("scripts", OK, f"{plural(len(names), 'script')} loaded, one run")


async def _shards(memory: Memory) -> Finding:
    recorded = await memory.run(Call(None, (("GET", memory.keys.shards_record),), lambda value: value))
    return findings.shards(None if recorded is None else int(recorded), memory.settings.shards)


async def _expiry(memory: Memory) -> Finding:
    page = await memory.sessions(SAMPLE_COUNT)
    return findings.expiry([await memory.run(_sampled(memory, entry.session_id)) for entry in page.sessions])


def _sampled(memory: Memory, session_id: str) -> Call[Sampled]:
    """In one transaction, so that no append comes between."""
    keys = memory.keys.session(session_id)

    def decode(state_ms: int, messages_ms: int, field: bytes | None) -> Sampled:
        try:
            window_count = layout.counters(field or b"").window_count
        except (Undecodable, UnsupportedFormat):
            window_count = 0
        return Sampled(session_id, state_ms, messages_ms, window_count)

    counters = ("HGET", keys.state, layout.COUNTERS)
    return Call(None, (("PEXPIRETIME", keys.state), ("PEXPIRETIME", keys.messages), counters), decode)


def _report(found: list[Finding], store: Store, namespace: str) -> None:
    from rich.table import Table
    from rich.text import Text

    out = console()
    out.print(Text.assemble(("redismem doctor", "bold"), f"  {store.name}, namespace {namespace}"))
    styles = {OK: "green", WARN: "bold yellow", FAIL: "bold red", NOT_HERE: "dim"}
    table = Table.grid(padding=(0, 2))
    for _ in range(2):
        table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for each in found:
        table.add_row(Text(f"  {each.verdict:4}", styles[each.verdict]), each.name, Text(each.seen))
        if each.advice:
            table.add_row("", "", Text(each.advice, "dim"))
    out.print(table)
    counts = {verdict: sum(each.verdict == verdict for each in found) for verdict in (FAIL, WARN)}
    if not any(counts.values()):
        out.print(Text("all is well", "bold green"))
    else:
        style = styles[FAIL if counts[FAIL] else WARN]
        out.print(Text(f"{counts[FAIL]} failed, {plural(counts[WARN], 'warning')}", style))
