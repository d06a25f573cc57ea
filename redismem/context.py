"""What the memory answers: Context, Summary, State, Receipt and their kind. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from redismem.formats.anthropic import AnthropicContext, anthropic_context
from redismem.formats.gemini import GeminiContext, gemini_context
from redismem.formats.quoting import quote_as_data
from redismem.formats.recalled import Recalled, recalled_payload
from redismem.formats.tool_pairing import provider_view
from redismem.messages.decoding import StoredMessages, is_gap
from redismem.messages.message import Message, moment
from redismem.messages.values import decode_value, encode_value


@dataclass(slots=True, repr=False)
class Receipt:
    """What an append did. Seqs are the places of its first and last message; `total` is `last_seq`: all ever given.

    `created`: the append began the session. `duplicate`: the id was known, nothing was written, and these are the
    numbers of the first time.
    """

    first_seq: int
    last_seq: int
    total: int
    created: bool
    duplicate: bool
    window_count: int = field(default=-1, compare=False, repr=False)
    """Messages in the window after it; -1 for a duplicate."""
    degraded: bool = field(default=False, repr=False)
    """Redis was away, and this process has accepted the append: the seqs are provisional, and `created` is False."""
    replicas: int | None = field(default=None, compare=False, repr=False)
    """How many replicas have it; None if it was not to be confirmed."""

    def __repr__(self) -> str:
        shown = (f"{each.name}={getattr(self, each.name)!r}" for each in fields(self) if each.repr)
        return f"Receipt({', '.join(shown)}{', degraded' * self.degraded})"


@dataclass(slots=True, repr=False)
class State:
    """Conversation state, beside the history. The representation shows names only."""

    params: dict[str, Any] = field(default_factory=dict)
    waiting_for_param: str | None = None
    last_intent: Any = None
    last_result: Any = None
    plan: Any = None
    degraded: bool = False
    """Whether this is only what this process knows, because Redis was away."""

    def __repr__(self) -> str:
        degraded = " degraded" * self.degraded
        return f"<State params={sorted(self.params)} waiting_for_param={self.waiting_for_param!r}{degraded}>"


@dataclass(frozen=True, slots=True, repr=False)
class Summary:
    """A text that stands for the messages `first_seq` to `last_seq`. `start_ms`, `end_ms`, `created_ms` are since 1970.

    `message_ids` names those messages; if it took in other summaries, these in place of theirs.
    """

    id: str
    text: str
    first_seq: int
    last_seq: int
    start_ms: int
    end_ms: int
    model: str
    tokens: int
    created_ms: int
    message_ids: tuple[str, ...]

    def __repr__(self) -> str:
        return f"<Summary {self.id} of {self.first_seq} to {self.last_seq} tokens={self.tokens}>"

    def encode(self) -> bytes:
        """The field of the state hash that holds this summary."""
        return encode_value([*(getattr(self, field.name) for field in fields(self)[:-1]), list(self.message_ids)])

    @classmethod
    def decode(cls, packed: bytes) -> Summary:
        """Raises Undecodable, ValueError or TypeError for what `encode` did not write."""
        stored: Any = dict(zip((field.name for field in fields(cls)), decode_value(packed), strict=True))
        return cls(**stored | {"message_ids": tuple(stored["message_ids"])})

    def to_openai(self) -> dict[str, str]:
        """The summary quoted as data in a user message: what a transcript made a model write gives no orders."""
        start, end = (moment(ms).isoformat(timespec="seconds") for ms in (self.start_ms, self.end_ms))
        what = f"Summary of the earlier messages {self.first_seq} to {self.last_seq} of this conversation"
        return quote_as_data("summary", f"{what} ({start} to {end})", self.text)


@dataclass(slots=True, repr=False, eq=False)
class Context:
    """What to give to a model: pinned messages, summaries, then the messages after them; each oldest first.

    `first_seq` is the seq of the window's first message (of the next one if the window is empty): everything before
    it is in the summaries, or pinned. A read of a part leaves out messages from there on: then `is_part` is True.
    Seqs have gaps where messages are pinned or were popped.
    """

    session_id: str
    summaries: list[Summary]
    _messages: list[Message] | StoredMessages
    state: State
    total_messages: int
    """Seqs ever given in this epoch: one to each message appended, and to each pop."""
    first_seq: int
    last_seq: int
    epoch: str
    """The life of the session that this is; "" if there is none."""
    recent_limit: int
    summary_version: str = ""
    """Changes when a summary is committed, and only then: till then the start of the context stays the same."""
    receipt: Receipt | None = None
    """What the append did that this context came back from; None after a read."""
    window_version: str = ""
    """Changes when a message of the window is popped, replaced, pinned or unpinned, and only then."""
    _pinned: list[Message] | StoredMessages | None = None
    """Pinned messages that have left the window, None: none; those of the window too, once they are told apart."""
    is_mixed: bool = field(default=False, compare=False)
    """Whether the window as it was read has pinned messages or gaps, which are not told apart yet."""
    is_part: bool = field(default=False, compare=False)
    """Whether messages of the window were left out: for `limit`, `before` or `max_tokens`."""
    degraded: bool = False
    """Redis was away: the last context that this process has seen, and what it has accepted since; seqs provisional."""
    background: str = ""
    """What is known of a project, if it was asked for: quoted before the summaries."""
    _recalled: Sequence[Message] | Recalled = ()

    @property
    def messages(self) -> list[Message]:
        """pending + recent"""
        self._tell_apart()
        assert isinstance(self._messages, list)
        return self._messages

    @messages.setter
    def messages(self, messages: list[Message]) -> None:
        self._tell_apart()
        self._messages = messages

    @property
    def window_count(self) -> int:
        """How many `messages` there are. They are not made to be counted."""
        return len(self.messages if self.is_mixed else self._messages)

    @property
    def pinned(self) -> list[Message]:
        """The messages that no summary ever covers: system prompts, and what was appended with `pin=True`."""
        self._tell_apart()
        if self._pinned is None:
            self._pinned = []
        assert isinstance(self._pinned, list)
        return self._pinned

    @pinned.setter
    def pinned(self, pinned: list[Message]) -> None:
        self._tell_apart()
        self._pinned = pinned

    @property
    def recalled(self) -> Sequence[Message]:
        """Earlier messages that may bear on the appended ones, oldest first: what was asked for with `recall=`."""
        if not isinstance(self._recalled, Sequence):
            self._recalled = self._recalled.messages()
        return self._recalled

    @recalled.setter
    def recalled(self, recalled: Sequence[Message] | Recalled) -> None:
        self._recalled = recalled

    def _tell_apart(self) -> None:
        if isinstance(self._messages, StoredMessages):
            self._messages = self._messages.messages()
        if isinstance(self._pinned, StoredMessages):
            self._pinned = self._pinned.messages()
        if self.is_mixed:
            found, self.is_mixed = self._messages, False
            self._pinned = [*(self._pinned or []), *(each for each in found if each.pinned)]
            self._messages = [each for each in found if not (each.pinned or is_gap(each))]

    @property
    def recent(self) -> list[Message]:
        """The newest messages, `recent_limit` at most."""
        return self.messages[-self.recent_limit :]

    @property
    def pending(self) -> list[Message]:
        """The messages before `recent`: they wait for a summary."""
        return self.messages[: -self.recent_limit]

    def to_openai(self) -> list[Any]:
        """A new list of dicts, typed so that OpenAI's client takes it: pinned messages, the background, each summary
        and what was recalled as quoted user messages, then the messages; dicts as put in.

        But for what a provider would refuse: a tool result that does not answer a call right before it, and a call that
        the conversation went on without, are quoted in a user message. At the very end a call may wait for results.
        """
        messages = self._messages
        if self._pinned is None and not self.is_mixed and isinstance(messages, StoredMessages):
            shown = messages.payloads()
            if messages.may_hold_calls:
                shown = provider_view(shown)
            return self._quoted() + shown
        pinned, payloads, may_hold_calls = self._payloads()
        if not pinned:
            return self._quoted() + (provider_view(payloads) if may_hold_calls else payloads)
        whole: list[dict[str, Any]] = [*pinned, *self._quoted(), *payloads]
        return provider_view(whole) if may_hold_calls else whole

    def _quoted(self) -> list[dict[str, Any]]:
        """The background, the summaries, and what was recalled."""
        quoted: list[dict[str, Any]] = [summary.to_openai() for summary in self.summaries]
        if self.background:
            quoted.insert(0, quote_as_data("project", "What is known of the project", self.background))
        return [*quoted, recalled_payload(self._recalled)] if self._recalled else quoted

    def _payloads(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]], bool]:
        """The dicts of pinned messages and of the others, and whether any may hold a tool call."""
        moved, window = self._pinned, self._messages
        if isinstance(window, StoredMessages) and not isinstance(moved, list):
            pinned = [] if moved is None else moved.payloads()
            also_pinned, others = window.payloads_apart() if self.is_mixed else ([], window.payloads())
            return pinned + also_pinned, others, window.may_hold_calls or (moved is not None and moved.may_hold_calls)
        return [each.to_openai() for each in self.pinned], [each.to_openai() for each in self.messages], True

    def to_anthropic(self) -> AnthropicContext:
        """The same for Anthropic: `client.messages.create(model=…, max_tokens=…, **context.to_anthropic())`.

        What the system and developer say before anybody else is `system`; later it is a text of the user's that says
        so. Messages in the formats of OpenAI and Gemini are written anew; Anthropic's parts stay as they are. What
        Anthropic has no form for or would refuse, such as a sound or a broken URL, is named in brackets.
        """
        return anthropic_context(self.to_openai(), self._quoted_count)

    def to_gemini(self) -> GeminiContext:
        """The same for Gemini: `contents` and, for the config, `system_instruction`; likewise JSON values."""
        return gemini_context(self.to_openai(), self._quoted_count)

    @property
    def _quoted_count(self) -> int:
        return len(self.summaries) + bool(self.background) + bool(self._recalled)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Context):
            return NotImplemented
        names = [field.name.lstrip("_") for field in fields(self) if field.compare]
        return all(getattr(self, name) == getattr(other, name) for name in names)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return (
            f"<Context {self.session_id} summaries={len(self.summaries)} pending={len(self.pending)} "
            f"recent={len(self.recent)} total={self.total_messages}{' degraded' * self.degraded}>"
        )
