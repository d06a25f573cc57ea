"""Google ADK's memory service: the results of its own service in memory, and what only a shared one shows."""

from __future__ import annotations

import asyncio
import itertools
import unicodedata
from collections.abc import Sequence
from typing import Any

import pytest
from google.adk.events.event import Event
from google.adk.memory.in_memory_memory_service import InMemoryMemoryService
from google.adk.memory.memory_entry import MemoryEntry
from google.adk.sessions.session import Session
from google.genai import types
from hypothesis import given
from hypothesis import strategies as st
from support.clock import T0, Clock
from support.proxy import Proxy
from support.stores import PATIENCE, Store, short_deadlines

from redismem import InvalidSessionId, InvalidSettings, Memory, Settings, StoreUnavailable, TooLarge
from redismem.adapters.google_adk import MemoryService

numbers = itertools.count(1)
WORDS = ["deploy", "status", "ready", "backlog"]


def event(id: str, text: str | None, author: str = "user", at_s: float = 12345.5, **options: Any) -> Event:
    content = None if text is None else types.Content(role="user", parts=[types.Part(text=text)])
    return Event(**{"id": id, "author": author, "timestamp": at_s, "content": content, **options})


def session(id: str, *events: Event, app: str = "shop", user: str = "anna") -> Session:
    return Session(app_name=app, user_id=user, id=id, events=list(events))


async def search(service: Any, query: str, app: str = "shop", user: str = "anna") -> list[MemoryEntry]:
    return (await service.search_memory(app_name=app, user_id=user, query=query)).memories


def ids(memories: Sequence[MemoryEntry]) -> list[str | None]:
    return [each.id for each in memories]


@pytest.fixture(params=["theirs", "ours"])
def service(request: pytest.FixtureRequest, memory: Memory) -> Any:
    return InMemoryMemoryService() if request.param == "theirs" else MemoryService(memory=memory)


async def test_events_are_found_as_they_were(service: Any) -> None:
    parts = [types.Part(text="I agree."), types.Part.from_bytes(data=b"\x00\xff", mime_type="image/png")]
    rocks = event("c", None, "model", content=types.Content(role="model", parts=[*parts, types.Part(text="ADK rocks")]))
    await service.add_session_to_memory(session("1", event("a", "The ADK is a toolkit."), event("b", None), rocks))
    await service.add_session_to_memory(session("2", event("d", "I like Python.", at_s=1.0)))
    await service.add_session_to_memory(session("3"))
    [found] = await search(service, "python")
    assert (found.id, found.author, found.content) == ("d", "user", event("d", "I like Python.").content)
    assert ids(await search(service, "toolkit")) == ["a"]  # and not what was said beside it
    both = await search(service, "How about ADK?")
    assert sorted(map(str, ids(both))) == ["a", "c"]
    assert next(each for each in both if each.id == "c").content == rocks.content
    theirs = InMemoryMemoryService()
    await theirs.add_session_to_memory(session("2", event("d", "I like Python.", at_s=1.0)))
    assert [found] == await search(theirs, "python")
    assert await search(service, "nonexistent") == await search(service, "") == await search(service, " \n") == []


async def test_an_event_of_a_time_that_no_date_has_hides_no_other(memory: Memory) -> None:
    service = MemoryService(memory=memory)
    await service.add_session_to_memory(session("1", event("a", "red tea"), event("b", "green tea", at_s=1e18)))
    assert {(each.id, each.timestamp is None) for each in await search(service, "tea")} == {("a", False), ("b", True)}


async def test_nothing_is_found_by_another_user_or_app(service: Any) -> None:
    secret = event("s", "This is a secret.")
    await service.add_session_to_memory(session("1", secret, app="app/other", user="user"))
    await service.add_events_to_memory(app_name="shop", user_id="bob", events=[secret])
    for place in (("app", "other/user"), ("app", "other"), ("shop", "anna"), ("app/other", "bob"), ("shop", "bo")):
        assert await search(service, "secret", *place) == []
    assert ids(await search(service, "secret", "shop", "bob")) == ["s"]


