"""`redismem search`: find messages by their words: in all conversations, one session, or an archive of evicted ones."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from redismem.cli.options import DEFAULT, Full, On, Target, within
from redismem.cli.place import open_read_only
from redismem.cli.terminal import Stop, console, one_line, print_json, print_rows, progress
from redismem.context.results import RecalledMessages
from redismem.errors import SessionNotFound
from redismem.inspection.figures import plural, printable
from redismem.messages.values import replace_non_finite
from redismem.recall.recall import search_context
from redismem.workers.archive import read_archive

if TYPE_CHECKING:
    from redismem.context.context import Context
    from redismem.messages.message import Message

Found = list[tuple[str, "list[Message]"]]
Limit = Annotated[int, within(1, 64, "Messages to find, with their neighbours; else sessions to find.")]
OneSession = Annotated[str | None, Parameter(help="Search the summarised messages of this session.")]
Archive = Annotated[Path | None, Parameter(help="Search this archive of evicted sessions, see `worker`.")]
Owner = Annotated[str | None, Parameter(help="Search only the conversations that were begun with this owner.")]


async def search(
    *words: Annotated[str, Parameter(help="Words to find, in any inflected form.")],
    session: OneSession = None,
    archive: Archive = None,
    owner: Owner = None,
    limit: Limit = 8,
    full: Full = False,
    on: On = DEFAULT,
) -> int:
    """Find messages by their words.

    Searches all conversations, one session, or an archive. Without `--session` or `--archive` it lists the sessions
    with a message that contains all words, most recently active first. With either it finds the messages that match the
    question best, as recall does. Uses no model. Prints the conversation's text. Exit code 1: nothing
    was found.
    """
    if not (question := " ".join(words)).strip():
        raise Stop("give words to find", 2)
    if sum(each is not None for each in (session, archive, owner)) > 1:
        raise Stop("give one of --session, --archive and --owner", 2)
    if archive is not None:
        found = await asyncio.to_thread(_search_archive, archive, question, limit)
    elif session is not None:
        found = await _search_session(session, question, limit, on)
    else:
        return await _search_all(question, owner, limit, on)
    unsearched = sum(each.unsearched_count for _, each in found if isinstance(each, RecalledMessages))
    found = [(name, messages) for name, messages in found if messages]
    if on.as_json:
        documents = [_document(name, messages) for name, messages in found]
        print_json({"question": question, "sessions": documents, "unsearched": unsearched})
    else:
        from redismem.cli import session_view

        for name, messages in found:
            session_view.show_messages(console(), f"recalled from {printable(name)}", messages, full, False)
        if not found:
            print("no matching messages")
        if unsearched:
            print(f"not searched: {plural(unsearched, 'earlier message')}, see REDISMEM_MAX_RECALLED_BYTES")
    return 0 if found else 1


async def _search_session(session: str, question: str, limit: int, on: Target) -> Found:
    async with open_read_only(on.url, on.namespace) as (memory, _):
        handle = memory.session(session)
        if not await handle.exists():
            raise SessionNotFound(f"there is no such session in namespace {on.namespace}", session)
        found = await handle.recall(question, limit)
        count = found.unsearched_count + 1
        while 0 < found.unsearched_count < count:  # each search covers more of a long session
            count = found.unsearched_count
            found = await handle.recall(question, limit)
        return [(session, found)]


async def _search_all(question: str, owner: str | None, limit: int, on: Target) -> int:
    """List the sessions with a message that contains all words of the question."""
    from redismem.web import searching

    filters = searching.Filters(text=question, owner=owner)
    async with open_read_only(on.url, on.namespace) as (memory, place):
        rows = list[dict[str, Any]]()
        cursor: str | None = None
        with progress("sessions found") as show:
            while True:
                page, cursor = await searching.search(memory, filters, limit - len(rows), cursor)
                rows += page
                show(len(rows))
                if cursor is None or len(rows) == limit:
                    break
    if on.as_json:
        print_json({"question": question, "sessions": rows})
        return 0 if rows else 1
    lines = [(row["session_id"], row["match"]) for row in rows]
    cells = [(printable(id), f"{hit['seq']}", hit["role"], one_line(hit["text"], 240)) for id, hit in lines]
    print_rows(("session", "message", "role", "text"), cells)
    more = "; there may be more: --limit" if cursor is not None else ""
    print(f"{plural(len(rows), 'session')} of namespace {on.namespace} on {place.name}{more}")
    return 0 if rows else 1


def _search_archive(path: Path, question: str, limit: int) -> Found:
    """Search the newest transcript of each session in an archive."""
    return [(context.session_id, search_context(context, question, limit)) for context in _newest_transcripts(path)]


def _newest_transcripts(path: Path) -> Iterator[Context]:
    lines: dict[tuple[str, str], int] = {}
    try:
        for number, context in enumerate(read_archive(path)):
            lines[context.session_id, context.epoch] = number
        wanted = set(lines.values())
        # Read the file twice: an archive may not fit in memory.
        yield from (context for number, context in enumerate(read_archive(path)) if number in wanted)
    except (OSError, ValueError) as refused:
        raise Stop(f"{printable(str(path))}: {refused}", 2) from None


def _document(session_id: str, messages: list[Message]) -> dict[str, object]:
    shown = [
        {"seq": each.seq, "tokens": each.tokens, "message": replace_non_finite(each.to_openai())} for each in messages
    ]
    return {"session_id": session_id, "messages": shown}
