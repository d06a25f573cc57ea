"""Sessions whose summary failed too often: list, retry, or take them off the list. All their messages are kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from cyclopts import Parameter

from redismem.cli.options import DEFAULT, On, Target, Yes, within
from redismem.cli.place import open_read_only, open_used
from redismem.cli.streams import complain
from redismem.cli.terminal import ask, print_json, print_rows
from redismem.inspection import dead
from redismem.inspection.dead import DeadSession
from redismem.inspection.figures import duration, plural, printable

Limit = Annotated[int, within(1, 10_000, "Sessions to show.")]
Session = Annotated[str, Parameter(help="Session ids from `redismem list dead`. Default: all of them.")]


async def list_dead(*, limit: Limit = 100, on: On = DEFAULT) -> int:
    """List dead sessions by the reason of their last failure, the most frequent reason first.

    `log` is the session's hash in the workers' logs; `waiting` is the number of messages in its window. With more dead
    sessions than `--limit`, the longest dead are listed. They are retried automatically, with growing delays.
    """
    async with open_read_only(on.url, on.namespace) as (memory, place):
        found = await dead.list_dead(memory.store, limit)
    if on.as_json:
        rows = [each.document() for each in found.sessions]
        print_json({"store": place.name, "namespace": on.namespace, "count": found.count, "sessions": rows})
        return 0
    if found.sessions:
        _print(found.sessions, found.now_ms)
    shown = f", {len(found.sessions):,} shown" if len(found.sessions) < found.count else ""
    print(f"{plural(found.count, 'dead session')} in namespace {on.namespace} on {place.name}{shown}")
    if found.count:
        print("`redismem repair dead` retries them")
        print("`redismem remove dead` takes them off the list")
    return 0


def _print(found: Sequence[DeadSession], now_ms: int) -> None:
    groups: dict[str, list[DeadSession]] = {}
    for each in found:
        groups.setdefault(_reason(each), []).append(each)
    for reason, sessions in sorted(groups.items(), key=lambda group: -len(group[1])):
        print(f"{plural(len(sessions), 'session')}: {printable(reason)}")
        print_rows(
            ("session", "log", "died", "attempts", "waiting", "expires"), [_row(each, now_ms) for each in sessions]
        )
        print()


def _row(each: DeadSession, now_ms: int) -> list[str]:
    info, numbers = each.info, ["", "", ""]
    if not isinstance(info, str):
        numbers = [f"{info.attempts:,}", f"{info.window_count:,}", f"in {duration(info.expires_ms - now_ms)}"]
    return [printable(each.session_id), each.log_id, f"{duration(now_ms - each.died_ms)} ago", *numbers]


def _reason(each: DeadSession) -> str:
    return each.info if isinstance(each.info, str) else each.info.failure or "no reason recorded"


async def repair(*sessions: Session, on: On = DEFAULT) -> int:
    """Retry dead sessions: they become overdue at once, with all their attempts.

    Exit code 1: one of these sessions was not dead.
    """
    return await _take_off(sessions, on, yes=True, again=True)


async def remove(*sessions: Session, yes: Yes = False, on: On = DEFAULT) -> int:
    """Take sessions off the list of dead sessions; nothing is removed from the sessions.

    They get no summary until their next message. To remove a session, use `redismem remove ID`.
    Exit code 1: one of these sessions was not dead.
    """
    return await _take_off(sessions, on, yes=yes, again=False)


async def _take_off(named: Sequence[str], on: Target, *, yes: bool, again: bool) -> int:
    async with open_used(on.url, on.namespace) as (memory, place):
        which = plural(len(named), "session") if named else "all dead sessions"
        ask(f"Take {which} of {on.namespace} on {place.name} off the list, without a summary?", yes=yes)
        if named:
            found = await dead.requeue(memory.store, named, again=again)
        else:
            found = await dead.requeue_all(memory.store, again=again)
    if on.as_json:
        word = "retried" if again else "dropped"
        lists = {word: found.taken, "not_dead": found.missing, "other_layout": found.foreign}
        print_json({"store": place.name, "namespace": on.namespace, **lists})
    else:
        outcome = "overdue again" if again else "off the list"
        print(f"{plural(len(found.taken), 'session')} {outcome} in namespace {on.namespace} on {place.name}")
        for session_id in found.missing:
            complain(f"session {session_id} is not dead")
        for session_id in found.foreign:
            complain(f"session {session_id} has another layout and was left unchanged: see docs/layout.md")
    return 1 if found.missing or found.foreign else 0
