"""Restore facts that a model's summary lost, by appending numbers and names from the messages as far as they fit."""

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


async def restore_lost_facts(text: str, messages: Sequence[Message], previous: str, limit_bytes: int) -> str:
    """Append to the text the numbers and names that only the messages and the previous summary contain.

    The list has at most `limit_bytes`. Numbers are preferred to names, and newer ones to older ones. Yields to the
    event loop after each message.
    """
    numbers: dict[str, None] = {}
    names: dict[str, None] = {}
    share = min(max(_READ_BYTES // max(len(messages), 1), 200), _MESSAGE_BYTES)
    for message in (*reversed(messages), None):
        parts = [text for kind, text in pieces(message, share) if kind == "text"] if message else [previous]
        for part in parts:
            for new, collected in ((await _find_numbers(part), numbers), (names_in(part), names)):
                collected.update(dict.fromkeys(new))
        await asyncio.sleep(0)
    kept_numbers, kept_words = set(await _find_numbers(text)), set(_WORD.findall(text.casefold()))
    lost = [each for each in numbers if len(each) >= _SHORTEST_NUMBER_CHARS and each not in kept_numbers]
    lost += [each for each in names if each.casefold() not in kept_words]
    listed = list(_take_fitting(lost, limit_bytes - len(MENTIONED) - 1))
    return f"{text}\n{MENTIONED}{', '.join(reversed(listed))}" if listed else text


async def _find_numbers(text: str) -> tuple[str, ...]:
    work = numbers_in(text)
    while True:
        try:
            next(work)
        except StopIteration as done:
            numbers: tuple[str, ...] = done.value
            return numbers
        await asyncio.sleep(0)


def _take_fitting(words: Iterable[str], limit_bytes: int) -> Iterable[str]:
    left = limit_bytes
    for word in words:
        size = len(word.encode()) + 2
        if size <= left:
            left -= size
            yield word
