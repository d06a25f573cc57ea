"""What each operation says to Redis, and what it makes of the answer. Pure: commands in, values out, no I/O.

Both memories, async and blocking, send these calls; nothing about keys, arguments or replies stands anywhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, TypeVar

from redismem import layout, replies, scripts
from redismem.changes import NO_CHANGE, Change, change
from redismem.context import Context, Receipt, SessionInfo, State
from redismem.errors import InvalidMessage, InvalidState, ServerError, TooLarge
from redismem.keys import SessionKeys, append_token, nonce
from redismem.messages import Message, TokenCounter, encode_message
from redismem.settings import Settings
from redismem.values import Undecodable
from redismem.window import cut_before

T = TypeVar("T")

Command = tuple[bytes | str | int, ...]

_MOST = 1 << 53
_REQUEST = 13  # its place in the command of an append


@dataclass(slots=True)
class Call(Generic[T]):
    """Commands that travel together, as one MULTI/EXEC where there are several, and the meaning of their replies.

    Every call may be sent again: an append carries its token, a removal the epoch it is meant for.
    """

    session_id: str | None
    commands: tuple[Command, ...]
    decode: Callable[..., T]
    script: scripts.Script | None = None
    is_fresh: bool = False
    """An append that cannot have been made before, so that the server need not look for its token."""

    def again(self) -> Call[T]:
        """The same call, for a server that may have run it already."""
        if not self.is_fresh:
            return self
        command, *reads = self.commands
        again = (*command[:_REQUEST], f"2{str(command[_REQUEST])[1:]}", *command[_REQUEST + 1 :])
        return replace(self, commands=(again, *reads), is_fresh=False)

    def finish(self, answers: Sequence[Any]) -> T:
        """The value. Raises the first ServerError or ConnectionLost among the answers, and what the decoding raises."""
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        return self.decode(*answers)

    def needs_loading(self, failure: Exception) -> bool:
        """Whether the call failed because the server does not know its script (any more)."""
        return self.script is not None and isinstance(failure, ServerError) and failure.word == "NOSCRIPT"


def evalsha(script: scripts.Script, keys: Sequence[bytes], arguments: Sequence[bytes | str | int]) -> Command:
    return ("EVALSHA", script.sha, len(keys), *keys, *arguments)


@dataclass(slots=True)
class SessionCalls:
    """The calls of one session."""

    keys: SessionKeys
    settings: Settings
    count_tokens: TokenCounter | None = None

    def change(self, **what: Any) -> Change:
        """As the function `change`."""
        try:
            return change(self.settings, self.keys.session_id, **what)
        except InvalidState as refused:
            raise InvalidState(str(refused), self.keys.session_id) from None

    def append(
        self,
        messages: Sequence[Message | dict[str, Any]],
        id: str | None = None,
        expect: int | None = None,
        change: Change = NO_CHANGE,
        now_ms: int | None = None,
    ) -> Call[Receipt]:
        """Raises InvalidMessage, TooLarge."""
        command = self._append(messages, id, expect, change, now_ms)
        session_id = self.keys.session_id
        decode = partial(replies.receipt, session_id, len(messages))
        return Call(session_id, (command,), decode, scripts.load("append"), id is None)

    def append_and_read(
        self,
        messages: Sequence[Message | dict[str, Any]],
        id: str | None = None,
        expect: int | None = None,
        change: Change = NO_CHANGE,
        now_ms: int | None = None,
    ) -> Call[Context]:
        """An append and the reads of a context behind it, in one transaction. Raises InvalidMessage, TooLarge."""
        command = self._append(messages, id, expect, change, now_ms)
        keys = self.keys
        decode = partial(replies.appended, keys.session_id, len(messages), self.settings.recent_limit)
        return Call(keys.session_id, (command, *keys.reads), decode, scripts.load("append"), id is None)

    def update(self, change: Change, now_ms: int | None = None) -> Call[None]:
        """The state alone. Sent again it sets the same values again, so it needs no token."""
        return Call(
            self.keys.session_id,
            (self._command((), None, None, change, now_ms),),
            lambda _: None,
            scripts.load("append"),
        )

    def _append(
        self,
        messages: Sequence[Message | dict[str, Any]],
        id: str | None,
        expect: int | None,
        change: Change,
        now_ms: int | None,
    ) -> Command:
        if not messages:
            raise InvalidMessage(
                "an append needs a message; state alone is set by merge() and the like", self.keys.session_id
            )
        return self._command(messages, id, expect, change, now_ms)

    def _command(
        self,
        messages: Sequence[Message | dict[str, Any]],
        id: str | None,
        expect: int | None,
        change: Change,
        now_ms: int | None,
    ) -> Command:
        keys, settings = self.keys, self.settings
        if len(messages) > settings.max_batch_count:
            raise TooLarge(f"{len(messages)} messages in one append, over {settings.max_batch_count}", keys.session_id)
        if expect is not None and (type(expect) is not int or expect < 0):
            raise InvalidMessage("expect is a last seq: an integer, 0 or more", keys.session_id)
        tokens = 0
        elements: list[bytes] = []
        for message in messages:
            try:
                element, count = encode_message(message, self.count_tokens)
            except InvalidMessage as refused:
                raise InvalidMessage(f"message {len(elements) + 1}: {refused}", keys.session_id) from None
            if len(element) > settings.max_message_bytes:
                raise TooLarge(
                    f"message {len(elements) + 1} has {len(element)} bytes, over {settings.max_message_bytes}",
                    keys.session_id,
                )
            elements.append(element)
            tokens += count
        expected, now = layout.NONE if expect is None else expect, layout.NONE if now_ms is None else now_ms
        return (
            "EVALSHA",
            scripts.load("append").sha,
            len(keys.appends),
            *keys.appends,
            keys.session,
            settings.append_limits,
            f"{int(id is None)} {len(elements)} {len(change.sets) // 2} {tokens} {expected} {now}",
            self._token(id),
            *elements,
            *change.sets,
            *change.drops,
        )

    def _token(self, id: str | None) -> bytes:
        try:
            return append_token(id)
        except InvalidMessage as refused:
            raise InvalidMessage(str(refused), self.keys.session_id) from None

    def read(self, limit: int | None = None, *, by_script: bool = False) -> Call[Context]:
        """The state, and the window or its newest `limit` messages; without regard for tool calls.

        `by_script`: slower, but answered where memory has run out; a transaction is not, by Redis 7.0.
        """
        keys, settings = self.keys, self.settings

        def decode(stored: Any, elements: Any) -> Context:
            return replies.context(keys.session_id, settings.recent_limit, replies.fields(stored), elements, limit)

        # Zero from the end would be all of it.
        first, last = (1, 0) if limit == 0 else (-min(limit or 0, _MOST), -1)
        if by_script:
            script = scripts.load("read")
            command = evalsha(script, (keys.messages, keys.state), (first, last))
            return Call(keys.session_id, (command,), lambda reply: decode(*reply), script)
        commands = (("HGETALL", keys.state), ("LRANGE", keys.messages, first, last))
        return Call(keys.session_id, commands, decode)

    def page(
        self, limit: int, before_seq: int | None = None, include_originals: bool = False
    ) -> Call[tuple[str, list[Message]] | None]:
        """The newest `limit` messages before a seq."""
        keys = self.keys
        script = scripts.load("page")
        command = evalsha(
            script,
            (keys.messages, keys.state, keys.originals),
            (layout.NONE if before_seq is None else before_seq, limit, int(include_originals)),
        )
        return Call(keys.session_id, (command,), lambda reply: replies.page(keys.session_id, reply), script)

    def state(self) -> Call[State]:
        keys = self.keys

        def decode(stored: Any) -> State:
            found = replies.fields(stored)
            try:
                return replies.state(found)
            except (Undecodable, ValueError) as cause:
                epoch = found.get(layout.EPOCH, b"").decode("utf-8", "replace")
                raise replies.corrupt(keys.session_id, cause, epoch) from None

        return Call(keys.session_id, (("HGETALL", keys.state),), decode)

    def info(self) -> Call[SessionInfo | None]:
        """None where there is no session."""
        keys = self.keys
        return Call(
            keys.session_id,
            (("HGETALL", keys.state),),
            lambda stored: replies.info(keys.session_id, replies.fields(stored)),
        )

    def epoch(self) -> Call[str]:
        """The epoch, "" where there is no session."""
        return Call(
            self.keys.session_id,
            (("HGET", self.keys.state, layout.EPOCH),),
            lambda reply: (reply or b"").decode("utf-8", "replace"),
        )

    def exists(self) -> Call[bool]:
        return Call(self.keys.session_id, (("HEXISTS", self.keys.state, layout.COUNTERS),), bool)

    def clear(self, epoch: str) -> Call[bool]:
        """Everything of the session, if it is still in this epoch."""
        keys, shard = self.keys, self.keys.shard
        script = scripts.load("clear")
        command = evalsha(
            script, (keys.messages, keys.state, keys.originals, *shard.indexes), (keys.session, epoch or layout.NONE)
        )
        return Call(keys.session_id, (command,), bool, script)

    def window(self) -> Call[tuple[str, list[Message]] | None]:
        """All messages of the window, with the epoch; a script, so it is answered where memory has run out."""
        return self.page(_MOST)

    def prune(self, epoch: str, window: Sequence[Message], max_messages: int) -> Call[int] | None:
        """Drops the oldest of this window: how many, 0 where it has changed since. None: there is nothing to drop."""
        keys = self.keys
        script = scripts.load("prune")
        dropped = window[: cut_before(window, max(0, len(window) - max_messages))]
        if not dropped:
            return None
        tokens = sum(message.tokens for message in dropped)
        command = evalsha(
            script,
            (keys.messages, keys.state, keys.originals),
            (epoch, dropped[0].seq, len(dropped), tokens, nonce()),
        )
        return Call(keys.session_id, (command,), lambda reply: len(dropped) if reply else 0, script)

    def touch(self, now_ms: int | None = None) -> Call[bool]:
        keys, shard = self.keys, self.keys.shard
        script = scripts.load("touch")
        command = evalsha(
            script,
            (keys.messages, keys.state, shard.active, shard.evictions),
            (keys.session, layout.NONE if now_ms is None else now_ms, self.settings.timeout_ms),
        )
        return Call(keys.session_id, (command,), bool, script)

    def quarantine(self, epoch: str, now_ms: int) -> Call[int]:
        """The session that cannot be read to `…:corrupt:<session>:<now_ms>:<what it was>`."""
        keys, shard = self.keys, self.keys.shard
        script = scripts.load("quarantine")
        aside = tuple(b"%s:%d:%s" % (keys.corrupt, now_ms, name) for name in (b"messages", b"state", b"originals"))
        command = evalsha(
            script,
            (keys.messages, keys.state, keys.originals, *aside, *shard.indexes),
            (keys.session, epoch or layout.NONE, self.settings.timeout_ms),
        )
        return Call(keys.session_id, (command,), int, script)
