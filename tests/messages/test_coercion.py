"""Every message-shaped object can be appended: SDK objects, pydantic models, dataclasses, and containers of them."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, Literal

import pytest
from pydantic import BaseModel, RootModel, model_serializer
from support.provider_rules import check_anthropic, check_gemini, check_openai
from support.provider_server import ProviderServer

from redismem import InvalidMessage, Message, Session
from redismem.messages.encoding import encode_message


class Later:
    """A package that is imported when it is first asked for something.

    Every process collects all tests, and runs some of them.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, what: str) -> Any:
        if what.startswith("_"):  # pytest asks every name of a module for attributes of its own
            raise AttributeError(what)
        return getattr(import_module(self._name), what)


anthropic, openai, genai = map(Later, ("anthropic", "openai", "google.genai"))
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": null}'}}
ANSWER: dict[str, Any] = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "some-model",
    "content": [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "text", "text": "Hi", "citations": None},
        {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": None, "b": []}},
    ],
    "stop_reason": "tool_use",
    "stop_sequence": None,
    "usage": {"input_tokens": 1, "output_tokens": 2},
}


class Own(BaseModel):
    role: Literal["user"] = "user"
    content: str
    name: str | None = None


class Nested(BaseModel):
    own: Own
    empty: list[int] = []


@dataclasses.dataclass
class Part:
    type: str
    text: str


@dataclasses.dataclass
class Note:
    role: str
    content: list[Part] | str
    name: str | None = None


OPENAI: dict[str, Any] = {"role": "assistant", "content": None, "refusal": None, "annotations": []}
SHAPES: dict[str, Callable[[], tuple[Any, dict[str, Any]]]] = {
    "an answer of OpenAI's": lambda: (
        openai.types.chat.ChatCompletionMessage.model_validate(OPENAI | {"content": "Hi"}),
        {"role": "assistant", "content": "Hi"},
    ),
    "a call of OpenAI's": lambda: (
        openai.types.chat.ChatCompletionMessage.model_validate(OPENAI | {"tool_calls": [CALL]}),
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
    ),
    "a refusal of OpenAI's": lambda: (
        openai.types.chat.ChatCompletionMessage.model_validate(OPENAI | {"refusal": "No."}),
        {"role": "assistant", "content": None, "refusal": "No."},
    ),
    "a message of Responses": lambda: (
        openai.types.responses.ResponseOutputMessage.model_validate(
            {
                "id": "m1",
                "type": "message",
                "role": "assistant",
                "status": "completed",
                "content": [{"type": "output_text", "text": "Hi", "annotations": []}],
            }
        ),
        {
            "id": "m1",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "Hi", "annotations": []}],
        },
    ),
    "a call of Responses": lambda: (
        openai.types.responses.ResponseFunctionToolCall(arguments="{}", call_id="c1", name="f", type="function_call"),
        {"arguments": "{}", "call_id": "c1", "name": "f", "type": "function_call"},
    ),
    "a content of Gemini's": lambda: (
        genai.types.Content(
            role="model",
            parts=[
                genai.types.Part(text="Hi"),
                genai.types.Part(
                    function_call=genai.types.FunctionCall(name="f", args={"a": None}), thought_signature=b"sig"
                ),
            ],
        ),
        {
            "role": "model",
            "parts": [
                {"text": "Hi"},
                {"function_call": {"name": "f", "args": {"a": None}}, "thought_signature": "c2ln"},
            ],
        },
    ),
    "a model of one's own": lambda: (Own(content="Hi"), {"role": "user", "content": "Hi"}),
    "a dataclass": lambda: (Note("user", "Hi"), {"role": "user", "content": "Hi"}),
    "a dataclass of others": lambda: (
        Note("user", [Part("text", "Hi")]),
        {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
    ),
    "a mapping": lambda: (types.MappingProxyType({"role": "user", "content": "Hi"}), {"role": "user", "content": "Hi"}),
    "a dict with parts of Anthropic's": lambda: (
        {"role": "assistant", "content": anthropic.types.Message.model_validate(ANSWER).content},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "text", "text": "Hi"},
                {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": None, "b": []}},
            ],
        },
    ),
    "a dict with a model deep in it": lambda: (
        {"role": "user", "content": "Hi", "extra": {"of": [Nested(own=Own(content="a"))]}},
        {"role": "user", "content": "Hi", "extra": {"of": [{"own": {"role": "user", "content": "a"}, "empty": []}]}},
    ),
    "a Message with such parts": lambda: (
        Message("user", [genai.types.Part(text="Hi")]),
        {"role": "user", "content": [{"text": "Hi"}]},
    ),
}


