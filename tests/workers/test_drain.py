"""The reach of one drain, on both stores."""

from __future__ import annotations

from typing import Any

import pytest
from support.clock import T0, Clock
from support.stores import Store
from support.writers import Echo, fill

from redismem import Settings
from redismem.workers.summaries import Worker


@pytest.mark.parametrize("outcome", ["gone", "noop"])
async def test_a_drain_goes_past_those_that_need_nothing(
    store: Store, namespace: str, raw: Any, outcome: str, clock: Clock
) -> None:
    """One shard has more due sessions that need no summary than a drain reads in one round."""
    async with store.memory(namespace, Settings(shards=1)) as memory:
        idle = [f"idle-{number}" for number in range(65)]
        for name in idle:
            await clock.run_at(T0, memory.session(name).append(*({"role": "user", "content": "x"} for _ in range(11))))
            if outcome == "noop":
                await memory.session(name).prune(1)
            else:
                keys = memory.store.keys.session(name)
                await raw.delete(keys.state, keys.messages)
        for name in "abc":
            await clock.run_at(T0 + 1, fill(memory.session(name), 11))
        worker = Worker(memory.store, Echo())
        assert await clock.run_at(T0 + 1, worker.drain()) == 3
        assert worker.outcomes == {outcome: len(idle), "ok": 3}
