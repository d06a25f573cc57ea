"""Build alternating turns as Anthropic, Gemini and Bedrock require, with results right after their calls. No I/O.

They refuse a call without a result in the next turn, and a result without its call in the turn before. Such calls and
results are quoted as text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import starmap
from typing import TypeGuard

from redismem.formats.forms import Payload
from redismem.formats.parts import (
    ASSISTANT,
    SYSTEM,
    USER,
    Call,
    Media,
    Native,
    Part,
    Result,
    Text,
    View,
    parse_message,
    placeholder,
    quote,
    role_of,
    text_of,
)
from redismem.formats.reading import read_part
from redismem.formats.tool_calls import Waiting

# Possessive repeats scan a long run of spaces only once.
_OWN_TAG = re.compile(r"<(?=\s*+/?+\s*+system_message\b)", re.IGNORECASE)
BEGINNING = "(The conversation begins with what the assistant said.)"

_NOTHING_SAID = "(The assistant thought, and said nothing.)"


@dataclass(slots=True)
class Turn:
    """The consecutive parts of one role."""

    role: str
    parts: list[Part] = field(default_factory=list)


def build_turns(payloads: Iterable[Payload], view: View, takes: Callable[[Media, str], bool]) -> list[Turn]:
    """Build non-empty, alternating turns that begin with the user.

    A system or developer message becomes a user text between tags that no other text can open. The turn after a call
    contains its result, but calls of the last turn may be open.

    Args:
        takes: `takes(media, role)` is true if the provider accepts the media from this role. Media that it takes only
            from the user move from the assistant's turn to the user's next one.
    """
    turns: list[Turn] = []
    own_results: list[Part] = []
    for payload in payloads:
        for role, parts in starmap(_untagged, parse_message(payload, view)):
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
    for turn in _pair_calls(_move_media(turns, takes), view):
        if all(map(_is_thought, turn.parts)):
            continue
        if _is_thought(turn.parts[-1]):  # Anthropic refuses a message that ends in a thought
            turn.parts.append(Text(_NOTHING_SAID))
        _append_turn(paired, turn)
    if paired and paired[0].role == ASSISTANT:
        paired.insert(0, Turn(USER, [Text(BEGINNING)]))
    return paired


def _is_thought(part: Part) -> bool:
    return isinstance(part, Native) and read_part(part.part).kind == "thought"


def _move_media(turns: list[Turn], takes: Callable[[Media, str], bool]) -> list[Turn]:
    """Move the assistant's media that only the user may send into the user's next turn, behind its results."""
    for at, turn in enumerate(turns):
        kept: list[Part] = []
        moved: list[Part] = []
        for part in turn.parts if turn.role == ASSISTANT else ():
            is_moved = isinstance(part, Media) and not takes(part, ASSISTANT) and takes(part, USER)
            kept.append(Text(f"[{part.kind}]") if is_moved and isinstance(part, Media) else part)
            moved += [part] if is_moved else []
        if not moved:
            continue
        turn.parts = kept
        if at + 1 == len(turns):
            if any(isinstance(part, Call) for part in turn.parts):
                break  # nothing may follow an open call but its result
            turns.append(Turn(USER))
        parts = turns[at + 1].parts
        results_count = sum(isinstance(part, Result) for part in parts)
        parts[results_count:results_count] = moved
    return turns


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


def split_opening(
    payloads: Sequence[Payload], background_count: int, view: View | None = None
) -> tuple[list[Text | Native], list[Payload]]:
    """Return the texts of the leading system and developer messages, and all other messages.

    System messages behind the first `background_count` other messages, which are summaries, are leading ones too.
    """
    view = view or View()
    system: list[Text | Native] = []
    others: list[Payload] = []
    count = 0
    for at, payload in enumerate(payloads):
        if role_of(payload) == SYSTEM:
            parts = [part for _, parts in parse_message(payload, view) for part in parts]
            media = [part.part for part in parts if isinstance(part, Media)]
            said = (part for part in parts if not isinstance(part, Media))
            system += [part if _is_kept(part, view) else Text(placeholder(part)) for part in said]
            others += [{"role": USER, "content": media}] if media else []
        elif count < background_count:
            others.append(payload)
            count += 1
        else:
            return system, [*others, *payloads[at:]]
    return system, others


def _is_kept(part: Part, view: View) -> TypeGuard[Text | Native]:
    return isinstance(part, Text) or (isinstance(part, Native) and view.is_native(part.part, SYSTEM))


def _append_turn(turns: list[Turn], turn: Turn) -> None:
    """Append a turn, or merge it into the last turn if both have the same role. An empty turn is dropped."""
    if turn.parts and turns and turns[-1].role == turn.role:
        turns[-1].parts += turn.parts
    elif turn.parts:
        turns.append(turn)


def _pair_calls(turns: list[Turn], view: View) -> list[Turn]:
    """Quote every call that the next turn does not answer, and every result without its call in the turn before."""
    for at, turn in enumerate(turns):
        if turn.role == USER:
            before = turns[at - 1] if at else Turn(ASSISTANT)
            results, others = _match_results(turn, before, view)
            turn.parts = [*results.values(), *_take_unanswered(before, set(results)), *others]
            continue
        if not isinstance(turn.parts[-1], Call):
            turn.parts.sort(key=lambda part: isinstance(part, Call))  # the next turn has to follow the calls
    return turns


def _match_results(turn: Turn, before: Turn, view: View) -> tuple[dict[str, Part], list[Part]]:
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
            others += quote_late(part, view)
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
            quotes.append(quote(part.call, False))
    turn.parts = others
    return quotes


def quote_late(part: Result, view: View) -> list[Part]:
    """Return a result without its call in words, and its media."""
    return [view.quote_result(part.result), *(inner for inner in part.parts if isinstance(inner, Media))]
