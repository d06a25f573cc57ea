"""Google ADK's session service: the same results as its own service in memory, and what only a shared one shows."""

from __future__ import annotations

import asyncio
import itertools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from google.adk.errors._stale_session_error import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.sessions.base_session_service import GetSessionConfig
from google.adk.sessions.in_memory_session_service import InMemorySessionService
from google.genai import types
from hypothesis import given
from hypothesis import strategies as st
from support.clock import Clock
from support.proxy import Proxy
from support.stores import PATIENCE, Store, short_deadlines

from examples.google_adk_agent import PlayedModel, answer
from redismem import InvalidRecord, InvalidSessionId, Memory, Settings, StoreUnavailable
from redismem.adapters.google_adk import SessionService
from redismem.record import Record

ROOT = Path(__file__).parents[2]
numbers = itertools.count(1)
USERS = ["anna", "bo/1", "bö"]
APPS = ["shop", "shop/bo"]
SESSIONS = ["s", " s ", "t", "", None]
KEYS = ["a", "b", "app:a", "user:a", "user:b", "temp:a"]
values = st.none() | st.integers(-9, 9) | st.text(max_size=3) | st.lists(st.booleans(), max_size=2)
states = st.dictionaries(st.sampled_from(KEYS), values, max_size=3)
places = st.fixed_dictionaries({"app_name": st.sampled_from(APPS), "user_id": st.sampled_from(USERS)})
configs = st.none() | st.builds(
    GetSessionConfig,
    num_recent_events=st.none() | st.integers(0, 4),
    after_timestamp=st.none() | st.integers(0, 9).map(float),
)
steps = st.lists(
    st.tuples(
        st.sampled_from(["create", "create", "append", "append", "append", "again", "get", "list", "delete", "user"]),
        places,
        st.sampled_from(SESSIONS[:3]),
        states,
        configs,
        st.integers(0, 9),
    ),
    min_size=4,
    max_size=10,
)


def make_event(number: int, delta: dict[str, Any] | None = None, at_s: float = 1.0, **options: Any) -> Event:
    content = types.Content(role="user", parts=[types.Part(text=f"event {number}")])
    actions = EventActions(state_delta=dict(delta or {}))
    return Event(id=f"id-{number}", author="user", content=content, actions=actions, timestamp=at_s, **options)


def show(result: Any) -> Any:
    """Return a result without the time of creation, which differs between two services."""
    if hasattr(result, "sessions"):
        return sorted((each.user_id, each.id) for each in result.sessions), [each.state for each in result.sessions]
    if hasattr(result, "events"):
        updated = result.last_update_time if result.last_update_time < 100 else None
        return result.app_name, result.user_id, result.id, result.state, updated, result.events
    return result


class Both:
    """Our service and theirs: each step is made on both, and the results are compared."""

    def __init__(self, memory: Memory) -> None:
        self.services: tuple[Any, Any] = SessionService(memory=memory), InMemorySessionService()
        self.held: dict[Any, list[Any]] = {}
        self.last: tuple[Any, int] | None = None

    async def step(self, method: str, **options: Any) -> list[Any]:
        results: list[Any] = []
        for service in self.services:
            try:
                results.append(await getattr(service, method)(**options))
            except (AlreadyExistsError, SessionNotFoundError) as error:
                results.append(type(error))
        assert show(results[0]) == show(results[1]), (method, options)
        return results

    async def append(self, key: Any, make: Any) -> None:
        results: list[Any] = []
        events = [make(), make()]
        for service, session, event in zip(self.services, self.held[key], events, strict=True):
            try:
                results.append(await service.append_event(session, event))
            except SessionNotFoundError as error:
                results.append(type(error))
        assert results[0] == results[1]
        assert show(self.held[key][0]) == show(self.held[key][1])


