"""The errors of redismem, as one tree.

RedismemError
├── InvalidMessage      a message, batch or append id that cannot be stored as it is    (also a ValueError)
│   └── IdReused         an append id that was used before, for other messages
├── InvalidState        a param name or state value that cannot be stored as it is      (also a ValueError)
├── InvalidSessionId    a session id, owner or namespace that is not valid              (also a ValueError)
├── InvalidItem         a field or name of a project's item that cannot be stored       (also a ValueError)
├── InvalidRecord       an id, field, member or change of a record that is not valid    (also a ValueError)
├── InvalidTransition   an item's status does not lead to the requested status          (also a ValueError)
├── InvalidSettings     a setting that is out of range                                  (also a ValueError)
├── InvalidTime         the caller's clock returned a value that cannot be the time     (also a ValueError)
├── TooLarge            a message, batch, value or window over its limit                (also a ValueError)
├── SessionNotFound     the session does not exist (any more)                           (also a LookupError)
├── OwnerMismatch       the handle names an owner, and the session has another one, or none
├── NotInWindow         a message to pop, replace or unpin is not in the window         (also a LookupError)
├── ItemNotFound        the project has no such item, or had none at that moment        (also a LookupError)
├── Conflict            another writer was faster: `expect` is not the last seq, or a message or item has changed
│   └── RecordConflict   a record is not as the change expects
├── SessionExists       a live session has the id of the session to restore from quarantine
├── WrongShards         the namespace was created with a different number of shards
├── CorruptSession      stored bytes that cannot be read; the next write puts them into quarantine
├── UnsupportedFormat   a session or namespace in a layout that this release does not know
├── StoreUnavailable    Redis did not answer before the deadline; an append with an id is safe to retry
│   ├── FallbackFull     Redis is away, and this process has reached the limit of its backlog
│   └── Overloaded       this process has more calls than it can make in time; this one was not sent
├── Unconfirmed         an append was made, but too few replicas had it in time; with its id it is safe to retry
├── TurnBusy            another turn of the session runs
├── TurnKnown           a turn with this id runs or has ended: follow it, or take its reply
├── TurnLost            a turn lost its lease, or its session was cleared; nothing more of it is stored
├── TurnStopped         a turn of a blocking caller was stopped
├── ForgetIncomplete    not all sessions of a person are removed yet; it is safe to forget them again
├── NotAllowed          the ACL of the Redis user, the server or a proxy does not allow a command or a key
├── ModelFailed         a model returned no usable text; the messages stay as they are
│   └── ProviderUnavailable  the provider answers no request now: it is paused, and no attempt is counted
└── ScriptFailed        a script stopped half way: a defect, never retried

A refusal happens before anything is written. Unconfirmed is not a refusal: its append stays. Error texts name the
session, the limit and a value's size, never the value.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ForgottenSessions:
    """The result of `Memory.forget()`: its counts, the proof that no session or record is left, and what stays."""

    session_count: int = 0
    """The number of sessions removed."""
    quarantined_count: int = 0
    """The number of copies in quarantine removed."""
    unattributed_count: int = 0
    """Sessions, records and copies in quarantine of unreadable owner: they may belong to anybody. 0 with a prefix."""
    proven_ms: int | None = None
    """The end of a scan of all keys that found no session, record or copy in quarantine of the person any more.

    In milliseconds since 1970 by the server's clock. It proves nothing about what `not_searched` names. None means that
    the removal is not complete.
    """
    record_count: int = 0
    """The number of records removed."""
    item_count: int = 0
    """The number of items of projects erased: records of the person's conversations, and entities of type person whose
    name or alias is the owner."""
    rate_count: int = 0
    """The number of rate limits removed, see `Memory.take()`: those with the owner between the colons of their names,
    or whose names begin with the prefix."""
    left_items: tuple[str, ...] = ()
    """Items of projects that tell of the person and stay, as `<project>/<id>`: made from a conversation of the person,
    assigned to the owner, or an entity of another type named so. Erase them one by one."""
    not_searched: tuple[str, ...] = ()
    """Contents of the namespace that may tell of the person, and that neither an owner nor a prefix leads to."""


class RedismemError(Exception):
    """The root of all errors raised by redismem. `session_id` is the affected session, or `None`.

    `text` describes the error without the session's id, so it may be logged.
    """

    def __init__(self, text: str, session_id: str | None = None) -> None:
        super().__init__(text if session_id is None else f"session {session_id}: {text}")
        self.session_id = session_id
        self.text = text


class InvalidMessage(RedismemError, ValueError):
    """A message, batch or append id cannot be stored and returned unchanged."""


class IdReused(InvalidMessage):
    """An append id was used before, for other messages or for a change of the state. Nothing was written.

    `first_seq` and `last_seq` are the seqs of the messages of the first use, `stored_ms` is their time. All three are 0
    if the first use changed the state alone. `stored_ms` is also 0 if the messages have left the window.
    """

    def __init__(
        self, text: str, session_id: str | None = None, first_seq: int = 0, last_seq: int = 0, stored_ms: int = 0
    ) -> None:
        super().__init__(text, session_id)
        self.first_seq, self.last_seq, self.stored_ms = first_seq, last_seq, stored_ms


class InvalidState(RedismemError, ValueError):
    """A param name or a state value cannot be stored and returned unchanged."""


class InvalidSessionId(RedismemError, ValueError):
    """The session id, owner, prefix or namespace is empty, too long, or contains a forbidden character."""


class InvalidItem(RedismemError, ValueError):
    """A field, name, link or query of a project's items is invalid."""


