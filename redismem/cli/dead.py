"""`redismem dead`: sessions whose summary failed too often. Their messages are all there."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any

from cyclopts import Parameter, validators

from redismem import queues
from redismem.cli.sessions import infos_of, numbers_of
from redismem.cli.store import looking, opened, say_if_embedded
from redismem.cli.terminal import AsJson, Namespace, Stop, Url, complain, console, duration, plural, print_json
from redismem.context import SessionEntry, SessionInfo
from redismem.keys import session_hash
from redismem.memory import Memory
from redismem.queues import QueueCalls

Limit = Annotated[int, Parameter(validator=validators.Number(gte=1, lte=10_000), help="Sessions shown.")]
Session = Annotated[str, Parameter(help="Ids, as `redismem dead list` shows them.")]
All = Annotated[bool, Parameter(name="--all", negative=(), show_default=False, help="All that are on the list.")]
_PAGE_COUNT = 100
_TOGETHER_COUNT = 64


async def list_dead(
    *, limit: Limit = 100, url: Url = None, namespace: Namespace = "default", as_json: AsJson = False
) -> int:
    """List dead sessions, the longest dead first.

    `log` is what the workers' logs call the session: look there for the reason. Waiting: messages in its window.
    """
    async with looking(url, namespace) as (memory, store):
        now_ms = await memory.server_time_ms()
        depths = await memory.run(queues.depths(memory.keys), each=True)
        found = await memory.run(queues.members(memory.keys, "dead", limit), each=True)
        entries = sorted(found, key=lambda entry: (entry.active_ms, entry.session_id))[:limit]
        infos = await memory.run(infos_of(memory, entries), each=True)
    count = sum(shard["dead"].count for shard in depths)
    if as_json:
        rows = [_row(entry, info) for entry, info in zip(entries, infos, strict=True)]
        print_json({"store": store.name, "namespace": namespace, "count": count, "sessions": rows})
        return 0
    if entries:
        _print(entries, infos, now_ms)
    shown = f", {len(entries):,} shown" if len(entries) < count else ""
    print(f"{plural(count, 'dead session')} in namespace {namespace} on {store.name}{shown}")
    if count:
        print("`redismem dead retry` tries again; `drop` waits for their next message")
    return 0


def _row(entry: SessionEntry, info: SessionInfo | str) -> dict[str, Any]:
    died = {"session_id": entry.session_id, "log": session_hash(entry.session_id), "died_ms": entry.active_ms}
    return {**died, **numbers_of(info)}


def _print(entries: Sequence[SessionEntry], infos: Sequence[SessionInfo | str], now_ms: int) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("session", overflow="fold")
    table.add_column("log", no_wrap=True, style="dim")
    for heading in ("died", "waiting", "expires"):
        table.add_column(heading, justify="right", no_wrap=True)
    for entry, info in zip(entries, infos, strict=True):
        numbers = (
            (info, "")
            if isinstance(info, str)
            else (f"{info.window_count:,}", f"in {duration(info.expires_ms - now_ms)}")
        )
        died = f"{duration(now_ms - entry.active_ms)} ago"
        table.add_row(Text(entry.session_id), session_hash(entry.session_id), died, *numbers)
    console().print(table)


async def retry(
    *sessions: Session,
    everything: All = False,
    url: Url = None,
    namespace: Namespace = "default",
    as_json: AsJson = False,
) -> int:
    """Try dead sessions again: they are overdue at once, with all their attempts.

    Exit code: 0 all of them were on the list, else 1.
    """
    return await _take_off(sessions, everything, url, namespace, again=True, as_json=as_json)


async def drop(
    *sessions: Session,
    everything: All = False,
    url: Url = None,
    namespace: Namespace = "default",
    as_json: AsJson = False,
) -> int:
    """Take sessions off the list and leave them as they are: nothing of them is removed.

    No summary is tried until their next message. To remove a session, use `redismem clear`. Exit code: 0 all of them
    were on the list, else 1.
    """
    return await _take_off(sessions, everything, url, namespace, again=False, as_json=as_json)


async def _take_off(
    named: Sequence[str], everything: bool, url: str | None, namespace: str, *, again: bool, as_json: bool
) -> int:
    if bool(named) == everything:
        raise Stop("name sessions, or --all; not both", 2)
    async with opened(url, namespace) as (memory, store):
        say_if_embedded(store)
        taken, missing = await (_requeue_all(memory, again) if everything else _requeue(memory, named, again))
    if as_json:
        word = "retried" if again else "dropped"
        print_json({"store": store.name, "namespace": namespace, word: taken, "not_dead": missing})
    else:
        what = "overdue again" if again else "off the list"
        print(f"{plural(len(taken), 'session')} {what} in namespace {namespace} on {store.name}")
        for session_id in missing:
            complain(f"session {session_id} is not on the list")
    return 1 if missing else 0


async def _requeue_all(memory: Memory, again: bool) -> tuple[list[str], list[str]]:
    """Page by page, each session once: one that dies anew meanwhile stays."""
    taken: set[str] = set()
    seen: set[str] = set()
    while True:
        page = await memory.run(queues.members(memory.keys, "dead", _PAGE_COUNT), each=True)
        fresh = [entry.session_id for entry in page if entry.session_id not in seen]
        if not fresh:
            return sorted(taken), []
        seen.update(fresh)
        taken.update((await _requeue(memory, fresh, again))[0])


async def _requeue(memory: Memory, session_ids: Sequence[str], again: bool) -> tuple[list[str], list[str]]:
    """Those that were on the list, and those that were not."""
    calls = [
        QueueCalls(memory.keys.session(session_id), memory.settings).requeue(again=again) for session_id in session_ids
    ]
    done: list[bool] = []
    for at in range(0, len(calls), _TOGETHER_COUNT):
        done += await asyncio.gather(*(memory.run(call) for call in calls[at : at + _TOGETHER_COUNT]))
    pairs = list(zip(session_ids, done, strict=True))
    return [name for name, listed in pairs if listed], [name for name, listed in pairs if not listed]
