"""`redismem list`, `show` and `remove` of sessions. Listing and showing are read-only."""

from __future__ import annotations

from typing import Annotated

from redismem.cli.depths import failing_line
from redismem.cli.options import DEFAULT, Full, On, Redact, Yes, flag, option, within
from redismem.cli.place import open_read_only, open_used
from redismem.cli.terminal import Stop, ask, console, one_line, print_json, print_rows
from redismem.context.context import Context
from redismem.context.info import SessionEntry, SessionInfo
from redismem.errors import CorruptSession, InvalidSessionId, SessionNotFound
from redismem.inspection.figures import duration, plural, printable
from redismem.inspection.quarantine import read_live
from redismem.inspection.records import count_records
from redismem.inspection.sessions import Listing, hash_of, key_of, look, numbers_of, originals_of
from redismem.inspection.sessions import list_sessions as list_page
from redismem.store.store import Store

Session = Annotated[str, option("The id of the session.")]
_SHOWN_COUNT = 50


async def list_sessions(
    *,
    limit: Annotated[int, within(1, 10_000, "Sessions per page.")] = 20,
    cursor: Annotated[str | None, option("Continue from here: the last page prints its cursor.")] = None,
    owner: Annotated[str | None, option("Only sessions that were begun with this owner, with their titles.")] = None,
    on: On = DEFAULT,
) -> int:
    """List the sessions of a namespace, most recently active first.

    Prints numbers only, no text or state value; with `--owner` also titles and the beginning of each last message. A
    session that ended during the listing is shown as `gone`.
    """
    async with open_read_only(on.url, on.namespace) as (memory, place):
        try:
            found = await list_page(memory.store, limit, cursor, owner)
        except (InvalidSessionId, ValueError) as refused:
            raise Stop(str(refused), 2) from None
        records_count = await count_records(memory.store)
    if on.as_json:
        rows = [
            {
                "session_id": entry.session_id,
                "hash": hash_of(entry.session_id),
                "active_ms": entry.active_ms,
                **({} if owner is None else _texts_of(entry)),
                **numbers_of(info),
            }
            for entry, info in zip(found.entries, found.infos, strict=True)
        ]
        numbers = {"count": found.count, "room": found.room, "records_count": records_count}
        print_json({"namespace": on.namespace, **numbers, "sessions": rows, "cursor": found.cursor})
    else:
        _print_sessions(found, with_texts=owner is not None)
        room = f"; room for {found.room:,} more, the limit is {memory.store.agreement.session_limit:,}"
        of_owner = "" if owner is None else _count_of_owner(len(found.entries), owner)
        print(f"{of_owner}{plural(found.count, 'live session')} in namespace {on.namespace} on {place.name}{room}")
        if records_count:
            print(f"{plural(records_count, 'record')}: redismem list records")
        if found.cursor:
            print(f"more: --cursor {found.cursor}")
    return 0


def _texts_of(entry: SessionEntry) -> dict[str, str | None]:
    return {"title": entry.title, "last_role": entry.last_role, "last_text": entry.last_text}


def _count_of_owner(count: int, owner: str) -> str:
    shown = f"{plural(count, 'session')} shown" if count else "no session"
    return f"{shown} of owner {printable(owner)}; of all owners: "


def _print_sessions(found: Listing, *, with_texts: bool) -> None:
    rows = []
    names = [printable(entry.session_id) for entry in found.entries]
    for entry, info, name in zip(found.entries, found.infos, names, strict=True):
        texts = [one_line(text or "", 40) for text in (entry.title, entry.last_text)] if with_texts else []
        active = f"{duration(found.now_ms - entry.active_ms)} ago"
        if isinstance(info, str):
            rows.append([name, *texts, active, "", "", "", "", info])
            continue
        numbers = (f"{number:,}" for number in (info.total_messages, info.window_count, info.window_tokens))
        queue = (info.queued, failing_line(info, found.now_ms))
        waits = ", ".join(printable(word) for word in (*queue, info.waiting_for_param) if word)
        expires = f"in {duration(info.expires_ms - found.now_ms)}"
        rows.append([name, *texts, active, *numbers, expires, one_line(waits, 60)])
    heads = ("active", "messages", "window", "tokens", "expires", "queue, waits for")
    print_rows(("session", *(["title", "last message"] if with_texts else []), *heads), rows)


async def show(
    session: Session,
    /,
    *,
    limit: Annotated[
        int | None, within(1, 10_000, "Show only this many newest messages. [default: 50, with --json all]")
    ] = None,
    originals: Annotated[bool, flag("Include the original messages behind the summaries.")] = False,
    full: Full = False,
    redact: Redact = False,
    on: On = DEFAULT,
) -> int:
    """Show a session: summaries, pending and recent messages, state names, counters.

    Prints texts, but never the values of the state. Of a damaged session, prints the faults and what can be read.
    """
    from redismem.cli import session_view

    async with open_read_only(on.url, on.namespace) as (memory, place):
        try:
            info, context = await look(memory.store, session, limit or (None if on.as_json else _SHOWN_COUNT))
        except CorruptSession:
            return await _show_broken(memory.store, session, place.name, full=full, redact=redact, as_json=on.as_json)
        messages = await originals_of(memory.store, context) if originals else []
        now_ms, key = await memory.server_time_ms(), key_of(memory.store, session)
    if on.as_json:
        print_json(session_view.document(context, info, on.namespace, key, redact=redact, originals=messages))
    else:
        where = f"namespace {on.namespace} on {place.name}"
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


async def remove(session: Session, /, *, yes: Yes = False, on: On = DEFAULT) -> int:
    """Remove a session with its messages, summaries, state and queue entries.

    Asks for confirmation first; without a terminal it needs `--yes`.
    """
    async with open_used(on.url, on.namespace) as (memory, place):
        handle = memory.session(session)
        if not await handle.exists():
            raise SessionNotFound(f"there is no such session in namespace {on.namespace}", session)
        ask(f"Remove session {printable(session)} in {on.namespace} on {place.name}?", yes=yes)
        removed = await handle.clear()
    if on.as_json:
        print_json({"namespace": on.namespace, "session_id": session, "removed": removed})
    else:
        print(f"removed session {printable(session)} in namespace {on.namespace} on {place.name}")
    return 0
