"""Agent Framework's history provider and session store: the same answers as the framework's own."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from agent_framework import (
    Agent,
    AgentSession,
    BaseChatClient,
    ChatResponse,
    Content,
    FileHistoryProvider,
    FileSessionStore,
    InMemoryHistoryProvider,
    Message,
)
from hypothesis import given
from hypothesis import strategies as st
from support.proxy import Proxy
from support.redis_server import RedisServer
from support.stores import PATIENCE, Store, short_deadlines
from support.writers import Echo

from redismem import InvalidMessage, InvalidSessionId, InvalidState, Memory, Settings, StoreUnavailable, TooLarge
from redismem.adapters.agent_framework import HistoryProvider, SessionStore
from redismem.models import open_extractive
from redismem.workers.strategies import Summarize
from redismem.workers.summaries import Worker

# The framework warns of its own classes that tests compare with.
pytestmark = pytest.mark.filterwarnings(r"ignore:\[(FILE_HISTORY|SESSION_STORE)\]")

ONE_SHARD = Settings(shards=1)
_numbers = itertools.count(1)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=4,
)
contents = st.one_of(
    st.builds(Content.from_text, st.text(max_size=5)),
    st.builds(
        lambda id: Content.from_function_call(call_id=id, name="f", arguments='{"a": 1}'), st.text("ab", min_size=1)
    ),
    st.builds(
        lambda id, value: Content.from_function_result(call_id=id, result=value), st.text("ab", min_size=1), st.text()
    ),
    st.builds(lambda body: Content.from_data(data=body, media_type="image/png"), st.binary(max_size=8)),
)
messages = st.builds(
    lambda role, parts, id: Message(role, parts, message_id=id),
    st.sampled_from(["user", "assistant", "tool", "system"]),
    st.lists(contents, max_size=2),
    st.none() | st.text("ab", min_size=1, max_size=2),
)
saves = st.lists(st.tuples(st.integers(0, 6), st.lists(messages, max_size=4)), min_size=1, max_size=4)
"""The number of newest messages that each save repeats, and its new messages."""


def dicts(messages: Sequence[Message]) -> list[dict[str, Any]]:
    return [message.to_dict() for message in messages]


def texts(messages: Sequence[Message]) -> list[str]:
    return [message.text for message in messages]


@pytest.fixture
async def both(store: Store, namespace: str) -> AsyncIterator[tuple[Memory, Memory]]:
    """The memories of the adapter and of an app."""
    async with store.memory(namespace, ONE_SHARD) as memory, store.memory(namespace, ONE_SHARD) as app:
        yield memory, app


@given(saves=saves)
async def test_it_keeps_what_the_frameworks_own_providers_keep(
    both: tuple[Memory, Memory], tmp_path: Path, saves: list[tuple[int, list[Message]]]
) -> None:
    """Beside a worker with default settings, and an app that reads the session."""
    (memory, app), id = both, f"s{next(_numbers)}"
    ours, in_memory, files = HistoryProvider(memory=memory), InMemoryHistoryProvider(), FileHistoryProvider(tmp_path)
    worker, other, state = Worker(app.store, Echo()), app.session(f"of-the-app-{id}"), dict[str, Any]()
    await other.append(*({"role": "user", "content": str(number)} for number in range(12)))
    for repeated_count, new in saves:
        history = await in_memory.get_messages(id, state=state)
        saved = [*history[len(history) - repeated_count :], *new]
        await in_memory.save_messages(id, saved, state=state)
        await files.save_messages(id, saved)
        await ours.save_messages(id, saved)
        await worker.drain()
        expected = dicts(await in_memory.get_messages(id, state=state))
        assert dicts(await ours.get_messages(id)) == expected == dicts(await files.get_messages(id))
    assert (await app.session(f"agent_framework:{id}").read()).to_openai() == expected
    assert (await other.read()).summaries  # the worker works


@given(states=st.lists(st.dictionaries(st.text(max_size=5), values, max_size=2), min_size=1, max_size=2))
async def test_a_session_comes_back_as_from_the_frameworks_own_store(
    both: tuple[Memory, Memory], tmp_path: Path, states: list[dict[str, Any]]
) -> None:
    ours, files, id = SessionStore(memory=both[0]), FileSessionStore(tmp_path), f"s{next(_numbers)}"
    assert await ours.get(id) is await files.get(id) is None
    for state in states:
        session = AgentSession(session_id="a", service_session_id={"conversation": id})
        session.state = {**state, "messages": [Message("user", ["hello"])]}
        await ours.set(id, session)
        await files.set(id, session)
        stored, expected = await ours.get(id), await files.get(id)
        assert stored is not None
        assert expected is not None
        assert stored.to_dict() == expected.to_dict() == session.to_dict()
        assert type(stored.state["messages"][0]) is Message
    await ours.delete(id)
    await ours.delete(id)
    assert await ours.get(id) is None


async def test_older_messages_become_one_with_originals_behind_it(store: Store, namespace: str) -> None:
    async with store.memory(namespace, ONE_SHARD) as memory:
        ours, worker = (
            HistoryProvider(memory=memory, summarise=True),
            Worker(memory.store, Summarize(open_extractive())),
        )
        for number in range(12):
            await ours.save_messages("s", [Message("user", [f"text {number}"])])
        await worker.drain()
        read = await ours.get_messages("s")
        assert texts(read)[1:] == [f"text {number}" for number in range(6, 12)]
        assert read[0].role == "user"
        assert "text 0" in read[0].text
        originals = await memory.session("agent_framework:s").tail(100)
        assert [each.to_openai()["contents"][0]["text"] for each in originals] == [f"text {at}" for at in range(12)]
        # A replay of what is left is recognised, and the summary is not compared.
        await ours.save_messages("s", [*read[1:], Message("assistant", ["new"])])
        assert texts(await ours.get_messages("s"))[1:] == [*texts(read)[1:], "new"]


async def test_what_a_compaction_excluded_can_be_left_out(memory: Memory) -> None:
    excluded = Message("user", ["old"], additional_properties={"_excluded": True})
    await HistoryProvider(memory=memory).save_messages("s", [excluded, Message("user", ["new"])])
    assert texts(await HistoryProvider(memory=memory).get_messages("s")) == ["old", "new"]
    assert texts(await HistoryProvider(memory=memory, skip_excluded=True).get_messages("s")) == ["new"]


async def test_mistakes_are_refused_before_anything_is_written(memory: Memory) -> None:
    provider, sessions = HistoryProvider(memory=memory), SessionStore(memory=memory)
    for no_id in (None, ""):
        with pytest.raises(InvalidSessionId):
            await provider.save_messages(no_id, [Message("user", ["everyone's"])])
    with pytest.raises(ValueError, match="non-empty"):
        await sessions.get("")
    with pytest.raises(TooLarge):
        await provider.save_messages("s", [Message("user", [str(number)]) for number in range(1_001)])
    session = AgentSession()
    session.state["long"] = "a" * 100_000
    with pytest.raises(TooLarge, match="session agent_session:s: "):
        await sessions.set("s", session)
    session.state = {"canary": float("nan")}
    with pytest.raises(InvalidState, match="session agent_session:s: "):
        await sessions.set("s", session)
    deep: dict[str, Any] = {}
    for _ in range(5_000):
        deep = {"canary": deep}
    for message in (
        Message("user", ["a"], additional_properties=deep),
        Message("tool", [Content.from_function_result(call_id="1", result="a", additional_properties=deep)]),
    ):
        with pytest.raises(InvalidMessage, match="nested too deep"):
            await provider.save_messages("s", [message])
    session.state = deep
    with pytest.raises(InvalidState, match=r"session agent_session:s: .*nested too deep"):
        await sessions.set("s", session)
    with pytest.raises(TypeError, match="not a Mine"):
        await sessions.set("s", type("Mine", (AgentSession,), {})())
    assert (await memory.sessions()).sessions == []


class Silent(BaseChatClient[Any]):
    """A model that counts its calls."""

    calls_count = 0

    async def _inner_get_response(self, **_: Any) -> ChatResponse:
        Silent.calls_count += 1
        return ChatResponse(messages=[Message("assistant", ["Done."])])


async def test_an_input_that_cannot_be_stored_is_refused_before_the_model_runs(memory: Memory) -> None:
    Silent.calls_count = 0
    agent = Agent(Silent(), context_providers=[HistoryProvider(memory=memory)])
    session = AgentSession(session_id="large")
    with pytest.raises(TooLarge):
        await agent.run("x" * memory.settings.max_message_bytes, session=session)
    assert Silent.calls_count == 0
    await agent.run("hello", session=session)
    assert Silent.calls_count == 1
    assert len((await memory.session("agent_framework:large").read()).messages) == 2


async def test_what_is_not_from_the_framework_is_an_error_that_names_the_session(memory: Memory) -> None:
    await memory.session("agent_framework:s").append({"role": "user", "content": "canary"})
    await memory.session("agent_session:s").merge({"agent_session": {"canary": 1}})
    with pytest.raises(InvalidMessage, match="session agent_framework:s: message 1 ") as message:
        await HistoryProvider(memory=memory).get_messages("s")
    with pytest.raises(InvalidState, match="session agent_session:s: ") as state:
        await SessionStore(memory=memory).get("s")
    assert "canary" not in f"{message.value}{state.value}"


async def test_an_outage_is_an_error_and_never_an_empty_history(redis_server: RedisServer, namespace: str) -> None:
    patient = Settings(**PATIENCE, fallback_after_s=20)
    async with Proxy(redis_server.port) as proxy:
        for fallback in (False, True):
            async with Memory.connect(proxy.url, namespace=namespace, settings=patient, fallback=fallback) as memory:
                provider, sessions = HistoryProvider(memory=memory), SessionStore(memory=memory)
                await provider.save_messages("seen", [Message("user", ["hello"])])
                await proxy.refuse()
                with short_deadlines(memory):
                    for call in (provider.get_messages("unseen"), sessions.get("unseen")):
                        with pytest.raises(StoreUnavailable):
                            await call
                    if fallback:
                        await provider.save_messages("seen", [Message("user", ["degraded"])])
                        assert texts(await provider.get_messages("seen"))[-1] == "degraded"
                await proxy.accept_again()


def test_an_import_warns_of_nothing() -> None:
    use = "from redismem.adapters.agent_framework import HistoryProvider; HistoryProvider('memory://')"
    options = ("-W", "error::FutureWarning", "-W", "error::UserWarning")
    done = subprocess.run([sys.executable, *options, "-c", use], capture_output=True, text=True, check=False)
    assert done.stderr == ""


async def test_sessions_of_an_owner_are_forgotten_with_the_person(memory: Memory) -> None:
    owner = {"a": "ann", "b": "bo"}.get
    history, sessions = HistoryProvider(memory=memory, owner=owner), SessionStore(memory=memory, owner=owner)
    for session_id in ("a", "b", "c"):
        await history.save_messages(session_id, [Message("user", ["Hello"])])
        await sessions.set(session_id, AgentSession(session_id=session_id))
    assert (await memory.forget(owner="ann")).session_count == 2
    assert [len(await history.get_messages(session_id)) for session_id in ("a", "b", "c")] == [0, 1, 1]
    assert [await sessions.get(session_id) is None for session_id in ("a", "b", "c")] == [True, False, False]
    for store in (HistoryProvider, SessionStore):
        with pytest.raises(InvalidSessionId):
            store(memory=memory, owner="")