@pytest.mark.parametrize("what", SHAPES)
async def test_it_is_stored_as_the_dict_that_it_stands_for(session: Session, what: str) -> None:
    given, expected = SHAPES[what]()
    before = repr(given)
    await session.append(given, {"role": "user", "content": "next"})
    stored = (await session.read()).messages[0].to_openai()
    assert stored == expected
    assert list(stored) == list(expected) or not isinstance(given, dict)
    assert repr(given) == before
    if not isinstance(given, Message):
        assert Message.from_openai(given).to_openai() == (given if isinstance(given, dict) else expected)


async def test_what_a_reply_of_anthropic_carries_is_kept_beside_the_message(session: Session) -> None:
    await session.append(anthropic.types.Message.model_validate(ANSWER))
    (message,) = (await session.read()).messages
    assert set(message.to_openai()) == {"role", "content"}
    assert (message.id, message.metadata["stop_reason"], message.metadata["model"]) == (
        "msg_1",
        "tool_use",
        "some-model",
    )
    assert message.metadata["usage"] == {"input_tokens": 1, "output_tokens": 2}


class Broken(BaseModel):
    role: str = "user"
    content: str = "x"

    @model_serializer
    def fails(self) -> dict[str, Any]:
        raise RuntimeError("canary")


class Scored(BaseModel):
    role: str = "user"
    content: list[Any]


COMPLETION = {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": []}


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: openai.types.chat.ChatCompletion.model_validate(COMPLETION), "ChatCompletion is not a message"),
        (lambda: genai.types.GenerateContentResponse(candidates=[]), "GenerateContentResponse is not a message"),
        (lambda: RootModel[list[int]]([1]), "is not a message"),
        (lambda: Own, "not a ModelMetaclass"),
        (lambda: Note, "not a type"),
        (lambda: Part("text", "Hi"), "Part is not a message"),
        (Broken, "Broken cannot be made a dict"),
        (object, "not a object"),
        (lambda: [{"role": "user"}], "not a list"),
        (lambda: {"role": "user", "content": [{"score": float("nan")}]}, "content[0].score is not a finite number"),
        (lambda: Scored(content=["a", {"score": 1}, {1: 2}]), ""),
        (lambda: Note("user", [Part("text", b"canary")]), "content[0].text is a value of type bytes"),  # type: ignore[arg-type]
        (
            lambda: {"role": "user", "content": [genai.types.Part(text="a"), {"of": {1, 2}}]},
            "content[1].of is a value of type set",
        ),
        (lambda: {"role": "user", "content": ({"type": "text"},)}, "content is a value of type tuple"),
    ],
)
async def test_what_is_no_message_is_refused_with_the_place_of_the_fault(
    session: Session, make: Callable[[], Any], said: str
) -> None:
    given = make()
    if not said:
        await session.append(given)
        return
    with pytest.raises(InvalidMessage) as refused:
        await session.append({"role": "user", "content": "first"}, given)
    assert "message 2: " in str(refused.value)
    assert said in str(refused.value)
    assert "canary" not in str(refused.value)
    assert not await session.exists()


