"""Calls of one session, shared by async and blocking memories. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Unpack

from redismem.context import Context, Receipt, State
from redismem.errors import InvalidMessage, InvalidState, UnsupportedFormat
from redismem.events import Op
from redismem.info import Policy, SessionInfo
from redismem.messages.coercion import ROLES, Shape, check_role_or_type
from redismem.messages.encoding import encode_message
from redismem.messages.message import PINNED_ROLES, STAMP_BYTES, Message, TokenCounter
from redismem.messages.values import Undecodable
from redismem.protocol import layout, replies, scripts
from redismem.protocol.call import Call, Command, context_reads, evalsha
from redismem.protocol.clock import Clock, clock_ms, time_argument
from redismem.protocol.ids import append_token, sending
from redismem.protocol.keys import SessionKeys
from redismem.protocol.owners import check_same_owner, encode_owner
from redismem.protocol.policy import encode_policy
from redismem.protocol.sendings import resend
from redismem.protocol.session.append import (
    ANY,
    NO_OPTIONS,
    AppendOptions,
    append_limits,
    batch_error,
    check_size,
    compress_large,
    create_token,
    encode_with_pin,
    expect_argument,
    mark_resent,
    needs_few_keys,
    pins_argument,
    set_confirm,
    shorten,
)
from redismem.protocol.session.expected import Expected
from redismem.protocol.session.state import NO_CHANGE, Change, StateChanges, change, check_options
from redismem.settings.settings import Settings

_MOST = 1 << 53
_HEAVY = replies.HEAVY[0]


class SessionCalls:
    """Builds the calls of one session; the parts that all calls share are built once."""

    __slots__ = (
        *("_append_head", "_confirm", "_needs_few_keys", "_reads", "_script", "_token_at"),
        *("clock", "count_tokens", "is_heavy", "keys", "session_owner", "settings"),
    )

    def __init__(
        self,
        keys: SessionKeys,
        settings: Settings,
        count_tokens: TokenCounter | None = None,
        limits: bytes | None = None,
        clock: Clock | None = None,
        owner: str | None = None,
    ) -> None:
        """`limits` is the result of `append_limits`, which is computed here if missing.

        `clock` replaces the server's. `owner` is the owner of the session: the calls refuse a session that has another
        one, or none. None accepts any session.

        Raises:
            InvalidSessionId: the owner is invalid.
        """
        field = None if owner is None else encode_owner(owner)
        self.keys = keys = keys if field is None else replace(keys, owner=field)
        self.settings = settings
        self.count_tokens = count_tokens
        self.clock = clock
        self.session_owner = owner
        appends = keys.appends
        limits = limits or append_limits(settings)
        if field is not None:
            appends, limits = (*appends, keys.shard.owners), b"%b @%b" % (limits, field)
        self._script = scripts.load("append")
        self._append_head: Command = ("EVALSHA", self._script.sha, len(appends), *appends, keys.session, limits)
        self._token_at = len(self._append_head) + 1
        self._reads = context_reads(keys)
        self._confirm = settings.confirm
        self._needs_few_keys = self.is_heavy = False  # heavy: bodies should leave the window after the last append

    def append(self, messages: Sequence[Message | Shape], options: AppendOptions = NO_OPTIONS) -> Call[Receipt]:
        """Build an append.

        Raises:
            InvalidMessage: a message, the id, `expect` or `confirm` is invalid.
            InvalidState: a param name or value is invalid.
            TooLarge: a message, the batch or a value exceeds its limit.
            InvalidTime: the clock returned an invalid time.
        """
        command, session_id = self._append("append", ANY, messages, options), self.keys.session_id
        # No keywords, which cost time on every turn.
        decode = partial(self._receipt, len(messages), command[self._token_at])
        call = Call(session_id, (command,), decode, self._script, mark_resent, Op.APPEND)
        if self._needs_few_keys:
            call.short_command = shorten(command)
        return set_confirm(call, options, self._confirm) if options or self._confirm else call

    def append_and_read(
        self, messages: Sequence[Message | Shape], options: AppendOptions = NO_OPTIONS
    ) -> Call[Context]:
        """Build an append and the reads of a context, in one transaction. Raises the errors of `append`."""
        command, session_id = self._append("append_and_read", layout.NONE, messages, options), self.keys.session_id
        decode = partial(self._appended_context, len(messages), command[self._token_at])
        call = Call(session_id, (command, *self._reads), decode, self._script, mark_resent, Op.APPEND_AND_READ)
        return set_confirm(call, options, self._confirm) if options or self._confirm else call

    def update(self, id: str | None = None, **changes: Unpack[StateChanges]) -> Call[Receipt]:
        """Build a change of the state: an append without messages.

        Raises:
            InvalidState: a param name or value is invalid.
            InvalidMessage: the id is invalid.
            TooLarge: a value exceeds its limit.
            InvalidTime: the clock returned an invalid time.
        """
        command, session_id = self._command((), 0, self.change(**changes), id, ANY), self.keys.session_id
        call = Call(session_id, (command,), partial(self._receipt, 0, b""), self._script, mark_resent, Op.UPDATE)
        if self._needs_few_keys:
            call.short_command = shorten(command)
        return set_confirm(call, {"id": id}, self._confirm)

    def _receipt(self, sent_count: int, token: Any, reply: Any) -> Receipt:
        receipt = replies.receipt(self.keys.session_id, sent_count, reply, token=token)
        counters = reply if type(reply) is bytes else reply[0]
        self.is_heavy = counters[-1] == _HEAVY
        self._needs_few_keys = needs_few_keys(counters, receipt.window_count, self.settings.threshold)
        return receipt

    def _appended_context(
        self, sent_count: int, token: Any, reply: Any, stored: Any, elements: Sequence[bytes]
    ) -> Context:
        limit = self.settings.recent_limit
        context = replies.appended_context(self.keys.session_id, sent_count, limit, token, reply, stored, elements)
        counters = reply if type(reply) is bytes else reply[0]
        self.is_heavy = counters[-1] == _HEAVY
        self._needs_few_keys = needs_few_keys(counters, len(elements), self.settings.threshold)
        return context

    def _append(self, called: str, expect: str, messages: Sequence[Message | Shape], options: AppendOptions) -> Command:
        if not messages:
            check_options(called, options, AppendOptions)
            why = "an append needs a message; merge(), set_waiting() and the other setters change the state alone"
            raise InvalidMessage(why, self.keys.session_id)
        if not options:
            elements, tokens, pins = self.encode_messages(messages)
            now = "-" if self.clock is None else clock_ms(self.clock)
            # The same command as from `_command`, without the work for absent options.
            return (
                *self._append_head,
                f"1 {len(elements)} 0 {tokens} {expect} {now} {pins}",
                append_token(None),
                *elements,
            )
        try:
            return self._append_as(messages, **options)
        except TypeError:
            check_options(called, options, AppendOptions)
            raise

    def _append_as(
        self,
        messages: Sequence[Message | Shape],
        *,
        id: str | None = None,
        expect: Expected | None = None,
        pin: bool | None = None,
        confirm: int | None = None,  # noqa: ARG002 (no argument of the script)
        **changes: Unpack[StateChanges],
    ) -> Command:
        expected = ANY if expect is None else expect_argument(expect, self.keys.session_id)
        elements, tokens, pins = self.encode_messages(messages, pin)
        change = self.change(**changes) if changes else NO_CHANGE
        return self._command(elements, tokens, change, id, expected, pins)

    def _command(
        self,
        elements: Sequence[bytes],
        tokens: int,
        change: Change,
        id: str | None,
        expect: str,
        pins: str = layout.NONE,
    ) -> Command:
        """Build the command of append.lua, with the arguments in the order of its header."""
        fresh, now = "0" if id else "1", layout.NONE if self.clock is None else clock_ms(self.clock)
        return (
            *self._append_head,
            f"{fresh} {len(elements)} {len(change.sets) // 2} {tokens} {expect} {now} {pins}",
            create_token(id, self.keys.session_id),
            *elements,
            *change.sets,
            *change.drops,
        )

    def change(self, **changes: Unpack[StateChanges]) -> Change:
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
    ) -> tuple[list[bytes], int, str]:
        """Encode messages. Return the elements, the tokens of the unpinned ones, and the argument `pins`.

        Raises:
            InvalidMessage: a message cannot be stored.
            TooLarge: a message or the batch exceeds its limit.
        """
        settings, session_id = self.settings, self.keys.session_id
        if len(messages) > settings.max_batch_count:
            raise batch_error(settings, "max_batch_count", f"{len(messages)} messages in one append", session_id)
        tokens = pinned_count = pinned_bytes = 0
        most_bytes = settings.uncompressed_bytes
        elements: list[bytes] = []
        for message in messages:
            try:
                if pin is None and type(message) is dict:
                    element, count = encode_message(message, self.count_tokens)
                    if type(role := message.get("role")) is not str or role not in ROLES or "content" not in message:
                        check_role_or_type(message)
                    pinned = role in PINNED_ROLES
                else:
                    element, count, pinned = encode_with_pin(message, pin, self.count_tokens)
            except InvalidMessage as refused:
                raise InvalidMessage(f"message {len(elements) + 1}: {refused}", session_id) from None
            if len(element) > most_bytes:
                check_size(settings, element, session_id, f"message {len(elements) + 1}")
                element = compress_large(settings, element)
            elements.append(element)
            if pinned:
                pinned_count += 1
                pinned_bytes += len(element) + STAMP_BYTES
            else:
                tokens += count
        is_much = len(elements) != 1 or len(elements[0]) > 65_536  # no limit is lower
        if is_much and (size := sum(map(len, elements))) > settings.max_window_bytes:
            what = f"the messages of one append have {size} bytes"
            raise batch_error(settings, "max_window_bytes", what, session_id)
        return elements, tokens, pins_argument(settings, pinned_count, pinned_bytes) if pinned_count else layout.NONE

    def read(self, limit: int | None = None) -> Call[Context]:
        """Build a call that reads the state, and the window or its newest `limit` messages.

        A `limit` may separate a tool call from its result.
        """
        keys, settings = self.keys, self.settings

        def decode(stored: Any, elements: Any) -> Context:
            fields = replies.own_fields(keys, stored)
            context = replies.context(keys.session_id, settings.recent_limit, fields, elements, limit)
            counters = fields.get(layout.COUNTERS, b"")
            self._needs_few_keys = needs_few_keys(counters, len(elements), settings.threshold)
            return context

        # With a limit of 0, -0 would mean the whole window.
        first, last = (1, 0) if limit == 0 else (-min(limit or 0, _MOST), -1)
        if limit is None:
            return Call(keys.session_id, self._reads, decode, op=Op.READ, is_separable=True)
        reads = (("HGETALL", keys.state), ("LRANGE", keys.messages, first, last))
        return Call(keys.session_id, reads, decode, op=Op.READ, is_separable=True)

    def pinned(self) -> Call[list[Message]]:
        """Build a call that reads the pinned messages that have left the window."""
        keys = self.keys

        def decode(stored: Any) -> list[Message]:
            fields = replies.own_fields(keys, stored)
            if layout.PINS not in fields:
                return []
            return replies.context(keys.session_id, 1, fields, (), 0).pinned

        return Call(keys.session_id, (("HGETALL", keys.state),), decode, op=Op.PINNED)

    def state(self) -> Call[State]:
        """Build a call that reads the whole state. It is empty if there is no session."""
        keys = self.keys

        def decode(stored: Any) -> State:
            fields = replies.own_fields(keys, stored)
            try:
                if fields:
                    layout.bounds(fields.get(layout.COUNTERS, b""))
                return replies.state(fields)
            except UnsupportedFormat as other:
                raise UnsupportedFormat(str(other), keys.session_id) from None
            except (Undecodable, ValueError) as cause:
                epoch = fields.get(layout.EPOCH, b"").decode("utf-8", "replace")
                raise replies.corrupt_session(keys.session_id, cause, epoch) from None

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
        keys, shard = self.keys, self.keys.shard
        script = scripts.load("touch")
        command = evalsha(
            script,
            (keys.messages, keys.state, keys.originals, keys.vectors, shard.active, shard.evictions),
            (keys.session, time_argument(self.clock), self.settings.kept_ms, keys.owner or layout.NONE),
        )
        return Call(keys.session_id, (command,), bool, script, op=Op.TOUCH)

    def set_policy(self, policy: Policy) -> Call[bool]:
        """Build a call that sets the policy of a session. False means that there is no session.

        Raises:
            InvalidSettings: the policy is invalid.
            InvalidTime: the clock returned an invalid time.
        """
        keys, shard = self.keys, self.keys.shard
        script = scripts.load("set_policy")
        encoded = layout.encode_policy(encode_policy(policy))
        named, now = keys.owner or layout.NONE, time_argument(self.clock)
        arguments = (keys.session, now, self.settings.kept_ms, encoded, named, sending(), policy.zone or "")
        names = (keys.messages, keys.state, keys.originals, keys.vectors, *shard.indexes)
        command = evalsha(script, names, arguments)
        return Call(keys.session_id, (command,), bool, script, resend(len(names), 5, at=0), op=Op.SET_POLICY)
