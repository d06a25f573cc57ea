"""Nothing that was removed from a conversation is left anywhere, whichever way it was removed.

`make nightly` plays 300 sessions, which are enough to train a dictionary; an ordinary run, fewer.
"""

from __future__ import annotations

import itertools
import logging
import random
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import redis.asyncio
from support.checks import until
from support.redis_server import RedisServer
from support.selection import EVERYTHING
from support.stored import read_namespace

from redismem import Memory, Session, Settings
from redismem.events import Event
from redismem.messages.compression import expand_element
from redismem.models import open_extractive
from redismem.originals.blocks import decode_block
from redismem.store.dictionaries import load_dictionaries
from redismem.workers.eviction import Eviction
from redismem.workers.strategies import Summarize
from redismem.workers.summaries import Worker

SESSIONS_COUNT = 300 if EVERYTHING else 24
MESSAGES_COUNT = 30
SETTINGS = Settings(shards=4, threshold=8, recent_limit=4, keep_originals=True, max_sessions=SESSIONS_COUNT - 2)
COMMON = "Thank you for calling the airline, please tell me the number of your booking."
RUN_COUNT = 8
# Words without digits, since a dictionary leaves numbers out.
WORDS = ["".join(letters) for letters in itertools.product("bdfgklmn", "aeiou", "prst", "ao")]


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def run_of_words(*place: int) -> str:
    """Return eight words that come in this order in this place alone, though each comes in many places."""
    return " ".join(random.Random(repr(place)).choices(WORDS, k=RUN_COUNT))


def sentence(session_number: int, message_number: int) -> str:
    """Return a text of all sessions, with eight words of this session and eight of this message."""
    person, own = run_of_words(session_number), run_of_words(session_number, message_number)
    return f"{COMMON} My name is {person}. I remember that {own}."


CANARIES = {
    run_of_words(*place)
    for number in range(SESSIONS_COUNT)
    for place in ((number,), *((number, at) for at in range(1, MESSAGES_COUNT + 1)))
}


def canaries(*texts: str) -> set[str]:
    """Return the canaries in texts, whatever stands between their words."""
    found: set[str] = set()
    for text in texts:
        words = re.findall("[a-z]+", text)
        found |= {" ".join(words[at : at + RUN_COUNT]) for at in range(len(words) - RUN_COUNT + 1)} & CANARIES
    return found


async def read_canaries(session: Session) -> tuple[set[str], set[str]]:
    """Return the canaries of a session's messages, summarised or not, and those of its summaries."""
    if not await session.exists():
        return set(), set()
    messages, context = await session.messages(include_originals=True), await session.read()
    return (
        canaries(*(str(message.content) for message in messages)),
        canaries(*(summary.text for summary in context.summaries)),
    )


async def clear(session: Session) -> None:
    await session.clear()


async def clear_and_begin_anew(session: Session) -> None:
    await session.clear()
    await session.append(user(COMMON))


async def pop(session: Session) -> None:
    await session.pop(2)


async def prune(session: Session) -> None:
    await session.prune(1)


async def replace(session: Session) -> None:
    await session.replace((await session.read()).messages[-1], user("something else"))


async def rewrite(session: Session) -> None:
    await session.rewrite(6, [user("another end")])


async def forget(session: Session) -> None:
    """Forget a message that a summary covers, and one of the window."""
    messages = await session.messages(include_originals=True)
    await session.forget(messages[2].seq, messages[-2].seq)


async def undo(session: Session) -> None:
    await session.undo()


async def forget_archived(session: Session) -> None:
    """Forget a message that was archived, not summarised."""
    oldest = (await session.messages())[0]
    await session.archive(1)
    await session.forget(oldest.seq)


WAYS: list[Callable[[Session], Awaitable[None]]] = [
    *(clear, clear_and_begin_anew, pop, prune, replace, rewrite, forget, forget_archived, undo),
]


