"""LangGraph's own conformance suite for savers, and a saver whose async methods are its sync ones."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.conformance.initializer import RegisteredCheckpointer
from langgraph.checkpoint.conformance.validate import validate

from redismem.adapters.langgraph import RedismemSaver

PASSED = {
    "put": 17,
    "put_writes": 10,
    "get_tuple": 10,
    "list": 16,
    "delete_thread": 5,
    "delete_for_runs": 7,
    "copy_thread": 8,
    "prune": 8,
}
"""The tests of each part, 81 in all."""


async def run_suite(make: Callable[[], RedismemSaver]) -> tuple[dict[str, int], list[str]]:
    """Run the suite, and return the numbers of passed tests with the failures."""

    async def factory() -> Any:
        async with make() as saver:
            yield saver

    report = await validate(RegisteredCheckpointer("redismem", factory))
    results = report.results.items()
    failures = [failure for _, result in results for failure in result.failures or ()]
    return {name: result.tests_passed for name, result in results}, failures


class SyncTwins(RedismemSaver):
    """A saver that answers the async methods by its sync ones."""

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return self.get_tuple(config)

    async def alist(self, config: RunnableConfig | None, **options: Any) -> AsyncIterator[CheckpointTuple]:
        for found in self.list(config, **options):
            yield found

    async def aput(self, *arguments: Any) -> RunnableConfig:
        return self.put(*arguments)

    async def aput_writes(self, *arguments: Any, **options: Any) -> None:
        self.put_writes(*arguments, **options)

    async def adelete_thread(self, thread_id: str) -> None:
        self.delete_thread(thread_id)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        self.delete_for_runs(run_ids)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        self.copy_thread(source_thread_id, target_thread_id)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        self.prune(thread_ids, strategy=strategy)

    async def aget_delta_channel_history(self, *, config: RunnableConfig, channels: Sequence[str]) -> Mapping[str, Any]:
        return self.get_delta_channel_history(config=config, channels=channels)
