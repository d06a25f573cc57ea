"""Read the conversations of a file that are played: a sample of a long one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from redismem.cli.terminal import Stop, progress
from redismem.cli.tune.playing import Conversation, prepare
from redismem.cli.tune.transcripts import BadLine, lines, parse, questions_of

_PAUSE_LINES = 1_000


@dataclass(frozen=True, slots=True)
class Loaded:
    """The conversations of a file that are played, and the number of those in it."""

    conversations: Sequence[Conversation]
    count: int


async def load(file: Path, most: int) -> Loaded:
    """Read at most this many conversations, spread evenly over the file. Shows progress.

    Raises:
        Stop: if a line cannot be read, or if there are none.
    """
    with progress("lines counted") as advance:
        count = 0
        async for _ in _lines(file, advance):
            count += 1
    if not count:
        raise Stop(f"{file} has no conversations", 2)
    places = {number * count // min(most, count) for number in range(min(most, count))}
    conversations = list[Conversation]()
    with progress("lines read") as advance:
        place = 0
        async for number, line in _lines(file, advance):
            if place in places:
                try:
                    transcript = parse(number, line)
                    conversations.append(prepare(transcript, questions_of(transcript)))
                except BadLine as bad:
                    raise Stop(f"{file}, line {number}: {bad}", 2) from None
            place += 1
    return Loaded(conversations, count)


async def _lines(file: Path, advance: Callable[[int], None]) -> AsyncIterator[tuple[int, bytes]]:
    """Yield the lines; Ctrl-C ends it between two of them.

    Raises:
        Stop: if the file cannot be read.
    """
    try:
        for number, line in lines(file):
            if number % _PAUSE_LINES == 0:
                advance(number)
                await asyncio.sleep(0)
            yield number, line
    except OSError as error:
        raise Stop(f"{file}: {error.strerror}", 2) from None
