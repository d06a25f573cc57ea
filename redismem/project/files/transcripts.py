"""What was said in a project's conversations, in an export and back: messages, and the summaries that stand for some.

Sessions live under hash tags of their own, so their messages are written before the import counts: nobody finds them by
the project until it does, and what belongs to no conversation in the end goes with the timeout.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from redismem.context import Context
from redismem.errors import Conflict, InvalidItem, InvalidMessage, SessionExists, SessionNotFound, TooLarge
from redismem.messages.encoding import encode_message
from redismem.messages.message import Message
from redismem.project.files import copies
from redismem.project.files.copies import Copy
from redismem.project.items.items import Items
from redismem.project.kinds.conversations import Conversations
from redismem.session.session import Session

_BATCH_COUNT = 200
_TRIES_LIMIT = 10
_BESIDE: dict[str, type] = {"metadata": dict, "timestamp_us": int, "id": str, "pinned": bool}


class Transcript(NamedTuple):
    """What was said in a conversation; `copy`: where it stood, if summaries stood for some of it."""

    messages: Sequence[Message]
    copy: Copy | None = None


async def export_transcript(session: Session) -> dict[str, Any]:
    """Each message there is, kept originals too: its dict, and what is known beside it. With summaries, these as well.

    Raises Conflict if others kept writing.
    """
    for _ in range(_TRIES_LIMIT):
        context = await session.read()
        if not context.epoch:
            return {"messages": []}
        try:
            found = await session.messages(include_originals=True)
        except SessionNotFound:
            continue
        if not context.summaries:
            return {"messages": [_build_entry(each) for each in found]}
        if _position(await session.read()) == _position(context):
            return {"messages": [_build_entry(each) for each in found]} | copies.describe(context, found)
    raise Conflict("others kept writing a conversation, and there was no moment to export it")


def _position(context: Context) -> tuple[Any, ...]:
    return context.epoch, context.first_seq, context.last_seq, context.summary_version


def parse_transcript(entry: Mapping[str, Any], max_message_bytes: int) -> Transcript:
    """A conversation's messages again. Raises InvalidItem, TooLarge for what no session would take."""
    messages = _messages(entry["messages"], max_message_bytes)
    if "window" not in entry:
        return Transcript(messages)
    copy = copies.parse_copy(entry, messages)
    for summary in copy.summaries:
        if len(summary.encode()) > max_message_bytes:
            raise TooLarge(f"a summary is over {max_message_bytes} bytes")
    return Transcript(messages, copy)


def _messages(entries: Any, max_message_bytes: int) -> list[Message]:
    if not isinstance(entries, list):
        raise InvalidItem("the messages of a conversation are a list")
    found = []
    for entry in entries:
        if not isinstance(entry, dict) or entry.keys() - {"message", "beside"}:
            raise InvalidItem("a message has a part that is unknown")
        payload, beside = entry.get("message"), entry.get("beside")
        if not isinstance(payload, dict) or not (beside is None or _is_beside(beside)):
            raise InvalidItem("a message is a dict, and what is beside it has names and types of its own")
        message = Message.restored(payload, beside, 0, 0, 0, "")
        try:
            element, _ = encode_message(message)
        except InvalidMessage as refused:
            raise InvalidItem(f"a message cannot be stored: {refused.text}") from None
        if len(element) > max_message_bytes:
            raise TooLarge(f"a message has {len(element)} bytes, over {max_message_bytes}")
        found.append(message)
    return found


def _is_beside(beside: Any) -> bool:
    return isinstance(beside, dict) and all(type(value) is _BESIDE.get(name) for name, value in beside.items())


async def write_transcripts(
    items: Items, conversations: Conversations, given: Mapping[str, Transcript]
) -> list[Session]:
    """Writes what was said in these conversations, if it is not there. Gives the sessions that began with it.

    A session that is there stays as it is, or goes on if it has the first of these messages alone.
    """
    begun: list[Session] = []
    for conversation_id, transcript in given.items():
        session = conversations.session(conversation_id)
        if transcript.copy is not None:
            # One that another import has just put there is the same.
            with contextlib.suppress(SessionExists):
                if not await session.exists():
                    await copies.put(items.store, session.id, transcript.copy)
                    begun.append(session)
            continue
        messages = transcript.messages
        there = (await export_transcript(session))["messages"]
        rest = messages[len(there) :]
        if there != [_build_entry(each) for each in messages[: len(there)]] or not rest:
            continue
        if not there:
            begun.append(session)
        last_seq = (await session.info()).total_messages if there else 0
        for at in range(0, len(rest), _BATCH_COUNT):
            last_seq = (await session.append(*rest[at : at + _BATCH_COUNT], expect=last_seq)).last_seq
    return begun


def _build_entry(message: Message) -> dict[str, Any]:
    return {"message": message.to_openai()} | ({} if message.beside is None else {"beside": message.beside})
