"""Slot filling: an agent asks for missing params, one at a time, then resumes the user's request.

    which = Slot(name="order_id", prompt="Which order?")
    asking = Slots([Intent(name="order", words=("order", "parcel"), slots=(which,))])
    step = asking.step(await session.state(), text)
    async with session.turn({"role": "user", "content": step.text}, id=turn_id, **step.changes) as turn:
        if step.say is not None:
            await turn.write(step.say)  # and wait for the next message; else answer, using the params

This module does no I/O. It keeps everything in the session's state, so any pod can handle the next message:
`waiting_for_param` is the name of the current slot, and the param `ASKED` holds the time and number of its questions.
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

from redismem.context.results import State
from redismem.errors import InvalidSettings
from redismem.messages.message import UNSET
from redismem.text.normal_forms import fold_case
from redismem.text.patterns import Pattern

ASKED = "asked"
"""The param that holds the intent of the current question, the number of times it was asked, and the last time."""
ANSWER_CHARS = 256
"""The maximum length of an answer in characters."""
RESET_WORDS = ("reset", "cancel", "never mind")
_WORD = re.compile(r"[^\W_]+")


class Slot(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A param to ask for. Without a pattern and choices, any text is a valid answer."""

    name: str
    """The name of the param."""
    prompt: str
    """The question."""
    pattern: str | None = None
    """A regular expression that must match the whole answer."""
    choices: tuple[str, ...] = ()
    """The valid answers, in any case; they take precedence over the pattern."""
    example: str = ""
    """A valid answer, shown after an invalid one."""
    asks_limit: int = 3
    """The number of times to ask before giving up."""
    sensitive: bool = False
    """True keeps the value in the state only, out of messages, logs and pages."""
    timeout_s: float = 900
    """The time for an answer, in seconds."""


class Intent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A request that users may make, and the params that it needs."""

    name: str
    words: tuple[str, ...]
    """The words that select this intent, in any case; one of them in a message is enough."""
    slots: tuple[Slot, ...]
    """The slots to fill, in this order."""


class _File(msgspec.Struct, forbid_unknown_fields=True):
    intents: tuple[Intent, ...]


class Kind(StrEnum):
    """The kinds of steps."""

    FREE = "free"
    """The message concerns no intent: answer it as usual."""
    ASK = "ask"
    """A param is missing, or the answer is invalid: reply with `say`."""
    RESUME = "resume"
    """All params of `intent` have values: carry out the intent."""
    GAVE_UP = "gave_up"
    """The question was asked `asks_limit` times, or a sensitive answer came too late: reply with `say`."""
    RESET = "reset"
    """The user cancelled the intent: reply with `say`."""


@dataclass(frozen=True, slots=True)
class Step:
    """The next step after a message of the user."""

    kind: Kind
    text: str
    """The text of the message to store, without a sensitive answer."""
    changes: dict[str, Any] = field(default_factory=dict)
    """The state changes, as arguments for `append` or `update`."""
    say: str | None = None
    """The agent's reply; None means that the agent should answer the message itself."""
    intent: str | None = None
    """The name of the intent; None if the message concerns none."""

    def __repr__(self) -> str:
        return f"<Step {self.kind} intent={self.intent} changes={sorted(self.changes)}>"


def _placeholder(name: str) -> str:
    return f"[{name}]"


