"""The messages of a project's conversations in an export, and back.

Sessions live under hash tags of their own, so their messages are written before the import counts: nobody finds them by
the project until it does, and what belongs to no conversation in the end goes with the timeout.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from redismem.errors import InvalidItem, InvalidMessage, TooLarge
from redismem.messages import Message, encode_message
from redismem.project.conversations import Conversations
from redismem.session import Session

_BATCH_COUNT = 200
_BESIDE: dict[str, type] = {"metadata": dict, "timestamp_us": int, "id": str, "pinned": bool}


async def exported(session: Session) -> list[dict[str, Any]]:
    """Each message there is, kept originals too: its dict, and what is known beside it."""
    found = await session.messages(include_originals=True) if await session.exists() else []
    return [_entry(each) for each in found]


def parsed(entries: Any, max_message_bytes: int) -> list[Message]:
    """The messages again. Raises InvalidItem, TooLarge for what no session would take."""
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


async def written(conversations: Conversations, given: Mapping[str, list[Message]]) -> list[Session]:
    """Writes the messages of these conversations where they are not. Gives the sessions that began with it.

    A session that is there stays as it is, or goes on where it has the first of these messages alone.
    """
    begun: list[Session] = []
    for conversation_id, messages in given.items():
        session = conversations.session(conversation_id)
        there = await exported(session)
        rest = messages[len(there) :]
        if there != [_entry(each) for each in messages[: len(there)]] or not rest:
            continue
        if not there:
            begun.append(session)
        last_seq = (await session.info()).total_messages if there else 0
        for at in range(0, len(rest), _BATCH_COUNT):
            last_seq = (await session.append(*rest[at : at + _BATCH_COUNT], expect=last_seq)).last_seq
    return begun


def _entry(message: Message) -> dict[str, Any]:
    return {"message": message.to_openai()} | ({} if message.beside is None else {"beside": message.beside})
