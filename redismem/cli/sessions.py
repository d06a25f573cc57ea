"""`redismem sessions`, `show` and `clear`: what an operator looks at, and removes. Looking changes nothing."""

from __future__ import annotations

import sys
from typing import Annotated

from cyclopts import Parameter, validators

from redismem.cli.depths import failing
from redismem.cli.place import looking, opened, say_if_embedded
from redismem.cli.terminal import (
    AsJson,
    Namespace,
    Stop,
    Url,
    console,
    duration,
    one_line,
    plural,
    print_json,
    print_rows,
    printable,
)
from redismem.errors import SessionNotFound
from redismem.inspection.sessions import Listing, hash_of, key_of, list_sessions, look, numbers_of, originals_of

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
    async with looking(url, namespace) as (memory, place):
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
        room = f"; the limit of {memory.store.session_limit:,} leaves room for {found.room:,} more"
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
        queue = (info.queued, failing(info, found.now_ms))
        waits = ", ".join(printable(word) for word in (*queue, info.waiting_for_param) if word)
        expires = f"in {duration(info.expires_ms - found.now_ms)}"
        rows.append([printable(entry.session_id), active, *numbers, expires, one_line(waits, 60)])
    if rows:
        print_rows(("session", "active", "messages", "window", "tokens", "expires", "queue, waits for"), rows)


async def show(
    session: Session,
    /,
    *,
    limit: Annotated[Limit | None, Parameter(help="Only the newest messages. [default: all]")] = None,
    originals: Annotated[
        bool, Parameter(negative=(), show_default=False, help="With the kept messages that summaries stand for.")
    ] = False,
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

    async with looking(url, namespace) as (memory, place):
        info, context = await look(memory.store, session, limit)
        kept = await originals_of(memory.store, context) if originals else []
        now_ms, key = await memory.server_time_ms(), key_of(memory.store, session)
    if as_json:
        print_json(session_view.document(context, info, namespace, key, redact=redact, originals=kept))
    else:
        where = f"namespace {namespace} on {place.name}"
        session_view.show(console(), context, info, now_ms, where, key, full, redact, kept)
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
    async with opened(url, namespace) as (memory, place):
        say_if_embedded(place)
        handle = memory.session(session)
        if not await handle.exists():
            raise SessionNotFound(f"there is no such session in namespace {namespace}", session)
        if (
            not yes
            and sys.stdin.isatty()
            and not confirmed(f"Clear {printable(session)} in {namespace} on {place.name}?")
        ):
            raise Stop("nothing was cleared")
        cleared = await handle.clear()
    if as_json:
        print_json({"namespace": namespace, "session_id": session, "cleared": cleared})
    else:
        print(f"cleared {printable(session)} in namespace {namespace} on {place.name}")
    return 0


def confirmed(question: str) -> bool:
    """Whether the person at the terminal says yes."""
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
