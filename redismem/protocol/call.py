"""One call: commands that travel together, and the meaning of their replies. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from redismem.context import Receipt
from redismem.errors import Unconfirmed
from redismem.events import Op
from redismem.protocol.keys import SessionKeys
from redismem.protocol.scripts import Script
from redismem.protocol.server_errors import NOT_READY_WORDS, ConnectionLost, ServerError

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
    op: Op = Op.LOOK
    """Its name in an event; `look` for what commands of operators read."""
    is_independent: bool = False
    """The commands have nothing to do with each other: no transaction, and each goes to the node of its key."""
    confirm: int = 0
    """How many replicas must have what it writes; their number comes behind the replies. 0: none is asked."""
    has_id: bool = False
    """The caller has named what it writes: sent by him once more, it is made once."""
    absent: Any = None
    """What counts as the reply of a node that does not answer, if others do; None: then there is no value."""

    sends: list[float] | None = None
    """The timeout of each sending, in seconds, noted for the hook; None: no hook wants it."""

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

        Raises Unconfirmed if too few replicas have it, or if none could be asked: what was written stands then.
        """
        answered = answers[:-1] if self.confirm else answers
        for answer in answered:
            if isinstance(answer, Exception):
                raise answer
        value = self.decode(*answered)
        return self._confirmed(value, answers[-1]) if self.confirm else value

    def _confirmed(self, value: T, replicas: Any) -> T:
        """The value, if the answer to the WAIT behind it says that enough replicas have it."""
        if isinstance(replicas, ConnectionLost):
            raise replicas
        if isinstance(replicas, ServerError):
            needs = ": redismem doctor says what the Redis user needs" if replicas.word == "NOPERM" else ""
            text = f"it stands, but no replica was asked, as WAIT was refused ({replicas.word}){needs}"
            raise self._unconfirmed(text, 0)
        if replicas < self.confirm:
            raise self._unconfirmed(f"{replicas} of {self.confirm} replicas had it in time", replicas)
        receipt = value if isinstance(value, Receipt) else getattr(value, "receipt", None)
        if receipt is not None:
            receipt.replicas = replicas
        return value

    def _unconfirmed(self, text: str, replicas: int) -> Unconfirmed:
        again = "it may be sent again with the same id"
        if not self.has_id:
            again = "it was given no id: sent again, it would be made once more"
        return Unconfirmed(f"{text}; {again}", self.session_id, replicas, self.confirm)


def is_away(answer: Any) -> bool:
    """Whether this is none: no reply came, or the node takes no calls for now."""
    return isinstance(answer, ConnectionLost) or (isinstance(answer, ServerError) and answer.word in NOT_READY_WORDS)


def evalsha(script: Script, keys: Sequence[bytes], arguments: Sequence[bytes | str | int]) -> Command:
    """The command that runs a script."""
    return ("EVALSHA", script.sha, len(keys), *keys, *arguments)


def independent(
    commands: tuple[Command, ...], decode: Callable[..., T], op: Op = Op.LOOK, *, absent: Any = None
) -> Call[T]:
    """A call of commands that have nothing to do with each other, such as the same one for each shard."""
    return Call(None, commands, decode, is_independent=True, op=op, absent=absent)


def context_reads(keys: SessionKeys) -> tuple[Command, Command]:
    """The commands that read a session's state and its whole window."""
    return ("HGETALL", keys.state), ("LRANGE", keys.messages, 0, -1)
