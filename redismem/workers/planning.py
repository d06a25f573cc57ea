"""Plan a summary: the messages it covers and the older summaries it replaces. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from redismem.context.context import Context
from redismem.context.results import Summary
from redismem.formats.tool_groups import cut_before, open_calls
from redismem.messages.message import Message, Opaque
from redismem.settings.settings import Settings

# Messages that one summary may cover; bounds the messages that a commit moves in one script.
COVER_COUNT = 500
# The result of an open tool call may arrive at any time, so the session is retried this soon.
_WAIT_MS = 5_000


@dataclass(frozen=True, slots=True)
class Plan:
    """The work on a claimed session: cover messages, fold summaries, do both, wait for an open tool call, or end it."""

    covered: Sequence[Message] = ()
    folded: Sequence[Summary] = ()
    wait_ms: int = 0
    keeps_whole: bool = False
    """True if the session is to be kept whole from now on: its oldest message is sealed."""


def is_sealed(message: Message) -> bool:
    """True if no summary can be of the message: it is opaque, or OpenAI's encrypted compaction of a conversation.

    Encrypted reasoning is not sealed: what it led to is readable.
    """
    payload = message.visible
    return type(payload) is Opaque or (payload.get("type") == "compaction" and "encrypted_content" in payload)


def plan(
    context: Context, now_ms: int, settings: Settings, *, is_one: bool = False, covers_sealed: bool = False
) -> Plan:
    """Plan to cover all but the newest `recent_limit` messages, without splitting a tool call from its result.

    An open tool call is left in the window until it is `open_call_s` old; then it counts as closed. `is_one` means that
    the session keeps one summary, so the new summary replaces the existing one and covers its messages too. Unless
    `covers_sealed`, nothing from the first sealed message on is covered.
    """
    messages = context.messages
    wanted = max(0, len(messages) - settings.recent_limit)
    # A single group may be longer than what one summary should cover.
    cut = cut_before(messages, min(COVER_COUNT, wanted)) or cut_before(messages, wanted)
    most = min(COVER_COUNT, settings.max_window_count // 2)
    if not cut and wanted > most:  # a group longer than the window may be: its reasoning goes without its calls
        cut = cut_before(messages, most, splits_responses=True)
    closed_ms = now_ms - int(settings.open_call_s * 1000)
    waiting = next((at for at in open_calls(messages[:cut], messages) if messages[at].stored_ms > closed_ms), None)
    if waiting is not None:
        cut = cut_before(messages, waiting)
    sealed = None if covers_sealed else next((at for at in range(cut) if is_sealed(messages[at])), None)
    if sealed is not None:
        cut = cut_before(messages, sealed)
        if not cut:
            return Plan(keeps_whole=True)
    # Covering goes first, because pending messages cost more to read than summaries; but summaries must not pile up.
    piled_up = len(context.summaries) > 2 * settings.summaries_limit
    if cut and not piled_up and settings.is_overdue(len(messages), sum(message.tokens for message in messages)):
        return Plan(covered=messages[:cut], folded=context.summaries if is_one else ())
    if len(context.summaries) > settings.summaries_limit:
        return Plan(folded=context.summaries[: len(context.summaries) - settings.summaries_limit // 2])
    closes_in_ms = _WAIT_MS if waiting is None else messages[waiting].stored_ms - closed_ms
    return Plan(wait_ms=min(_WAIT_MS, closes_in_ms))