@given(steps)
async def test_any_sequence_of_calls_has_the_results_of_the_service_in_memory(
    store: Store, namespace: str, given_steps: Any
) -> None:
    async with store.memory(f"{namespace}-{next(numbers)}") as memory:
        both = Both(memory)
        for number, (what, place, session_id, state, config, at) in enumerate(given_steps):
            key = (*place.values(), session_id.strip())
            if what == "create":
                created = await both.step("create_session", **place, state=state, session_id=session_id)
                if not isinstance(created[0], type):
                    both.held[key] = created
            elif what in ("append", "again") and key in both.held:
                if what == "again":
                    got = await both.step("get_session", **place, session_id=session_id)
                    both.held[key] = both.held[key] if got[0] is None else got
                told = number if what == "append" or both.last is None else both.last[1]
                both.last = (key, told)
                await both.append(key, lambda told=told, state=state, at=at: make_event(told, state, float(at)))
            elif what == "delete":
                await both.step("delete_session", **place, session_id=session_id)
            elif what == "user":
                await both.step("get_user_state", **place)
            elif what == "list":
                await both.step(
                    "list_sessions", app_name=place["app_name"], user_id=place["user_id"] if at % 2 else None
                )
            else:
                got = await both.step("get_session", **place, session_id=session_id, config=config)
                if got[0] is not None and at % 2:
                    both.held[key] = got


async def test_appends_of_many_writers_keep_every_event_and_every_key_though_replies_are_lost(
    proxy: Proxy, direct_memory: Memory
) -> None:
    memory = direct_memory
    place: dict[str, Any] = {"app_name": "shop", "user_id": "anna"}
    async with Memory.connect(proxy.url, namespace=memory.store.keys.namespace, settings=Settings(**PATIENCE)) as lossy:
        services = [SessionService(memory=memory), SessionService(memory=lossy)]
        await services[0].create_session(**place, session_id="s")
        proxy.break_next("reset", 4, to=b"event")

        async def write(number: int) -> None:
            session = await services[number % 2].get_session(**place, session_id="s")
            assert session is not None
            delta = {f"{prefix}{number}": number for prefix in ("app:", "user:", "", "temp:")}
            await services[number % 2].append_event(session, make_event(number, delta))
            assert session.state[f"temp:{number}"] == number

        await asyncio.gather(*map(write, range(20)))
        assert proxy.broken_count == 4
        read = await services[0].get_session(**place, session_id="s")
        assert read is not None
        wanted = {f"{prefix}{number}": number for prefix in ("app:", "user:", "") for number in range(20)}
        assert read.state == wanted
        assert sorted(event.id for event in read.events) == sorted(f"id-{number}" for number in range(20))
        assert not any("temp:" in key for event in read.events for key in event.actions.state_delta)


