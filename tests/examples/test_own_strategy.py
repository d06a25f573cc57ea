"""A strategy of one's own: its cards replace messages, and wait for a model that is down."""

from __future__ import annotations

import pytest
from support.checks import until
from support.example_processes import Places, start_example
from support.waiting import START_S
from support.writers import chat_message

from redismem import Context, Memory, Session


async def wait_for_commit(session: Session) -> Context:
    async def read() -> Context | None:
        context = await session.read()
        return context if context.first_seq > 1 else None

    context: Context = await until(read, START_S)
    return context


@pytest.mark.nightly
async def test_cards_are_written_also_after_the_model_was_down(places: Places) -> None:
    provider = places.provider
    provider.modes.append("503")
    provider.script.extend([{"role": "assistant", "content": text} for text in ("Orders: O-17", "NOTHING")])
    with start_example("own_strategy.py", places, REDISMEM_MAX_BACKOFF_S="0.2"):
        async with Memory.connect(places.redis_url, namespace=places.namespace) as memory:
            await memory.session("anna").append(*(chat_message(seq) for seq in range(1, 13)))
            (card,) = (await wait_for_commit(memory.session("anna"))).summaries
            assert (card.text, card.first_seq, card.last_seq) == ("Orders: O-17", 1, 6)
            assert "message 1" in provider.bodies[1]["messages"][1]["content"]

            await memory.session("ben").append(*(chat_message(seq) for seq in range(1, 13)))
            context = await wait_for_commit(memory.session("ben"))
            assert context.summaries == []  # there was nothing to remember
            assert len(await memory.session("ben").messages(include_originals=True)) == 12
