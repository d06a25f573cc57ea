"""Which messages a pop, an undo, a replacement or an unpin is about, and when it is refused. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from redismem.context import Context
from redismem.errors import Conflict, InvalidMessage, NotInWindow, TooLarge
from redismem.formats.tool_calls import calls, results
from redismem.formats.tool_groups import cut_before
from redismem.messages.message import Message


def check_expected(context: Context, expect: int | None) -> None:
    """Raises Conflict, TypeError."""
    if expect is not None and type(expect) is not int:
        raise TypeError("expect is a last seq, an integer")
    if expect is not None and expect != context.last_seq:
        raise Conflict(
            f"another writer was faster, its last seq is {context.last_seq}", context.session_id, context.last_seq
        )


def newest(context: Context, count: int, limit: int) -> list[Message]:
    """The newest `count` messages, more if a tool call would lose its result; fewer if there never were so many.

    Raises NotInWindow, TooLarge.
    """
    messages = context.messages
    if count > len(messages) and context.first_seq > 1:
        raise NotInWindow(
            f"{count} messages were to be popped, and {len(messages)} are left that no summary covers",
            context.session_id,
        )
    return _popped(context, cut_before(messages, max(0, len(messages) - count)), limit)


def last_turn(context: Context, limit: int) -> list[Message]:
    """The user's last message and what follows it; nothing if there is none. Raises NotInWindow, TooLarge."""
    messages = context.messages
    place = next((at for at in range(len(messages) - 1, -1, -1) if _is_question(messages[at])), None)
    if place is not None:
        return _popped(context, cut_before(messages, place), limit)
    if context.first_seq > 1:
        raise NotInWindow("no message of the user's is left that no summary covers", context.session_id)
    return []


def _popped(context: Context, place: int, limit: int) -> list[Message]:
    popped = context.messages[place:]
    if len(popped) > limit:
        raise TooLarge(f"{len(popped)} messages in one pop, over {limit}", context.session_id)
    return popped


def _is_question(message: Message) -> bool:
    """Some formats have the results of tools in the user's role."""
    return message.role == "user" and next(results(message.to_openai()), None) is None


def chosen(context: Context, which: int | Message) -> Message:
    """The message of the window, or the pinned one, with this seq; if it is as it was read, when a Message is given.

    Raises NotInWindow, Conflict, TypeError.
    """
    if not isinstance(which, Message) and type(which) is not int:
        raise TypeError(f"a message is named by its seq, or given as it was read, not as {type(which).__name__}")
    seq = which.seq if isinstance(which, Message) else which
    found = next((message for message in (*context.pinned, *context.messages) if message.seq == seq), None)
    if isinstance(which, Message) and (which.epoch != context.epoch or (found is not None and found != which)):
        raise changed(context)
    if found is None:
        raise NotInWindow(f"message {seq} is not in the window, and is not pinned", context.session_id)
    return found


def changed(context: Context) -> Conflict:
    """What is raised when somebody else was faster."""
    return Conflict("it was changed since it was read", context.session_id, context.last_seq)


def check_replacement(context: Context, old: Message, new: Message | dict[str, Any]) -> None:
    """Raises InvalidMessage if tool calls or results would lose their counterparts."""
    payload = new.to_openai() if isinstance(new, Message) else new
    if isinstance(payload, dict) and _keys(old.to_openai()) != _keys(payload):
        raise InvalidMessage(
            f"message {old.seq} and its replacement must make the same tool calls and hold the same results",
            context.session_id,
        )


def _keys(payload: dict[str, Any]) -> Sequence[object]:
    return {call.key for call in calls(payload)}, {result.key for result in results(payload)}
