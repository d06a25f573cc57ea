"""A2A's stores: the same results as those of the SDK, and what only replicas over one Redis show."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from typing import Any

import pytest
import sqlalchemy.ext.asyncio
from a2a.helpers.proto_helpers import new_task_from_user_message
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.cluster import ConcurrentTaskModificationError, TaskVersion, VersionedDatabaseTaskStore
from a2a.server.context import ServerCallContext
from a2a.server.events import EventQueue
from a2a.server.tasks import InMemoryPushNotificationConfigStore, InMemoryTaskStore, TaskUpdater
from a2a.types import (
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksRequest,
    Message,
    Part,
    Role,
    SendMessageRequest,
    SubscribeToTaskRequest,
    Task,
    TaskPushNotificationConfig,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from a2a.utils.errors import InvalidParamsError
from hypothesis import given
from hypothesis import strategies as st
from support.clock import T0
from support.proxy import Proxy
from support.redis_server import RedisServer
from support.stores import PATIENCE, Store, short_deadlines

from examples.a2a_agent import Person, build_handler
from redismem import InvalidRecord, InvalidSessionId, InvalidSettings, Memory, Settings, StoreUnavailable
from redismem.adapters.a2a import PushNotificationConfigStore, TaskEventStream, TaskStore, VersionedTaskStore

STATES = (TaskState.TASK_STATE_WORKING, TaskState.TASK_STATE_COMPLETED, TaskState.TASK_STATE_CANCELED)
numbers = itertools.count(1)


def call_of(name: str) -> ServerCallContext:
    return ServerCallContext(user=Person(name)) if name else ServerCallContext()


def make_task(task_id: str, state: Any = STATES[0], text: str = "", at_s: int | None = None) -> Task:
    task = Task(id=task_id, context_id=f"c{len(task_id) % 2}", status=TaskStatus(state=state))
    if at_s is not None:
        task.status.timestamp.FromSeconds(at_s)
    if text:
        task.history.append(Message(message_id="m", role=Role.ROLE_USER, parts=[Part(text=text)]))
    return task


def change_of(task: Task) -> TaskStatusUpdateEvent:
    return TaskStatusUpdateEvent(task_id=task.id, context_id=task.context_id, status=task.status)


owners = st.sampled_from(["", "anna", "bo/1"])
task_ids = st.sampled_from(["t", "tt", "t/x:%", "ttt"])
steps = st.lists(
    st.tuples(
        st.sampled_from(["save", "save", "save", "get", "list", "delete"]),
        owners,
        task_ids,
        st.sampled_from(STATES),
        st.none() | st.integers(0, 3),
        st.integers(1, 3),
    ),
    max_size=14,
)


@given(steps)
async def test_any_sequence_of_calls_has_the_results_of_the_task_store_in_memory(
    store: Store, namespace: str, given_steps: Any
) -> None:
    async with store.memory(f"{namespace}-{next(numbers)}") as memory:
        both: Any = TaskStore(memory=memory), InMemoryTaskStore()
        for number, (what, owner, task_id, state, at_s, size) in enumerate(given_steps):
            call = call_of(owner)
            if what == "save":
                for each in both:
                    await each.save(make_task(task_id, state, f"ö {number}", at_s), call)
            elif what == "list":
                await compare_lists(both, call, state, at_s, size)
            elif what == "delete":
                for each in both:
                    await each.delete(task_id, call)
            ours, theirs = [await each.get(task_id, call) for each in both]
            assert ours == theirs


async def compare_lists(both: Any, call: ServerCallContext, state: Any, at_s: int | None, size: int) -> None:
    """Read all pages of a list from two stores, without a filter or with one, and compare them."""
    params = ListTasksRequest(page_size=size, context_id="c1" if size == 2 else "")
    if size == 3:
        params.status = state
    if size == 1 and at_s:
        params.status_timestamp_after.FromSeconds(at_s)
    while True:
        ours, theirs = [await each.list(params, call) for each in both]
        assert ours == theirs
        params.page_token = ours.next_page_token
        if not params.page_token:
            return


versioned_steps = st.lists(
    st.tuples(
        st.sampled_from(["save", "save", "save", "get", "delete"]),
        st.sampled_from(["t", "u"]),
        st.sampled_from(STATES),
        st.integers(0, 3),
    ),
    max_size=14,
)


@given(versioned_steps)
async def test_any_sequence_of_versions_has_the_results_of_the_database_store(
    store: Store, namespace: str, given_steps: Any
) -> None:
    engine = sqlalchemy.ext.asyncio.create_async_engine("sqlite+aiosqlite://")
    async with store.memory(f"{namespace}-{next(numbers)}") as memory:
        both: Any = VersionedTaskStore(memory=memory), VersionedDatabaseTaskStore(engine)
        await both[1].initialize()
        call = call_of("anna")
        for number, (what, task_id, state, version) in enumerate(given_steps):
            outcomes = list[Any]()
            for each in both:
                try:
                    if what == "save":
                        task = make_task(task_id, state, f"text {number}")
                        outcomes.append(
                            await each.save(
                                task, event=change_of(task), prev=None, prev_version=TaskVersion(version), context=call
                            )
                        )
                    else:
                        outcomes.append(await getattr(each, what)(task_id, call))
                except ConcurrentTaskModificationError as refused:
                    outcomes.append(refused.task_id)
            assert outcomes[0] == outcomes[1], (number, what)
    await engine.dispose()


async def test_configs_have_the_results_of_the_store_in_memory(memory: Memory) -> None:
    both: Any = PushNotificationConfigStore(memory=memory), InMemoryPushNotificationConfigStore()
    for each in both:
        for owner, task_id, config_id in (("anna", "t", "1"), ("anna", "t", "2"), ("bo", "t", ""), ("", "t/x", "1")):
            config = TaskPushNotificationConfig(id=config_id, url=f"https://{owner}.example")
            stored = await each.set_info(task_id, config, call_of(owner))
            assert (stored.task_id, stored.id, config.id) == (task_id, config_id or task_id, config_id)
        await each.set_info("t", TaskPushNotificationConfig(id="2", token="new"), call_of("anna"))
        await each.delete_info("t", call_of("bo"), "1")
        await each.delete_info("nothing", call_of("bo"), "1")
    for owner, task_id in (("anna", "t"), ("bo", "t"), ("", "t"), ("", "t/x")):
        ours, theirs = [await each.get_info(task_id, call_of(owner)) for each in both]
        assert ours == theirs
    ours, theirs = [await each.get_info_for_dispatch("t") for each in both]
    assert sorted(map(str, ours)) == sorted(map(str, theirs))
    for each in both:
        await each.delete_info("t", call_of("anna"), "1")
        await each.delete_info("t", call_of("bo"))
        assert [config.token for config in await each.get_info_for_dispatch("t")] == ["new"]
    store = VersionedTaskStore(memory=memory)
    await store.delete("t", call_of("anna"))  # with its configs
    assert await both[0].get_info_for_dispatch("t") == []


async def test_a_list_has_no_task_of_a_store_whose_prefix_is_longer(memory: Memory) -> None:
    store, call = TaskStore(memory=memory, key_prefix="shop"), call_of("anna")
    await store.save(make_task("t"), call)
    for prefix in ("shop:x", "shop:t/y"):
        await TaskStore(memory=memory, key_prefix=prefix).save(make_task("other"), call)
        listed = await store.list(ListTasksRequest(), call)
        assert ([task.id for task in listed.tasks], listed.total_size) == (["t"], 1)
        configs = [
            PushNotificationConfigStore(memory=memory, key_prefix=name) for name in ("shop", f"shop-push{prefix[4:]}")
        ]
        await configs[1].set_info("other", TaskPushNotificationConfig(url="https://other"), call)
        assert await configs[0].get_info_for_dispatch("t") == []


async def test_of_many_replicas_one_save_of_a_version_wins_though_replies_are_lost(
    proxy: Proxy, direct_memory: Memory
) -> None:
    namespace, call = direct_memory.store.keys.namespace, call_of("anna")
    async with Memory.connect(proxy.url, namespace=namespace, settings=Settings(**PATIENCE)) as lossy:
        stores = [VersionedTaskStore(memory=memory) for memory in (direct_memory, lossy)]
        proxy.break_next("reset", 3, to=b"text")
        won = list[str]()

        async def run(number: int) -> None:
            store = stores[number % 2]
            while True:
                stored = await store.get("t", call)
                version, texts = (TaskVersion.MISSING, "") if stored is None else (stored.version, text_of(stored.task))
                task = make_task("t", text=f"{texts} text{number}")
                with contextlib.suppress(ConcurrentTaskModificationError):
                    await store.save(task, event=change_of(task), prev=None, prev_version=version, context=call)
                    won.append(f"text{number}")
                    return

        await asyncio.gather(*map(run, range(12)))
        assert proxy.broken_count == 3
        stored = await stores[0].get("t", call)
        assert stored is not None
        assert sorted(text_of(stored.task).split()) == sorted(won) == sorted(f"text{number}" for number in range(12))
        assert stored.version == TaskVersion(12)
        canceled = make_task("t", TaskState.TASK_STATE_CANCELED)
        version = await stores[1].save(canceled, prev_version=TaskVersion(3), context=call)
        assert version.is_after(stored.version)


def text_of(task: Task) -> str:
    return task.history[0].parts[0].text


class Waits(AgentExecutor):
    """Works on a task until it is canceled, with a new status as often as the test allows one."""

    def __init__(self) -> None:
        self.may_go_on = asyncio.Semaphore(1)

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.message is not None
        task = new_task_from_user_message(context.message)
        await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        while True:
            await self.may_go_on.acquire()
            await updater.start_work()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        pass


async def test_a_replica_that_does_not_run_a_task_follows_it_and_cancels_it(
    redis_server: RedisServer, namespace: str
) -> None:
    call, executor = call_of("anna"), Waits()
    settings = Settings(**PATIENCE)
    async with (
        Memory.connect(redis_server.url, namespace=namespace, settings=settings) as first,
        Memory.connect(redis_server.url, namespace=namespace, settings=settings) as second,
    ):
        runs, follows = (build_handler(memory, executor, poll_s=0.01) for memory in (first, second))
        asked = SendMessageRequest(message=Message(message_id="1", role=Role.ROLE_USER, parts=[Part(text="wait")]))
        events = runs.on_message_send_stream(asked, call)
        [task, working] = [await anext(events), await anext(events)]
        heard = list[Any]()
        async for event in follows.on_subscribe_to_task(SubscribeToTaskRequest(id=task.id), call):
            heard.append(event.status.state)
            if len(heard) == 1:
                executor.may_go_on.release()
            elif len(heard) == 2:
                await follows.on_cancel_task(CancelTaskRequest(id=task.id), call)
        assert heard == [working.status.state, working.status.state, TaskState.TASK_STATE_CANCELED]
        executor.may_go_on.release()  # its save is refused, so the run ends
        async for _ in events:
            pass
        stored = await follows.on_get_task(GetTaskRequest(id=task.id), call)
        assert stored is not None
        assert stored.status.state == TaskState.TASK_STATE_CANCELED
        await runs.aclose()
        await follows.aclose()


async def test_a_subscriber_gets_each_newer_event_of_its_owner_once_and_goes_on_after_an_outage(
    proxy: Proxy, direct_memory: Memory
) -> None:
    namespace, call = direct_memory.store.keys.namespace, call_of("anna")
    store = VersionedTaskStore(memory=direct_memory)

    async def save(version: TaskVersion, number: int) -> TaskVersion:
        task = make_task("t", text=str(number), at_s=number)
        return await store.save(task, event=change_of(task), prev_version=version, context=call)

    version: TaskVersion = TaskVersion.MISSING
    for number in range(3):
        version = await save(version, number)
    other = make_task("t", text="secret")
    await store.save(other, event=other, prev_version=TaskVersion.MISSING, context=call_of("bo"))
    async with Memory.connect(proxy.url, namespace=namespace, settings=Settings(**PATIENCE)) as memory:
        stream = TaskEventStream(memory=memory, poll_s=0.01)
        with pytest.raises(ValueError, match="several owners"):
            await anext(stream.subscribe("t", after=TaskVersion.MISSING))
        stored = await store.get("t", call)
        assert stored is not None
        events = stream.subscribe("t", after=stored.version)
        waiting = asyncio.ensure_future(anext(events))
        with short_deadlines(memory):
            await proxy.refuse()
            version = await save(version, 3)
            await proxy.accept_again()
            first = await waiting
        for number in range(4, 260):
            version = await save(version, number)
        told = [first, *[await anext(events) for _ in range(256)]]
        assert [each.event.status.timestamp.seconds for each in told] == [*range(3, 260)]
        assert told[-1].version == version
        await stream.destroy("t")
        await store.delete("t", call)
        assert [event async for event in events] == []
        assert [event async for event in stream.subscribe("t", after=version)] == []


async def test_tasks_go_with_their_person_and_expire_after_their_last_use(
    redis_server: RedisServer, namespace: str
) -> None:
    now_ms = [T0]
    async with Memory.connect(redis_server.url, namespace=namespace, clock=lambda: now_ms[0]) as memory:
        store = VersionedTaskStore(memory=memory, ttl=60)
        configs = PushNotificationConfigStore(memory=memory, ttl=60)
        for name in ("anna", "bo", ""):
            task = make_task("t", text=name)
            await store.save(task, event=task, prev_version=TaskVersion.MISSING, context=call_of(name))
            await configs.set_info("t", TaskPushNotificationConfig(url="https://a"), call_of(name))
        key = memory.record("a2a:t/bo").keys.record
        for use in (store.get("t", call_of("bo")), store.list(ListTasksRequest(), call_of("bo"))):
            now_ms[0] += 30_000
            await use
            assert redis_server.say("PEXPIRETIME", key) == now_ms[0] + 60_000
        assert (await memory.forget(owner="anna")).record_count == 2
        assert await store.get("t", call_of("anna")) is None
        assert len(await configs.get_info_for_dispatch("t")) == 2
        assert [len((await store.list(ListTasksRequest(), call_of(name))).tasks) for name in ("anna", "bo", "")] == [
            0,
            1,
            1,
        ]


async def test_invalid_arguments_and_outages_are_refused(proxy: Proxy, namespace: str) -> None:
    async with Memory.connect(proxy.url, namespace=namespace, settings=Settings(**PATIENCE), fallback=True) as memory:
        wrong: list[tuple[dict[str, Any], type[Exception]]] = [
            ({"ttl": 0}, InvalidRecord),
            ({"key_prefix": None}, InvalidSessionId),
            ({"key_prefix": "a2a-push"}, InvalidSessionId),
        ]
        for options, error in wrong:
            with pytest.raises(error):
                VersionedTaskStore(memory=memory, **options)
        for poll_s in (0, float("nan"), "1"):
            with pytest.raises(InvalidSettings):
                TaskEventStream(memory=memory, poll_s=poll_s)  # type: ignore[arg-type]
        store, configs = TaskStore(memory=memory), PushNotificationConfigStore(memory=memory)
        call = call_of("anna")
        with pytest.raises(InvalidSessionId):
            await store.save(make_task(""), call)
        with pytest.raises(InvalidParamsError):
            await store.list(ListTasksRequest(page_token="dA=="), call)
        await store.save(make_task("t"), call)
        await proxy.refuse()
        with short_deadlines(memory):
            for refused in (
                store.save(make_task("t"), call),
                store.get("t", call),
                store.list(ListTasksRequest(), call),
                store.delete("t", call),
                configs.get_info_for_dispatch("t"),
            ):
                with pytest.raises(StoreUnavailable):
                    await refused
        await proxy.accept_again()
    async with TaskStore("memory://") as own:
        assert await own.get("t", call) is None