class InvalidRecord(RedismemError, ValueError):
    """An id, tag, field, member, prefix or change of a record is invalid. Nothing was written.

    Or a value that LangGraph's saver reads is of a type that is not allowed.
    """


class InvalidTransition(RedismemError, ValueError):
    """An item's status `before` does not lead to the requested status `after`."""

    def __init__(self, text: str, session_id: str | None = None, before: str = "", after: str = "") -> None:
        super().__init__(text, session_id)
        self.before = before
        self.after = after


class InvalidSettings(RedismemError, ValueError):
    """A setting, from code or the environment, is out of range or unreadable."""


class InvalidTime(RedismemError, ValueError):
    """A clock given to `Memory.connect` returned no int, or an implausible time. Nothing was written."""


class TooLarge(RedismemError, ValueError):
    """A message, a batch, a state value or the session's window is over its limit."""


class SessionNotFound(RedismemError, LookupError):
    """The session does not exist, or it has expired."""


class OwnerMismatch(RedismemError):
    """The handle names an owner, and the session or record was begun with another one, or without one.

    Nothing was read or written. A handle without `owner` opens it, and `info()` says whose it is.
    """


class NotInWindow(RedismemError, LookupError):
    """The message is not in the window: a summary covers it, it was pruned or popped, or it never existed."""


class ItemNotFound(RedismemError, LookupError):
    """The project has no item with this id, or had none at the requested moment."""


class Conflict(RedismemError):
    """Another writer was faster: `expect` is not the session's last seq, or a message has changed since it was read.

    In a project, it means that an item has changed since it was read, or that a name is taken. Nothing was written.
    `last_seq` is the session's last seq. `cleared` is True if the session that the caller read was cleared or has
    expired: then an answer to it does not belong in the session that has the id now. Read again, then decide anew.
    """

    def __init__(self, text: str, session_id: str | None = None, last_seq: int = 0, cleared: bool = False) -> None:
        super().__init__(text, session_id)
        self.last_seq = last_seq
        self.cleared = cleared


class RecordConflict(Conflict):
    """A record is not as the change expects: another writer was faster. Nothing was written, in no record.

    `record_id` is the id of the record, and `field` the field whose check does not hold.
    """

    def __init__(self, text: str, session_id: str | None = None, record_id: str = "", field: bytes = b"") -> None:
        super().__init__(f"record {record_id!r}, field {field[:64]!r}: {text}" if record_id else text, session_id)
        self.text = text
        self.record_id = record_id
        self.field = field


class SessionExists(RedismemError):
    """A live session or record has the id of the one to restore from quarantine. Both are unchanged."""


class WrongShards(RedismemError):
    """The namespace's record in Redis has a different number of shards from `Settings.shards`."""


class CorruptSession(RedismemError):
    """The stored bytes of a session or record cannot be read.

    A read raises it and changes nothing. A write puts the session or record into quarantine and goes on with a new one.

    `epoch` is the epoch of the session, or "" if the epoch is unreadable too.
    """

    def __init__(self, text: str, session_id: str | None = None, epoch: str = "") -> None:
        super().__init__(text, session_id)
        self.epoch = epoch


class UnsupportedFormat(RedismemError):
    """The session or namespace has the layout of another release, which this release does not know.

    It stays unchanged: nothing is written, and nothing goes into quarantine.
    """


class StoreUnavailable(RedismemError):
    """Redis did not answer the call in time. `reason` is the server's error word, or the fault of the connection.

    `may_be_done` is True if the call was sent but got no reply: Redis may have executed it, or may still do so. An
    append or update with an id is safe to retry with that id, because Redis makes it only once.
    """

    def __init__(
        self, text: str, session_id: str | None = None, reason: str = "", *, may_be_done: bool = False
    ) -> None:
        super().__init__(text, session_id)
        self.reason = reason
        self.may_be_done = may_be_done


class FallbackFull(StoreUnavailable):
    """Redis is away, and the backlog of this process is full. This append was not accepted."""


class Overloaded(StoreUnavailable):
    """This process has more calls than it can make in time, and refused this one. It was never sent.

    `reason` is BusyProcess (calls wait in this process), SlowReplies (Redis answers late), TooManyCalls (the line of
    waiting calls is full) or TimeoutError (the call waited in that line in vain). Redis does not count as down. A retry
    after `retry_after_s` seconds is safe.
    """

    def __init__(
        self, text: str, session_id: str | None = None, reason: str = "", *, retry_after_s: float = 1.0
    ) -> None:
        super().__init__(text, session_id, reason)
        self.retry_after_s = retry_after_s


