"""One call: commands that travel together, and the meaning of their replies. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from redismem.context import Receipt
from redismem.errors import NOT_READY_WORDS, ConnectionLost, ServerError, Unconfirmed
from redismem.protocol.keys import SessionKeys
from redismem.protocol.scripts import Script

T = TypeVar("T")

Command = tuple[bytes | str | int, ...]


@dataclass(slots=True)
class Call(Generic[T]):
    """Commands that travel together, as one MULTI/EXEC if there are several, and the meaning of their replies.

    Every call may be sent again: an append carries its token, a removal the epoch it is meant for.
    """

    session_id: str | None
    commands: tuple[Command, ...]
    decode: Callable[..., T]
    script: Script | None = None
    resent: Callable[[tuple[Command, ...]], tuple[Command, ...]] | None = None
    """How the commands read when they are sent again; None: the same."""
    op: str = "look"
    """Its name in an event. What commands for operators look at has no name of its own."""
    is_independent: bool = False
    """The commands have nothing to do with each other: no transaction, and each goes to the node of its key."""
    confirm: int = 0
    """How many replicas must have what it writes; their number comes behind the replies. 0: none is asked."""
    absent: Any = None
    """What counts as the reply of a node that does not answer, where others do; None: then there is no value."""

    def again(self) -> Call[T]:
        """The same call, for a server that may have run it already."""
        if self.resent is None:
            return self
        return replace(self, commands=self.resent(self.commands), resent=None)

    def filled(self, answers: list[Any]) -> list[Any]:
        """The answers, with `absent` instead of those of nodes that do not answer."""
        if self.absent is None:
            return answers
        return [self.absent if is_away(answer) else answer for answer in answers]

    def finish(self, answers: Sequence[Any]) -> T:
        """The value. Raises the first ServerError or ConnectionLost among the answers, and what the decoding raises.

        Raises Unconfirmed if too few replicas have it.
        """
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        if self.confirm:
            return self._confirmed(*answers)
        return self.decode(*answers)

    def _confirmed(self, *answers: Any) -> T:
        *answered, replicas = answers
        value = self.decode(*answered)
        if replicas < self.confirm:
            text = f"{replicas} of {self.confirm} replicas had it in time; it may be sent again with the same id"
            raise Unconfirmed(text, self.session_id, replicas, self.confirm)
        receipt = value if isinstance(value, Receipt) else getattr(value, "receipt", None)
        if receipt is not None:
            receipt.replicas = replicas
        return value


def is_away(answer: Any) -> bool:
    """Whether this is none: no reply came, or the node takes no calls for now."""
    return isinstance(answer, ConnectionLost) or (isinstance(answer, ServerError) and answer.word in NOT_READY_WORDS)


def evalsha(script: Script, keys: Sequence[bytes], arguments: Sequence[bytes | str | int]) -> Command:
    """The command that runs a script."""
    return ("EVALSHA", script.sha, len(keys), *keys, *arguments)


def independent(
    commands: tuple[Command, ...], decode: Callable[..., T], op: str = "look", *, absent: Any = None
) -> Call[T]:
    """A call of commands that have nothing to do with each other, such as the same one for each shard."""
    return Call(None, commands, decode, is_independent=True, op=op, absent=absent)


def context_reads(keys: SessionKeys) -> tuple[Command, Command]:
    """The commands that read a session's state and its whole window."""
    return ("HGETALL", keys.state), ("LRANGE", keys.messages, 0, -1)
