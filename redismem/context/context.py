"""The result of a read: Context. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from redismem.context.info import Policy
from redismem.context.results import RecalledMessages, Receipt, State, Summary
from redismem.formats.openai_chat import chat_messages
from redismem.formats.quoting import quote_as_data
from redismem.formats.sendable import replace_unsendable
from redismem.messages.decoding import StoredMessages, is_gap, scan_payloads
from redismem.messages.message import Message, Opaque

if TYPE_CHECKING:
    from redismem.formats.anthropic import AnthropicContext
    from redismem.formats.converse import ConverseContext
    from redismem.formats.gemini import GeminiContext
    from redismem.formats.recalled import Recalled


@dataclass(slots=True, repr=False, eq=False)
class Context:
    """The input for a model: pinned messages, then summaries, then the messages after them, each oldest first.

    `to_openai()`, `to_responses()`, `to_anthropic()`, `to_gemini()` and `to_converse()` return it in the format of a
    provider, whichever provider or framework wrote the messages. `thoughts=False` leaves out reasoning and its
    signatures, which another model may refuse. `tools=False` turns calls and results into words, for requests without
    tools.
    """

    session_id: str
    summaries: list[Summary]
    _messages: list[Message] | StoredMessages
    state: State
    total_messages: int
    """The number of messages of this epoch, without those that were popped, undone, rewritten or forgotten."""
    first_seq: int
    """The seq of the window's first message; all earlier messages are summarised or pinned. If the window is empty, it
    is the next seq. Seqs have gaps where messages are pinned or were popped.
    """
    last_seq: int
    epoch: str
    """The id of this life of the session: a clear or an expiry ends it. "" if the session does not exist."""
    recent_limit: int
    summary_version: str = ""
    """A version that changes only when a summary is committed; in between, the start of the context stays the same."""
    receipt: Receipt | None = None
    """The receipt of the append that returned this context; None after a read."""
    window_version: str = ""
    """A version that changes only when a message of the window is popped, replaced, pinned or unpinned."""
    _pinned: list[Message] | StoredMessages | None = None
    """The pinned messages that have left the window, or None; after `_separate_pinned`, all pinned messages."""
    is_mixed: bool = field(default=False, compare=False)
    """True while `_messages` still contains pinned messages or gaps, see `_separate_pinned`."""
    is_part: bool = field(default=False, compare=False)
    """True if `limit`, `before` or `max_tokens` left out messages of the window."""
    degraded: bool = False
    """True if Redis was down: the last context this process saw, with the messages it accepted since. Seqs are
    provisional."""
    policy: Policy | None = None
    """The policy of an evicted session, for `on_evict`; None in all other contexts, see `Session.info`."""
    owner: str | None = None
    """The owner of an evicted session, for `on_evict`; None in all other contexts, see `Session.info`."""
    background: str = ""
    """Text about the project of this turn, quoted before the summaries; "" if none was requested."""
    _recalled: Sequence[Message] | Recalled = ()
    with_days: bool = field(default=True, compare=False)
    """True if recalled messages are quoted below their days, see `REDISMEM_RECALL_DAYS`."""
    newest_append: bytes = field(default=b"", compare=False)
    """The random name of the newest append with messages, which a lost future does not share; b"" if unknown."""

    zone: str | None = field(default=None, compare=False)
    """The time zone of the session's days; `None` means UTC."""

    @property
    def newest_day(self) -> int | None:
        """The day of the window's newest message, see `Message.day`; `None` without messages."""
        messages = self._messages
        if isinstance(messages, StoredMessages):
            return messages.last_day
        return messages[-1].day if messages else None

    @property
    def messages(self) -> list[Message]:
        """The messages of the window without pinned ones, oldest first: `pending`, then `recent`."""
        self._separate_pinned()
        assert isinstance(self._messages, list)
        return self._messages

    @messages.setter
    def messages(self, messages: list[Message]) -> None:
        self._separate_pinned()
        self._messages = messages

    @property
    def window_count(self) -> int:
        """The number of `messages`, usually without decoding them."""
        return len(self.messages if self.is_mixed else self._messages)

    @property
    def pinned(self) -> list[Message]:
        """The messages that no summary ever covers: system prompts and messages appended with `pin=True`."""
        self._separate_pinned()
        if self._pinned is None:
            self._pinned = []
        assert isinstance(self._pinned, list)
        return self._pinned

    @pinned.setter
    def pinned(self, pinned: list[Message]) -> None:
        self._separate_pinned()
        self._pinned = pinned

    @property
    def recalled(self) -> RecalledMessages:
        """The earlier messages that match the appended ones, oldest first; empty without `recall=`."""
        recalled = self._recalled
        if isinstance(recalled, RecalledMessages):
            return recalled
        if isinstance(recalled, Sequence):
            return RecalledMessages(recalled)
        self._recalled = messages = RecalledMessages(recalled.messages(), recalled.unsearched_count)
        return messages

    @recalled.setter
    def recalled(self, recalled: Sequence[Message] | Recalled) -> None:
        if isinstance(recalled, Sequence) and not isinstance(recalled, RecalledMessages):
            recalled = RecalledMessages(recalled)
        self._recalled = recalled

    def _separate_pinned(self) -> None:
        if isinstance(self._messages, StoredMessages):
            self._messages = self._messages.messages()
        if isinstance(self._pinned, StoredMessages):
            self._pinned = self._pinned.messages()
        if self.is_mixed:
            window, self.is_mixed = self._messages, False
            self._pinned = [*(self._pinned or []), *(message for message in window if message.pinned)]
            self._messages = [message for message in window if not (message.pinned or is_gap(message))]

    @property
    def recent(self) -> list[Message]:
        """The newest messages of the window, at most `recent_limit`. They stay verbatim."""
        return self.messages[-self.recent_limit :]

    @property
    def pending(self) -> list[Message]:
        """The messages of the window before `recent`. They wait for a summary."""
        return self.messages[: -self.recent_limit]

    def to_openai(
        self, *, alternate: bool = False, now_ms: float | None = None, thoughts: bool = True, tools: bool = True
    ) -> list[Any]:
        """Return the messages for OpenAI: `client.chat.completions.create(model=…, messages=context.to_openai())`.

        A new list of dicts: pinned messages, then background and summaries quoted in user messages, then the messages
        of the window. Recalled messages are quoted just before the newest messages, so that the beginning stays equal
        from turn to turn, for the prompt cache of the provider. A message that OpenAI accepts is exactly as appended.
        The others, such as those of another provider or framework, are written in OpenAI's format:

        - A result without its call right before it, and a call that got no result, are quoted in a user message. Calls
          at the very end may still wait for their results, if none of the same message has one yet.
        - Images of results and of the assistant follow in a user message. Other content that OpenAI refuses becomes a
          placeholder in brackets, and thoughts of other providers are left out.
        - Arguments of a call that are not valid JSON, such as those of an answer that was cut off, become a string of
          the object `{"arguments": …}`. Call ids that are too long are replaced by shorter ones, always the same.
        - A name that OpenAI refuses, such as one with spaces, is put before the text. Lone surrogates become U+FFFD.
        - An assistant's `audio` becomes `{"id": …}`; once it has expired, its transcript becomes the text.

        Opaque messages are verbatim and in their places, even between a call and its result.

        Args:
            alternate: True also makes the messages legal for chat templates that require alternating turns, such as
                Mistral's, Gemma's and Llama's: one system message, then user and assistant in turn, with adjacent
                messages of the same role joined into one, and opaque messages left out.
            now_ms: The time at which audio must not have expired, in milliseconds since 1970; None means now.
        """
        if alternate:
            from redismem.formats.alternation import alternate_roles

            return alternate_roles(self._spoken(), thoughts=thoughts, tools=tools)
        window = self._messages
        is_bare = self._pinned is None and not (self.is_mixed or self._recalled)
        if is_bare and isinstance(window, StoredMessages) and not window.may_hold_calls:  # most turns, at half the cost
            return self._quotes() + window.payloads()
        pinned, payloads, may_hold_calls, is_odd = self._payloads()
        if self._recalled:
            payloads = self._with_recalled(payloads, may_hold_calls)
        whole = [*pinned, *self._quotes(), *payloads]
        if not may_hold_calls:
            return whole
        return chat_messages(whole, thoughts=thoughts, tools=tools, now_ms=now_ms, may_hold_surrogates=is_odd)

    def to_responses(self, *, ids: bool = True, thoughts: bool = True, tools: bool = True) -> list[Any]:
        """Return the messages for OpenAI's Responses API: `client.responses.create(model=…, input=…)`.

        Items of OpenAI are exactly as appended, except for what OpenAI refuses: reasoning with nothing behind it is
        left out, and an item whose reasoning is covered by a summary or beyond a limit, or whose id an earlier item
        has, loses its `id`, or is quoted if it needs the id. Messages in other formats become items. Opaque messages
        are verbatim and in their places.

        Args:
            ids: False removes the ids of all items, for requests with `store=False`: OpenAI does not know them then.
                Reasoning without encrypted content is left out.
        """
        from redismem.formats.openai_responses import responses_input

        pinned, payloads, may_hold_calls, _ = self._payloads()
        quotes = self._quotes()
        cut_at = len(pinned) + len(quotes) if self.is_part or self.first_seq > 1 else None
        whole = [*pinned, *quotes, *self._with_recalled(payloads, may_hold_calls)]
        return responses_input(whole, len(pinned), cut_at, ids=ids, thoughts=thoughts, tools=tools)

    def _spoken(self) -> list[dict[str, Any]]:
        """The messages to write in another format, without opaque ones."""
        pinned, payloads, may_hold_calls, _ = self._payloads()
        whole = (*pinned, *self._quotes(), *self._with_recalled(payloads, may_hold_calls))
        return [each for each in whole if type(each) is not Opaque]

    def _quotes(self) -> list[dict[str, Any]]:
        """The user messages that quote the background and the summaries."""
        quoted: list[dict[str, Any]] = (
            [summary.to_openai(self.zone) for summary in self.summaries] if self.summaries else []
        )
        if self.background:
            project = quote_as_data("project", "What is known of the project", self.background)
            quoted.insert(0, replace_unsendable(project))
        return quoted

    def _with_recalled(self, payloads: list[dict[str, Any]], may_hold_calls: bool) -> list[dict[str, Any]]:
        """Return the window, with recalled messages quoted before what this turn appended, or the calls it answers."""
        if not self._recalled:
            return payloads
        from redismem.formats.recalled import recalled_payload
        from redismem.formats.tool_groups import cut_before

        quoted = recalled_payload(self._recalled, self.newest_day, with_days=self.with_days, session_id=self.session_id)
        count = 1 if self.receipt is None else self.receipt.last_seq - self.receipt.first_seq + 1
        place = max(0, len(payloads) - max(1, count))
        place = cut_before(self.messages, place) if may_hold_calls else place
        return [*payloads[:place], replace_unsendable(quoted), *payloads[place:]]

    def _payloads(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]], bool, bool]:
        """Return the dicts of pinned and of other messages, and if any dict may contain a call, or a surrogate."""
        moved, window = self._pinned, self._messages
        if isinstance(window, StoredMessages) and not isinstance(moved, list):
            pinned = [] if moved is None else moved.payloads()
            also_pinned, others = window.payloads_apart() if self.is_mixed else ([], window.payloads())
            may_hold_calls, may_hold_surrogates = window.may_hold_calls, window.may_hold_surrogates
            if moved is not None:
                may_hold_calls |= moved.may_hold_calls
                may_hold_surrogates |= moved.may_hold_surrogates
            return pinned + also_pinned, others, may_hold_calls, may_hold_surrogates
        pinned = [message.visible for message in self.pinned]
        others = [message.visible for message in self.messages]
        return pinned, others, *scan_payloads(pinned + others)

    def to_anthropic(self, *, thoughts: bool = True, tools: bool = True) -> AnthropicContext:
        """Return arguments for Anthropic: `client.messages.create(model=…, max_tokens=…, **context.to_anthropic())`.

        Messages with the role system or developer at the start become `system`; later ones become user texts that say
        so. Messages in other formats are converted; parts in Anthropic's format stay unchanged. Content that Anthropic
        would refuse, such as audio or a broken URL, becomes a placeholder in brackets. The name of a speaker is written
        before the text. Opaque messages are left out.
        """
        from redismem.formats.anthropic import anthropic_context

        return anthropic_context(self._spoken(), self._quoted_count, thoughts=thoughts, tools=tools)

    def to_gemini(self, *, thoughts: bool = True, tools: bool = True) -> GeminiContext:
        """Return JSON values for Gemini: `contents`, and `system_instruction` for the config.

        Messages in other formats are converted; parts in Gemini's format stay unchanged. Content that Gemini would
        refuse becomes a placeholder in brackets. The name of a speaker is written before the text. Opaque messages are
        left out.

        Gemini 3 requires a thought signature of the first call in each step of the current turn. Where there is none,
        or `thoughts` is false, the call gets Google's value for calls of other models.
        """
        from redismem.formats.gemini import gemini_context

        return gemini_context(self._spoken(), self._quoted_count, thoughts=thoughts, tools=tools)

    def to_converse(self, *, thoughts: bool = True, tools: bool = True) -> ConverseContext:
        """Return arguments for Bedrock: `client.converse(modelId=…, **context.to_converse())`.

        Messages in other formats are converted; blocks in Converse's format stay unchanged. Images and files are bytes,
        as boto3 expects them. Converse fetches no URL but those of S3, so others become placeholders in brackets. The
        name of a speaker is written before the text. Opaque messages are left out.
        """
        from redismem.formats.converse import converse_context

        return converse_context(self._spoken(), self._quoted_count, thoughts=thoughts, tools=tools)

    @property
    def _quoted_count(self) -> int:
        return len(self.summaries) + bool(self.background)

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
