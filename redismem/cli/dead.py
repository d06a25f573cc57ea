"""`redismem dead`: sessions whose summary failed too often. All their messages are kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter, validators

from redismem.cli.place import open_read_only, open_used
from redismem.cli.streams import complain
from redismem.cli.terminal import AsJson, Namespace, Stop, Url, console, fit_table, print_json
from redismem.inspection import dead
from redismem.inspection.dead import DeadSession
from redismem.inspection.figures import duration, plural, printable

if TYPE_CHECKING:
    from rich.table import Table

Limit = Annotated[int, Parameter(validator=validators.Number(gte=1, lte=10_000), help="Sessions to show.")]
Session = Annotated[str, Parameter(help="Session ids from `redismem dead list`.")]
All = Annotated[bool, Parameter(name="--all", negative=(), show_default=False, help="All dead sessions.")]


async def list_dead(
    *, limit: Limit = 100, url: Url = None, namespace: Namespace = "default", as_json: AsJson = False
) -> int:
    """List dead sessions by the reason of their last failure, the most frequent reason first.

    `log` is the session's hash in the workers' logs; `waiting` is the number of messages in its window. With more dead
    sessions than `--limit`, the longest dead are listed. They are retried automatically, with growing delays.
    """
    async with open_read_only(url, namespace) as (memory, place):
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
        print("`redismem dead retry` retries them; `drop` waits for their next message")
    return 0


def _print(found: Sequence[DeadSession], now_ms: int) -> None:
    from rich.text import Text

    groups: dict[str, list[DeadSession]] = {}
    for each in found:
        groups.setdefault(_reason(each), []).append(each)
    out = console()
    for reason, sessions in sorted(groups.items(), key=lambda group: -len(group[1])):
        out.print(Text(f"{plural(len(sessions), 'session')}: {reason}", "bold"))
        out.print(fit_table(out, _table_of(sessions, now_ms), "session"))
        out.print()


def _table_of(sessions: Sequence[DeadSession], now_ms: int) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("session", overflow="fold")
    table.add_column("log", no_wrap=True, style="dim")
    for heading in ("died", "attempts", "waiting", "expires"):
        table.add_column(heading, justify="right", no_wrap=True)
    for each in sessions:
        info, numbers = each.info, ("", "", "")
        if not isinstance(info, str):
            expires = f"in {duration(info.expires_ms - now_ms)}"
            numbers = (f"{info.attempts:,}", f"{info.window_count:,}", expires)
        died = f"{duration(now_ms - each.died_ms)} ago"
        table.add_row(Text(printable(each.session_id)), each.log_id, died, *numbers)
    return table


def _reason(each: DeadSession) -> str:
    return each.info if isinstance(each.info, str) else each.info.failure or "no reason recorded"


async def retry(
    *sessions: Session,
    everything: All = False,
    url: Url = None,
    namespace: Namespace = "default",
    as_json: AsJson = False,
) -> int:
    """Retry dead sessions: they become overdue at once, with all their attempts.

    Exit code: 0 all sessions were dead, else 1.
    """
    return await _take_off(sessions, everything, url, namespace, again=True, as_json=as_json)


async def drop(
    *sessions: Session,
    everything: All = False,
    url: Url = None,
    namespace: Namespace = "default",
    as_json: AsJson = False,
) -> int:
    """Take sessions off the list of dead sessions; nothing is removed from the sessions.

    They get no summary until their next message. To remove a session, use `redismem clear`. Exit code: 0 all sessions
    were dead, else 1.
    """
    return await _take_off(sessions, everything, url, namespace, again=False, as_json=as_json)


async def _take_off(
    named: Sequence[str], everything: bool, url: str | None, namespace: str, *, again: bool, as_json: bool
) -> int:
    if bool(named) == everything:
        raise Stop("name sessions or give --all, not both", 2)
    async with open_used(url, namespace) as (memory, place):
        if everything:
            found = await dead.requeue_all(memory.store, again=again)
        else:
            found = await dead.requeue(memory.store, named, again=again)
    if as_json:
        word = "retried" if again else "dropped"
        lists = {word: found.taken, "not_dead": found.missing, "other_layout": found.foreign}
        print_json({"store": place.name, "namespace": namespace, **lists})
    else:
        outcome = "overdue again" if again else "off the list"
        print(f"{plural(len(found.taken), 'session')} {outcome} in namespace {namespace} on {place.name}")
        for session_id in found.missing:
            complain(f"session {session_id} is not dead")
        for session_id in found.foreign:
            complain(f"session {session_id} has another layout and was left unchanged: see docs/layout.md")
    return 1 if found.missing or found.foreign else 0
