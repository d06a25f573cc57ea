"""Ask and resume: what an agent must know before it can go on, asked for one value at a time.

    which = Slot(name="order_id", prompt="Which order?")
    asking = Slots([Intent(name="order", words=("order", "parcel"), slots=(which,))])
    step = asking.step(await session.state(), text)
    await session.append({"role": "user", "content": step.text}, **step.changes)
    if step.say is not None:
        ...  # say it, and wait for the next message; else answer, with `params` to hand

It needs no server and does no I/O. All that it remembers is in the session's state, so any pod may take the next
message: `waiting_for_param` names what is waited for, the param `ASKED` says since when and how often.
"""

from __future__ import annotations

import re
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import msgspec

from redismem.context import State
from redismem.errors import InvalidSettings
from redismem.messages.message import UNSET
from redismem.text.patterns import Pattern

ASKED = "asked"
"""The param that says what was asked: intent, count, and since when."""
ANSWER_CHARS = 256
"""What is longer is no answer."""
RESET_WORDS = ("reset", "cancel", "never mind")
_WORD = re.compile(r"[^\W_]+")


class Slot(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A param that is asked for. With neither pattern nor choices, any answer is one."""

    name: str
    prompt: str
    pattern: str | None = None
    choices: tuple[str, ...] = ()
    example: str = ""
    """What an answer looks like; said when one was none."""
    asks_limit: int = 3
    sensitive: bool = False
    """Its value is kept in the state, and appears in no message, no log and no page."""
    timeout_s: float = 900


class Intent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What somebody may want: a message with one of these words wants it. Its slots are asked for in their order."""

    name: str
    words: tuple[str, ...]
    slots: tuple[Slot, ...]


class _File(msgspec.Struct, forbid_unknown_fields=True):
    intents: tuple[Intent, ...]


class Kind(StrEnum):
    """What a message was."""

    FREE = "free"
    """Nothing is asked, and nothing was: go on as ever."""
    ASK = "ask"
    """Something has to be known first, or an answer was none: say what `say` says."""
    RESUME = "resume"
    """All is known now: go on with what `intent` names."""
    GAVE_UP = "gave_up"
    """The user was asked often enough, or answered a sensitive question too late: this is given up."""
    RESET = "reset"
    """The user does not want it any more."""


@dataclass(frozen=True, slots=True)
class Step:
    """What to do with one message."""

    kind: Kind
    text: str
    """The message as it may be stored: a sensitive answer is not in it."""
    changes: dict[str, Any] = field(default_factory=dict)
    """What changes in the state: arguments for `append` or `update`."""
    say: str | None = None
    """What the agent says, in place of an answer."""
    intent: str | None = None

    def __repr__(self) -> str:
        return f"<Step {self.kind} intent={self.intent} changes={sorted(self.changes)}>"


def _shown(name: str) -> str:
    return f"[{name}]"


def _stored(slot: Slot, text: str) -> str:
    """What is stored of a message to somebody who waits for this slot."""
    return _shown(slot.name) if slot.sensitive else text


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class Slots:
    """The intents that there are. One for all sessions: it keeps nothing of any."""

    def __init__(
        self,
        intents: Sequence[Intent],
        *,
        reset_words: Sequence[str] = RESET_WORDS,
        gave_up: str = "Let us leave that for now.",
        late: str = "That came too late to be an answer, and it is not kept. Please say it again.",
        reset: str = "All right, we leave that.",
        clock: Callable[[], int] = _now_ms,
    ) -> None:
        """Raises InvalidSettings for an intent or slot that cannot be one.

        `gave_up`, `late`, `reset`: what is said when the user was asked often enough, when the time of a sensitive
        question had run out, and after a reset word. `clock`: for tests; milliseconds since 1970, instead of this
        machine's.
        """
        self._now_ms = clock
        self._intents = {intent.name: intent for intent in intents}
        self._slots = {slot.name: slot for intent in intents for slot in intent.slots}
        self._reset_words = frozenset(word.casefold() for word in reset_words)
        self._late = late
        self._said = {Kind.GAVE_UP: gave_up, Kind.RESET: reset}
        self._words = {word: intent for intent in intents for word in map(str.casefold, intent.words)}
        self._patterns = {name: Pattern(slot.pattern) for name, slot in self._slots.items() if slot.pattern is not None}
        self._check(intents)

    @classmethod
    def from_toml(cls, text: str) -> Slots:
        """The slots in a text with tables [[intents]], each with its [[intents.slots]]. Raises InvalidSettings."""
        try:
            return cls(msgspec.convert(tomllib.loads(text), _File).intents)
        except (tomllib.TOMLDecodeError, msgspec.ValidationError) as refused:
            raise InvalidSettings(f"the slots cannot be read: {refused}") from None

    @property
    def sensitive(self) -> frozenset[str]:
        """The params whose values are shown to nobody."""
        return frozenset(name for name, slot in self._slots.items() if slot.sensitive)

    @property
    def shown(self) -> frozenset[str]:
        """What stands in a message for the value of a sensitive slot."""
        return frozenset(map(_shown, self.sensitive))

    def step(self, state: State, text: str) -> Step:
        """What to do with a message of the user's; costs time in proportion to its length. Does no I/O."""
        slot = self._slots.get(state.waiting_for_param or "")
        asked = state.params.get(ASKED)
        if slot is None or not isinstance(asked, dict):
            return self._begin(state, text)
        intent = self._intents.get(str(asked.get("intent")))
        since_ms = asked.get("asked_ms")
        if intent is None or type(since_ms) is not int or self._now_ms() - since_ms > slot.timeout_s * 1000:
            return self._begin(state, text)
        return self._answered(state, text, intent, slot, asked)

    def _begin(self, state: State, text: str) -> Step:
        """A message that answers nothing: it may be about an intent.

        Whoever was asked for a sensitive value may still mean to give it, however long ago that was.
        """
        slot = self._slots.get(state.waiting_for_param or "")
        cleared: dict[str, Any] = {} if slot is None else {"waiting": None, "merge": {ASKED: UNSET}}
        shown = text if slot is None else _stored(slot, text)
        intent = self._wanted(text)
        if intent is not None:
            return self._go_on(state.params, {}, shown, intent)
        if slot is not None and slot.sensitive:
            return Step(Kind.GAVE_UP, shown, cleared, self._late)
        return Step(Kind.FREE, shown, cleared)

    def _wanted(self, text: str) -> Intent | None:
        for word in _WORD.findall(text.casefold()):
            if word in self._words:
                return self._words[word]
        return None

    def _go_on(self, known: Mapping[str, Any], merge: dict[str, Any], text: str, intent: Intent) -> Step:
        """Asks for the first slot that has no value yet; without one it resumes."""
        missing = next((slot for slot in intent.slots if slot.name not in known and slot.name not in merge), None)
        if missing is None:
            changes = {"waiting": None, "merge": merge | {ASKED: UNSET}, "last_intent": intent.name}
            return Step(Kind.RESUME, text, changes, None, intent.name)
        asked = {"intent": intent.name, "count": 1, "asked_ms": self._now_ms()}
        changes = {"waiting": missing.name, "merge": merge | {ASKED: asked}, "last_intent": intent.name}
        return Step(Kind.ASK, text, changes, missing.prompt, intent.name)

    def _answered(self, state: State, text: str, intent: Intent, slot: Slot, asked: Mapping[str, Any]) -> Step:
        answer = text.strip()
        value = self._value(slot, answer)
        if answer[:ANSWER_CHARS].casefold() in self._reset_words:
            return self._left(Kind.RESET, text, intent)
        shown = _stored(slot, text)
        if value is not None:
            return self._go_on(state.params, {slot.name: value}, shown, intent)
        other = self._wanted(text)
        if other is not None and other.name != intent.name:
            return self._go_on(state.params, {}, shown, other)
        count = asked.get("count")
        if type(count) is not int or count >= slot.asks_limit:
            return self._left(Kind.GAVE_UP, shown, intent)
        again = {"intent": intent.name, "count": count + 1, "asked_ms": self._now_ms()}
        say = f"{slot.prompt} {self._hint(slot)}".strip()
        return Step(Kind.ASK, shown, {"merge": {ASKED: again}}, say, intent.name)

    def _left(self, kind: Kind, text: str, intent: Intent) -> Step:
        return Step(kind, text, {"waiting": None, "merge": {ASKED: UNSET}}, self._said[kind], intent.name)

    def _value(self, slot: Slot, answer: str) -> str | None:
        if not answer or len(answer) > ANSWER_CHARS:
            return None
        if slot.choices:
            return next((choice for choice in slot.choices if choice.casefold() == answer.casefold()), None)
        pattern = self._patterns.get(slot.name)
        return answer if pattern is None or pattern.fullmatch(answer) else None

    def _hint(self, slot: Slot) -> str:
        if slot.choices:
            return f"One of: {', '.join(slot.choices)}."
        return f"For example: {slot.example}" if slot.example else ""

    def _check(self, intents: Sequence[Intent]) -> None:
        names = [slot.name for intent in intents for slot in intent.slots]
        if len(names) != len(set(names)) or len(intents) != len(self._intents):
            raise InvalidSettings("two intents, or two slots, have the same name")
        for slot in self._slots.values():
            if not slot.name or not slot.prompt or slot.name == ASKED or slot.asks_limit < 1 or slot.timeout_s <= 0:
                raise InvalidSettings(f"slot {slot.name!r} needs a name, a prompt, asks_limit >= 1 and timeout_s > 0")
            if slot.example and not slot.choices and self._value(slot, slot.example) is None:
                raise InvalidSettings(f"the example of slot {slot.name!r} is no answer")
        for word in self._words:
            if _WORD.fullmatch(word) is None:
                raise InvalidSettings("the words of an intent are single words")
