"""LangChain: the history answers as LangChain's own in-memory history does, beside workers and other programs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import fakeredis
import pytest
import redis
import redis.asyncio
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.chat_history import InMemoryChatMessageHistory
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables.history import RunnableWithMessageHistory
from support.edited import is_sound, summarize
from support.langchain_messages import messages
from support.proxy import Proxy
from support.stores import PATIENCE, short_deadlines

from redismem import InvalidMessage, InvalidSettings, Memory, Settings, StoreUnavailable, blocking
from redismem.adapters import langchain
from redismem.adapters.langchain import ChatMessageHistory
from redismem.adapters.repairs import Orphans
from redismem.workers.eviction import Eviction

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*ChatMessageHistory.*deprecated", "ignore:.*RunnableWithMessageHistory"
)


class Both:
    """A blocking memory and an async one of the same namespace, and a loop for the async one."""

    def __init__(self, clients: tuple[Any, Any], namespace: str, runner: asyncio.Runner) -> None:
        self.blocked = blocking.Memory.connect(client=clients[0], namespace=namespace)
        self.memory = Memory.connect(client=clients[1], namespace=namespace)
        self.clients, self.namespace, self.run = clients, namespace, runner.run


@pytest.fixture(params=["real", "embedded"])
def both(request: pytest.FixtureRequest, namespace: str) -> Iterator[Both]:
    clients: tuple[Any, Any]
    if request.param == "real":
        port = request.getfixturevalue("redis_server").port
        clients = redis.Redis(port=port, socket_timeout=20), redis.asyncio.Redis(port=port)
    else:
        server = fakeredis.FakeServer()
        clients = fakeredis.FakeRedis(server=server), fakeredis.FakeAsyncRedis(server=server)
    with asyncio.Runner() as runner, clients[0]:
        both = Both(clients, namespace, runner)
        yield both
        assert runner.run(is_sound(both.memory))
        both.blocked.close()
        runner.run(both.memory.aclose())
        runner.run(clients[1].aclose())


steps = st.lists(
    st.tuples(st.sampled_from(["add", "aadd"]), st.lists(messages, max_size=5))
    | st.tuples(st.sampled_from(["read", "aread", "worker", "app"]), st.just([]))
    | st.tuples(st.sampled_from(["clear", "aclear"]), st.just([])),
    max_size=6,
)


@pytest.fixture
def as_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read calls without results, and results without calls, as they are stored: test_repairs.py has the repairs."""
    monkeypatch.setattr(langchain, "find_orphans", lambda *_, **__: Orphans())


@pytest.mark.usefixtures("as_stored")
@given(steps=steps)
def test_any_history_equals_that_of_langchain(both: Both, steps: Any) -> None:
    session_id = both.memory.new_session_id()
    model = InMemoryChatMessageHistory()

    def history(memory: Memory | blocking.Memory) -> ChatMessageHistory:
        return ChatMessageHistory(session_id, memory, key_prefix="")

    for step, batch in [*steps, ("read", [])]:
        match step:
            case "add":
                history(both.blocked).add_messages(batch)
                model.add_messages(batch)
            case "aadd":
                both.run(history(both.memory).aadd_messages(batch))
                model.add_messages(batch)
            case "clear":
                history(both.blocked).clear()
                model.clear()
            case "aclear":
                both.run(history(both.memory).aclear())
                model.clear()
            case "worker":
                both.run(summarize(both.memory))
                both.run(Eviction(both.memory.store).enforce())
            case "app":
                context = both.run(both.memory.session(session_id).append_and_read({"role": "user", "content": "hi"}))
                model.add_message(HumanMessage("hi"))
                assert context.total_messages == len(model.messages)
        assert history(both.blocked).messages == model.messages
        assert both.run(history(both.memory).aget_messages()) == model.messages


class Scripted(BaseChatModel):
    """A model that answers "Yes.", after it has called `meanwhile`."""

    meanwhile: Any = None

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def _generate(self, *_: Any, **__: Any) -> ChatResult:
        self.meanwhile()
        return ChatResult(generations=[ChatGeneration(message=AIMessage("Yes."))])


def config(session_id: str) -> Any:
    return {"configurable": {"session_id": session_id}}


def texts_of(history: ChatMessageHistory) -> list[Any]:
    return [message.content for message in history.messages]


@pytest.mark.parametrize("summarise", [False, True])
def test_a_run_saves_its_own_turn_whatever_happens_meanwhile(both: Both, summarise: bool) -> None:
    def history(session_id: str) -> ChatMessageHistory:
        return ChatMessageHistory(session_id, both.blocked, summarise=summarise)

    def meanwhile() -> None:
        both.run(both.memory.session("langchain:s").append({"role": "user", "content": "by another program"}))
        both.run(summarize(both.memory))

    history("s").add_messages([HumanMessage(f"earlier {number}") for number in range(12)])
    chain = RunnableWithMessageHistory(Scripted(meanwhile=meanwhile), history)
    assert chain.invoke([HumanMessage("Open on Sunday?")], config("s")).content == "Yes."
    assert texts_of(history("s"))[-3:] == ["by another program", "Open on Sunday?", "Yes."]
    assert asyncio.run(chain.ainvoke([HumanMessage("And Monday?")], config("s"))).content == "Yes."
    assert texts_of(history("s"))[-3:] == ["by another program", "And Monday?", "Yes."]


