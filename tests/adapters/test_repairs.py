"""A history that no provider accepts, because a process died between a call and its result, is sent in order again.

Each framework reads it with its own package, and the stored messages stay as they are.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from agent_framework import Agent, AgentSession, BaseChatClient, ChatResponse, Content
from agent_framework import Message as FrameworkMessage
from agents import Agent as OpenAIAgent
from agents import Runner
from agents.testing import ScriptedModel, assistant_message
from google.adk.events.event import Event
from google.adk.models.llm_response import LlmResponse
from google.genai import types
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage, message_to_dict
from langchain_core.runnables import RunnableLambda
from langchain_core.runnables.history import RunnableWithMessageHistory
from llama_index.core.base.llms.types import ChatMessage, TextBlock, ToolCallBlock
from llama_index.core.memory import Memory as FrameworkMemory
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai import Conversation
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import (
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    repair_messages,
)
from pydantic_ai.models.function import FunctionModel
from strands import Agent as StrandsAgent
from strands.session import SnapshotSessionManager
from support.openai_rules import check_responses
from support.redis_server import RedisServer
from support.request_rules import faults

import redismem.blocking
from examples import google_adk_agent, strands_agent
from redismem import Memory
from redismem.adapters.agent_framework import HistoryProvider
from redismem.adapters.agent_framework.repair import repair
from redismem.adapters.google_adk import SessionService
from redismem.adapters.langchain import ChatMessageHistory
from redismem.adapters.llama_index import ChatStore
from redismem.adapters.openai_agents import Session
from redismem.adapters.pydantic_ai import ConversationStore
from redismem.adapters.repairs import NO_RESULT
from redismem.adapters.strands import Storage

pytestmark = pytest.mark.filterwarnings("ignore:.*(ChatMessageHistory|RunnableWithMessageHistory).*deprecated")
HELLO = "And tomorrow?"


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "read as interrupted" in record.getMessage()]


def said_once(caplog: pytest.LogCaptureFixture) -> bool:
    (said,) = warnings_of(caplog)
    return "secret" not in said


class Asked(BaseChatClient[Any]):
    """A model that keeps what it is asked."""

    asked: list[Sequence[FrameworkMessage]]

    async def _inner_get_response(self, *, messages: Sequence[FrameworkMessage], **_: Any) -> ChatResponse:
        self.asked.append(messages)
        return ChatResponse(messages=[FrameworkMessage("assistant", ["Done."])])


async def test_agent_framework(memory: Memory, caplog: pytest.LogCaptureFixture) -> None:
    client, history = Asked(), HistoryProvider(memory=memory)
    client.asked = []
    agent = Agent(client, context_providers=[history])
    calls = [Content.from_function_call(call_id=id, name="secret", arguments="{}") for id in ("c1", "c2")]
    left = [FrameworkMessage("user", ["a"]), FrameworkMessage("assistant", calls)]
    left.append(FrameworkMessage("tool", [Content.from_function_result("c1", result="sunny")]))
    await history.save_messages("s", left)
    for number in range(2):
        await agent.run(f"{HELLO} {number}", session=AgentSession(session_id="s"))
        view = [message.to_dict() for message in client.asked[-1]]
        assert faults("", {}, view) == []
        assert [len(message["contents"]) for message in view[:4]] == [1, 2, 1, 1]
        assert NO_RESULT in str(view[3])
    assert said_once(caplog)
    stored = await history.get_messages("s")
    assert [message.to_dict() for message in stored[:3]] == [message.to_dict() for message in left]
    assert len(stored) == 7
    # The input of a run may be the result.
    await history.save_messages("t", left)
    result = FrameworkMessage("tool", [Content.from_function_result("c2", result="late")])
    await agent.run([result], session=AgentSession(session_id="t"))
    assert NO_RESULT not in str([message.to_dict() for message in client.asked[-1]])


async def test_llama_index(memory: Memory, caplog: pytest.LogCaptureFixture) -> None:
    store = ChatStore(memory=memory)
    framework = FrameworkMemory.from_defaults(session_id="k", chat_store=store, token_limit=10_000)
    call = ToolCallBlock(tool_call_id="c1", tool_name="secret", tool_kwargs={"city": "Oslo"})
    late = ChatMessage(role="tool", content="sunny", additional_kwargs={"tool_call_id": "c1"})
    left = [ChatMessage(role="user", content="a"), ChatMessage(role="assistant", blocks=[call])]
    await framework.aput_messages(left)
    assert await framework.aget() == left, "the result may come"
    await framework.aput_messages([ChatMessage(role="user", content=HELLO), late])
    for _ in range(2):
        view = await framework.aget()
        assert faults("", {}, [message.model_dump(mode="json") for message in view]) == []
        assert [message.role.value for message in view] == ["user"] * 4
        assert "Oslo" in str(view[1].content)
        assert "sunny" in str(view[3].content)
    assert said_once(caplog)
    assert await framework.aget_all() == [*left, ChatMessage(role="user", content=HELLO), late]
    assert await store.archive_oldest_messages("k", 2) == left


@pytest.mark.parametrize("is_blocking", [False, True])
async def test_langchain(
    redis_server: RedisServer, namespace: str, caplog: pytest.LogCaptureFixture, is_blocking: bool
) -> None:
    kind: Any = redismem.blocking.Memory if is_blocking else Memory
    memory = kind.connect(redis_server.url, namespace=namespace)
    asked: list[list[BaseMessage]] = []

    def note(messages: Any) -> list[BaseMessage]:
        asked.append(messages)
        return messages

    chain: Any = RunnableWithMessageHistory(
        RunnableLambda(note) | FakeListChatModel(responses=["Done."]),
        lambda session_id: ChatMessageHistory(session_id, memory, open_calls=False),
    )
    calls: Any = [{"name": "secret", "args": {}, "id": id} for id in ("c1", "c2")]
    left = [HumanMessage("a"), AIMessage("", tool_calls=calls), ToolMessage("sunny", tool_call_id="c2")]
    await ChatMessageHistory("s", memory).aadd_messages(left)
    assert await ChatMessageHistory("s", memory).aget_messages() == left, "a result may come"
    assert warnings_of(caplog) == []
    for _ in range(2):
        await chain.ainvoke(HELLO, {"configurable": {"session_id": "s"}})
        assert faults("", {}, [message_to_dict(message) for message in asked[-1]]) == []
        assert [message.type for message in asked[-1][:4]] == ["human", "ai", "tool", "tool"]
    await ChatMessageHistory("s", memory).aadd_messages([ToolMessage("late", tool_call_id="c1")])
    history = ChatMessageHistory("s", memory)
    view = history.messages if is_blocking else await history.aget_messages()
    assert faults("", {}, [message_to_dict(message) for message in view]) == []
    assert [message.content for message in view[2:4]] == ["sunny", "late"]
    assert said_once(caplog)
    stored = memory.session("langchain:s").tail(9)
    assert len(stored if is_blocking else await stored) == 8
    closing = memory.close() if is_blocking else memory.aclose()
    await closing if closing is not None else None


async def test_the_openai_agents_sdk(memory: Memory, caplog: pytest.LogCaptureFixture) -> None:
    session: Any = Session("s", memory=memory)
    call = {"type": "function_call", "call_id": "c1", "name": "secret", "arguments": "{}"}
    thought = {"type": "reasoning", "id": "rs_1", "summary": []}
    await session.add_items([{"role": "user", "content": "a"}, thought, call])
    model = ScriptedModel([[assistant_message("Done.")], [assistant_message("Done.")]])
    for _ in range(2):
        await Runner.run(OpenAIAgent(name="a", model=model), HELLO, session=session)
        assert model.last_call is not None
        sent: Any = model.last_call.input
        check_responses(sent)
        assert call not in sent
    assert said_once(caplog)
    assert (await session.get_items())[1:3] == [thought, call]


async def test_pydantic_ai(memory: Memory) -> None:
    asked: list[Any] = []

    def answer(messages: Any, _: Any) -> ModelResponse:
        asked.append(messages)
        return ModelResponse(parts=[TextPart("Done.")])

    store = ConversationStore(memory=memory)
    call = ModelResponse(parts=[ToolCallPart("f", "{}", tool_call_id="c1")])
    left: list[Any] = [ModelRequest.user_text_prompt("a"), call]
    await store.save(Conversation(conversation_id="c", messages=left))
    agent = PydanticAgent(FunctionModel(answer))
    loaded: Any = await store.load("c")
    with pytest.raises(UserError, match="repair_messages"):  # the calls may still be made
        await agent.run(HELLO, conversation=loaded)
    loaded.messages = repair_messages(loaded.messages)
    await store.save(await agent.run(HELLO, conversation=loaded))
    view = json.loads(ModelMessagesTypeAdapter.dump_json(asked[-1]))
    assert faults("", {}, view) == []
    assert "interrupted" in str(view)
    loaded = await store.load("c")
    assert loaded.messages[:2] == left
    # The user went on in a release that did not repair: the framework repairs each request.
    await store.save(Conversation(conversation_id="d", messages=[*left, ModelRequest.user_text_prompt("b")]))
    await agent.run(HELLO, conversation=await store.load("d"))
    assert faults("", {}, json.loads(ModelMessagesTypeAdapter.dump_json(asked[-1]))) == []


async def test_google_adk(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    async def generate(_: Any, request: Any, *__: Any, **___: Any) -> Any:
        asked.append(request.contents)
        yield LlmResponse(content=types.Content(role="model", parts=[types.Part(text="Done.")]))

    monkeypatch.setattr(google_adk_agent.PlayedModel, "generate_content_async", generate)
    service = SessionService(memory=memory)
    session = await service.create_session(app_name="weather", user_id="anna", session_id="s")
    call = types.FunctionCall(id="c1", name="look_up_weather", args={"city": "Oslo"})
    for author, part in (("user", types.Part(text="a")), ("weather", types.Part(function_call=call))):
        content = types.Content(role="user" if author == "user" else "model", parts=[part])
        await service.append_event(session, Event(author=author, content=content))
    assert await google_adk_agent.answer(service, "anna", "s", HELLO)
    assert [part.function_call for content in asked[-1] for part in content.parts] == [None, None]
    stored = await service.get_session(app_name="weather", user_id="anna", session_id="s")
    assert stored is not None
    assert [call.id for event in stored.events for call in event.get_function_calls()] == ["c1"]


async def test_strands(redis_server: RedisServer, namespace: str) -> None:
    with redismem.blocking.Memory.connect(redis_server.url, namespace=namespace) as memory:
        storage = Storage(memory=memory)

        def make_agent() -> Any:
            manager = SnapshotSessionManager("s", storage=storage)
            return StrandsAgent(model=strands_agent.PlayedModel(), session_manager=manager, callback_handler=None)

        agent = make_agent()
        await agent.invoke_async("no city")
        agent.messages.append({"role": "user", "content": [{"text": "a"}]})
        call = {"toolUse": {"toolUseId": "c1", "name": "look_up_weather", "input": {}}}
        agent.messages.append({"role": "assistant", "content": [call]})
        await agent._session_manager.save_snapshot(agent, is_latest=True)
        again = make_agent()
        await again.invoke_async(HELLO)
        assert faults("", {}, again.messages) == []
        assert "interrupted" in str(again.messages)


IDS = st.lists(st.sampled_from("ab"), max_size=2, unique=True)
TALKS = st.lists(st.tuples(st.sampled_from(["user", "assistant", "tool"]), IDS), max_size=8)
"""Roles of messages, and the ids of their calls or results."""


def of_llama_index(role: str, ids: list[str]) -> list[ChatMessage]:
    if role == "tool":
        return [ChatMessage(role="tool", content="r", additional_kwargs={"tool_call_id": id}) for id in ids]
    calls = [ToolCallBlock(tool_call_id=id, tool_name="f", tool_kwargs={}) for id in ids if role == "assistant"]
    return [ChatMessage(role=role, blocks=[*calls, *([] if len(ids) == 2 else [TextBlock(text="t")])])]


def of_agent_framework(role: str, ids: list[str]) -> list[FrameworkMessage]:
    if role == "tool":
        return [FrameworkMessage("tool", [Content.from_function_result(id, result="r") for id in ids])] if ids else []
    calls = [Content.from_function_call(call_id=id, name="f", arguments="{}") for id in ids if role == "assistant"]
    return [FrameworkMessage(role, [*calls, Content.from_text("t")])]


def of_langchain(role: str, ids: list[str]) -> list[BaseMessage]:
    if role == "tool":
        return [ToolMessage("r", tool_call_id=id) for id in ids]
    calls: Any = [{"name": "f", "args": {}, "id": id} for id in ids]
    return [HumanMessage("t") if role == "user" else AIMessage("t", tool_calls=calls)]


def made_by(make: Callable[[str, list[str]], list[Any]], talk: list[tuple[str, list[str]]]) -> list[Any]:
    return [message for role, ids in talk for message in make(role, ids)]


@given(TALKS)
async def test_any_history_is_in_order_and_one_in_order_stays_as_it_is(
    memory: Memory, talk: list[tuple[str, list[str]]]
) -> None:
    store, history = ChatStore(memory=memory), ChatMessageHistory("k", memory)
    talk = [("user", []), *talk, ("user", [])]
    added = made_by(of_llama_index, talk)
    await store.set_messages("k", added)
    view = await store.get_messages("k")
    dumped = [message.model_dump(mode="json") for message in added]
    is_sound = faults("", {}, dumped) == []
    assert faults("", {}, [message.model_dump(mode="json") for message in view]) == []
    assert len(view) == len(added)
    assert (view == added) or not is_sound

    said = made_by(of_langchain, talk)
    await history.aclear()
    await history.aadd_messages(said)
    read = await history.aget_messages()
    assert faults("", {}, [message_to_dict(message) for message in read]) == []
    assert read == said or not is_sound

    saved = made_by(of_agent_framework, talk)
    repaired = repair(saved[:-1], saved[-1:])
    assert (repaired is None) or not is_sound
    assert faults("", {}, [message.to_dict() for message in (*(repaired or saved[:-1]), saved[-1])]) == []