def _redact(slot: Slot, text: str) -> str:
    """Return the text to store for an answer to this slot: a placeholder if the slot is sensitive."""
    return _placeholder(slot.name) if slot.sensitive else text


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class Slots:
    """The intents of an application. One instance serves all sessions, because it keeps no state."""

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
        """Check the intents.

        Args:
            intents: The intents, with unique names, and slots with unique names.
            reset_words: Messages that cancel the current intent, in any case.
            gave_up: The reply after `asks_limit` questions without a valid answer.
            late: The reply to a sensitive answer after its timeout.
            reset: The reply to a reset word.
            clock: A clock for tests: it returns milliseconds since 1970 and replaces this machine's.

        Raises:
            InvalidSettings: An intent or slot is invalid, or a name occurs twice.
        """
        self._now_ms = clock
        self._intents = {intent.name: intent for intent in intents}
        self._slots = {slot.name: slot for intent in intents for slot in intent.slots}
        self._reset_words = frozenset(map(fold_case, reset_words))
        self._late = late
        self._replies = {Kind.GAVE_UP: gave_up, Kind.RESET: reset}
        self._words = {word: intent for intent in intents for word in map(fold_case, intent.words)}
        self._patterns = {name: Pattern(slot.pattern) for name, slot in self._slots.items() if slot.pattern is not None}
        self._check(intents)

    @classmethod
    def from_toml(cls, text: str) -> Slots:
        """Return the slots from TOML with tables [[intents]] and [[intents.slots]].

        Raises:
            InvalidSettings: The text is not TOML, or an intent or slot is invalid.
        """
        try:
            return cls(msgspec.convert(tomllib.loads(text), _File).intents)
        except (tomllib.TOMLDecodeError, msgspec.ValidationError) as refused:
            raise InvalidSettings(f"the slots cannot be read: {refused}") from None

    @property
    def sensitive(self) -> frozenset[str]:
        """The names of the sensitive params: never show their values."""
        return frozenset(name for name, slot in self._slots.items() if slot.sensitive)

    @property
    def shown(self) -> frozenset[str]:
        """The placeholders for values of sensitive slots in messages."""
        return frozenset(map(_placeholder, self.sensitive))

    def step(self, state: State, text: str) -> Step:
        """Return the next step after a message of the user. Does no I/O; the time is linear in the text's length."""
        slot = self._slots.get(state.waiting_for_param or "")
        asked = state.params.get(ASKED)
        if slot is None or not isinstance(asked, dict):
            return self._take_unasked(state, text)
        intent = self._intents.get(str(asked.get("intent")))
        since_ms = asked.get("asked_ms")
        if intent is None or type(since_ms) is not int or self._now_ms() - since_ms > slot.timeout_s * 1000:
            return self._take_unasked(state, text)
        return self._take_answer(state, text, intent, slot, asked)

    def current_wait(self, state: State) -> str | None:
        """Return the param that the state waits for; `None` once the time for its answer is over.

        A sensitive param stays: a late answer is still kept out of the messages.
        """
        slot = self._slots.get(state.waiting_for_param or "")
        asked = state.params.get(ASKED)
        since_ms = asked.get("asked_ms") if isinstance(asked, dict) else None
        if slot is None or slot.sensitive or type(since_ms) is not int:
            return state.waiting_for_param
        return None if self._now_ms() - since_ms > slot.timeout_s * 1000 else slot.name

    def _take_unasked(self, state: State, text: str) -> Step:
        """Return the step after a message that answers no current question; it may start an intent.

        After a sensitive question the message is redacted even if the question has expired: it may still be the answer.
        """
        slot = self._slots.get(state.waiting_for_param or "")
        changes: dict[str, Any] = {} if slot is None else {"waiting": None, "merge": {ASKED: UNSET}}
        redacted = text if slot is None else _redact(slot, text)
        intent = self._find_intent(text)
        if intent is not None:
            return self._ask_or_resume(state.params, {}, redacted, intent)
        if slot is not None and slot.sensitive:
            return Step(Kind.GAVE_UP, redacted, changes, self._late)
        return Step(Kind.FREE, redacted, changes)

    def _find_intent(self, text: str) -> Intent | None:
        for word in _WORD.findall(fold_case(text)):
            if word in self._words:
                return self._words[word]
        return None

    def _ask_or_resume(self, params: Mapping[str, Any], merge: dict[str, Any], text: str, intent: Intent) -> Step:
        """Ask for the first slot without a value, or resume if all slots have one."""
        missing = next((slot for slot in intent.slots if slot.name not in params and slot.name not in merge), None)
        if missing is None:
            changes = {"waiting": None, "merge": merge | {ASKED: UNSET}, "last_intent": intent.name}
            return Step(Kind.RESUME, text, changes, None, intent.name)
        asked = {"intent": intent.name, "count": 1, "asked_ms": self._now_ms()}
        changes = {"waiting": missing.name, "merge": merge | {ASKED: asked}, "last_intent": intent.name}
        return Step(Kind.ASK, text, changes, missing.prompt, intent.name)

    def _take_answer(self, state: State, text: str, intent: Intent, slot: Slot, asked: Mapping[str, Any]) -> Step:
        answer = text.strip()
        value = self._parse_answer(slot, answer)
        if fold_case(answer[:ANSWER_CHARS]) in self._reset_words:
            return self._abandon(Kind.RESET, text, intent)
        redacted = _redact(slot, text)
        if value is not None:
            return self._ask_or_resume(state.params, {slot.name: value}, redacted, intent)
        other = self._find_intent(text)
        if other is not None and other.name != intent.name:
            return self._ask_or_resume(state.params, {}, redacted, other)
        count = asked.get("count")
        if type(count) is not int or count >= slot.asks_limit:
            return self._abandon(Kind.GAVE_UP, redacted, intent)
        again = {"intent": intent.name, "count": count + 1, "asked_ms": self._now_ms()}
        say = f"{slot.prompt} {self._hint(slot)}".strip()
        return Step(Kind.ASK, redacted, {"merge": {ASKED: again}}, say, intent.name)

    def _abandon(self, kind: Kind, text: str, intent: Intent) -> Step:
        return Step(kind, text, {"waiting": None, "merge": {ASKED: UNSET}}, self._replies[kind], intent.name)

    def _parse_answer(self, slot: Slot, answer: str) -> str | None:
        if not answer or len(answer) > ANSWER_CHARS:
            return None
        if slot.choices:
            return next((choice for choice in slot.choices if fold_case(choice) == fold_case(answer)), None)
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
            if slot.example and not slot.choices and self._parse_answer(slot, slot.example) is None:
                raise InvalidSettings(f"the example of slot {slot.name!r} is not a valid answer")
        for word in self._words:
            if _WORD.fullmatch(word) is None:
                raise InvalidSettings("each of an intent's words must be a single word")
