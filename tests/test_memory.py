"""The session memory, on both stores."""

from __future__ import annotations

from redismem import Memory


async def test_a_turn_is_one_call_and_comes_back_whole(memory: Memory) -> None:
    session = memory.session("user-42")
    context = await session.append_and_read({"role": "user", "content": "Where is my order?"})
    assert context.to_openai() == [{"role": "user", "content": "Where is my order?"}]
    assert (context.total_messages, context.first_seq, context.last_seq) == (1, 1, 1)
    assert context.receipt is not None
    assert context.receipt.created