def test_older_messages_are_read_as_one_summary_with_originals_behind_it(both: Both) -> None:
    def history() -> ChatMessageHistory:
        return ChatMessageHistory("s", both.blocked, summarise=True)

    told = [SystemMessage("Be brief."), *(HumanMessage(f"My number is {number}.") for number in range(30))]
    history().add_messages(told)
    both.run(summarize(both.memory))
    system, summary, *rest = history().messages
    assert (system, rest) == (told[0], told[-len(rest) :])
    assert isinstance(summary, HumanMessage)
    assert "Summary of the earlier messages" in summary.content
    assert len(rest) < 30
    whole = ChatMessageHistory("s", both.blocked)
    assert whole.messages == told
    both.blocked.session("langchain:s").forget(2)
    assert whole.messages == told, "one snapshot per object"
    assert ChatMessageHistory("s", both.blocked).messages == [told[0], *told[2:]]


def test_without_originals_the_summary_stands_for_what_another_program_had_summarised(both: Both) -> None:
    settings = Settings(keep_originals=False)
    memory = Memory.connect(client=both.clients[1], namespace=both.namespace, settings=settings)
    both.run(memory.session("s").append(*({"role": "user", "content": f"number {n}"} for n in range(30))))
    both.run(summarize(memory))
    both.run(memory.aclose())
    messages = ChatMessageHistory("s", both.blocked, key_prefix="").messages
    assert "Summary of the earlier messages" in str(messages[0].content)
    assert messages[-1] == HumanMessage("number 29")


def test_wrong_use_is_refused_and_says_what_to_do(both: Both) -> None:
    history = ChatMessageHistory("s", both.memory)
    for use in (lambda: history.messages, lambda: history.add_messages([HumanMessage("x")]), history.clear):
        with pytest.raises(TypeError, match=r"pass a redismem\.blocking\.Memory"):
            use()
    url: Any = "redis://127.0.0.1:6379"  # where other histories take a URL
    with pytest.raises(InvalidSettings, match=r"redismem\.Memory or a redismem\.blocking\.Memory, not a str$"):
        ChatMessageHistory("s", url)
    history = ChatMessageHistory("s", both.blocked)
    with pytest.raises(InvalidMessage, match="session langchain:s: message 2"):
        history.add_messages([HumanMessage("x"), ToolMessage("x", tool_call_id="c", artifact=datetime.now(UTC))])
    assert history.messages == []
    both.blocked.session("langchain:s").append({"type": "reasoning", "summary": ["secret"]})
    with pytest.raises(InvalidMessage, match=r"session langchain:s: LangChain cannot represent message 1$") as refused:
        ChatMessageHistory("s", both.blocked).messages  # noqa: B018
    assert "secret" not in str(refused.value)


def test_an_id_makes_a_retry_safe(both: Both) -> None:
    for _ in range(2):
        ChatMessageHistory("s", both.blocked).add_messages([HumanMessage("a")], id="turn-1")
        both.run(ChatMessageHistory("s", both.memory).aadd_messages([HumanMessage("b")], id="turn-2"))
    assert texts_of(ChatMessageHistory("s", both.blocked)) == ["a", "b"]


def test_an_outage_is_an_error_and_a_fallback_never_shows_an_empty_history(redis_server: Any, namespace: str) -> None:
    """A process with the fallback serves a session that it has seen, and refuses one that it has not."""

    async def play() -> None:
        settings = Settings(**PATIENCE, fallback_after_s=20)
        async with (
            Proxy(redis_server.port) as proxy,
            Memory.connect(proxy.url, namespace=namespace, settings=settings) as memory,
            Memory.connect(proxy.url, namespace=namespace, settings=settings, fallback=True) as fallback,
        ):
            for session_id in ("seen", "other"):
                await ChatMessageHistory(session_id, memory).aadd_messages([HumanMessage("a")])
            assert await ChatMessageHistory("seen", fallback).aget_messages() == [HumanMessage("a")]
            await proxy.refuse()
            with short_deadlines(memory, fallback):
                seen = ChatMessageHistory("seen", fallback)
                await seen.aadd_messages([AIMessage("b")])
                assert [message.content for message in await seen.aget_messages()] == ["a", "b"]
                for refusing in (memory, fallback):
                    with pytest.raises(StoreUnavailable, match="session langchain:other: "):
                        await ChatMessageHistory("other", refusing).aget_messages()
            await proxy.accept_again()

    asyncio.run(play())
