"""What a model's summary has lost: numbers and names that were said stand in it again, as many as there is room for."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Sequence

from redismem.messages.message import Message
from redismem.text.plain import pieces
from redismem.text.sentences import MENTIONED, names_in, numbers_in

_READ_BYTES = 400_000
_MESSAGE_BYTES = 16_000
_SHORTEST_NUMBER_CHARS = 2
_WORD = re.compile(r"\w+")


async def with_lost(text: str, messages: Sequence[Message], previous: str, limit_bytes: int) -> str:
    """The text, and behind it what it lacks of the numbers and names in messages and the previous summary.

    The list has `limit_bytes` at most; numbers go before names, and newer ones before older. It stops after each
    message, so that others get a turn.
    """
    numbers: dict[str, None] = {}
    names: dict[str, None] = {}
    share = min(max(_READ_BYTES // max(len(messages), 1), 200), _MESSAGE_BYTES)
    for message in (*reversed(messages), None):
        said = [text for kind, text in pieces(message, share) if kind == "text"] if message else [previous]
        for part in said:
            for found, known in ((await _worked(part), numbers), (names_in(part), names)):
                known.update(dict.fromkeys(found))
        await asyncio.sleep(0)
    kept_numbers, kept_words = set(await _worked(text)), set(_WORD.findall(text.casefold()))
    lost = [each for each in numbers if len(each) >= _SHORTEST_NUMBER_CHARS and each not in kept_numbers]
    lost += [each for each in names if each.casefold() not in kept_words]
    listed = list(_fitting(lost, limit_bytes - len(MENTIONED) - 1))
    return f"{text}\n{MENTIONED}{', '.join(reversed(listed))}" if listed else text


async def _worked(text: str) -> tuple[str, ...]:
    work = numbers_in(text)
    while True:
        try:
            next(work)
        except StopIteration as done:
            found: tuple[str, ...] = done.value
            return found
        await asyncio.sleep(0)


def _fitting(words: Iterable[str], limit_bytes: int) -> Iterable[str]:
    left = limit_bytes
    for word in words:
        size = len(word.encode()) + 2
        if size <= left:
            left -= size
            yield word
