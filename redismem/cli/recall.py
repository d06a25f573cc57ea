"""`redismem recall`: what was said long ago about something, in a session or in a file of evicted ones."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter, validators

from redismem.cli.place import looking
from redismem.cli.terminal import AsJson, Namespace, Stop, Url, console, print_json, printable
from redismem.errors import SessionNotFound
from redismem.messages.values import readable
from redismem.recall.recall import within
from redismem.workers.archive import read_archive

if TYPE_CHECKING:
    from redismem.context import Context
    from redismem.messages.message import Message

Found = list[tuple[str, "list[Message]"]]
Limit = Annotated[int, Parameter(validator=validators.Number(gte=1, lte=64))]


async def recall(
    session: Annotated[str, Parameter(help="The session's id, or the file of an archive that evicted ones are in.")],
    question: Annotated[str, Parameter(help="What is asked: the words in it are looked for, in any form.")],
    /,
    *,
    limit: Annotated[Limit, Parameter(help="Messages to find; their neighbours come with them.")] = 8,
    full: Annotated[bool, Parameter(negative=(), show_default=False, help="Whole messages.")] = False,
    url: Url = None,
    namespace: Namespace = "default",
    as_json: AsJson = False,
) -> int:
    """Find earlier messages that a question is about, among those that summaries stand for.

    No model is asked. It prints the texts of the conversation, since you ask for them.
    """
    from redismem.cli import session_view

    if (archive := _archive(session)) is not None:
        found = await asyncio.to_thread(_in_archive, archive, question, limit)
    else:
        async with looking(url, namespace) as (memory, _):
            handle = memory.session(session)
            if not await handle.exists():
                raise SessionNotFound(f"there is no such session in namespace {namespace}, and no such file", session)
            found = [(session, await handle.recall(question, limit))]
    found = [(name, messages) for name, messages in found if messages]
    if as_json:
        print_json({"question": question, "sessions": [_document(name, messages) for name, messages in found]})
    else:
        for name, messages in found:
            session_view.found(console(), f"recalled from {printable(name)}", messages, full)
        if not found:
            print("nothing of the kind is kept")
    return 0 if found else 1


def _archive(name: str) -> Path | None:
    path = Path(name)
    try:
        return path if path.is_file() else None
    except OSError:  # a session id may be longer than a file name
        return None


def _in_archive(path: Path, question: str, limit: int) -> Found:
    """What is found in an archive: of each session, in its newest transcript."""
    return [(context.session_id, within(context, question, limit)) for context in _newest(path)]


def _newest(path: Path) -> Iterator[Context]:
    lines: dict[tuple[str, str], int] = {}
    try:
        for number, context in enumerate(read_archive(path)):
            lines[context.session_id, context.epoch] = number
        wanted = set(lines.values())
        # Read twice: an archive may be larger than what there is of memory.
        yield from (context for number, context in enumerate(read_archive(path)) if number in wanted)
    except (OSError, ValueError) as refused:
        raise Stop(f"{printable(str(path))}: {refused}", 2) from None


def _document(session_id: str, messages: list[Message]) -> dict[str, object]:
    shown = [{"seq": each.seq, "tokens": each.tokens, "message": readable(each.to_openai())} for each in messages]
    return {"session_id": session_id, "messages": shown}
