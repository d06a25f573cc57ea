"""Messages of LlamaIndex as redismem stores them, and as a model accepts them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from typing import Any

from llama_index.core.base.llms.types import ChatMessage, MessageRole, ToolCallBlock
from llama_index.core.bridge.pydantic import TypeAdapter, ValidationError
from llama_index.core.storage.chat_store.base_db import MessageStatus

from redismem import InvalidMessage, Message, Session
from redismem.adapters.repairs import NO_ENDS, Ends, find_orphans, say_repaired
from redismem.adapters.sessions import decode_in_slices
from redismem.formats.reading import calls, results
from redismem.formats.tool_calls import quote_call, quote_result

_ARCHIVED = MessageStatus.ARCHIVED.value
_STATUS = "status"
"""The mark of a message that was added as archived, in its metadata. It may have active messages before it."""
_KEYS = {"role", "additional_kwargs", "blocks"}
_SPEAKERS = (MessageRole.USER.value, MessageRole.ASSISTANT.value)
_CHAT_MESSAGES = TypeAdapter(list[ChatMessage])


def encode(message: ChatMessage, status: MessageStatus, *, is_read: bool) -> Message | dict[str, Any]:
    """Return a message as it is stored. `is_read` means that workers read it.

    Raises:
        InvalidMessage: It has a value that JSON cannot hold.
    """
    try:
        payload = message.model_dump(mode="json")
    except ValueError:  # its text may quote the message
        raise InvalidMessage("a message has a value that JSON cannot hold") from None
    # A worker must read what it summarises. Otherwise redismem reads only texts: it would pin system messages, and
    # remove a tool call together with its results.
    marks = {_STATUS: _ARCHIVED} if status is MessageStatus.ARCHIVED else None
    if is_read or _is_text(payload):
        return payload if marks is None else Message(**payload, metadata=marks)
    return Message.opaque(payload, metadata=marks)


def _is_text(payload: dict[str, Any]) -> bool:
    """True if a message of a user or an assistant has texts alone."""
    if payload.keys() != _KEYS or payload["additional_kwargs"] or payload["role"] not in _SPEAKERS:
        return False
    return all(block["block_type"] == "text" for block in payload["blocks"])


def is_marked(message: Message) -> bool:
    """True if the message was added as archived."""
    beside = message.beside
    return beside is not None and (beside.get("metadata") or {}).get(_STATUS) == _ARCHIVED


async def decode(session: Session, messages: Sequence[Message]) -> list[ChatMessage]:
    """Return stored messages as they were added.

    Raises:
        InvalidMessage: One is not from LlamaIndex.
    """
    return await decode_in_slices(messages, partial(_decode_slice, session))


def _decode_slice(session: Session, messages: Sequence[Message]) -> list[ChatMessage]:
    payloads = [message.to_openai() for message in messages]
    # An item of another framework has no role, and would be read as an empty message of the user.
    at = next((at for at, payload in enumerate(payloads) if "role" not in payload), None)
    try:
        if at is None:
            return _CHAT_MESSAGES.validate_python(payloads)
    except ValidationError as refused:
        at = int(refused.errors()[0]["loc"][0])
    raise InvalidMessage(f"message {messages[at].seq} is not a ChatMessage of LlamaIndex", session.id)


async def decode_for_model(session: Session, messages: Sequence[Message]) -> list[ChatMessage]:
    """Return stored messages as a model accepts them, one for one.

    A call without a result and a result without a call are quoted; the last calls may still get results. So an agent
    archives as many messages as it was given. Raises as `decode` does.
    """
    decoded = await decode(session, messages)
    orphans = find_orphans(map(_ends_of, decoded), may_end_open=True)
    if orphans:
        say_repaired(session)
    for at, ids in orphans.calls.items():
        decoded[at] = _without_calls(decoded[at], messages[at].to_openai(), ids)
    for at in orphans.results:
        quotes = [quote_result(result, None)["content"] for result in results(messages[at].to_openai())]
        decoded[at] = ChatMessage(role=MessageRole.USER, content="\n\n".join(quotes))
    return decoded


def _ends_of(message: ChatMessage) -> Ends:
    more = message.additional_kwargs
    answered = more.get("tool_call_id") if more else None
    if isinstance(answered, str) and message.role in (MessageRole.TOOL, MessageRole.FUNCTION):
        return (answered,), ()
    made = [each.tool_call_id for each in message.blocks if isinstance(each, ToolCallBlock)]
    made += [_id(call) for call in (more.get("tool_calls") if more else None) or ()]
    return ((), [id for id in made if id is not None]) if made else NO_ENDS


def _without_calls(message: ChatMessage, payload: dict[str, Any], ids: Collection[str]) -> ChatMessage:
    """Return the message without these calls. If nothing else is left, they are quoted for the user."""
    blocks = [each for each in message.blocks if not (isinstance(each, ToolCallBlock) and each.tool_call_id in ids)]
    more = {**message.additional_kwargs}
    left = [each for each in more.pop("tool_calls", None) or () if _id(each) not in ids]
    if left:
        more["tool_calls"] = left
    if left or any(getattr(block, "text", True) for block in blocks):
        return ChatMessage(role=message.role, blocks=blocks, additional_kwargs=more)
    quotes = [quote_call(call)["content"] for call in calls(payload) if call.key[1] in ids]
    return ChatMessage(role=MessageRole.USER, content="\n\n".join(quotes))


def _id(call: Any) -> Any:
    return call.get("id") if isinstance(call, dict) else getattr(call, "id", None)
