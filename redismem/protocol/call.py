"""One call: commands that are sent together, and the decoder of their replies. No I/O.

A call of a script is built by names: `script_call` puts each key and argument at the place that the head of the script
declares.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from redismem.context.results import Receipt
from redismem.errors import Unconfirmed
from redismem.events import Op
from redismem.protocol import scripts
from redismem.protocol.appends import Append
from redismem.protocol.ids import renew
from redismem.protocol.keys import SessionKeys, key_of_name
from redismem.protocol.layout import NONE
from redismem.protocol.scripts import Script
from redismem.protocol.server_errors import NOT_READY_WORDS, ConnectionLost, ServerError

T = TypeVar("T")

Argument = bytes | str | int
Command = tuple[Argument, ...]
Subject = str | bytes | None
"""The subject of commands: a session, by its id, or else all keys of one hash tag, such as a project.

`None` means that they have no key. The calls of one subject take effect in the order in which a process makes them.
"""

_KEYS_COUNT_AT = 2  # EVALSHA, hash, number of keys, keys
# In all other commands the first key follows the name.
_WITHOUT_A_KEY = frozenset(
    ["PING", "TIME", "ECHO", "SCAN", "SCRIPT", "INFO", "CONFIG", "CLUSTER", "CLIENT", "ACL", "ROLE", "DBSIZE", "WAIT"]
)


@dataclass(slots=True)
class Call(Generic[T]):
    """Commands that are sent together, as one MULTI/EXEC if there are several, and the decoder of their replies.

    Every call is safe to retry: an append carries its token, a removal the epoch that it applies to.
    """

    session_id: str | None
    commands: tuple[Command, ...]
    decode: Callable[..., T]
    script: Script | None = None
    op: Op = Op.LOOK
    """The operation, as in events. Reads by operators' commands share the default."""
    append: Append | None = None
    """The append, or the change of the state, that the first command makes."""
    named: Mapping[str, Any] | None = None
    """The keys and arguments of the script by the names in its head, with the tails `more_keys` and `more`.

    A read without a script may have its options here. None means that nothing has a name.
    """
    is_independent: bool = False
    """True if the commands need no transaction, so that each goes to the node of its key."""
    is_separable: bool = False
    """True if the commands may be sent one by one to a Redis that refuses transactions, because its memory is full.

    They only read, or may be repeated.
    """
    is_apart: bool = False
    """True if the commands are sent one by one."""
    confirm: int = 0
    """The number of replicas that must acknowledge the write.

    The reply to WAIT comes last. 0 means that no WAIT is sent.
    """
    has_id: bool = False
    """True if the caller gave the write an id, so that the caller can retry it safely."""
    absent: Any = None
    """The reply to assume for an unreachable node if other nodes answer; None means that the call fails."""
    was_sent: bool = False
    """True if an earlier attempt may still arrive, which this one overtakes."""
    sends: list[float] | None = None
    """The timeout of each attempt in seconds, recorded for the hook; None means that there is no hook."""

    def again(self, *, is_sent: bool = True) -> Call[T]:
        """Return the call for a retry, when the server may have run the call already.

        `is_sent` is False before the first attempt, if the client may send that twice by itself.
        """
        if self.append is not None:
            append = self.append.again(is_sent=is_sent)
            commands = (append.command(), *self.commands[1:])
            return replace(self, append=append, commands=commands, was_sent=self.was_sent or is_sent)
        name = self.sending_name
        if name is None or self.named is None or not is_sent:
            return self
        return replace(self.with_named(**{name: renew(self.named[name])}), was_sent=True)

    def with_named(self, **values: Argument) -> Call[T]:
        """Return the call of a script with other values of these names."""
        assert self.named is not None
        assert self.script is not None
        named = {**self.named, **values}
        return replace(self, named=named, commands=(_command(self.script, named), *self.commands[1:]))

    @property
    def sending_name(self) -> str | None:
        """The name of the argument with the sending, which each retry renews; None if the call has no sending.

        A session remembers each call with it among its last appends.
        """
        name = None if self.script is None else self.script.sending_name
        return name if name is not None and self.named is not None and self.named[name] else None

    @property
    def has_sending(self) -> bool:
        """True if a retry overtakes the earlier attempts, so that the script refuses these."""
        return self.append is not None or self.sending_name is not None

    @property
    def fenced_keys(self) -> Sequence[bytes]:
        """The keys in which the script notes its sending: a session's state, or records."""
        if self.append is not None:
            return (self.append.head.keys.state,)
        if self.named is None or self.sending_name is None:
            return ()
        found = [self.named[name] for name in ("state", "record") if name in self.named]
        return found or self.named["more_keys"][::2]

    def needs_new_sending(self, failure: ServerError | ConnectionLost) -> bool:
        """True if Redis has refused this attempt, because it took a later one of this memory for a resent call."""
        return self.has_sending and isinstance(failure, ServerError) and failure.word == "OVERTAKEN"

    def fill_absent(self, answers: list[Any]) -> list[Any]:
        """Replace the answers of unreachable nodes by `absent`."""
        if self.absent is None:
            return answers
        return [self.absent if is_away(answer) else answer for answer in answers]

    def finish(self, answers: Sequence[Any]) -> T:
        """Decode the answers into the value of the call.

        Raises:
            ServerError, ConnectionLost: the first such error among the answers.
            Unconfirmed: too few replicas have the write, or Redis refused WAIT. The primary keeps the write.
            RedismemError: any error of the decoder.
        """
        answered = answers[:-1] if self.confirm else answers
        for answer in answered:
            if isinstance(answer, Exception):
                raise answer
        value = self.decode(*answered)
        return self._check_confirmed(value, answers[-1]) if self.confirm else value

    def _check_confirmed(self, value: T, replicas: Any) -> T:
        """Return the value if enough replicas have the write, according to the reply to WAIT."""
        if isinstance(replicas, ConnectionLost):
            raise replicas
        if isinstance(replicas, ServerError):
            needs = ": `redismem doctor` says what the Redis user needs" if replicas.word == "NOPERM" else ""
            text = f"written, but not confirmed by any replica: WAIT was refused ({replicas.word}){needs}"
            raise self._unconfirmed(text, 0)
        if replicas < self.confirm:
            raise self._unconfirmed(f"{replicas} of {self.confirm} replicas had it in time", replicas)
        receipt = value if isinstance(value, Receipt) else getattr(value, "receipt", None)
        if receipt is not None:
            receipt.replicas = replicas
        return value

    def _unconfirmed(self, text: str, replicas: int) -> Unconfirmed:
        retry = "a retry with the same id is safe" if self.has_id else "it has no id: a retry would write it twice"
        return Unconfirmed(f"{text}; {retry}", self.session_id, replicas, self.confirm)