async def test_events_keep_their_order_their_bytes_and_what_a_window_asks_for(memory: Memory) -> None:
    service = SessionService(memory=memory)
    session = await service.create_session(app_name="shop", user_id="anna", session_id="s")
    blob = types.Part(inline_data=types.Blob(data=b"\x00\xff", mime_type="image/png"))
    first = Event(author="model", content=types.Content(role="model", parts=[blob]), timestamp=1.0)
    first.long_running_tool_ids = {"a", "b"}
    await service.append_event(session, first)
    for number in range(250):
        await service.append_event(session, make_event(number, at_s=2.0 + number // 100))
    await service.append_event(session, make_event(999, {"a": 1}, partial=True))
    place: Any = {"app_name": "shop", "user_id": "anna", "session_id": "s"}
    read = await service.get_session(**place)
    assert read is not None
    assert (
        [event.id for event in read.events]
        == [event.id for event in session.events]
        == [first.id, *(f"id-{number}" for number in range(250))]
    )
    assert read.events[0] == first
    assert (read.state, read.last_update_time) == ({}, 4.0)
    for config, count in (
        (GetSessionConfig(num_recent_events=0), 0),
        (GetSessionConfig(num_recent_events=120), 120),
        (GetSessionConfig(after_timestamp=3.0), 150),
        (GetSessionConfig(num_recent_events=60, after_timestamp=4.0), 50),
    ):
        window = await service.get_session(**place, config=config)
        assert window is not None
        assert window.events == read.events[251 - count :]
    read.state["a"] = read.events[0].author = "changed"
    again = await service.get_session(**place)
    assert again is not None
    assert (again.state, again.events[0]) == ({}, first)


async def test_a_deleted_or_forgotten_session_leaves_nothing(memory: Memory) -> None:
    service = SessionService(memory=memory)
    for user in ("anna", "bo"):
        session = await service.create_session(app_name="shop", user_id=user, state={"user:a": 1}, session_id="s")
        await service.append_event(session, make_event(1, {"secret": "x"}))
        await service.delete_session(app_name="shop", user_id=user, session_id=" s ")
        with pytest.raises(SessionNotFoundError):
            await service.append_event(session, make_event(2, {"app:a": 1, "user:b": 1}))
    left = (await memory.records()).records
    assert [(each.id, each.owner) for each in left] == [("adk:shop/anna", "anna"), ("adk:shop/bo", "bo")]
    assert await service.get_user_state(app_name="shop", user_id="bo") == {"a": 1}
    await service.create_session(app_name="other", user_id="bo")
    await memory.forget(owner="bo")
    assert [each.id for each in (await memory.records()).records] == ["adk:shop/anna"]


async def test_an_outage_is_an_error_and_leaves_the_session_of_the_caller_as_it_was(
    proxy: Proxy, namespace: str
) -> None:
    async with Memory.connect(proxy.url, namespace=namespace, settings=Settings(**PATIENCE), fallback=True) as memory:
        service = SessionService(memory=memory)
        session = await service.create_session(app_name="shop", user_id="anna", session_id="s")
        await proxy.refuse()
        with short_deadlines(memory):
            with pytest.raises(StoreUnavailable):
                await service.append_event(session, make_event(1, {"a": 1, "temp:a": 1}))
            assert (session.state, session.events) == ({}, [])
            with pytest.raises(StoreUnavailable):
                await service.get_session(app_name="shop", user_id="anna", session_id="s")
        await proxy.accept_again()


async def test_invalid_arguments_are_refused(memory: Memory) -> None:
    service = SessionService(memory=memory)
    for user_id in ("", None, 5):
        with pytest.raises(InvalidSessionId):
            await service.create_session(app_name="shop", user_id=user_id)  # type: ignore[arg-type]
    for options, error in (({"ttl": 0}, InvalidRecord), ({"key_prefix": None}, InvalidSessionId)):
        with pytest.raises(error):
            SessionService(memory=memory, **options)
    assert (await memory.records()).records == []


async def test_prefix_app_user_and_session_are_told_apart() -> None:
    names = ["a", "a:b", "b", "a/b", "%3A", ":", "b:"]
    async with Memory.connect("memory://") as memory:
        ids = [
            SessionService(memory=memory, key_prefix=prefix)._places.session((a, b, c)).id
            for prefix in ("", *names)
            for a, b, c in itertools.product(names, repeat=3)
        ]
    assert len({*ids}) == len(ids) == 8 * 7**3


async def test_a_list_has_nothing_of_a_user_or_app_whose_name_begins_alike(memory: Memory) -> None:
    service = SessionService(memory=memory)
    for app_name in ("shop", "shops"):
        for user_id in ("an", "ann", "anna"):
            await service.create_session(app_name=app_name, user_id=user_id, session_id=f"of {user_id}")
    of_ann = await service.list_sessions(app_name="shop", user_id="ann")
    assert [session.id for session in of_ann.sessions] == ["of ann"]
    of_all = await service.list_sessions(app_name="shop")
    assert [session.id for session in of_all.sessions] == ["of an", "of ann", "of anna"]


async def test_a_session_expires_after_its_ttl_and_needs_no_place_among_the_sessions(
    store: Store, clock: Clock, namespace: str, raw: Any
) -> None:
    async with store.memory(namespace, Settings(max_sessions=1), workers=True) as memory:
        service = SessionService(memory=memory, ttl=60)
        for number in range(3):
            await service.create_session(app_name="shop", user_id="anna", session_id=str(number), state={"user:a": 1})
            await memory.session(str(number)).append({"role": "user", "content": "hello"})
        assert len((await service.list_sessions(app_name="shop")).sessions) == 3
        [key] = await raw.keys(f"*{namespace}:*record:adk:shop/anna/1")
        assert await raw.pexpiretime(key) == clock() + 60_000
        [key] = await raw.keys(f"*{namespace}:*record:adk:shop/anna")
        assert await raw.pexpiretime(key) == -1


WRITER = """
import asyncio, sys
sys.path[:0] = ["tests"]
from adapters.test_google_adk import make_event
from redismem import Memory
from redismem.adapters.google_adk import SessionService
from redismem.record import Record

async def main(url, namespace):
    async with Memory.connect(url, namespace=namespace) as memory:
        service = SessionService(memory=memory)
        session = await service.get_session(app_name="shop", user_id="anna", session_id="s")
        for number in range(1_000_000):
            await service.append_event(session, make_event(number, {"last": number, "user:last": number}))
            print(number, flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.nightly  # the example's test kills a process in each run
async def test_a_killed_process_leaves_events_and_states_that_agree(direct_memory: Memory, redis_server: Any) -> None:
    memory = direct_memory
    service = SessionService(memory=memory)
    await service.create_session(app_name="shop", user_id="anna", session_id="s")
    command = [sys.executable, "-c", WRITER, redis_server.url, memory.store.keys.namespace]
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
    writer = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, cwd=ROOT, env=environment)
    assert writer.stdout is not None
    told = [int(await writer.stdout.readline()) for _ in range(20)]
    writer.kill()
    await writer.wait()
    read = await service.get_session(app_name="shop", user_id="anna", session_id="s")
    assert read is not None
    last = len(read.events) - 1
    assert last >= told[-1]
    assert [event.id for event in read.events] == [f"id-{number}" for number in range(last + 1)]
    assert read.state == {"last": last, "user:last": last}


async def test_a_state_of_any_number_of_keys_is_read_whole_as_of_one_moment(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redismem.protocol.record.reads.RANGE_COUNT", 2)
    monkeypatch.setattr("redismem.adapters.google_adk.reading._ONE_TRIP_COUNT", 2)
    service = SessionService(memory=memory)
    place = {"app_name": "shop", "user_id": "anna"}
    session = await service.create_session(**place, session_id="s", state={f"k{number}": 0 for number in range(7)})
    assert len(session.state) == 7
    waiting, real = [1, 2], Record.page

    async def page(record: Record, *args: Any, **options: Any) -> Any:
        if waiting:  # another process is faster
            number = waiting.pop()
            await service.append_event(session, make_event(number, {f"k{key}": number for key in range(7)}))
        return await real(record, *args, **options)

    monkeypatch.setattr(Record, "page", page)
    (listed,) = (await service.list_sessions(**place)).sessions
    assert listed.state == {f"k{number}": 1 for number in range(7)}


async def test_with_a_single_writer_a_stale_session_is_refused_and_a_repeated_event_is_not(
    store: Store, namespace: str
) -> None:
    async with store.memory(namespace) as memory:
        ours, others = SessionService(memory=memory, single_writer=True), SessionService(memory=memory)
        place: Any = {"app_name": "shop", "user_id": "anna", "session_id": "s"}
        session = await ours.create_session(**place)
        await ours.append_event(session, make_event(1, at_s=9.0))
        stale: Any = await ours.get_session(**place)
        before = stale.model_copy(deep=True)
        await ours.append_event(session, make_event(2, at_s=1.0))  # by a clock that is behind
        with pytest.raises(ValueError, match="read it again") as refused:
            await ours.append_event(stale, make_event(3, {"app:a": 1}))
        assert type(refused.value) is StaleSessionError
        assert stale == before
        await ours.append_event(before, make_event(2, at_s=1.0))  # its reply was lost, so it is sent again
        await ours.append_event(before, make_event(4))
        await others.append_event(stale, make_event(5))  # without the option, what others appended stays
        read = await ours.get_session(**place)
        assert read is not None
        assert [event.id for event in read.events] == ["id-1", "id-2", "id-4", "id-5"]
        assert read.state == {}


async def test_with_a_single_writer_one_of_two_runs_at_once_asks_no_model(
    redis_server: Any, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    real = PlayedModel.generate_content_async

    async def ask(model: Any, request: Any, *_: Any, **__: Any) -> Any:
        asked.append(request.contents[-1].parts[0].text)
        async for response in real(model, request):
            yield response

    monkeypatch.setattr(PlayedModel, "generate_content_async", ask)
    together = asyncio.Barrier(2)

    class Slow(SessionService):
        async def get_session(self, **place: Any) -> Any:
            session = await super().get_session(**place)
            await together.wait()  # both have read before one of them writes
            return session

    async with (
        Memory.connect(redis_server.url, namespace=namespace) as memory,
        Memory.connect(redis_server.url, namespace=namespace) as other,
    ):
        services = [Slow(memory=each, single_writer=True) for each in (memory, other)]
        await SessionService(memory=memory).create_session(app_name="weather", user_id="anna", session_id="s")
        for round_number in range(10):
            questions = [f"question {round_number} of {name}" for name in "ab"]
            both = [answer(*each) for each in zip(services, ["anna"] * 2, ["s"] * 2, questions, strict=True)]
            results = await asyncio.gather(*both, return_exceptions=True)
            assert {type(each) for each in results} == {StaleSessionError, str}
    assert len(asked) == 10
