"""`redismem dead`: sessions whose summary failed too often. Their messages are all there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from cyclopts import Parameter, validators

from redismem.cli.place import looking, opened, say_if_embedded
from redismem.cli.terminal import (
    AsJson,
    Namespace,
    Stop,
    Url,
    complain,
    console,
    duration,
    fitted,
    plural,
    print_json,
    printable,
)
from redismem.inspection import dead
from redismem.inspection.dead import DeadSession

Limit = Annotated[int, Parameter(validator=validators.Number(gte=1, lte=10_000), help="Sessions shown.")]
Session = Annotated[str, Parameter(help="Ids, as `redismem dead list` shows them.")]
All = Annotated[bool, Parameter(name="--all", negative=(), show_default=False, help="All that are on the list.")]


async def list_dead(
    *, limit: Limit = 100, url: Url = None, namespace: Namespace = "default", as_json: AsJson = False
) -> int:
    """List dead sessions, the longest dead first.

    `log` is what the workers' logs call the session. Waiting: messages in its window. Below stands why no summary could
    be written. They are tried again by themselves, ever more rarely.
    """
    async with looking(url, namespace) as (memory, place):
        found = await dead.list_dead(memory.store, limit)
    if as_json:
        rows = [each.document() for each in found.sessions]
        print_json({"store": place.name, "namespace": namespace, "count": found.count, "sessions": rows})
        return 0
    if found.sessions:
        _print(found.sessions, found.now_ms)
    shown = f", {len(found.sessions):,} shown" if len(found.sessions) < found.count else ""
    print(f"{plural(found.count, 'dead session')} in namespace {namespace} on {place.name}{shown}")
    if found.count:
        print("`redismem dead retry` tries again; `drop` waits for their next message")
    return 0


def _print(found: Sequence[DeadSession], now_ms: int) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("session", overflow="fold")
    table.add_column("log", no_wrap=True, style="dim")
    for heading in ("died", "waiting", "expires"):
        table.add_column(heading, justify="right", no_wrap=True)
    for each in found:
        info = each.info
        numbers = (
            (info, "")
            if isinstance(info, str)
            else (f"{info.window_count:,}", f"in {duration(info.expires_ms - now_ms)}")
        )
        died = f"{duration(now_ms - each.died_ms)} ago"
        table.add_row(Text(printable(each.session_id)), each.log_id, died, *numbers)
    reasons = Table.grid(padding=(0, 2))
    reasons.add_column(no_wrap=True, style="dim")
    reasons.add_column(overflow="fold")
    for each in found:
        reasons.add_row(each.log_id, Text(_why(each)))
    out = console()
    out.print(fitted(out, table, "session"))
    out.print(reasons)


def _why(each: DeadSession) -> str:
    if isinstance(each.info, str):
        return each.info
    return f"{each.info.failure or 'the reason is not noted'}, after {plural(each.info.attempts, 'attempt')}"


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
    async with opened(url, namespace) as (memory, place):
        say_if_embedded(place)
        if everything:
            found = await dead.requeue_all(memory.store, again=again)
        else:
            found = await dead.requeue(memory.store, named, again=again)
    if as_json:
        word = "retried" if again else "dropped"
        lists = {word: found.taken, "not_dead": found.missing, "other_layout": found.foreign}
        print_json({"store": place.name, "namespace": namespace, **lists})
    else:
        what = "overdue again" if again else "off the list"
        print(f"{plural(len(found.taken), 'session')} {what} in namespace {namespace} on {place.name}")
        for session_id in found.missing:
            complain(f"session {session_id} is not on the list")
        for session_id in found.foreign:
            complain(f"session {session_id} is of another layout: left as it is, see docs/layout.md")
    return 1 if found.missing or found.foreign else 0