def test_a_plain_dict_is_stored_without_a_look_at_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    def looked(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr("redismem.messages.encoding.coerce_message", looked)
    monkeypatch.setattr("redismem.messages.encoding.dump_models", looked)
    encode_message({"role": "user", "content": [{"type": "text", "text": "Hi"}]})
    encode_message(Message("user", "Hi", metadata={"a": 1}))


@pytest.fixture
def server() -> Iterator[ProviderServer]:
    with ProviderServer() as server:
        yield server


TOLD: list[dict[str, Any]] = [
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": "Weather?"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
    {"role": "user", "content": [{"type": "text", "text": "And tomorrow?"}]},
]


async def test_openais_own_client_sends_it_and_its_answer_goes_in(session: Session, server: ProviderServer) -> None:
    context = await session.append_and_read(*TOLD)
    check_openai(context.to_openai())
    with openai.OpenAI(api_key="k", base_url=server.base_url) as client:
        completion = client.chat.completions.create(model="m", messages=context.to_openai())
    assert server.asked[0].body["messages"] == TOLD
    context = await session.append_and_read(completion.choices[0].message)
    assert context.messages[-1].to_openai() == {"role": "assistant", "content": server.text}
    check_openai(context.to_openai())


async def test_anthropics_own_client_sends_it_and_its_answer_goes_in(session: Session, server: ProviderServer) -> None:
    context = await session.append_and_read(*TOLD)
    check_anthropic(context.to_anthropic())
    with anthropic.Anthropic(api_key="k", base_url=server.base_url.removesuffix("/v1")) as client:
        answer = client.messages.create(model="m", max_tokens=9, **context.to_anthropic())
    assert server.asked[0].body == {"model": "m", "max_tokens": 9, **context.to_anthropic()}
    context = await session.append_and_read(answer)
    assert context.messages[-1].to_openai()["content"] == [{"type": "text", "text": server.text}]
    check_anthropic(context.to_anthropic())


async def test_googles_own_client_sends_it_and_its_answer_goes_in(session: Session, server: ProviderServer) -> None:
    context = await session.append_and_read(*TOLD)
    prompt = context.to_gemini()
    check_gemini(prompt)
    where = genai.types.HttpOptions(base_url=server.base_url.removesuffix("/v1"), api_version="v1")
    with genai.Client(api_key="k", http_options=where) as client:
        answer = client.models.generate_content(
            model="m",
            contents=prompt["contents"],
            config=genai.types.GenerateContentConfig(system_instruction=prompt["system_instruction"]),
        )
    body = server.asked[0].body
    assert [content["role"] for content in body["contents"]] == ["user", "model", "user", "user"]
    assert body["systemInstruction"]["parts"] == [{"text": "Be kind."}]
    assert body["contents"][2]["parts"][0]["functionResponse"] == {"name": "f", "response": {"output": "sunny"}}
    assert answer.candidates
    assert answer.candidates[0].content is not None
    context = await session.append_and_read(answer.candidates[0].content)
    assert context.messages[-1].to_openai() == {"role": "model", "parts": [{"text": server.text}]}
    check_gemini(context.to_gemini())


def test_an_item_of_responses_keeps_the_lists_that_it_needs() -> None:
    from openai.types.responses import ResponseReasoningItem

    item = ResponseReasoningItem(id="rs_1", summary=[], type="reasoning")
    assert Message.from_openai(item).to_openai() == {"id": "rs_1", "summary": [], "type": "reasoning"}


def test_copies_that_the_sdk_parsed_are_not_stored() -> None:
    """OpenAI's `responses.parse` puts them beside the texts; its API refuses a request that contains them."""
    from openai.types.responses import ParsedResponseFunctionToolCall, ParsedResponseOutputMessage

    called = {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"x": 1}', "status": "completed"}
    call = ParsedResponseFunctionToolCall.model_validate(called | {"parsed_arguments": {"x": 1}})
    assert Message.from_openai(call).to_openai() == called

    text = {"type": "output_text", "text": '{"x": 1}', "annotations": []}
    said = {"type": "message", "id": "m", "role": "assistant", "status": "completed"}
    message: ParsedResponseOutputMessage[Any] = ParsedResponseOutputMessage.model_validate(
        said | {"content": [text | {"parsed": {"x": 1}}]}
    )
    assert message.content[0].parsed == {"x": 1}  # type: ignore[union-attr]
    assert Message.from_openai(message).to_openai() == said | {"content": [text]}