@pytest.mark.parametrize(
    ("text", "query", "count"),
    [
        ("私の名前は太郎です", "太郎", 1),
        ("私の名前は太郎です", "天気", 0),
        ("我喜欢机器学习", "机器学习", 1),
        ("我喜欢机器学习", "天气预报", 0),
        ("제 이름은 민수입니다", "민수입니다", 1),
        ("Меня зовут Алексей", "Алексей", 1),
        ("太郎 works at ABC Corp", "ABC", 1),
        ("私はPythonでADKを使っています", "adk", 1),
        ("私はPythonでADKを使っています", "使って", 1),
        ("私はPythonでADKを使っています", "Java", 0),
        ("私はPythonでADKを使っています", "thon", 0),
        (unicodedata.normalize("NFD", "私はCaféでADKを使っています"), "café", 1),
        ("Meet at the Café", unicodedata.normalize("NFD", "Café"), 1),
    ],
)
async def test_words_of_any_script_are_found(service: Any, text: str, query: str, count: int) -> None:
    await service.add_session_to_memory(session("1", event("a", text)))
    assert len(await search(service, query)) == count


async def test_the_best_ten_come_first(service: Any) -> None:
    texts = [
        "The deploy is ready.",
        "Ready.",
        "The deploy status is ready.",
        *[f"note {at} on work" for at in range(20)],
    ]
    await service.add_session_to_memory(session("1", *(event(str(at), text) for at, text in enumerate(texts))))
    assert ids(await search(service, "deploy status ready")) == ["2", "0", "1"]
    await service.add_events_to_memory(app_name="shop", user_id="anna", events=[event("b", "the backlog note on work")])
    found = ids(await search(service, "backlog note work"))
    assert len(found) == 10
    assert found[0] == "b"


steps = st.lists(
    st.tuples(
        st.sampled_from(["session", "session", "events", "delete"]),
        st.sampled_from(["1", "2", None]),
        st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from([*WORDS, None])), max_size=4),
    ),
    max_size=8,
)


@given(steps)
async def test_any_sequence_of_calls_has_the_results_of_adks_service(memory: Memory, given_steps: Any) -> None:
    user = f"u{next(numbers)}"
    services: list[Any] = [InMemoryMemoryService(), MemoryService(memory=memory)]
    for method, id, pairs in given_steps:
        events = [event(f"{id}{letter}", text) for letter, text in dict(pairs).items()]
        for service in services:
            if method == "session" and id is not None:
                await service.add_session_to_memory(session(id, *events, user=user))
            elif method == "delete":
                for each in events[:1]:
                    await service.delete_memory(app_name="shop", user_id=user, memory_id=each.id)
            else:
                await service.add_events_to_memory(app_name="shop", user_id=user, events=events, session_id=id)
        for word in WORDS:
            theirs, ours = [await search(service, word, user=user) for service in services]
            assert sorted(map(str, ids(ours))) == sorted(map(str, ids(theirs)))


async def test_a_deleted_memory_is_nowhere(store: Store, memory: Memory, namespace: str, raw: Any) -> None:
    service = MemoryService(memory=memory)
    kept, gone = event("a", "The hinge is loose."), event("b", "My canary sings.")
    await service.add_session_to_memory(session("1", kept, gone))
    async with store.memory(namespace) as other:
        reader = MemoryService(memory=other)
        assert ids(await search(reader, "canary")) == ["b"]
        await service.delete_memory(app_name="shop", user_id="anna", memory_id="b")
        await service.delete_memory(app_name="shop", user_id="anna", memory_id=None)
        assert await search(reader, "canary") == []
        await reader.add_session_to_memory(session("1", kept, gone, event("c", "It squeaks.")))
        assert await search(reader, "canary") == []
        assert ids(await search(service, "squeaks")) == ["c"]
        for events in ((kept,), (), (gone, kept), (kept, gone)):  # also if the session has changed in between
            await reader.add_session_to_memory(session("1", *events))
        await reader.add_events_to_memory(app_name="shop", user_id="anna", session_id="1", events=[gone])
        assert ids(await search(service, "hinge")) == ["a"]
        assert await search(service, "canary") == []
    for key in [key async for key in raw.scan_iter(f"*{namespace}*")]:
        assert b"canary" not in (await raw.dump(key) or b"")


