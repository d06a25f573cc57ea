"""Cached contexts expire: what another process has removed does not stay in this one for ever."""

from __future__ import annotations

from support.stores import Store

from redismem.store.fallback.contexts import SeenContexts
from redismem.store.fallback.fallback import Fallback


async def test_contexts_older_than_the_idle_timeout_are_dropped(store: Store, namespace: str) -> None:
    now_s = 0.0
    async with store.memory(namespace, fallback=True) as memory:
        fallback, timeout_s = memory.store.fallback, memory.settings.idle_timeout_s
        assert isinstance(fallback, Fallback)
        fallback._seen = seen = SeenContexts(memory.settings, clock=lambda: now_s)
        await memory.session("a").append_and_read({"role": "user", "content": "Hello"})
        await memory.session("b").append({"role": "user", "content": "Hello"})
        now_s = timeout_s
        seen.drop_old()
        assert len(seen) == 2
        await memory.session("a").append({"role": "user", "content": "Hello"})
        now_s += 1
        seen.drop_old()
        assert (seen.last_seq("a"), seen.last_seq("b")) == (2, None)
        now_s += timeout_s
        seen.drop_old()
        assert len(seen) == seen.size_bytes == 0
        await memory.session("a").read()
        assert len(seen) == 1
    assert len(seen) == seen.size_bytes == 0, "a closed memory caches nothing"
