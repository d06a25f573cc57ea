"""Find the messages of one conversation that contain a text, also those that a summary covers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from redismem.messages.message import Message
from redismem.originals.fields import searchable_texts
from redismem.session.session import Session

_PAGE_COUNT = 1_000
_PAGES_COUNT = 5
_TOGETHER_COUNT = 100


async def find(session: Session, text: str, before: int | None) -> tuple[list[int], int | None]:
    """Return the seqs of the next messages before a seq that contain a text, ascending, and where a search goes on.

    Case and white space do not count. It looks at 5,000 messages; `None` means that it has looked at all.

    Raises the errors of `Session.messages`.
    """
    wanted = _plain(text)
    seqs: list[int] = []
    for _ in range(_PAGES_COUNT):
        messages = await session.messages(_PAGE_COUNT, before, include_originals=True)
        seqs[:0] = await _matching(messages, wanted)
        if len(messages) < _PAGE_COUNT or messages[0].seq == 1:
            return seqs, None
        before = messages[0].seq
    return seqs, before


async def _matching(messages: Sequence[Message], wanted: str) -> list[int]:
    seqs = []
    for at, message in enumerate(messages):
        if at % _TOGETHER_COUNT == 0:
            await asyncio.sleep(0)  # a thousand texts take milliseconds
        if wanted in _plain(" ".join(searchable_texts(message))):
            seqs.append(message.seq)
    return seqs


def _plain(text: str) -> str:
    return " ".join(text.split()).casefold()
