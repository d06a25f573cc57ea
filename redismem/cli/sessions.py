"""`redismem sessions`, `show` and `clear`: list, inspect and remove sessions. Listing and showing are read-only."""

from __future__ import annotations

import sys
from typing import Annotated

from cyclopts import Parameter, validators

from redismem.cli.depths import failing_line
from redismem.cli.place import open_read_only, open_used
from redismem.cli.terminal import AsJson, Namespace, Stop, Url, Yes, console, one_line, print_json, print_rows
from redismem.context import Context
from redismem.errors import CorruptSession, SessionNotFound
from redismem.info import SessionInfo
from redismem.inspection.figures import duration, plural, printable
from redismem.inspection.quarantine import read_live
from redismem.inspection.sessions import Listing, hash_of, key_of, list_sessions, look, numbers_of, originals_of
from redismem.store.store import Store

Session = Annotated[str, Parameter(help="The id of the session.")]
Shown = Annotated[str, Parameter(help="The id of the session, or with `--record` of the record.")]
Full = Annotated[
    bool, Parameter(negative=(), show_default=False, help="Print whole messages instead of their beginnings.")
]
Redact = Annotated[
    bool, Parameter(negative=(), show_default=False, help="Leave out the texts of messages and summaries.")
]
Limit = Annotated[int, Parameter(validator=validators.Number(gte=1, lte=10_000))]
_SHOWN_COUNT = 50


async def sessions(
    *,
    limit: Annotated[Limit, Parameter(help="Sessions per page.")] = 20,
    cursor: Annotated[str | None, Parameter(help="Continue from here: the last page prints its cursor.")] = None,
    url: Url = None,
    namespace: Namespace = "default",
    as_json: AsJson = False,
) -> int:
    """List the sessions of a namespace, most recently active first.

    Prints numbers only, no text or state value. A session that ended during the listing is shown as `gone`.
    """
    async with open_read_only(url, namespace) as (memory, place):
        try:
            found = await list_sessions(memory.store, limit, cursor)
        except ValueError as refused:
            raise Stop(str(refused), 2) from None
    if as_json:
        rows = [
            {
                "session_id": entry.session_id,
                "hash": hash_of(entry.session_id),
                "active_ms": entry.active_ms,
                **numbers_of(info),
            }
            for entry, info in zip(found.entries, found.infos, strict=True)
        ]
        print_json(
            {"namespace": namespace, "count": found.count, "room": found.room, "sessions": rows, "cursor": found.cursor}
        )
    else:
        _print_sessions(found)
        room = f"; room for {found.room:,} more, the limit is {memory.store.session_limit:,}"
        print(f"{plural(found.count, 'live session')} in namespace {namespace} on {place.name}{room}")
        if found.cursor:
            print(f"more: --cursor {found.cursor}")
    return 0


def _print_sessions(found: Listing) -> None:
    rows = []
    for entry, info in zip(found.entries, found.infos, strict=True):
        active = f"{duration(found.now_ms - entry.active_ms)} ago"
        if isinstance(info, str):
            rows.append([printable(entry.session_id), active, "", "", "", "", info])
            continue
        numbers = (f"{number:,}" for number in (info.total_messages, info.window_count, info.window_tokens))
        queue = (info.queued, failing_line(info, found.now_ms))
        waits = ", ".join(printable(word) for word in (*queue, info.waiting_for_param) if word)
        expires = f"in {duration(info.expires_ms - found.now_ms)}"
        rows.append([printable(entry.session_id), active, *numbers, expires, one_line(waits, 60)])
    if rows:
        print_rows(("session", "active", "messages", "window", "tokens", "expires", "queue, waits for"), rows)


async def show(
    session: Shown,
    /,
    *,
    limit: Annotated[
        Limit | None, Parameter(help="Show only this many newest messages. [default: 50, with --json all]")
    ] = None,
    originals: Annotated[
        bool, Parameter(negative=(), show_default=False, help="Include the original messages behind the summaries.")
    ] = False,
    full: Full = False,
    redact: Redact = False,
    record: Annotated[
        bool, Parameter(negative=(), show_default=False, help="Show the records with this id: numbers, fields, sizes.")
    ] = False,
    values: Annotated[
        bool, Parameter(negative=(), show_default=False, help="With `--record`: print the values of the fields.")
    ] = False,
    url: Url = None,
    namespace: Namespace = "default",
    as_json: AsJson = False,
) -> int:
    """Show a session: summaries, pending and recent messages, state names, counters.

    Prints texts, but never the values of the state. Of a damaged session, prints the faults and what can be read.
    """
    if record:
        return await _show_record(session, limit or _SHOWN_COUNT, values, url, namespace, as_json)
    from redismem.cli import session_view

    async with open_read_only(url, namespace) as (memory, place):
        try:
            info, context = await look(memory.store, session, limit or (None if as_json else _SHOWN_COUNT))
        except CorruptSession:
            return await _show_broken(memory.store, session, place.name, full=full, redact=redact, as_json=as_json)
        messages = await originals_of(memory.store, context) if originals else []
        now_ms, key = await memory.server_time_ms(), key_of(memory.store, session)
    if as_json:
        print_json(session_view.document(context, info, namespace, key, redact=redact, originals=messages))
    else:
        where = f"namespace {namespace} on {place.name}"
        session_view.show(console(), context, info, now_ms, where, key, full, redact, messages)
        _tell_hidden(info, context)
    return 0


def _tell_hidden(info: SessionInfo, context: Context) -> None:
    if (hidden := info.window_count - len(context.pending) - len(context.recent)) > 0:
        print(f"{plural(hidden, 'earlier message')} not shown: --limit {min(info.window_count, 10_000)}")


async def _show_broken(
    store: Store, session_id: str, place_name: str, *, full: bool, redact: bool, as_json: bool
) -> int:
    from redismem.cli.parts_view import parts_document, show_parts

    read = await read_live(store, session_id)
    if as_json:
        print_json({"namespace": store.keys.namespace, "session_id": session_id, **parts_document(read, redact)})
    else:
        out = console()
        where = f"namespace {store.keys.namespace} on {place_name}"
        out.print(f"{printable(session_id)}  {where}", markup=False)
        show_parts(out, read, full, redact)
        print("the next write puts it into quarantine, and begins a new session")
    return 1


async def _show_record(record_id: str, limit: int, values: bool, url: str | None, namespace: str, as_json: bool) -> int:
    from redismem.cli import record_view

    async with open_read_only(url, namespace) as (memory, place):
        where = (namespace, place.name)
        await record_view.show(memory.store, record_id, limit, where, values=values, as_json=as_json)
    return 0


async def clear(
    session: Session,
    /,
    *,
    yes: Yes = False,
    url: Url = None,
    namespace: Namespace = "default",
    as_json: AsJson = False,
) -> int:
    """Remove a session with its messages, summaries, state and queue entries.

    On a terminal it asks for confirmation first, unless `--yes` is given.
    """
    async with open_used(url, namespace) as (memory, place):
        handle = memory.session(session)
        if not await handle.exists():
            raise SessionNotFound(f"there is no such session in namespace {namespace}", session)
        if (
            not yes
            and sys.stdin.isatty()
            and not confirm(f"Clear {printable(session)} in {namespace} on {place.name}?")
        ):
            raise Stop("cancelled; nothing was cleared")
        cleared = await handle.clear()
    if as_json:
        print_json({"namespace": namespace, "session_id": session, "cleared": cleared})
    else:
        print(f"cleared {printable(session)} in namespace {namespace} on {place.name}")
    return 0


def confirm(question: str) -> bool:
    """Ask on the terminal; True if the answer is yes."""
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
