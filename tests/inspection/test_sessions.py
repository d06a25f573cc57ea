"""The originals of a session, as operators read them."""

from __future__ import annotations

from typing import Any

import pytest
from support.checks import user
from support.stores import Store
from support.writers import Echo

from redismem import Settings
from redismem.inspection import sessions
from redismem.workers.summaries import Worker


@pytest.mark.parametrize("page_count", [5, 16, 500])
async def test_originals_of_many_pages_are_in_order(
    store: Store, namespace: str, monkeypatch: pytest.MonkeyPatch, page_count: int
) -> None:
    monkeypatch.setattr(sessions, "_PAGE_COUNT", page_count)
    async with store.memory(namespace, Settings(keep_originals=True)) as memory:
        session = memory.session("s")
        appended: list[dict[str, Any]] = [user(str(number)) for number in range(60)]
        for first in range(0, 60, 12):
            await session.append(*appended[first : first + 12])
            await Worker(memory.store, Echo()).drain()
        context = await session.read()
        originals = await sessions.originals_of(memory.store, context)
    assert [message.seq for message in originals] == list(range(1, context.first_seq))
    assert [message.to_openai() for message in originals] == appended[: context.first_seq - 1]
