"""Select the messages that pop, undo, replace and unpin affect, and refuse invalid edits. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from redismem.context.context import Context
from redismem.errors import Conflict, InvalidMessage, NotInWindow, TooLarge
from redismem.formats.reading import calls_in, results
from redismem.formats.sections import speaker_of
from redismem.formats.tool_groups import cut_before
from redismem.messages.message import Message
from redismem.protocol.replies import cleared_conflict
from redismem.protocol.session.expected import Expected, parse_expected
from redismem.session.paging import messages_in_order
from redismem.settings.names import over_limit


def check_expected(context: Context, expect: Expected | None) -> None:
    """Raise Conflict if the session is not as `expect` says. None expects nothing.

    Raises:
        Conflict: The session was cleared or has expired since, or has another last seq; or `expect` is a context, and a
            message was replaced, unpinned or forgotten since.
        InvalidMessage: `expect` is invalid.
    """
    seq, newest = check_life(context.session_id, expect, context)
    if seq not in (None, context.last_seq):
        raise Conflict(
            f"another writer was faster: the last seq is {context.last_seq}", context.session_id, context.last_seq
        )
    if not context.newest_append.startswith(newest) and context.newest_append:  # after a return to an older snapshot
        raise make_conflict(context)
    if isinstance(expect, Context) and not expect.degraded and expect.window_version != context.window_version:
        raise make_conflict(context)


def check_life(session_id: str, expect: Expected | None, context: Context | None = None) -> tuple[int | None, bytes]:
    """Check that `expect` names no other life than that of `context`, and return its last seq and newest append.

    Without a context, there is no session. Raises as `check_expected` does.
    """
    try:
        seq, epoch, newest = (None, "", b"") if expect is None else parse_expected(expect, session_id)
    except (TypeError, ValueError) as refused:
        raise InvalidMessage(str(refused), session_id) from None
    if epoch not in ("", "" if context is None else context.epoch):
        raise cleared_conflict(session_id, 0 if context is None else context.last_seq)
    return seq, newest


def select_newest(context: Context, count: int, limit: int) -> list[Message]:
    """Return the newest `count` messages, or more to keep tool calls with their results.

    Returns fewer messages if the session never had that many. Raises NotInWindow, TooLarge.
    """
    messages = context.messages
    if count > len(messages) and context.first_seq > 1:
        raise NotInWindow(
            f"cannot pop {count} messages: summaries cover all but {len(messages)}",
            context.session_id,
        )
    return _messages_from(context, cut_before(messages, max(0, len(messages) - count)), limit)


def select_exactly(context: Context, count: int, limit: int) -> list[Message] | None:
    """Return the newest `count` messages, pinned or not; `None` if some of them may be behind the window.

    Raises TooLarge.
    """
    if count > limit:
        raise TooLarge(f"{count} messages in one pop, {over_limit('max_batch_count', limit)}", context.session_id)
    messages = messages_in_order(context)[-count:]
    is_within = context.first_seq == 1 or (len(messages) == count and messages[0].seq >= context.first_seq)
    return messages if is_within else None


def is_of_view(messages: Sequence[Message], context: Context) -> bool:
    """True if the messages that were read after the context are none that came after it, nor of another life."""
    return all(message.epoch == context.epoch and message.seq <= context.last_seq for message in messages)


def select_last_turn(context: Context, limit: int) -> list[Message]:
    """Return the last user message and all messages after it; empty if the user never wrote one.

    Raises NotInWindow, TooLarge.
    """
    messages = context.messages
    place = next((at for at in range(len(messages) - 1, -1, -1) if _is_question(messages[at])), None)
    if place is not None:
        return _messages_from(context, cut_before(messages, place), limit)
    if context.first_seq > 1:
        raise NotInWindow("cannot undo: summaries cover all messages of the user", context.session_id)
    return []


def _messages_from(context: Context, place: int, limit: int) -> list[Message]:
    messages = context.messages[place:]
    if len(messages) > limit:
        over = over_limit("max_batch_count", limit)
        raise TooLarge(f"{len(messages)} messages in one pop, {over}", context.session_id)
    return messages


def _is_question(message: Message) -> bool:
    """True if the user wrote the message. A tool result is not counted, though some formats give it the role user."""
    return speaker_of(message.visible) == "user" and not results(message.visible)


def find_message(context: Context, which: int | Message) -> Message:
    """Return the message that `which` names, in the window or pinned. If `which` is a message, it must be unchanged.

    Raises NotInWindow, Conflict, TypeError.
    """
    if not isinstance(which, Message) and type(which) is not int:
        raise TypeError(f"pass the message's seq or the message as read, not {type(which).__name__}")
    seq = which.seq if isinstance(which, Message) else which
    current = next((message for message in (*context.pinned, *context.messages) if message.seq == seq), None)
    if isinstance(which, Message) and (which.epoch != context.epoch or (current is not None and current != which)):
        raise make_conflict(context)
    if current is None:
        raise NotInWindow(f"message {seq} is neither in the window nor pinned", context.session_id)
    return current


def version_of(context: Context) -> tuple[str, int, str, int]:
    """Return the values of which each edit and each summary changes one."""
    return context.epoch, context.last_seq, context.window_version, context.first_seq


def has_only_moved(before: Context, after: Context) -> bool:
    """True if the oldest messages have left the window since the first read, and nothing else has changed."""
    facts = [(seen.epoch, seen.last_seq, seen.window_version) for seen in (before, after)]
    return facts[0] == facts[1] and before.first_seq < after.first_seq


def make_conflict(context: Context) -> Conflict:
    """Return the Conflict for a message or session that another writer has changed after it was read."""
    return Conflict("another writer changed it after it was read", context.session_id, context.last_seq)


def check_replacement(context: Context, old: Message, new: Message | dict[str, Any]) -> None:
    """Raise InvalidMessage if the replacement would separate tool calls from results."""
    payload = new.visible if isinstance(new, Message) else new
    if isinstance(payload, dict) and _keys(old.visible) != _keys(payload):
        raise InvalidMessage(
            f"message {old.seq} and its replacement must make the same tool calls and hold the same results",
            context.session_id,
        )


def _keys(payload: dict[str, Any]) -> Sequence[object]:
    return {call.key for call in calls_in(payload)}, {result.key for result in results(payload)}
