"""Windows that are read in parts, while others write."""

from __future__ import annotations

from typing import Any

import pytest
from support.conversations import user_message
from support.stores import Store

from redismem import Memory
from redismem.errors import CorruptSession, StoreUnavailable
from redismem.protocol.call import Call
from redismem.protocol.session import windows
from redismem.store.windows import read_window

LARGE = "x" * 5_000


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "PART_BYTES", 20_000)


async def read_while(memory: Memory, writes: list[Any]) -> tuple[list[str], int]:
    """Return the window's texts and the number of calls, with one of the writes behind each call."""
    count = 0

    async def run(call: Call[Any]) -> Any:
        nonlocal count
        if call.script is None:
            raise StoreUnavailable("its memory is full", call.session_id, "OOM")
        count += 1
        found = await memory.store.run(call)
        if writes:
            await writes.pop(0)
        return found

    view = await read_window(run, memory.store.session_calls("a"))
    return ([] if view is None else [str(message.content)[:2] for message in view.context.messages]), count


async def test_what_is_appended_meanwhile_is_read_as_well(store: Store, namespace: str) -> None:
    async with store.memory(namespace) as memory:
        session = memory.session("a")
        await session.append(*(user_message(f"{number:02} {LARGE}") for number in range(20)))
        seen, count = await read_while(memory, [session.append(user_message("20"))])
        assert (seen, count) == ([f"{number:02}" for number in range(21)], 6)


async def test_it_begins_again_if_earlier_messages_change(store: Store, namespace: str) -> None:
    async with store.memory(namespace) as memory:
        session = memory.session("a")
        await session.append(*(user_message(f"{number:02} {LARGE}") for number in range(20)))
        seen, count = await read_while(memory, [session.replace(2, user_message(f"re {LARGE}"))])
        assert (seen, count) == (["00", "re", *(f"{number:02}" for number in range(2, 20))], 7)
        assert await read_while(memory, [session.clear()]) == ([], 3)


async def test_a_window_shorter_than_its_counters_is_corrupt(raw: Any, store: Store, namespace: str) -> None:
    async with store.memory(namespace) as memory:
        await memory.session("a").append(*[user_message(LARGE)] * 20)
        keys = memory.store.keys.session("a")
        await memory.store.run(Call("a", (("RPOP", keys.messages),), lambda _: None))
        with pytest.raises(CorruptSession, match="19 messages, expected 20"):
            await read_while(memory, [])
