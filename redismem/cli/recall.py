"""`redismem recall`: search the older messages of a session, or of an archive of evicted sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from redismem.cli.options import DEFAULT, Full, On, within
from redismem.cli.place import open_read_only
from redismem.cli.terminal import Stop, console, print_json
from redismem.errors import SessionNotFound
from redismem.inspection.figures import printable
from redismem.messages.values import replace_non_finite
from redismem.recall.recall import search_context
from redismem.workers.archive import read_archive

if TYPE_CHECKING:
    from redismem.context.context import Context
    from redismem.messages.message import Message

Found = list[tuple[str, "list[Message]"]]


async def recall(
    session: Annotated[str, Parameter(help="The id of a session, or the path of an archive of evicted sessions.")],
    question: Annotated[str, Parameter(help="The question; its words are matched in any inflected form.")],
    /,
    *,
    limit: Annotated[int, within(1, 64, "Messages to find; neighbouring messages are added.")] = 8,
    full: Full = False,
    on: On = DEFAULT,
) -> int:
    """Find earlier messages that match a question, among the summarised messages.

    Uses no model. Prints the conversation's text.
    """
    from redismem.cli import session_view

    if (archive := _archive_path(session)) is not None:
        found = await asyncio.to_thread(_search_archive, archive, question, limit)
    else:
        async with open_read_only(on.url, on.namespace) as (memory, _):
            handle = memory.session(session)
            if not await handle.exists():
                text = f"there is no such session in namespace {on.namespace}, and no such file"
                raise SessionNotFound(text, session)
            found = [(session, await handle.recall(question, limit))]
    found = [(name, messages) for name, messages in found if messages]
    if on.as_json:
        print_json({"question": question, "sessions": [_document(name, messages) for name, messages in found]})
    else:
        for name, messages in found:
            session_view.show_messages(console(), f"recalled from {printable(name)}", messages, full, False)
        if not found:
            print("no matching messages")
    return 0 if found else 1


def _archive_path(name: str) -> Path | None:
    path = Path(name)
    try:
        return path if path.is_file() else None
    except OSError:  # a session id may be longer than a file name
        return None


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