class Town:
    """A server with all sessions, what was removed from them, and everything that was logged and reported."""

    def __init__(self, server: RedisServer) -> None:
        self.server = server
        self.said: set[str] = set()
        self.kept: set[str] = set()
        self.events: list[str] = []

    def connect(self) -> Memory:
        return Memory.connect(self.server.url, namespace="town", settings=SETTINGS, on_event=self._note)

    def _note(self, event: Event) -> None:
        self.events.append(repr(event))

    async def fill(self) -> None:
        """Append all sessions, summarise them, and make original blocks large enough to train a dictionary."""
        async with self.connect() as memory:
            worker = Worker(memory.store, Summarize(open_extractive()))
            for first in range(1, MESSAGES_COUNT, 10):
                for number in range(SESSIONS_COUNT):
                    texts = (sentence(number, at) for at in range(first, first + 10))
                    await memory.session(f"s{number}", owner=f"p{number}").append(*map(user, texts))
                await worker.drain()

    async def remove(self, ways: random.Random) -> None:
        """Remove something from each session but every third, each in its own way, and evict the oldest sessions."""
        async with self.connect() as memory:
            sessions = [memory.session(f"s{number}") for number in range(SESSIONS_COUNT)]
            for number, session in enumerate(sessions):
                self.said |= (await read_canaries(session))[0]
                if number % 3:
                    await self._remove(session, ways.choice([*WAYS, self._forget_person]))
            await Eviction(memory.store).enforce()
            self.kept = {word for session in sessions for words in await read_canaries(session) for word in words}
            await Worker(memory.store, Summarize(open_extractive())).drain()

    async def _remove(self, session: Session, way: Callable[[Session], Awaitable[None]]) -> None:
        before, _ = await read_canaries(session)
        await way(session)
        after, summarised = await read_canaries(session)
        assert before - after, way.__name__
        # A prune takes messages out of the way, and leaves the summaries.
        assert way is prune or not summarised - after, way.__name__

    async def _forget_person(self, session: Session) -> None:
        """Forget the owner of the session, from another process's point of view."""
        owner = (await session.info()).owner
        async with self.connect() as memory:
            assert (await memory.forget(owner=owner)).session_count == 1

    async def restart(self) -> None:
        self.server.kill()
        self.server.start()

    async def stored(self) -> list[tuple[str, bytes]]:
        """Return all bytes that Redis contains, each with the name of its key; compressed bytes decompressed, too."""
        found: list[tuple[str, bytes]] = []
        async with self.connect() as memory, redis.asyncio.Redis(port=self.server.port) as raw:
            for key, (content, _) in (await read_namespace(raw, "town")).items():
                name = key.decode()
                found += [(name, part) for part in (key, *flatten(content))]
                kind = name.partition("}:")[2].partition(":")[0]
                if kind == "messages":
                    found += [(name, expand_element(element)) for element in content]
                if kind == "originals":
                    blocks = {int(field): block for field, block in content.items() if field.isdigit()}
                    known = await load_dictionaries(memory.store, blocks.values())
                    found += [(name, b"".join(decode_block(*block, known)[1])) for block in blocks.items()]
        return found


def flatten(content: Any) -> list[bytes]:
    """Return all bytes of the value of a key."""
    if isinstance(content, bytes):
        return [content]
    if isinstance(content, dict):
        return [part for pair in content.items() for value in pair for part in flatten(value)]
    if isinstance(content, list | tuple | set):
        return [part for value in content for part in flatten(value)]
    return []


def words_of_log(folder: Path) -> set[str]:
    """Return the canaries in the append-only files of a server."""
    return canaries(*(path.read_bytes().decode("utf-8", "replace") for path in folder.rglob("*.aof")))


@pytest.fixture
async def town(tmp_path: Path) -> AsyncIterator[Town]:
    # A write is in the file before it is acknowledged, also while an fsync is under way.
    options = ("--aof-use-rdb-preamble", "no", "--rdbcompression", "no", "--appendfsync", "no")
    server = RedisServer(tmp_path, aof=True, options=options).start()
    yield Town(server)
    server.stop()


async def test_nothing_removed_is_left_anywhere(town: Town, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    await town.fill()
    await town.remove(random.Random(SESSIONS_COUNT))
    await town.restart()
    removed = town.said - town.kept
    assert len(removed) > SESSIONS_COUNT
    stored: set[str] = set()
    for name, content in await town.stored():
        words = canaries(content.decode("utf-8", "replace"))
        assert not words & removed, name
        stored |= words
    assert stored == town.kept, "each word that was kept is found, so a removed word would be"
    for text in (caplog.text, *town.events):
        assert not canaries(text)
    async with redis.asyncio.Redis(port=town.server.port) as raw:
        await raw.bgrewriteaof()

        async def rewritten() -> bool:
            info = await raw.info("persistence")
            return not info["aof_rewrite_in_progress"] and not info["aof_rewrite_scheduled"]

        await until(rewritten)
    logged = words_of_log(tmp_path)
    assert logged, "the log is readable"
    assert not logged & removed
