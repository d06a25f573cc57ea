"""Many writers of one conversation, over a proxy that loses replies, and the count of what a store makes of it."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from redis.exceptions import RedisError

from support.proxy import How, Proxy

HOW: tuple[How, ...] = ("reset", "close", "truncate")
WRITERS_COUNT = 40


@dataclass
class Tally:
    """The texts that the writers sent, and their fate: each has a writer, a dash and a number."""

    added: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    """The texts of calls that raised: they may be stored or not."""
    left: list[str] = field(default_factory=list)

    @property
    def lost(self) -> list[str]:
        return [*(Counter(self.added) - Counter([*self.left, *self.removed]))]

    @property
    def doubled(self) -> list[str]:
        counts = Counter([*self.left, *self.removed])
        return [text for text, count in counts.items() if count > 1]

    @property
    def out_of_order(self) -> list[str]:
        """The texts that come before an earlier text of the same writer."""
        latest: dict[str, int] = {}
        found = []
        for text in self.left:
            writer, number = text.split("-")
            if int(number) < latest.get(writer, -1):
                found.append(text)
            latest[writer] = max(int(number), latest.get(writer, -1))
        return [*dict.fromkeys(found)]

    def __str__(self) -> str:
        added, lost, doubled = len(self.added), len(self.lost), len(self.doubled)
        late, unknown = len(self.out_of_order), len(self.unknown)
        return f"{added} acknowledged: {lost} lost, {doubled} doubled, {late} out of order; {unknown} raised an error"


async def write_lossily(
    proxy: Proxy,
    each_count: int,
    add: Callable[[str], Awaitable[object]],
    remove: Callable[[], Awaitable[list[str]]],
    touch: Callable[[], Awaitable[object]],
    read: Callable[[], Awaitable[list[str]]],
) -> Tally:
    """Let 40 writers add texts, remove the oldest ones and touch the session, and lose every third reply or so."""
    tally, chance = Tally(), random.Random(42)

    async def write(writer: int) -> None:
        for number, text in ((number, f"{writer}-{number}") for number in range(each_count)):
            if chance.random() < 0.3:
                proxy.break_next(chance.choice(HOW), chance.randint(1, 2))
            try:
                await add(text)
                tally.added.append(text)
            except (RedisError, OSError):
                tally.unknown.append(text)
            try:
                if number % 3 == 1:
                    tally.removed += await remove()
                elif number % 3 == 2:
                    await touch()
            except (RedisError, OSError):
                pass

    await asyncio.gather(*map(write, range(WRITERS_COUNT)))
    proxy.heal()
    tally.left = await read()
    return tally
