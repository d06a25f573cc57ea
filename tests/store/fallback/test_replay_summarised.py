"""An append that was under way when Redis failed, and was summarised meanwhile, is found among the originals."""

from __future__ import annotations

import pytest
from support.checks import silent_logs, user  # noqa: F401 (an autouse fixture)
from support.dictionaries import make_dictionary
from support.faulty import Fault, Place, append_and_lose
from support.writers import Echo

from redismem import Settings
from redismem.protocol.namespace import dictionaries
from redismem.workers.summaries import Worker

MINE = [{"role": "user", "content": f"a message of mine {number} " * 20} for number in range(2)]


@pytest.mark.parametrize("fault", ["lost before", "lost after"])
@pytest.mark.parametrize("has_dictionary", [False, True])
async def test_a_summarised_append_is_not_repeated(fault: Fault, has_dictionary: bool, namespace: str) -> None:
    settings = Settings(deadline_s=5, fallback_after_s=0.02, max_summary_bytes=1 << 20)
    async with Place(namespace, settings) as place:
        store, there = place.direct_memory.store, place.direct_memory.session("a")
        if has_dictionary:
            assert await store.run(dictionaries.add(store.keys, make_dictionary(1)))
        await place.memory.session("a").append_and_read(user("first"))
        await append_and_lose(place, fault, *MINE)
        others = await place.append_others("a")
        assert await Worker(store, Echo()).drain() == 1
        assert (await there.read()).first_seq > 3
        await place.catch_up()
        mine = [message["content"] for message in MINE]
        contents = [message.content for message in await there.messages(include_originals=True)]
        assert contents == [
            user("first")["content"],
            *([*mine, *others] if fault == "lost after" else [*others, *mine]),
        ]
