"""The errors of redismem, as one tree.

RedismemError
├── InvalidMessage      a message, batch or append id that cannot be stored as it is    (also a ValueError)
├── InvalidState        a param name or state value that cannot be stored as it is      (also a ValueError)
├── InvalidSessionId    a session id or namespace that cannot be one                    (also a ValueError)
├── InvalidItem         a field of a project's item, or a name, that cannot be stored    (also a ValueError)
├── InvalidTransition   an item whose status does not lead to the one that was asked for (also a ValueError)
├── InvalidSettings     a setting given in code that is out of range                    (also a ValueError)
├── InvalidTime         what a clock of the caller's own gave cannot be the time        (also a ValueError)
├── TooLarge            a message, batch, value or window over its limit                (also a ValueError)
├── SessionNotFound     the session does not exist, or no longer                        (also a LookupError)
├── NotInWindow         a message to pop, replace or unpin: a summary covers it, or it is gone   (also a LookupError)
├── ItemNotFound        the project has no such item, or had none at that moment        (also a LookupError)
├── Conflict            another writer was faster: `expect` is not the last seq; a message or item is not as it was read
├── SessionExists       a session lives where one was to be restored from quarantine
├── WrongShards         the namespace was created with another number of shards
├── CorruptSession      stored bytes that cannot be read, and could not be put into quarantine
├── UnsupportedFormat   a session or namespace in a layout that this release does not know
├── StoreUnavailable    Redis did not take the call before the deadline; with append's id it is safe to try again
│   └── FallbackFull     Redis is away, and this process has accepted all it may until then
├── Unconfirmed         an append was made, and too few replicas had it in time; with its id it is safe to try again
├── NotAllowed          the Redis user may not run a command or use a key: its ACL lacks it
├── ModelFailed         a model gave no usable text; the messages stay as they are
│   └── ProviderUnavailable  nobody gets an answer from the provider now: it is paused, and no attempt is counted
└── ScriptFailed        a script stopped half way: a defect, never retried

Every refusal happens before anything is written; Unconfirmed is none, as what it is about stands. Texts name the
session, the limit and a value's size, never the value.
"""

from __future__ import annotations


class RedismemError(Exception):
    """Root of all errors raised by redismem. `session_id` is the session it is about, or None.

    `text` is what happened without the session's id, so it may be logged.
    """

    def __init__(self, text: str, session_id: str | None = None) -> None:
        super().__init__(text if session_id is None else f"session {session_id}: {text}")
        self.session_id = session_id
        self.text = text


class InvalidMessage(RedismemError, ValueError):
    """A message, batch or append id cannot be stored and given back exactly as it is."""


class InvalidState(RedismemError, ValueError):
    """A param name or a state value cannot be stored and given back exactly as it is."""


class InvalidSessionId(RedismemError, ValueError):
    """The session id or namespace holds characters that it may not hold, is empty, or is too long."""


class InvalidItem(RedismemError, ValueError):
    """A field of an item, a name, a link or a query cannot be stored or asked for as it is."""


class InvalidTransition(RedismemError, ValueError):
    """An item's status does not lead to the one that was asked for. `before` and `after` are both of them."""

    def __init__(self, text: str, session_id: str | None = None, before: str = "", after: str = "") -> None:
        super().__init__(text, session_id)
        self.before = before
        self.after = after


class InvalidSettings(RedismemError, ValueError):
    """A setting given in code is out of range or unreadable."""


class InvalidTime(RedismemError, ValueError):
    """A clock given to `Memory.connect` gave no int, or a time out of all reason. Nothing was written."""


class TooLarge(RedismemError, ValueError):
    """A message, a batch, a state value or the session's window is over its limit."""


class SessionNotFound(RedismemError, LookupError):
    """The session does not exist, or its time ran out."""


class NotInWindow(RedismemError, LookupError):
    """The message is in the window no more: a summary covers it, or it was dropped or popped. Or it never was."""


class ItemNotFound(RedismemError, LookupError):
    """The project has no item of this id, or had none as of the moment that was asked for."""


class Conflict(RedismemError):
    """Another writer was faster: `expect` is not the session's last seq, or a message is not as it was read.

    Nothing was written. `last_seq` is what the last seq was. Of a project: an item has changed since it was read, or a
    name is taken. Read it again and decide anew.
    """

    def __init__(self, text: str, session_id: str | None = None, last_seq: int = 0) -> None:
        super().__init__(text, session_id)
        self.last_seq = last_seq


class SessionExists(RedismemError):
    """A session lives where another of its name was to be restored from quarantine. Both are as they were."""


class WrongShards(RedismemError):
    """The namespace is recorded in Redis with another number of shards than `Settings.shards`."""


class CorruptSession(RedismemError):
    """The stored bytes of a session cannot be read. `epoch` is the one that was seen, "" if none was."""

    def __init__(self, text: str, session_id: str | None = None, epoch: str = "") -> None:
        super().__init__(text, session_id)
        self.epoch = epoch


class UnsupportedFormat(RedismemError):
    """Another release wrote this session, or laid out this namespace, in a way that this one does not know.

    It is left alone: nothing is written, and nothing goes into quarantine.
    """


class StoreUnavailable(RedismemError):
    """Redis did not carry out the call in time. `reason` is the server's word, or what happened to the connection.

    `may_be_done`: the call was sent and its answer did not come, so Redis may have carried it out, or may still do so.
    An append or an update that has an id may be sent again with it: it is made once.
    """

    def __init__(
        self, text: str, session_id: str | None = None, reason: str = "", *, may_be_done: bool = False
    ) -> None:
        super().__init__(text, session_id)
        self.reason = reason
        self.may_be_done = may_be_done


class FallbackFull(StoreUnavailable):
    """Redis is away, and this process has accepted as much as it may until it is back. This append was not accepted."""


class Unconfirmed(RedismemError):
    """The append stands in Redis, but too few replicas said in time that they have it: a failover may lose it.

    Or none could be asked, as the ACL of the Redis user lacks WAIT. `replicas`: how many have said so; `wanted`: how
    many were to. With the same id it may be sent again: it is made once, and waited for anew. Without an id it would be
    another append.
    """

    def __init__(self, text: str, session_id: str | None = None, replicas: int = 0, wanted: int = 0) -> None:
        super().__init__(text, session_id)
        self.replicas = replicas
        self.wanted = wanted


class NotAllowed(RedismemError):
    """The ACL of the Redis user lacks a command or a key. `command` names it in small letters; "" for a key.

    If a script was stopped by it, what the script wrote before stays: `redismem doctor` prints the ACL that is needed.
    """

    def __init__(self, text: str, session_id: str | None = None, command: str = "") -> None:
        super().__init__(text, session_id)
        self.command = command


class ModelFailed(RedismemError):
    """An attempt at a model gave no usable text. The text names the provider and a status, never a message or key.

    `reason`: what is stored of it and shown to operators, such as `openai answered 400 context_length_exceeded`; at
    most 120 printable characters of ASCII, or only the name of the class is. `retry_after_s`: how long the provider
    asks to wait, or None. `permanent`: the same request will be refused again until somebody changes the transcript.
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
    """The provider answers nobody now: it is down, busy, or refuses the key or the model.

    The messages have nothing to do with it. The provider is paused for the namespace, and no session loses an attempt.
    `perhaps_request`: it may be this request all the same that it cannot bear, as with a status of 5xx. If others are
    answered since this session failed, it waits alone.
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
    """A script stopped with an error that is none of the server's known words. It may have written a part."""
