"""Workers extract from conversations: outages cost no attempt, a killed worker is replaced, nothing is lost."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Any

import pytest
from support.checks import until
from support.clock import ProjectClock
from support.pods import start_pod
from support.provider_server import ProviderServer
from support.redis_server import RedisServer
from support.stores import Store

from redismem import Memory, Settings
from redismem.blocking import memory as blocking
from redismem.models import ChatModel, open_model
from redismem.project.extraction.extraction import ATTEMPTS_LIMIT, Outcome, lease_ms
from redismem.project.project import Project
from redismem.protocol.queue import provider_pauses
from redismem.workers.eviction import Eviction
from redismem.workers.project_extraction import ExtractionWorker
from redismem.workers.scheduler import Scheduler

ANSWER = json.dumps(
    {"decisions": [{"title": "Use Redis"}], "tasks": [{"title": "Move"}], "entities": [{"name": "Ada"}]}
)
SAID = {"role": "user", "content": "Let us use Redis. Ada moves the data."}


@pytest.fixture
def clock() -> ProjectClock:
    return ProjectClock()


@pytest.fixture
def server() -> Iterator[ProviderServer]:
    with ProviderServer() as server:
        server.text = ANSWER
        yield server


@pytest.fixture
async def model(server: ProviderServer) -> AsyncIterator[ChatModel]:
    model = open_model("openai", "some-model", "key", base_url=server.base_url, allow_http=True)
    yield model
    await model.aclose()


async def end_conversations(project: Project, count: int = 1) -> list[str]:
    """Conversations that have ended and wait."""
    talks = [(await project.conversations.start()).id for _ in range(count)]
    for talk in talks:
        await project.conversations.add(talk, SAID)
        await project.conversations.end(talk, extract=True)
    return talks


async def counts(apollo: Project) -> tuple[int, int, int]:
    return await apollo.decisions.count(), await apollo.tasks.count(), await apollo.entities.count()


async def attempts_of(apollo: Project, talk: str) -> int:
    return int((await apollo._items.get(talk)).state["attempts"])


async def test_all_projects_are_worked_off(clock: ProjectClock, memory: Memory, model: ChatModel, server: Any) -> None:
    projects = [memory.project(name) for name in ("apollo", "gemini", "mercury")]
    for project in projects:
        await end_conversations(project, 3)
    worker = ExtractionWorker(memory.store, model)
    assert await worker.drain() == 9
    assert await worker.drain() == 0
    assert len(server.asked) == 9
    assert [await counts(project) for project in projects] == [(1, 1, 1)] * 3
    assert worker.outcomes == {Outcome.DONE: 9}


@pytest.mark.parametrize("mode", ["reset", "408", "429", "500", "503", "401", "403", "404"])
async def test_an_outage_pauses_the_provider_and_costs_no_attempt(
    clock: ProjectClock, memory: Memory, model: ChatModel, server: Any, mode: str
) -> None:
    apollo = memory.project("apollo")
    talks = await end_conversations(apollo, 3)
    server.mode = mode
    worker = ExtractionWorker(memory.store, model, concurrency=1)
    for _ in range(2 * ATTEMPTS_LIMIT):
        assert await worker.drain() == 0
    assert len(server.asked) == 1, "after the first nobody is asked"
    paused = await memory.store.run(provider_pauses.list_pauses(memory.store.keys))
    assert list(paused) == ["openai/some-model"]
    other = ExtractionWorker(memory.store, model)
    for asked in range(2, 2 * ATTEMPTS_LIMIT):
        clock.tick(61)
        assert [await other.drain(), await worker.drain()] == [0, 0]
        assert len(server.asked) == asked, "one try a pause, whoever makes it"
    assert [await attempts_of(apollo, talk) for talk in talks] == [0, 0, 0]
    assert {(await apollo.conversations.get(talk)).extraction for talk in talks} == {"due"}
    server.mode = "ok"
    clock.tick(61)
    assert await worker.drain() == 3
    assert await counts(apollo) == (1, 1, 1)
    assert await memory.store.run(provider_pauses.list_pauses(memory.store.keys)) == {}


async def test_what_its_own_text_causes_counts(
    clock: ProjectClock, memory: Memory, model: ChatModel, server: Any
) -> None:
    apollo = memory.project("apollo")
    (talk,) = await end_conversations(apollo)
    server.mode = "400"
    worker = ExtractionWorker(memory.store, model)
    for attempt in range(1, ATTEMPTS_LIMIT):
        await worker.drain()
        assert await attempts_of(apollo, talk) == attempt
        clock.tick(3_600)
    await worker.drain()
    assert (await apollo.conversations.get(talk)).extraction == "failed"
    assert await memory.store.run(provider_pauses.list_pauses(memory.store.keys)) == {}


async def test_one_that_the_provider_cannot_bear_fails_alone_in_the_end(
    clock: ProjectClock, memory: Memory, model: ChatModel, server: Any
) -> None:
    """One conversation always gets a 500 while other calls succeed: the provider is not paused, and retries end."""
    apollo = memory.project("apollo")
    worker = ExtractionWorker(memory.store, model, concurrency=1)
    (poisoned,) = await end_conversations(apollo)
    for _ in range(60):
        server.modes.extend(["500"])
        await worker.drain()
        server.modes.clear()
        if (await apollo.conversations.get(poisoned)).extraction == "failed":
            break
        due_ms = (await apollo._items.get(poisoned)).state["due_ms"]
        clock.tick(400)
        await end_conversations(memory.project("other"))
        await hidden_from(worker, apollo)
        assert due_ms is not None
    assert (await apollo.conversations.get(poisoned)).extraction == "failed"


async def hidden_from(worker: ExtractionWorker, apollo: Project) -> None:
    """Drain without this project's conversations; the model answers."""
    due = worker._load_due

    async def others() -> Any:
        return [each for each in await due() if each[0].name != apollo.name]

    worker._load_due = others  # type: ignore[method-assign]
    try:
        assert await worker.drain() == 1
    finally:
        worker._load_due = due  # type: ignore[method-assign]