class Unconfirmed(RedismemError):
    """The append is in Redis, but too few replicas confirmed it in time: a failover may lose it.

    It is also raised if the ACL of the Redis user lacks WAIT. `replicas` is the number of confirmations, `wanted` the
    required number. A retry with the same id waits again and appends nothing twice; a retry without an id is another
    append.
    """

    def __init__(self, text: str, session_id: str | None = None, replicas: int = 0, wanted: int = 0) -> None:
        super().__init__(text, session_id)
        self.replicas = replicas
        self.wanted = wanted


class TurnBusy(RedismemError):
    """Another turn of the session runs, or waits before this one. Nothing was written.

    `turn` is the generation of the running turn. `left_ms` is what is left of its lease, which a living turn extends.
    After a crash, another process ends the turn within a lease and a half and 2 s. `may_wait` is False if it cannot
    even wait: too many turns wait already, or it would wait for itself.
    """

    def __init__(
        self, text: str, session_id: str | None = None, turn: str = "", left_ms: int = 0, *, may_wait: bool = True
    ) -> None:
        super().__init__(text, session_id)
        self.turn, self.left_ms, self.may_wait = turn, left_ms, may_wait


class TurnKnown(RedismemError):
    """The session knows the id of this turn: it was begun before. Nothing was written, and no model should be asked.

    `how` is `running` or `ended`. `Session.follow(turn=id)` returns its events, `Session.turn_of(id)` its reply.
    `generation` names the running turn. An ended turn has `outcome` done, stopped, failed or lost. `first_seq` and
    `last_seq` are the seqs of its messages; `reply_seq` is 0 if it has no reply. They are 0 if not known yet.
    """

    def __init__(
        self,
        text: str,
        session_id: str | None = None,
        how: str = "",
        *,
        outcome: str = "",
        generation: str = "",
        first_seq: int = 0,
        last_seq: int = 0,
        reply_seq: int = 0,
    ) -> None:
        super().__init__(text, session_id)
        self.how, self.outcome, self.generation = how, outcome, generation
        self.first_seq, self.last_seq, self.reply_seq = first_seq, last_seq, reply_seq


class TurnLost(RedismemError):
    """The turn is no longer its caller's: its lease ended and another process took over, or its session was removed.

    Nothing that the caller wrote since is stored.
    """


class TurnStopped(RedismemError):
    """The turn of a blocking caller was stopped: end the model's stream and leave the block. `reason` says why."""

    def __init__(self, text: str, session_id: str | None = None, reason: str = "") -> None:
        super().__init__(text, session_id)
        self.reason = reason


class ForgetIncomplete(RedismemError):
    """Not all sessions of an owner or prefix are removed: Redis failed, or other processes kept writing them.

    `forgotten` counts what was removed; it stays removed. The same call again removes the rest.
    """

    def __init__(self, text: str, session_id: str | None = None, forgotten: ForgottenSessions | None = None) -> None:
        super().__init__(text, session_id)
        self.forgotten = ForgottenSessions() if forgotten is None else forgotten


class NotAllowed(RedismemError):
    """The ACL of the Redis user lacks a command or a key, or the server does not have a command.

    `command` is the command in lower case, or "" for a key. If a script was stopped half way, its earlier writes stay.
    `redismem doctor` prints the required ACL.
    """

    def __init__(self, text: str, session_id: str | None = None, command: str = "") -> None:
        super().__init__(text, session_id)
        self.command = command


class ModelFailed(RedismemError):
    """A model returned no usable text. The text names the provider and a status, never a message or key.

    `reason` is stored and shown to operators, such as `openai answered 400 context_length_exceeded`. It has at most 120
    printable ASCII characters; otherwise only the name of the class is stored. `retry_after_s` is the wait that the
    provider asks for, or `None`. `permanent` is True if the provider will refuse the request until the transcript
    changes.
    """

    def __init__(
        self,
        text: str,
        session_id: str | None = None,
        *,
        reason: str = "",
        retry_after_s: float | None = None,
        permanent: bool = False,
    ) -> None:
        super().__init__(text, session_id)
        self.reason = reason
        self.retry_after_s = retry_after_s
        self.permanent = permanent


class ProviderUnavailable(ModelFailed):
    """The provider answers no request now: it is down or busy, or it refuses the key or the model.

    The messages are not the cause. The provider is paused for the namespace, and the failure does not count as an
    attempt of the session. `perhaps_request` is True if this request may be the cause after all, as with a status of
    5xx. Then, if the provider has answered other sessions since, only this session waits.
    """

    def __init__(
        self,
        text: str,
        session_id: str | None = None,
        *,
        reason: str = "",
        retry_after_s: float | None = None,
        perhaps_request: bool = False,
    ) -> None:
        super().__init__(text, session_id, reason=reason, retry_after_s=retry_after_s)
        self.perhaps_request = perhaps_request


class ScriptFailed(RedismemError):
    """A script stopped with an error word that redismem does not know. It may have written a part of its changes."""
