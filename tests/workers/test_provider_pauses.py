"""One provider and several workers: in any order of events, calls respect the pause."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from support.clock import T0
from support.examples import OpenMemory

from redismem import Settings
from redismem.errors import ProviderUnavailable
from redismem.protocol.queue import provider_pauses
from redismem.protocol.queue.provider_pauses import Pause
from redismem.store.store import Store
from redismem.workers.provider_pauses import Availability, Provider

LEASE_MS = int(Settings().lease_s * 1000)
WORKERS = 3
steps = st.lists(
    st.tuples(
        st.integers(0, WORKERS - 1),
        st.sampled_from(["look", "look", "fail", "fail", "answer", "idle", "keep", "die"]),
        st.sampled_from([0, 1, 500, 2_000, 30_000, 61_000]),
        st.sampled_from([None, 0.0, 7.0, 90.0, float("nan"), float("inf")]),
    ),
    min_size=1,
    max_size=40,
)


class Play:
    """Several workers, and which of them holds the probe, until when."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.now_ms = T0
        self.workers = [Provider(store, "p") for _ in range(WORKERS)]
        self.probing: dict[int, int] = {}

    async def noted(self) -> Pause | None:
        return (await self.store.run(provider_pauses.list_pauses(self.store.keys))).get("p")

    async def step(self, number: int, step: str, after_ms: int, retry_after_s: float | None) -> None:
        self.now_ms += after_ms
        self.probing = {each: until_ms for each, until_ms in self.probing.items() if until_ms > self.now_ms}
        worker = self.workers[number]
        if step == "die":
            self.workers[number] = Provider(self.store, "p")  # its try lapses
        elif step == "look":
            await self.look(number)
        elif step == "fail":
            await self.fail(number, retry_after_s)
        elif step == "idle":
            await worker.return_probe()
            self.probing.pop(number, None)
        elif step == "keep":
            await worker.extend_probe(self.now_ms)
            if number in self.probing:
                self.probing[number] = self.now_ms + LEASE_MS
        else:
            was_probed = worker.is_probed
            await worker.record_answer(self.now_ms)
            if was_probed:
                assert await self.noted() is None
                self.probing.clear()

    async def look(self, number: int) -> None:
        before = await self.noted()
        availability = await self.workers[number].look(self.now_ms)
        if before is None:
            assert availability is Availability.AVAILABLE
            return
        assert availability is (Availability.PAUSED if before.until_ms > self.now_ms else Availability.PROBE)
        if availability is Availability.PROBE and await self.workers[number].probe(self.now_ms):
            assert not self.probing, "another one has it"
            self.probing[number] = self.now_ms + LEASE_MS

    async def fail(self, number: int, retry_after_s: float | None) -> None:
        before, was_probed = await self.noted(), self.workers[number].is_probed
        error = ProviderUnavailable("x", reason="p answered 503", retry_after_s=retry_after_s)
        await self.workers[number].record_failure(error, None, self.now_ms)
        assert not self.workers[number].is_probed
        after = await self.noted()
        if after == before:
            return  # it is as others have noted meanwhile, or as this worker has not seen yet: it answers
        assert after is not None
        goes_on = before is not None and was_probed
        count = before.failures_count if before is not None and goes_on else 0
        assert after.failures_count == count + 1
        assert after.since_ms == (before.since_ms if before is not None and goes_on else self.now_ms)
        pause_ms = after.until_ms - self.now_ms
        assert min(60_000, 2_000 * 2**count) // 2 - 1 <= pause_ms <= 3_600_000
        if retry_after_s in (7.0, 90.0):
            assert pause_ms >= retry_after_s * 1000, "as long as it asks for"
        self.probing.pop(number, None)


@given(steps=steps)
async def test_one_worker_tries_a_paused_provider_and_nobody_else_asks_it(
    open_memory: OpenMemory, steps: list[Any]
) -> None:
    async with open_memory() as memory:
        play = Play(memory.store)
        for step in steps:
            await play.step(*step)
        for worker in play.workers:
            availability = await worker.look(play.now_ms)
            assert worker.is_paused == (availability is not Availability.AVAILABLE)


async def test_a_provider_without_a_name_is_never_paused(open_memory: OpenMemory) -> None:
    async with open_memory() as memory:
        nobody = Provider(memory.store, None)
        await nobody.record_failure(ProviderUnavailable("x"), None, T0)
        assert await nobody.look(T0) is Availability.AVAILABLE
        assert not nobody.is_paused


async def test_two_providers_are_paused_apart(open_memory: OpenMemory) -> None:
    async with open_memory() as memory:
        one, other = Provider(memory.store, "one"), Provider(memory.store, "other")
        await one.record_failure(ProviderUnavailable("x"), None, T0)
        assert [await each.look(T0) for each in (one, other)] == [Availability.PAUSED, Availability.AVAILABLE]
        (pause,) = (await memory.store.run(provider_pauses.list_pauses(memory.store.keys))).values()
        assert pause.reason == "ProviderUnavailable", "none was given"