async def test_memories_that_are_given_directly_keep_their_metadata(memory: Memory) -> None:
    service = MemoryService(memory=memory)
    content = types.Content(parts=[types.Part(text="Anna prefers tea.")])
    entry = MemoryEntry(
        content=content, author="crm", timestamp="2026-05-01T10:00:00+02:00", custom_metadata={"x": [1]}
    )
    other = MemoryEntry(content=content, id="own")
    await service.add_memory(app_name="shop", user_id="anna", memories=[entry, other, other])
    found = await search(service, "tea")
    assert found == [entry.model_copy(update={"id": found[0].id}), other]
    assert found[0].id
    # Words are found in any form, and what was said on a day is found by the day.
    assert len(await search(service, "preferring teas")) == 2
    assert (await search(service, "What was on the first of May 2026?"))[0].author == "crm"


async def test_processes_that_add_at_once_lose_and_double_nothing(store: Store, namespace: str) -> None:
    async with store.memory(namespace) as first, store.memory(namespace) as second:
        services = [MemoryService(memory=memory) for memory in (first, second)]
        events = [event(f"e{at}", f"fact{at} about the garden") for at in range(40)]
        added = [services[at % 2].add_session_to_memory(session("1", *events[: 5 * (at + 1)])) for at in range(3)]
        added += [
            services[at % 2].add_events_to_memory(app_name="shop", user_id="anna", events=[each])
            for at, each in enumerate(events[30:])
        ]
        await asyncio.gather(*added)
        await services[0].add_session_to_memory(session("1", *events[:30]))
        for service in services:
            for at in range(40):
                assert ids(await search(service, f"fact{at}")) == [f"e{at}"]


async def test_what_a_user_says_elsewhere_hides_nothing(memory: Memory) -> None:
    service = MemoryService(memory=memory, limit=3)
    for app in ("news", "mail"):
        events = [event(f"{app}{at}", "garden garden") for at in range(60)]
        await service.add_session_to_memory(session("1", *events, app=app))
    await service.add_session_to_memory(session("1", *(event(f"s{at}", f"a garden of mine, {at}") for at in range(5))))
    await memory.session("chat", owner="anna").append({"role": "user", "content": "garden"})
    found = ids(await search(service, "garden"))
    assert len(found) == 3
    assert all(str(id).startswith("s") for id in found)


async def test_memories_expire_and_are_forgotten_with_the_person(
    store: Store, namespace: str, raw: Any, clock: Clock
) -> None:
    clock.now_ms = T0
    async with store.memory(namespace) as memory:
        service = MemoryService(memory=memory, ttl=60)
        for user in ("anna", "bob"):
            await service.add_session_to_memory(session("1", event("a", "my garden"), user=user))
        keys = [key async for key in raw.scan_iter(f"*{namespace}:*shop/anna/1*")]
        assert {await raw.pexpiretime(key) for key in keys if b"messages" in key} == {T0 + 60_000}
        assert (await memory.forget(owner="anna")).session_count == 1
        assert await search(service, "garden") == []
        assert len(await search(service, "garden", user="bob")) == 1


async def test_an_outage_is_an_error_and_no_empty_memory(proxy: Proxy, namespace: str) -> None:
    settings = Settings(**PATIENCE)
    async with Memory.connect(proxy.url, namespace=namespace, settings=settings) as memory:
        service = MemoryService(memory=memory)
        await service.add_session_to_memory(session("1", event("a", "my garden")))
        await proxy.refuse()
        with short_deadlines(memory):
            for call in (search(service, "garden"), service.add_session_to_memory(session("2", event("a", "x")))):
                with pytest.raises(StoreUnavailable):
                    await call
        await proxy.accept_again()


async def test_invalid_arguments_are_refused(memory: Memory) -> None:
    for options, error in (
        ({"memory": memory, "ttl": 0}, InvalidSettings),
        ({"memory": memory, "limit": 0}, ValueError),
        ({"memory": memory, "limit": 1.5}, ValueError),
        ({"memory": memory, "key_prefix": None}, InvalidSessionId),
        ({"memory": memory, "url": "memory://"}, InvalidSettings),
    ):
        with pytest.raises(error):
            MemoryService(**options)
    async with MemoryService("memory://") as own:
        with pytest.raises(InvalidSessionId):
            await own.add_session_to_memory(session("1", event("a", "x"), user=""))
        with pytest.raises(InvalidSessionId):
            await search(own, "x", user="")
        with pytest.raises(TooLarge):
            await own.add_session_to_memory(session("1", event("a", "x" * 10_000_000)))