async def test_a_worker_that_is_stopped_gives_back_what_it_has(
    clock: ProjectClock, memory: Memory, model: ChatModel, server: Any
) -> None:
    apollo = memory.project("apollo")
    (talk,) = await end_conversations(apollo)
    server.modes.append("hang")
    draining = asyncio.create_task(ExtractionWorker(memory.store, model).drain())
    await asyncio.to_thread(server.wait_for_asked, 1)
    draining.cancel()
    await asyncio.gather(draining, return_exceptions=True)
    state = (await apollo._items.get(talk)).state
    assert (state["extraction"], state["attempts"]) == ("due", 0)
    assert await ExtractionWorker(memory.store, model).drain() == 1


async def test_a_conversation_stays_until_it_is_read(
    store: Store, namespace: str, clock: ProjectClock, model: ChatModel, server: Any
) -> None:
    given: list[str] = []

    async def keep(session_id: str, context: Any) -> None:
        given.append(session_id)

    async with store.memory(namespace, Settings(max_sessions=1)) as memory:
        apollo = memory.project("apollo")
        talk = await apollo.conversations.start()
        await apollo.conversations.add(talk.id, SAID)
        others = ["project:-100123:42", "project:apollo:c-000000000000000000", "project:apollo:c-no-id", "x"]
        for name in others:
            await memory.session(name).append(SAID)
        clock.tick()
        await memory.session("newer").append(SAID)
        worker = ExtractionWorker(memory.store, model)
        eviction = Eviction(memory.store, worker.wrap_on_evict(keep))
        session = apollo.conversations.session(talk.id)
        await eviction.enforce()
        assert await session.exists(), "it stays until it is read"
        assert sorted(given) == others
        assert await worker.drain() == 1
        assert await counts(apollo) == (1, 1, 1)
        clock.tick(memory.settings.lease_s + 1)
        await eviction.enforce()
        assert not await session.exists()
        assert given[-1] == session.id
        assert len(server.asked) == 1


async def test_the_scheduler_does_it_by_itself(
    store: Store, namespace: str, clock: ProjectClock, model: ChatModel
) -> None:
    settings = Settings(shards=2, tick_s=0.01)
    async with store.memory(namespace, settings, workers=partial(Scheduler, extraction=model)) as memory:
        apollo = memory.project("apollo")
        (talk,) = await end_conversations(apollo)

        async def reached() -> bool:
            return (await apollo.conversations.get(talk)).extraction == "done"

        await until(reached)
        assert await counts(apollo) == (1, 1, 1)


async def test_without_an_event_loop_the_workers_thread_does_it(
    redis_server: RedisServer, namespace: str, server: Any
) -> None:
    settings = Settings(
        tick_s=0.01,
        model_provider="openai",
        model="some-model",
        model_base_url=server.base_url,
        model_allow_http=True,
        deadline_s=60,
        reply_timeout_s=20,
    )
    memory = blocking.Memory.connect(redis_server.url, namespace=namespace, settings=settings, workers=True)
    with memory:
        apollo = memory.project("apollo")
        talk = apollo.conversations.start()
        apollo.conversations.add(talk.id, SAID)
        apollo.conversations.end(talk.id, extract=True)

        async def reached() -> bool:
            return apollo.conversations.get(talk.id).extraction == "done"

        await until(reached)
        assert (apollo.decisions.count(), apollo.tasks.count(), apollo.entities.count()) == (1, 1, 1)


def kill_while_reading(url: str, namespace: str, server: ProviderServer, now_ms: int) -> None:
    """A worker process is killed while the model reads."""
    asked = len(server.asked)
    with start_pod("extract", url, namespace, server.base_url, now_ms) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == '"ready"\n'
            server.wait_for_asked(asked + 1)
        finally:
            process.kill()


async def test_a_worker_that_is_killed_half_way_is_taken_over_once(
    redis_server: RedisServer, namespace: str, clock: ProjectClock, server: Any, model: ChatModel
) -> None:
    settings = Settings(deadline_s=60, reply_timeout_s=20)
    async with Memory.connect(redis_server.url, namespace=namespace, settings=settings, clock=clock) as memory:
        apollo = memory.project("apollo")
        (talk,) = await end_conversations(apollo)
        server.modes.append("hang")
        await asyncio.to_thread(kill_while_reading, redis_server.url, namespace, server, clock())
        workers = [ExtractionWorker(memory.store, model) for _ in range(3)]
        assert await asyncio.gather(*(worker.drain() for worker in workers)) == [0, 0, 0], "it has a lease"
        assert await counts(apollo) == (0, 0, 0)
        clock.tick(lease_ms(settings) / 1000 + 1)
        assert sum(await asyncio.gather(*(worker.drain() for worker in workers))) == 1
        server.release()
        assert await counts(apollo) == (1, 1, 1)
        assert (await apollo.conversations.get(talk)).extraction == "done"
        assert await attempts_of(apollo, talk) == 0
        assert sum(await asyncio.gather(*(worker.drain() for worker in workers))) == 0