def is_away(answer: Any) -> bool:
    """True if the node is unreachable: no reply came, or the node accepts no calls for now."""
    return isinstance(answer, ConnectionLost) or (isinstance(answer, ServerError) and answer.word in NOT_READY_WORDS)


def key_of(command: Command) -> bytes | str | int | None:
    """Return the first key of a command; `None` if the command has no key."""
    name = command[0]
    if name in ("EVALSHA", "EVAL"):
        return command[_KEYS_COUNT_AT + 1] if command[_KEYS_COUNT_AT] else None
    if name in _WITHOUT_A_KEY or len(command) == 1:
        return None
    return command[2] if name == "MEMORY" else command[1]


def tag_of(commands: Sequence[Command]) -> bytes | None:
    """Return the hash tag of the commands' keys; a key without braces is its own tag. `None` means no key."""
    key = key_of(commands[0]) if commands else None
    if key is None:
        return None
    name = key if type(key) is bytes else str(key).encode()
    tag, end, _ = name.partition(b"{")[2].partition(b"}")
    return tag if tag and end else name


def script_call(
    op: Op,
    keys: object,
    decode: Callable[..., T],
    named: Mapping[str, Any],
    *,
    script: str = "",
    more_keys: Sequence[bytes] = (),
    more: Sequence[Argument] = (),
    after: Sequence[Command] = (),
    is_separable: bool = False,
) -> Call[T]:
    """Build a call that runs a script, with keys and arguments by the names in its head.

    Args:
        op: The operation. Its script has its name, unless `script` names another one.
        keys: The keys of the subject, such as a session: it has the keys, and what is not in `named`, as attributes.
        decode: Decodes the replies into the value of the call.
        named: The arguments, and keys that `keys` has not. None stands for an absent argument, and leaves out a key.
        script: The name of the script.
        more_keys: Keys after those that have names.
        more: Arguments after those that have names.
        after: Commands that follow the script in one transaction.
        is_separable: True if the commands may be sent one by one.

    Raises:
        AssertionError: the head does not have a given name.
        AttributeError: a name is missing.
    """
    declared = scripts.load(script or op.value)
    unknown = named.keys() - {*declared.keys, *declared.arguments}
    assert not unknown, f"the head of {declared.name}.lua does not have {', '.join(sorted(unknown))}"
    given: dict[str, Any] = {"more_keys": more_keys, "more": more}
    given |= {name: named[name] if name in named else key_of_name(keys, name) for name in declared.keys}
    for name in declared.arguments:
        value = named[name] if name in named else getattr(keys, name)
        given[name] = NONE if value is None else int(value) if value is True or value is False else value
    session_id = getattr(keys, "session_id", None)
    commands = (_command(declared, given), *after)
    return Call(session_id, commands, decode, declared, op=op, named=given, is_separable=is_separable)


def _command(script: Script, named: Mapping[str, Any]) -> Command:
    keys = [*(named[name] for name in script.keys if named[name] is not None), *named["more_keys"]]
    return ("EVALSHA", script.sha, len(keys), *keys, *(named[name] for name in script.arguments), *named["more"])


def independent(
    commands: tuple[Command, ...], decode: Callable[..., T], op: Op = Op.LOOK, *, absent: Any = None
) -> Call[T]:
    """Build a call of independent commands, such as one per shard."""
    return Call(None, commands, decode, is_independent=True, op=op, absent=absent)


def context_reads(keys: SessionKeys) -> tuple[Command, Command]:
    """Build the commands that read a session's state and its whole window."""
    return ("HGETALL", keys.state), ("LRANGE", keys.messages, 0, -1)
