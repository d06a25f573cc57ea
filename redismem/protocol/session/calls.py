"""Calls of one session, shared by async and blocking memories. No I/O."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar, Unpack

from redismem.context.context import Context
from redismem.context.info import Policy, SessionInfo
from redismem.context.results import Receipt, State
from redismem.errors import InvalidMessage, InvalidState
from redismem.events import Op
from redismem.messages.coercion import ROLES, Shape, check_role_or_type
from redismem.messages.encoding import encode_message
from redismem.messages.message import PINNED_ROLES, STAMP_BYTES, Message, TokenCounter
from redismem.protocol import layout, replies, scripts
from redismem.protocol.appends import ANY, Append, Limits, StateChange, append_head, append_limits
from redismem.protocol.call import Call, context_reads, script_call
from redismem.protocol.clock import Clock, clock_ms
from redismem.protocol.ids import PROCESS, Sender
from redismem.protocol.keys import SessionKeys
from redismem.protocol.layout import EvictionReason
from redismem.protocol.owners import check_same_owner, encode_owner
from redismem.protocol.policy import encode_policy
from redismem.protocol.session.append import (
    NO_OPTIONS,
    AppendOptions,
    batch_error,
    check_size,
    create_token,
    encode_with_pin,
    expect_argument,
    set_confirm,
)
from redismem.protocol.session.expected import Expected
from redismem.protocol.session.state import StateChanges, change, check_options
from redismem.settings.settings import Settings

T = TypeVar("T")

_MOST = 1 << 53
_HEAVY = replies.HEAVY[0]
_OWN_TIME = re.compile(b"~b?w?x?([0-9]+)")
_REASONS = tuple(f" {reason}".encode() for reason in EvictionReason)


class SessionCalls:
    """Builds the calls of one session; the parts that all calls share are built once."""

    __slots__ = (
        *("_append_head", "_confirm", "_reads", "_script", "_token"),
        *("clock", "count_tokens", "is_aged", "is_heavy", "keys", "sender", "session_owner", "settings"),
    )

    def __init__(
        self,
        keys: SessionKeys,
        settings: Settings,
        count_tokens: TokenCounter | None = None,
        limits: Limits | None = None,
        clock: Clock | None = None,
        owner: str | None = None,
        sender: Sender = PROCESS,
    ) -> None:
        """`limits` is the result of `append_limits`, which is computed here if missing.

        `clock` replaces the server's. `owner` is the owner of the session: the calls refuse a session that has another
        one, or none. None accepts any session. `sender` is that of the memory.

        Raises:
            InvalidSessionId: the owner is invalid.
        """
        field = None if owner is None else encode_owner(owner)
        self.keys = keys = keys if field is None else replace(keys, owner=field)
        self.settings = settings
        self.count_tokens = count_tokens
        self.clock = clock
        self.session_owner = owner
        self.sender = sender
        self._token = sender.token
        self._script = scripts.load("append")
        self._append_head = append_head(self._script, keys, settings, limits or append_limits(settings))
        self._reads = context_reads(keys)
        self._confirm = settings.confirm
        self.is_heavy = False  # heavy: bodies should leave the window after the last append
        self.is_aged = False  # aged: the session should be touched after the last read

    def append(self, messages: Sequence[Message | Shape], options: AppendOptions = NO_OPTIONS) -> Call[Receipt]:
        """Build an append.

        Raises:
            InvalidMessage: a message, the id, `expect` or `confirm` is invalid.
            InvalidState: a param name or value is invalid.
            TooLarge: a message, the batch or a value exceeds its limit.
            InvalidTime: the clock returned an invalid time.
        """
        return self._append_call(self._append("append", ANY, messages, options), Op.APPEND, options)

    def _append_call(self, append: Append, op: Op, options: AppendOptions) -> Call[Receipt]:
        # No keywords, which cost time on every turn.
        decode = partial(self.receipt, append)
        call = Call(self.keys.session_id, (append.command(),), decode, self._script, op, append)
        return set_confirm(call, options, self._confirm) if options or self._confirm else call

    def append_and_read(
        self, messages: Sequence[Message | Shape], options: AppendOptions = NO_OPTIONS
    ) -> Call[Context]:
        """Build an append and the reads of a context, in one transaction. Raises the errors of `append`."""
        append, session_id = self._append("append_and_read", layout.NONE, messages, options), self.keys.session_id
        decode, commands = partial(self.appended_context, append), (append.command(), *self._reads)
        call = Call(session_id, commands, decode, self._script, Op.APPEND_AND_READ, append)
        return set_confirm(call, options, self._confirm) if options or self._confirm else call

    def update(self, id: str | None = None, **changes: Unpack[StateChanges]) -> Call[Receipt]:
        """Build a change of the state: an append without messages.

        Raises:
            InvalidState: a param name or value is invalid.
            InvalidMessage: the id is invalid.
            TooLarge: a value exceeds its limit.
            InvalidTime: the clock returned an invalid time.
        """
        token, change = create_token(self.sender, id, self.keys.session_id), self.change(**changes)
        append = Append(self._append_head, token, (), 0, ANY, self._now_ms(), 0, 0, "0" if id else "1", change)
        return self._append_call(append, Op.UPDATE, {"id": id})

    def _now_ms(self) -> int | None:
        return None if self.clock is None else clock_ms(self.clock)

    @property
    def limits(self) -> Limits:
        """The limits of all appends, and the policy of a session that they create."""
        return self._append_head.limits

    def receipt(self, append: Append, reply: Any) -> Receipt:
        """Decode the reply to an append. Raises the errors of `replies.receipt`."""
        count = len(append.elements)
        receipt = replies.receipt(self.keys.session_id, count, reply, token=append.token if count else b"")
        counters = reply if type(reply) is bytes else reply[0]
        self.is_heavy = counters[-1] == _HEAVY
        return receipt

    def appended_context(self, append: Append, reply: Any, stored: Any, elements: Sequence[bytes]) -> Context:
        """Decode the replies to an append and to `context_reads`. Raises the errors of `replies.appended_context`."""
        limit, count = self.settings.recent_limit, len(append.elements)
        context = replies.appended_context(self.keys.session_id, count, limit, append.token, reply, stored, elements)
        counters = reply if type(reply) is bytes else reply[0]
        self.is_heavy = counters[-1] == _HEAVY
        return context

    def _append(self, called: str, expect: str, messages: Sequence[Message | Shape], options: AppendOptions) -> Append:
        if not messages:
            check_options(called, options, AppendOptions)
            why = "an append needs a message; merge(), set_waiting() and the other setters change the state alone"
            raise InvalidMessage(why, self.keys.session_id)
        if not options:
            elements, tokens, pinned_count, pinned_bytes = self.encode_messages(messages)
            now_ms = None if self.clock is None else clock_ms(self.clock)
            head = self._append_head
            return Append(head, self._token(None), elements, tokens, expect, now_ms, pinned_count, pinned_bytes)
        try:
            return self.encode_append(messages, **options)
        except TypeError:
            check_options(called, options, AppendOptions)
            raise

    def encode_append(
        self,
        messages: Sequence[Message | Shape],
        *,
        id: str | None = None,
        expect: Expected | None = None,
        pin: bool | None = None,
        confirm: int | None = None,  # noqa: ARG002 (no argument of the script)
        **changes: Unpack[StateChanges],
    ) -> Append:
        """Encode an append; without messages it only changes the state. Raises the errors of `append`."""
        expected = ANY if expect is None else expect_argument(expect, self.keys.session_id)
        elements, tokens, count, size = self.encode_messages(messages, pin)
        change = self.change(**changes) if changes else None
        fresh, now_ms = "0" if id else "1", self._now_ms()
        token = create_token(self.sender, id, self.keys.session_id)
        return Append(self._append_head, token, elements, tokens, expected, now_ms, count, size, fresh, change)

    def change(self, **changes: Unpack[StateChanges]) -> StateChange:
        """Encode changes of the state.

        Raises:
            InvalidState: a param name or value is invalid.
            TooLarge: a value or the change exceeds its limit.
        """
        try:
            return change(self.settings, self.keys.session_id, **changes)
        except InvalidState as refused:
            raise InvalidState(str(refused), self.keys.session_id) from None
        except TypeError:
            check_options("update", changes, StateChanges)
            raise

    def encode_messages(
        self, messages: Sequence[Message | Shape], pin: bool | None = None
    ) -> tuple[list[bytes], int, int, int]:
        """Encode messages. Return elements, tokens of the unpinned ones, and number and bytes of the pinned ones.

        Raises:
            InvalidMessage: a message cannot be stored.
            TooLarge: a message or the batch exceeds its limit.
        """
        settings, session_id = self.settings, self.keys.session_id
        if len(messages) > settings.max_batch_count:
            raise batch_error(settings, "max_batch_count", f"{len(messages)} messages in one append", session_id)
        tokens = total_bytes = pinned_count = pinned_bytes = 0
        most_bytes, count_tokens = settings.max_message_bytes, self.count_tokens
        elements: list[bytes] = []
        for message in messages:
            try:
                if pin is None and type(message) is dict:
                    element, count = encode_message(message, count_tokens)
                    if type(role := message.get("role")) is not str or role not in ROLES or "content" not in message:
                        check_role_or_type(message)
                    pinned = role in PINNED_ROLES
                else:
                    element, count, pinned = encode_with_pin(message, pin, count_tokens)
            except InvalidMessage as refused:
                raise InvalidMessage(f"message {len(elements) + 1}: {refused}", session_id) from None
            if len(element) > most_bytes:
                check_size(settings, element, session_id, f"message {len(elements) + 1}")
            elements.append(element)
            total_bytes += len(element)
            if pinned:
                pinned_count += 1
                pinned_bytes += len(element) + STAMP_BYTES
            else:
                tokens += count
        if total_bytes > settings.max_window_bytes:
            what = f"the messages of one append have {total_bytes} bytes"
            raise batch_error(settings, "max_window_bytes", what, session_id)
        return elements, tokens, pinned_count, pinned_bytes

    def read(self, limit: int | None = None, *, renew: bool = False) -> Call[Context]:
        """Build a call that reads the state, and the window or its newest `limit` messages.

        A `limit` may separate a tool call from its result. `renew` sets `is_aged`, and raises InvalidTime.
        """
        read = self._read(limit)
        return self._with_age(read) if renew else read

    def _with_age(self, read: Call[T]) -> Call[T]:
        """Let the read also say if the session has aged: it is then renewed behind the read, which delays no caller."""
        decode, count = read.decode, len(read.commands)

        def decode_with_age(*answers: Any) -> T:
            value = decode(*answers[:count])
            if len(answers) > count:  # the fallback knows no age
                stored = answers[0] if type(answers[0]) is dict else replies.fields(answers[0])
                self.is_aged = self._is_aged(stored.get(layout.COUNTERS, b""), answers[count])
            return value

        read.commands, read.decode = (*read.commands, ("PTTL", self.keys.state)), decode_with_age
        read.is_separable = True
        return read

    def _is_aged(self, counters: bytes, left_ms: int) -> bool:
        """True if a sixteenth of the time to live has passed since the last use, or if the session is to be evicted."""
        own_ms = _OWN_TIME.search(counters)
        kept_ms = self.settings.kept_ms if own_ms is None else int(own_ms[1])
        if self.clock is not None and left_ms >= 0:
            left_ms = max(0, layout.counters(counters).expires_ms - clock_ms(self.clock))
        return 0 <= left_ms <= kept_ms * 15 / 16 or counters.endswith(_REASONS)

    def _read(self, limit: int | None) -> Call[Context]:
        keys, settings = self.keys, self.settings

        def decode(stored: Any, elements: Any) -> Context:
            fields = replies.own_fields(keys, stored)
            return replies.context(keys.session_id, settings.recent_limit, fields, elements, limit)

        # With a limit of 0, -0 would mean the whole window.
        first, last = (1, 0) if limit == 0 else (-min(limit or 0, _MOST), -1)
        if limit is None:
            return Call(keys.session_id, self._reads, decode, op=Op.READ, is_separable=True)
        reads = (("HGETALL", keys.state), ("LRANGE", keys.messages, first, last))
        return Call(keys.session_id, reads, decode, op=Op.READ, named={"limit": limit}, is_separable=True)

    def pinned(self) -> Call[list[Message]]:
        """Build a call that reads the pinned messages that have left the window."""
        keys = self.keys

        def decode(stored: Any) -> list[Message]:
            fields = replies.own_fields(keys, stored)
            if layout.PINS not in fields:
                return []
            return replies.context(keys.session_id, 1, fields, (), 0).pinned

        return Call(keys.session_id, (("HGETALL", keys.state),), decode, op=Op.PINNED)

    def state(self, *, renew: bool = False) -> Call[State]:
        """Build a call that reads the whole state. It is empty if there is no session. For `renew` see `read`."""
        keys = self.keys

        def decode(stored: Any) -> State:
            fields = replies.own_fields(keys, stored)
            with replies.decoding(keys.session_id, fields.get(layout.EPOCH)):
                if fields:
                    layout.bounds(fields.get(layout.COUNTERS, b""))
                return replies.state(fields)

        read = Call(keys.session_id, (("HGETALL", keys.state),), decode, op=Op.STATE)
        return self._with_age(read) if renew else read

    def title(self) -> Call[str | None]:
        """Build a call that reads the title that was set. None means that none was."""
        keys = self.keys

        def decode(stored: Any) -> str | None:
            return layout.decode_title(replies.own_fields(keys, stored).get(layout.TITLE))

        return Call(keys.session_id, (("HGETALL", keys.state),), decode, op=Op.STATE)

    def info(self) -> Call[SessionInfo | None]:
        """Build a call that reads the session's numbers. None means that there is no session."""
        keys = self.keys

        def decode(stored: Any) -> SessionInfo | None:
            return replies.info(keys.session_id, replies.own_fields(keys, stored))

        return Call(keys.session_id, (("HGETALL", keys.state),), decode, op=Op.INFO)

    def epoch(self) -> Call[str]:
        """Build a call that reads the epoch. "" means that there is no session."""
        return Call(
            self.keys.session_id,
            (("HGET", self.keys.state, layout.EPOCH),),
            lambda reply: (reply or b"").decode("utf-8", "replace"),
            op=Op.READ_EPOCH,
        )

    def exists(self) -> Call[bool]:
        """Build a call that checks if the session exists."""
        keys = self.keys

        def decode(reply: Any) -> bool:
            counters, owner = reply
            check_same_owner(keys, owner, counters)
            return counters is not None

        return Call(keys.session_id, (("HMGET", keys.state, layout.COUNTERS, layout.OWNER),), decode, op=Op.EXISTS)

    def touch(self) -> Call[bool]:
        """Build a touch, which makes the session active now. False means that there is no session.

        Raises:
            InvalidTime: the clock returned an invalid time.
        """
        named = {"now_ms": self._now_ms(), "kept_ms": self.settings.kept_ms}
        return script_call(Op.TOUCH, self.keys, bool, named)

    def set_policy(self, policy: Policy, fence: str | None = None) -> Call[bool]:
        """Build a call that sets the policy of a session. False means that there is no session.

        With the fence of a claim, False also means that another worker has the session.

        Raises:
            InvalidSettings: the policy is invalid.
            InvalidTime: the clock returned an invalid time.
        """
        named = {
            "new_policy": layout.encode_policy(encode_policy(policy)),
            "now_ms": self._now_ms(),
            "kept_ms": self.settings.kept_ms,
            "sending": self.sender.sending(),
            "zone": policy.zone or "",
            "fence": fence,
        }
        return script_call(Op.SET_POLICY, self.keys, bool, named)
