"""The requests of clients that begin a turn: a body becomes the ids of session and turn, and messages. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from redismem.errors import InvalidMessage
from redismem.formats.streams.parts import text_of
from redismem.formats.streams.responses import parse_response_id

Payload = dict[str, Any]
_AI = "the body is what DefaultChatTransport of the AI SDK sends"
_AG_UI = "the body is a RunAgentInput of AG-UI"
_RESPONSES = "the body is that of a create request of OpenAI's Responses API"
_MEDIA = ("image", "audio", "video", "document")
_LAST_IS_USER = "its last message must have the role user"
_TURN_ID_BYTES = 256


class ToolResults(NamedTuple):
    """The results of tools that a client of AG-UI has run: the messages of a turn that goes on."""

    messages: list[Payload]
    kept: list[Payload] | None
    """The messages to keep if the run is told again, as in a request; `None` if the client has none of its answer."""


@dataclass(frozen=True, slots=True)
class TurnRequest:
    """The turn that a client asks for."""

    session_id: str | None
    """None means that the client leaves the choice to the server: a new session."""
    turn_id: str | None
    """None means that the body names no turn: take the id from `Idempotency-Key`, or draw one."""
    messages: list[Payload]
    """The new messages. All but a Responses request have one."""
    wants_stream: bool = True
    is_background: bool = False
    """True if a Responses request asks for the response's id at once."""
    model: str = ""
    """The model that a Responses request names."""
    kept: list[Payload] | None = None
    """The messages that a client of AG-UI keeps if its run is told again. It has a part of the answer already.

    None means that it has none of the answer. Otherwise the request must not begin a new turn.
    """
    results: ToolResults | None = None
    """The results behind the user's last message in a request of AG-UI: a run that is not known begins with them."""
    tools: list[Any] = field(default_factory=list)
    """Tools that the client runs, in OpenAI's chat format, not checked."""
    message_id: str = ""
    """The id of the message of the AI SDK that the answer goes on; "" for a new message."""


def parse_ai_sdk(body: object) -> TurnRequest:
    """Return the turn of a body of the AI SDK. The id of the last message, the user's, is the id of the turn.

    If the last message is the assistant's, and the tools of its last step have results, the turn goes on with these.

    Raises:
        InvalidMessage: The body is another one, or asks to regenerate an answer.
    """
    fields = _object(body, _AI)
    trigger = fields.get("trigger", "submit-message")
    if trigger != "submit-message":
        raise InvalidMessage(f"{_AI}: its trigger must be submit-message; an answer cannot be regenerated")
    session_id, tools = _text(fields, "id", _AI), _list(fields, "tools")
    if results := _ai_results(fields.get("messages")):
        message_id = _text(fields["messages"][-1], "id", f"{_AI}: the last message")
        turn_id = _id({"id": f"{message_id}:{results[-1]['tool_call_id']}"}, "id", f"{_AI}: the last message")
        return TurnRequest(session_id, turn_id, results, tools=tools, message_id=message_id)
    message = _newest(fields, _AI)
    parts = message.get("parts")
    if not isinstance(parts, list):
        raise InvalidMessage(f"{_AI}: the last message needs a list of parts")
    content = _content(parts, _ai_part, _AI)
    turn_id = _id(message, "id", f"{_AI}: the last message")
    return TurnRequest(session_id, turn_id, [{"role": "user", "content": content}], tools=tools)


def parse_ag_ui(body: object) -> TurnRequest:
    """Return the turn of a body of AG-UI. Its thread is the session, its run the turn.

    An agent that runs again after its connection broke also sends what it has of the answer, behind the question.

    Raises:
        InvalidMessage: The body is another one, or has no message of the user.
    """
    fields = _object(body, _AG_UI)
    messages, kept = _before_answer(fields.get("messages"))
    message = _newest({"messages": messages}, _AG_UI)
    content = message.get("content")
    if not isinstance(content, str):
        if not isinstance(content, list):
            raise InvalidMessage(f"{_AG_UI}: the content of the last message is a text or a list of parts")
        content = _content(content, _ag_ui_part, _AG_UI)
    return TurnRequest(
        _text(fields, "threadId", _AG_UI),
        _id(fields, "runId", _AG_UI),
        [{"role": "user", "content": content}],
        kept=kept,
        results=None if kept is None else _ag_ui_results(fields["messages"]),
        tools=[{"type": "function", "function": tool} for tool in _list(fields, "tools")],
    )


