"""Build alternating turns as Anthropic and Gemini require, with results in the turn right after their calls. No I/O.

Both refuse a call without a result in the next turn, and a result without its call in the turn before. `provider_view`
repairs most of that. This module quotes the rest as text, such as calls of the Responses API, whose results may come
any number of items later.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import starmap

from redismem.formats.forms import Payload
from redismem.formats.parts import (
    ASSISTANT,
    SYSTEM,
    USER,
    Call,
    Media,
    Part,
    Result,
    Text,
    parse_message,
    role_of,
    text_of,
    to_text,
)
from redismem.formats.tool_calls import Waiting, quote_call, quote_result

# Possessive repeats scan a long run of spaces only once.
_OWN_TAG = re.compile(r"<(?=\s*+/?+\s*+system_message\b)", re.IGNORECASE)
BEGINNING = "(The conversation begins with what the assistant said.)"


@dataclass(slots=True)
class Turn:
    """The consecutive parts of one role."""

    role: str
    parts: list[Part] = field(default_factory=list)


def build_turns(
    payloads: Iterable[Payload], is_native: Callable[[Payload, str], bool], *, media_follow: bool = False
) -> list[Turn]:
    """Build non-empty, alternating turns that begin with the user.

    A system or developer message becomes a user text between tags that no other text can open. The turn after a call
    contains its result, but calls of the last turn may be open. For `is_native` see `parse_message`.

    Args:
        media_follow: True if the provider accepts the media of results only after all results of the turn.
    """
    turns: list[Turn] = []
    own_results: list[Part] = []
    for payload in payloads:
        for role, parts in starmap(_untagged, parse_message(payload, is_native)):
            for part in parts:
                if isinstance(part, Result) and part.is_own:
                    own_results.append(part)  # further calls of this turn may follow
                    continue
                if own_results and not isinstance(part, Call):
                    _append_turn(turns, Turn(USER, own_results))
                    own_results = []
                _append_turn(turns, Turn(role, [part]))
    _append_turn(turns, Turn(USER, own_results))
    paired: list[Turn] = []
    for turn in _pair_calls(turns, media_follow):
        _append_turn(paired, turn)
    if paired and paired[0].role == ASSISTANT:
        paired.insert(0, Turn(USER, [Text(BEGINNING)]))
    return paired


def _untagged(role: str, parts: list[Part]) -> tuple[str, list[Part]]:
    """Escape forged system_message tags in the parts, and put the parts of a system message between such tags."""
    if role == ASSISTANT:
        return role, parts
    parts = [_untag_part(part) for part in parts]
    if role == SYSTEM:
        text = text_of(parts)
        tagged = [Text(f"<system_message>\n{text}\n</system_message>")] if text else []
        parts = [*tagged, *(part for part in parts if not isinstance(part, Text))]
    return USER, parts


def _untag_part(part: Part) -> Part:
    """Escape system_message tags in a part."""
    if isinstance(part, Result):
        return part._replace(parts=[_untag_text(item) if isinstance(item, Text) else item for item in part.parts])
    return _untag_text(part) if isinstance(part, Text) else part


def _untag_text(text: Text) -> Text:
    return text._replace(text=_OWN_TAG.sub(r"<\\", text.text))


def split_opening(payloads: Sequence[Payload], background_count: int) -> tuple[list[Part], list[Payload]]:
    """Return the parts of the leading system and developer messages, and all other messages.

    System messages behind the first `background_count` other messages, which are summaries, are leading ones too.
    """
    system: list[Part] = []
    others: list[Payload] = []
    for at, payload in enumerate(payloads):
        if role_of(payload) == SYSTEM:
            system += [part for _, parts in parse_message(payload, lambda *_: False) for part in parts]
        elif len(others) < background_count:
            others.append(payload)
        else:
            return system, [*others, *payloads[at:]]
    return system, others


def _append_turn(turns: list[Turn], turn: Turn) -> None:
    """Append a turn, or merge it into the last turn if both have the same role. An empty turn is dropped."""
    if turn.parts and turns and turns[-1].role == turn.role:
        turns[-1].parts += turn.parts
    elif turn.parts:
        turns.append(turn)


def _pair_calls(turns: list[Turn], media_follow: bool) -> list[Turn]:
    """Quote every call that the next turn does not answer, and every result without its call in the turn before."""
    for at, turn in enumerate(turns):
        if turn.role == USER:
            before = turns[at - 1] if at else Turn(ASSISTANT)
            results, others = _match_results(turn, before)
            if at + 1 < len(turns) or others or (media_follow and any(map(_has_media, results.values()))):
                others = [*_take_unanswered(before, set(results)), *others]
            turn.parts = [*results.values(), *others]
        elif not isinstance(turn.parts[-1], Call):
            turn.parts.sort(key=lambda part: isinstance(part, Call))  # the next turn has to follow the calls
    return turns


def _has_media(part: Part) -> bool:
    return isinstance(part, Result) and any(isinstance(inner, Media) for inner in part.parts)


def _match_results(turn: Turn, before: Turn) -> tuple[dict[str, Part], list[Part]]:
    """Return the results by call id, in the order of the calls, and all other parts."""
    calls = [part.call for part in before.parts if isinstance(part, Call)]
    waiting = Waiting()
    waiting.add({call.key: call.by_name for call in calls})
    results: dict[str, Part] = {}
    others: list[Part] = []
    for part in turn.parts:
        if not isinstance(part, Result):
            others.append(part)
            continue
        answered = waiting.answer(part.result.key)
        if answered is not None and answered[1] not in results:
            results[answered[1]] = part._replace(result=part.result._replace(key=answered))
        else:
            others.append(to_text(quote_result(part.result, None)))
    return {call.key[1]: results[call.key[1]] for call in calls if call.key[1] in results}, others


def _take_unanswered(turn: Turn, answered: set[str]) -> list[Part]:
    """Remove the unanswered calls from the turn and return them as quotes."""
    others: list[Part] = []
    quotes: list[Part] = []
    for part in turn.parts:
        if not isinstance(part, Call) or part.call.key[1] in answered:
            others.append(part)
            answered.discard(part.call.key[1] if isinstance(part, Call) else "")
        else:
            quotes.append(to_text(quote_call(part.call)))
    turn.parts = others
    return quotes
