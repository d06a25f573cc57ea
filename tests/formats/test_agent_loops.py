"""Agent loops in every format through the real memory: providers accept every view, and no word is lost."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from support.agent_loops import FORMS, Loop, Payload
from support.provider_rules import check_anthropic, check_gemini
from support.redis_server import RedisServer
from support.request_rules import faults

from redismem import Memory, Session, Settings
from redismem.context.context import Context
from redismem.messages.message import Message
from redismem.models import Draft
from redismem.text.plain import render_message
from redismem.workers.summaries import Worker

WORD = re.compile(r"word\d+x")
EACH_RUN = 3
"""The seeds of each run; `make nightly` plays more of them."""


class Remembering:
    """A strategy that remembers the words of the transcripts that it was given."""

    def __init__(self) -> None:
        self.words: set[str] = set()

    async def compact(self, messages: Sequence[Message], previous: str | None) -> Draft:
        for message in messages:
            self.words |= set(WORD.findall(render_message(message, 20_000)))
        return Draft("summed up", 0, 0, "test")


@pytest.fixture
async def looped(redis_server: RedisServer, namespace: str) -> AsyncIterator[tuple[Memory, Remembering, Worker]]:
    settings = Settings(
        shards=1, recent_limit=6, threshold=10, deadline_s=60, reply_timeout_s=20, open_call_s=0, keep_originals=False
    )
    async with Memory.connect(redis_server.url, namespace=namespace, settings=settings) as memory:
        strategy = Remembering()
        yield memory, strategy, Worker(memory.store, strategy)


def words_of(value: Any) -> set[str]:
    return set(WORD.findall(str(value)))


def check_openai(loop: Loop, context: Context) -> set[str]:
    """Check that the view is accepted and holds every word of the messages; return the words."""
    told = words_of([message.to_openai() for message in context.messages])
    chat, items = context.to_openai(), context.to_responses()
    assert faults("chat", {}, chat) == []
    assert faults("items", loop.came_of, items) == []
    assert told <= words_of(chat), "lost in to_openai"
    assert told <= words_of(items), "lost in to_responses"
    return told


def check(loop: Loop, context: Context) -> None:
    """Check that every view is accepted and holds every word of the messages."""
    told = check_openai(loop, context)
    anthropic, gemini = context.to_anthropic(), context.to_gemini()
    check_anthropic(anthropic)
    check_gemini(gemini)
    assert told <= words_of(anthropic), "lost in to_anthropic"
    assert told <= words_of(gemini), "lost in to_gemini"
    assert told <= words_of(context.to_openai(alternate=True)), "lost in alternating turns"


class Talk:
    """A loop in a session; `told` are the words that were appended and neither popped nor pruned."""

    def __init__(self, loop: Loop, session: Session) -> None:
        self.loop = loop
        self.session = session
        self.told: set[str] = set()

    async def append(self, *messages: Payload) -> None:
        self.told |= words_of(messages)
        await self.session.append(*messages)

    async def act(self) -> None:
        """Take one random step."""
        random, loop = self.loop.random, self.loop
        thinks = random.random() < 0.7
        match random.choice(["ask", "step", "step", "step", "say", "pop", "prune", "interrupt"]):
            case "step":
                *messages, last = loop.step(random.randint(1, 4), thinks)
                for message in messages:
                    await self.append(message)
                check_openai(loop, await self.session.read())
                await self.append(last)
            case "interrupt":  # the process ends before the last results are there, and the user comes back
                messages = loop.step(random.randint(1, 4), thinks)
                await self.append(*messages[: random.randint(1, len(messages))], loop.asks())
            case "pop" | "prune" as kind:
                await self._remove(kind)
            case "say":
                await self.append(*loop.says(thinks))
            case _:
                await self.append(loop.asks())

    async def _remove(self, kind: str) -> None:
        before = {message.seq: message.to_openai() for message in (await self.session.read()).messages}
        if kind == "prune":
            await self.session.prune(self.loop.random.randint(4, 9))
        elif before:
            await self.session.pop(self.loop.random.randint(1, min(3, len(before))))
        after = {message.seq for message in (await self.session.read()).messages}
        self.told -= words_of([payload for seq, payload in before.items() if seq not in after])


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=[pytest.mark.nightly] * (seed >= EACH_RUN)) for seed in range(26)]
)
@pytest.mark.parametrize("form", FORMS)
async def test_no_view_is_refused_and_no_word_is_lost(
    looped: tuple[Memory, Remembering, Worker], form: str, seed: int
) -> None:
    memory, strategy, worker = looped
    loop = Loop(form, seed)
    talk = Talk(loop, memory.session("s"))
    await talk.append(loop.asks())
    for _ in range(loop.random.randint(4, 9)):
        await talk.act()
        if loop.random.random() < 0.6:
            await worker.drain()
        context = await talk.session.read()
        check(loop, context)
        check(loop, await talk.session.read(limit=loop.random.randint(1, 12)))
        check(loop, await talk.session.read(max_tokens=loop.random.randint(20, 400)))
        assert talk.told <= words_of([message.to_openai() for message in context.messages]) | strategy.words