def refuse_new_turn() -> InvalidMessage:
    """Return the error for a turn that is not known, whose request has `kept`."""
    return InvalidMessage(f"{_AG_UI}: {_LAST_IS_USER}")


def _before_answer(messages: object) -> tuple[object, list[Payload] | None]:
    """Return the messages up to the user's last one, and what an agent keeps of all: those, and emptied reasoning.

    The agent appends deltas to a message that it has. It drops messages that a snapshot lacks, but for reasoning.
    """
    if not isinstance(messages, list) or not all(isinstance(each, dict) for each in messages):
        return messages, None
    count = next((at for at in range(len(messages), 0, -1) if messages[at - 1].get("role") == "user"), 0)
    return messages[:count], _keep_first(messages, count)


def _keep_first(messages: list[Payload], count: int) -> list[Payload] | None:
    """Return the first messages, and the reasoning behind them without its text; `None` if no message follows."""
    before, answer = messages[:count], messages[count:]
    emptied = [{**each, "content": ""} for each in answer if each.get("role") == "reasoning"]
    return [*before, *emptied] if answer else None


def parse_responses(body: object) -> TurnRequest:
    """Return the turn of a create request. `conversation` is the session, or the one of `previous_response_id`.

    Raises:
        InvalidMessage: The body is another one, names two sessions, or refers to stored items.
    """
    fields = _object(body, _RESPONSES)
    given, model = fields.get("input"), fields.get("model")
    messages = [{"role": "user", "content": given}] if isinstance(given, str) else given
    if not isinstance(messages, list) or not messages or not all(isinstance(item, dict) for item in messages):
        raise InvalidMessage(f"{_RESPONSES}: its input is a text or a list of items")
    if any("role" not in item and item.get("type") in (None, "item_reference") for item in messages):
        raise InvalidMessage(f"{_RESPONSES}: the items of its input are whole items, not references")
    return TurnRequest(
        _responses_session(fields),
        None,
        messages,
        wants_stream=fields.get("stream") is True,
        is_background=fields.get("background") is True,
        model=model if isinstance(model, str) else "",
        tools=[_function(tool) for tool in _list(fields, "tools") if _is_function(tool)],
    )


def _ai_results(messages: object) -> list[Payload]:
    """Return the results of the last step, if all of its tools have one."""
    last = messages[-1] if isinstance(messages, list) and messages else None
    if not isinstance(last, dict) or last.get("role") != "assistant" or not isinstance(last.get("parts"), list):
        return []
    parts = [part for part in last["parts"] if isinstance(part, dict)]
    begin = max((at for at, part in enumerate(parts) if part.get("type") == "step-start"), default=-1)
    calls = [part for part in parts[begin + 1 :] if isinstance(part.get("toolCallId"), str)]
    if not all(part.get("state") in ("output-available", "output-error") for part in calls):
        return []
    return [
        {
            "role": "tool",
            "tool_call_id": part["toolCallId"],
            "content": text_of(part.get("output") if part["state"] == "output-available" else part.get("errorText")),
        }
        for part in calls
    ]


def _ag_ui_results(messages: list[Payload]) -> ToolResults | None:
    """Return the newest results of tools behind the user's last message."""
    begin = end = next(at for at in range(len(messages) - 1, -1, -1) if messages[at].get("role") in ("tool", "user"))
    while begin >= 0 and messages[begin].get("role") == "tool":
        begin -= 1
    found = messages[begin + 1 : end + 1]
    if not found:
        return None
    results = [
        {
            "role": "tool",
            "tool_call_id": _text(each, "toolCallId", f"{_AG_UI}: a tool's message"),
            "content": text_of(each.get("content")),
        }
        for each in found
    ]
    return ToolResults(results, _keep_first(messages, end + 1))


def _function(tool: Payload) -> Payload:
    """Return a function of the Responses API in the format of the chat API. Other tools are the provider's own."""
    names = ("name", "description", "parameters", "strict")
    return {"type": "function", "function": {name: tool[name] for name in names if tool.get(name) is not None}}


