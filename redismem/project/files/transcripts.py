"""Export and import the transcripts of a project's conversations: messages, and summaries of older messages.

A session has a hash tag of its own, so its messages cannot be written in one step with the project. They are written
before the import is committed. If the import is not committed, no project refers to the session, and it expires.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from redismem.context.context import Context
from redismem.context.info import Policy
from redismem.errors import Conflict, InvalidItem, InvalidMessage, SessionExists, SessionNotFound, TooLarge
from redismem.messages.encoding import encode_message
from redismem.messages.message import Message
from redismem.project.files import copies
from redismem.project.files.copies import Copy
from redismem.project.items.items import Items
from redismem.project.kinds.conversations import Conversations
from redismem.session.session import Session
from redismem.settings.names import over_limit

_BATCH_COUNT = 200
_TRIES_LIMIT = 10
_BESIDE: dict[str, type] = {"metadata": dict, "timestamp_us": int, "id": str, "pinned": bool, "opaque": bool}


class Transcript(NamedTuple):
    """The messages of a conversation. Unless they are all that a session has, `copy` has them with their seqs."""

    messages: Sequence[Message]
    copy: Copy | None = None


async def export_transcript(session: Session) -> dict[str, Any]:
    """Export a session: all messages with their attributes, kept originals included, its summaries, policy and owner.

    Raises Conflict if the session kept changing.
    """
    for _ in range(_TRIES_LIMIT):
        context = await session.read()
        if not context.epoch:
            return {"messages": []}
        try:
            messages = await session.messages(include_originals=True)
            info = await session.info()
        except SessionNotFound:
            continue
        entry = {"messages": [_build_entry(each) for each in messages]}
        if not context.summaries and (info.policy, info.owner) == (Policy(), None):
            return entry
        if _position(await session.read()) == _position(context):
            return entry | copies.describe(context, messages, info.policy, info.owner)
    raise Conflict("other writers kept changing a conversation, so it could not be exported")


def _position(context: Context) -> tuple[Any, ...]:
    return context.epoch, context.first_seq, context.last_seq, context.summary_version


def parse_transcript(entry: Mapping[str, Any], max_message_bytes: int) -> Transcript:
    """Parse a conversation's entry. Raises InvalidItem, TooLarge for messages that no session would accept."""
    messages = _messages(entry["messages"], max_message_bytes)
    if "window" not in entry:
        return Transcript(messages)
    copy = copies.parse_copy(entry, messages)
    for summary in copy.summaries:
        if len(summary.encode()) > max_message_bytes:
            raise TooLarge(
                f"a summary has {len(summary.encode())} bytes, {over_limit('max_message_bytes', max_message_bytes)}"
            )
    return Transcript(messages, copy)


def _messages(entries: Any, max_message_bytes: int) -> list[Message]:
    if not isinstance(entries, list):
        raise InvalidItem("the messages of a conversation must be a list")
    found = []
    for entry in entries:
        if not isinstance(entry, dict) or entry.keys() - {"message", "beside"}:
            raise InvalidItem("a message has an unknown part")
        payload, beside = entry.get("message"), entry.get("beside")
        if not isinstance(payload, dict) or not (beside is None or _is_beside(beside)):
            raise InvalidItem("a message is not a dict, or its `beside` has unknown names or types")
        message = Message.restored(payload, beside, 0, 0, 0, "")
        try:
            element, _ = encode_message(message)
        except InvalidMessage as refused:
            raise InvalidItem(f"a message cannot be stored: {refused.text}") from None
        if len(element) > max_message_bytes:
            over = over_limit("max_message_bytes", max_message_bytes)
            raise TooLarge(f"a message has {len(element)} bytes, {over}")
        found.append(message)
    return found


def _is_beside(beside: Any) -> bool:
    return isinstance(beside, dict) and all(type(value) is _BESIDE.get(name) for name, value in beside.items())


async def write_transcripts(
    items: Items, conversations: Conversations, given: Mapping[str, Transcript]
) -> list[Session]:
    """Write the transcripts of conversations that have no messages yet, and return the sessions created.

    A session that has only the first messages of its transcript gets the rest. Any other session is left unchanged.
    """
    created: list[Session] = []
    for conversation_id, transcript in given.items():
        session = conversations.session(conversation_id)
        if transcript.copy is not None:
            # A copy that another import has just written is the same.
            with contextlib.suppress(SessionExists):
                if not await session.exists():
                    await copies.put(items.store, session.id, transcript.copy)
                    created.append(session)
            continue
        messages = transcript.messages
        stored = (await export_transcript(session))["messages"]
        rest = messages[len(stored) :]
        if stored != [_build_entry(each) for each in messages[: len(stored)]] or not rest:
            continue
        if not stored:
            created.append(session)
        last_seq = (await session.info()).last_seq if stored else 0
        for at in range(0, len(rest), _BATCH_COUNT):
            last_seq = (await session.append(*rest[at : at + _BATCH_COUNT], expect=last_seq)).last_seq
    return created


def _build_entry(message: Message) -> dict[str, Any]:
    return {"message": message.to_openai()} | ({} if message.beside is None else {"beside": message.beside})
