"""`redismem sessions`, `show` and `clear`: what an operator looks at, and removes. Looking changes nothing."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any

from cyclopts import Parameter, validators

from redismem.calls import Call, SessionCalls
from redismem.cli.store import looking, opened, say_if_embedded
from redismem.cli.terminal import AsJson, Namespace, Stop, Url, console, duration, plural, print_json
from redismem.context import SessionEntry, SessionInfo
from redismem.errors import CorruptSession, SessionNotFound
from redismem.memory import Memory
from redismem.namespaces import server_time_ms
from redismem.replies import fields
from redismem.replies import info as decode_info

Session = Annotated[str, Parameter(help="The session's id.")]
Full = Annotated[bool, Parameter(negative=(), show_default=False, help="Whole messages, not their first lines.")]
Redact = Annotated[
    bool, Parameter(negative=(), show_default=False, help="Without the texts of messages and summaries.")
]
Limit = Annotated[int, Parameter(validator=validators.Number(gte=1, lte=10_000))]


async def sessions(
    *,
    limit: Annotated[Limit, Parameter(help="Sessions a page.")] = 20,
    cursor: Annotated[str | None, Parameter(help="Where the last page ended; it says so itself.")] = None,
    url: Url = None,
    namespace: Namespace = "default",
    as_json: AsJson = False,
) -> int:
    """List the sessions of a namespace, the last active first.

    Numbers only: no text and no value of any conversation. A session that ended while the list was read is `gone`.
    """
    async with looking(url, namespace) as (memory, store):
        try:
            page = await memory.sessions(limit, cursor)
        except ValueError as refused:
            raise Stop(str(refused), 2) from None
        now_ms = await memory.run(server_time_ms())
        count = await memory.count(now_ms)
        infos = await memory.run(infos_of(memory, page.sessions), each=True)
    if as_json:
        rows = [
            {"session_id": entry.session_id, "active_ms": entry.active_ms, **numbers_of(info)}
            for entry, info in zip(page.sessions, infos, strict=True)
        ]
        print_json({"namespace": namespace, "count": count, "sessions": rows, "cursor": page.cursor})
    else:
        _print_sessions(page.sessions, infos, now_ms)
        print(f"{plural(count, 'live session')} in namespace {namespace} on {store.name}")
        if page.cursor:
            print(f"more: --cursor {page.cursor}")
    return 0


def infos_of(memory: Memory, entries: Sequence[SessionEntry]) -> Call[list[SessionInfo | str]]:
    """Of each session its numbers, or why there are none, in one round trip."""

    def decode(*answers: Any) -> list[SessionInfo | str]:
        return [_info(entry.session_id, answer) for entry, answer in zip(entries, answers, strict=True)]

    return Call(None, tuple(("HGETALL", memory.keys.session(entry.session_id).state) for entry in entries), decode)


def _info(session_id: str, answer: Any) -> SessionInfo | str:
    try:
        return decode_info(session_id, fields(answer)) or "gone"
    except CorruptSession:
        return "unreadable"


def numbers_of(info: SessionInfo | str) -> dict[str, Any]:
    if isinstance(info, str):
        return {"state": info}
    return {"state": "live"} | {
        name: value for name, value in asdict(info).items() if name not in ("session_id", "active_ms")
    }


def _print_sessions(entries: Sequence[SessionEntry], infos: Sequence[SessionInfo | str], now_ms: int) -> None:
    from rich.table import Table
    from rich.text import Text

    if not entries:
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("session", overflow="fold")
    for heading in ("active", "messages", "window", "tokens", "expires"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("queue, waits for", overflow="ellipsis", no_wrap=True)
    for entry, info in zip(entries, infos, strict=True):
        active = f"{duration(now_ms - entry.active_ms)} ago"
        if isinstance(info, str):
            table.add_row(Text(entry.session_id), active, "", "", "", "", Text(info, "dim"))
            continue
        numbers = (f"{number:,}" for number in (info.total_messages, info.window_count, info.window_tokens))
        waits = ", ".join(word for word in (info.queued, info.waiting_for_param) if word)
        expires = f"in {duration(info.expires_ms - now_ms)}"
        table.add_row(Text(entry.session_id), active, *numbers, expires, Text(waits, "yellow"))
    console().print(table)


async def show(
    session: Session,
    /,
    *,
    limit: Annotated[Limit | None, Parameter(help="Only the newest messages. [default: all]")] = None,
    full: Full = False,
    redact: Redact = False,
    url: Url = None,
    namespace: Namespace = "default",
    as_json: AsJson = False,
) -> int:
    """Show a session: summaries, pending and recent messages, names of its state, numbers.

    It prints the texts of the conversation, since you ask for them; values of the state never.
    """
    from redismem.cli import session_view

    async with looking(url, namespace) as (memory, store):
        calls = SessionCalls(memory.keys.session(session), memory.settings)
        info = await memory.run(calls.info())
        if info is None:
            raise SessionNotFound(f"there is no such session in namespace {namespace}", session)
        context = await memory.run(calls.read(limit))
        now_ms = await memory.run(server_time_ms())
    if as_json:
        print_json(session_view.document(context, info, namespace, redact=redact))
    else:
        session_view.show(console(), context, info, now_ms, f"namespace {namespace} on {store.name}", full, redact)
    return 0


async def clear(
    session: Session,
    /,
    *,
    yes: Annotated[bool, Parameter(name=("--yes", "-y"), negative=(), show_default=False, help="Do not ask.")] = False,
    url: Url = None,
    namespace: Namespace = "default",
    as_json: AsJson = False,
) -> int:
    """Remove everything of a session: messages, summaries, state, its places in the queues.

    Asks first on a terminal, unless `--yes` is given.
    """
    async with opened(url, namespace) as (memory, store):
        say_if_embedded(store)
        handle = memory.session(session)
        if not await handle.exists():
            raise SessionNotFound(f"there is no such session in namespace {namespace}", session)
        if not yes and sys.stdin.isatty() and not _confirmed(f"Clear {session} in {namespace} on {store.name}?"):
            raise Stop("nothing was cleared")
        cleared = await handle.clear()
    if as_json:
        print_json({"namespace": namespace, "session_id": session, "cleared": cleared})
    else:
        print(f"cleared {session} in namespace {namespace} on {store.name}")
    return 0


def _confirmed(question: str) -> bool:
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