def _is_function(tool: object) -> bool:
    return isinstance(tool, dict) and tool.get("type") == "function"


def _list(fields: Mapping[str, Any], name: str) -> list[Any]:
    value = fields.get(name)
    return value if isinstance(value, list) else []


def _responses_session(fields: Mapping[str, Any]) -> str | None:
    conversation, previous = fields.get("conversation"), fields.get("previous_response_id")
    if conversation is not None and previous is not None:
        raise InvalidMessage(f"{_RESPONSES}: it has conversation or previous_response_id, not both")
    if previous is not None:
        return parse_response_id(_text(fields, "previous_response_id", _RESPONSES)).session_id
    if isinstance(conversation, dict):
        return _text(conversation, "id", f"{_RESPONSES}: conversation")
    return None if conversation is None else _text(fields, "conversation", _RESPONSES)


def _object(body: object, what: str) -> Mapping[str, Any]:
    if not isinstance(body, dict):
        raise InvalidMessage(f"{what}: an object, not {type(body).__name__}")
    return body


def _text(fields: Mapping[str, Any], name: str, what: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str) or not value:
        raise InvalidMessage(f"{what}: {name} must be a string that is not empty")
    return value


def _id(fields: Mapping[str, Any], name: str, what: str) -> str:
    value = _text(fields, name, what)
    if len(value.encode("utf-8", "surrogatepass")) > _TURN_ID_BYTES:
        raise InvalidMessage(f"{what}: {name} has at most {_TURN_ID_BYTES} bytes, because it is the id of the turn")
    return value


def _newest(fields: Mapping[str, Any], what: str) -> Mapping[str, Any]:
    """Return the last message. The earlier ones are in the session."""
    messages = fields.get("messages")
    last = messages[-1] if isinstance(messages, list) and messages else None
    if not isinstance(last, dict) or last.get("role") != "user":
        raise InvalidMessage(f"{what}: {_LAST_IS_USER}")
    return last


def _content(parts: Sequence[Any], convert: Callable[[Payload], Payload | None], what: str) -> str | list[Payload]:
    """Return the parts as the content of a message: a text if there is only one."""
    if not all(isinstance(part, dict) for part in parts):
        raise InvalidMessage(f"{what}: each part of a message is an object")
    content = [converted for part in parts if (converted := convert(part)) is not None]
    if not content:
        raise InvalidMessage(f"{what}: the last message needs a part of the type text")
    first = content[0]
    return first["text"] if len(content) == 1 and first["type"] == "text" else content


def _ai_part(part: Payload) -> Payload | None:
    kind = part.get("type")
    if kind == "text":
        return {"type": "text", "text": _part_text(part, _AI)}
    if kind == "file":
        names = ("type", "mediaType", "filename", "url")
        _text(part, "url", f"{_AI}: a file")
        return {name: part[name] for name in names if isinstance(part.get(name), str)}
    if isinstance(kind, str) and kind.startswith("data-"):  # the SDK keeps these from the model, too
        return None
    raise InvalidMessage(f"{_AI}: the parts of a user's message have the types text and file")


def _ag_ui_part(part: Payload) -> Payload:
    kind, source = part.get("type"), part.get("source")
    if kind == "text":
        return {"type": "text", "text": _part_text(part, _AG_UI)}
    if kind not in _MEDIA or not isinstance(source, dict) or source.get("type") not in ("data", "url"):
        types = ", ".join(("text", *_MEDIA))
        raise InvalidMessage(f"{_AG_UI}: the parts of a message have the types {types}; a source is data or url")
    value, mime = _text(source, "value", f"{_AG_UI}: a source"), source.get("mimeType")
    mime = mime if isinstance(mime, str) else ""
    url = value if source["type"] == "url" else f"data:{mime};base64,{value}"
    if kind == "image":
        return {"type": "image_url", "image_url": {"url": url}}
    return {"type": "file", "url": url, **({"mediaType": mime} if mime else {})}


def _part_text(part: Payload, what: str) -> str:
    text = part.get("text")
    if not isinstance(text, str):
        raise InvalidMessage(f"{what}: a part of the type text needs its text")
    return text
