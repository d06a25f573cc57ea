"""The turns of a conversation as Anthropic and Gemini take them: the sides by turns, calls right before results.

Both refuse a call that is not answered in the very next turn, and a result without its call there. `provider_view` has
put most of that right; what is left, such as Responses items, which may stand apart, is quoted as text here. No I/O.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from redismem.formats.parts import ASSISTANT, SYSTEM, USER, Call, Part, Result, Text, quoted, role_of, said, text_of
from redismem.formats.tool_calls import Payload, Waiting, quoted_call, quoted_result

# Possessive: whoever writes a long run of spaces has it read once.
_OWN_TAG = re.compile(r"<(?=\s*+/?+\s*+system_message\b)", re.IGNORECASE)
_BEGINNING = "(The conversation begins with what the assistant said.)"


@dataclass(slots=True)
class Turn:
    """What one side says until the other does."""

    role: str
    parts: list[Part] = field(default_factory=list)


def turns_of(payloads: Iterable[Payload]) -> list[Turn]:
    """The turns of these messages, the user's first, none of them empty.

    A message of the system or developer is a text of the user's here, between tags that no other text can open. Every
    call is answered in the turn behind it; but for the last ones, which may wait for their results.
    """
    turns: list[Turn] = []
    for payload in payloads:
        role, parts = said(payload)
        if role != ASSISTANT:
            parts = [_heard(part) for part in parts]
        if role == SYSTEM:
            text = text_of(parts)
            told = [Text(f"<system_message>\n{text}\n</system_message>")] if text else []
            role, parts = USER, [*told, *(part for part in parts if not isinstance(part, Text))]
        _add(turns, Turn(role, parts))
    paired: list[Turn] = []
    for turn in _paired(turns):
        _add(paired, turn)
    if paired and paired[0].role == ASSISTANT:
        paired.insert(0, Turn(USER, [Text(_BEGINNING)]))
    return paired


def _heard(part: Part) -> Part:
    """The part without that tag."""
    if isinstance(part, Result):
        return part._replace(parts=[_untagged(each) if isinstance(each, Text) else each for each in part.parts])
    return _untagged(part) if isinstance(part, Text) else part


def _untagged(text: Text) -> Text:
    return text._replace(text=_OWN_TAG.sub(r"<\\", text.text))


def opening(payloads: Sequence[Payload], background_count: int) -> tuple[list[Part], list[Payload]]:
    """What the system and the developer say before anybody else does, and the messages without that.

    The `background_count` summaries do not count as somebody.
    """
    system: list[Part] = []
    others: list[Payload] = []
    for at, payload in enumerate(payloads):
        if role_of(payload) == SYSTEM:
            system += said(payload)[1]
        elif len(others) < background_count:
            others.append(payload)
        else:
            return system, [*others, *payloads[at:]]
    return system, others


def _add(turns: list[Turn], turn: Turn) -> None:
    """Puts a turn behind the others: one side's turns in a row are one."""
    if turn.parts and turns and turns[-1].role == turn.role:
        turns[-1].parts += turn.parts
    elif turn.parts:
        turns.append(turn)


def _paired(turns: list[Turn]) -> list[Turn]:
    """Quotes every call that the turn behind it does not answer, and every result whose call is not right before it."""
    for at, turn in enumerate(turns):
        if turn.role == USER:
            before = turns[at - 1] if at else Turn(ASSISTANT)
            results, others = _answers(turn, before)
            if at + 1 < len(turns) or others:
                others = [*_unanswered(before, set(results)), *others]
            turn.parts = [*results.values(), *others]
        elif not isinstance(turn.parts[-1], Call):
            turn.parts.sort(key=lambda part: isinstance(part, Call))  # what was said before the results came
    return turns


def _answers(turn: Turn, before: Turn) -> tuple[dict[str, Part], list[Part]]:
    """The results by the ids of their calls, in the order of these, and all else that is said."""
    asked = [part.call for part in before.parts if isinstance(part, Call)]
    waiting = Waiting(asked)
    found: dict[str, Part] = {}
    others: list[Part] = []
    for part in turn.parts:
        if not isinstance(part, Result):
            others.append(part)
            continue
        answered = waiting.answer(part.result.key)
        if answered is not None and answered[1] not in found:
            found[answered[1]] = part._replace(result=part.result._replace(key=answered))
        else:
            others.append(quoted(quoted_result(part.result, None)))
    return {call.key[1]: found[call.key[1]] for call in asked if call.key[1] in found}, others


def _unanswered(turn: Turn, answered: set[str]) -> list[Part]:
    """Takes the calls without an answer out of the turn, and quotes them."""
    kept: list[Part] = []
    lacking: list[Part] = []
    for part in turn.parts:
        if not isinstance(part, Call) or part.call.key[1] in answered:
            kept.append(part)
            answered.discard(part.call.key[1] if isinstance(part, Call) else "")
        else:
            lacking.append(quoted(quoted_call(part.call)))
    turn.parts = kept
    return lacking
