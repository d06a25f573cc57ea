"""Keep a process in agreement with the record of its namespace: layout, number of shards, and what may be removed.

The first process of a namespace records its `idle_timeout_s` and `keep_originals`, and each process an explicit
`max_sessions` that is larger than the recorded one. A process that would remove more than is recorded warns, and its
workers use the recorded values, unless it overrides the record with its explicit values. A process whose own settings
keep more uses its own settings.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from time import monotonic
from typing import Any, Protocol, TypeVar

from redismem.errors import CorruptSession, NotAllowed, StoreUnavailable, UnsupportedFormat, WrongShards
from redismem.events import facts
from redismem.protocol.call import Call
from redismem.protocol.keys import Keys
from redismem.protocol.namespace import calls as namespace_calls
from redismem.protocol.namespace.calls import Embedding, Recorded
from redismem.protocol.server_errors import ConnectionLost, ServerError
from redismem.settings.settings import Settings

log = logging.getLogger("redismem")

T = TypeVar("T")
_LOOK_AGAIN_S = 1.0
"""The shortest time between two checks of the record because sessions were created."""
NEAR_LIMIT = 0.8
"""The part of its session limit from which on a namespace counts as near it."""
_REMOVALS = ("max_sessions", "idle_timeout_s", "keep_originals")
_WAY_OUT = "workers of this process use the recorded value; to record this one, run `redismem worker --override`"


class Caller(Protocol):
    """A store, as far as its agreement uses it."""

    settings: Settings
    keys: Keys

    def run(self, call: Call[T], *, quarantine: bool = False, begun_s: float | None = None) -> Coroutine[Any, Any, T]:
        """Return the value of a call, as `Store.run` does."""

    def once(self, call: Call[T], begun_s: float | None = None) -> Coroutine[Any, Any, T]:
        """Send a call once, as `Store.once` does."""


class Agreement:
    """The part of a store that checks and writes the record of its namespace."""

    def __init__(self, caller: Caller) -> None:
        """Start without agreement, without I/O."""
        self._caller = caller
        self._settings, self._keys = caller.settings, caller.keys
        self.is_agreed = False
        """True once the namespace's record was found to match the settings."""
        self.on_first_call: Callable[[], Awaitable[None]] | None = None
        """Awaited after the check of the namespace's record, before the first call about a session."""
        self.has_begun = False
        """True once `on_first_call` was awaited. If it is set to False, the next call about a session awaits it."""
        self.session_limit = self._settings.max_sessions
        """The session limit of the namespace, as far as this process knows."""
        self.keeps_originals = self._settings.keep_originals
        """True if workers keep the messages that they summarise."""
        self._recorded = Recorded()
        self._look_again_at_s = 0.0

    async def agree(self, begun_s: float | None = None) -> None:
        """Check the namespace's record, and write it if it is missing. Raises as `Store.open` does."""
        # Read before writing, because a server that is out of memory refuses writes, but can be read and cleared.
        is_there = await self.look(begun_s)
        limit = limit_to_record(self._settings, self._recorded.max_sessions)
        if not is_there:
            await self._caller.run(namespace_calls.record(self._keys, limit, self._settings), begun_s=begun_s)
        if self.is_agreed:
            return
        if is_there and limit:
            await self._record_limit(limit, begun_s)
        for setting, warning in find_removals(self._settings, self._recorded):
            log.warning("namespace %s: %s", self._keys.namespace, warning, extra=facts(op="record", setting=setting))
        self.is_agreed = True
        self._look_again_at_s = monotonic() + _LOOK_AGAIN_S
        await self.begin()

    async def begin(self, begun_s: float | None = None) -> None:
        """Do what comes before the first call about a session. Raises as `Store.open` does."""
        if not self.is_agreed:
            await self.agree(begun_s)  # which comes back here
            return
        if self.on_first_call is not None:
            await self.on_first_call()
        self.has_begun = True

    async def agree_again(self) -> None:
        """Check the record again, at most once per second, because a session was created.

        Redis may have been emptied since, and a process with another number of shards may have written the record. Then
        each of both would have its own life of a session. If Redis does not answer, a later creation repeats the check.

        Raises:
            WrongShards: The namespace now has a different number of shards. So do all later calls about a session.
            UnsupportedFormat: A newer release wrote the namespace. So do all later calls about a session.
        """
        if monotonic() < self._look_again_at_s:
            return
        self._look_again_at_s = monotonic() + _LOOK_AGAIN_S
        try:
            await self.agree()
        except (WrongShards, UnsupportedFormat):
            self.is_agreed = self.has_begun = False
            raise
        except (StoreUnavailable, NotAllowed) as failure:
            self._log_failure("the namespace's record could not be checked again", failure)

    async def look(self, begun_s: float | None = None) -> bool:
        """Read the namespace's record, and return True if it exists. Raises as `Store.open` does."""
        try:
            recorded = await self._caller.run(namespace_calls.read_record(self._keys), begun_s=begun_s)
        except CorruptSession:  # the record's key has a foreign type, which concerns no session
            raise namespace_calls.unreadable_record(self._keys) from None
        self._use(recorded)
        return recorded is not None

    def _use(self, recorded: Recorded | None) -> None:
        self._recorded = recorded or Recorded()
        self.session_limit = session_limit(self._settings, self._recorded)
        self.keeps_originals = keeps_originals(self._settings, self._recorded)

    async def override_record(self, embedder: str | None = None) -> None:
        """Record the settings that were set explicitly, and the embedder, in place of the recorded ones.

        A setting that has its default leaves the recorded value. An empty `embed` setting without an embedder removes
        the recorded embedder. Raises as `Store.open` does.
        """
        settings = self._settings
        names = given_removals(settings)
        if embedder is not None or is_given(settings, "embed"):
            embedding = None if embedder is None else Embedding(embedder, settings.embed_dimensions or 0)
            await self._caller.run(namespace_calls.record_embedding(self._keys, embedding, overrides=True))
            names = [*names, "embed"]
        limit = settings.max_sessions if "max_sessions" in names else 0
        self._use(await self._caller.run(namespace_calls.record(self._keys, limit, settings, overrides=names)))
        named = ", ".join(names) or "none was set, so nothing changed"
        log.warning("namespace %s: settings of this process are recorded now: %s", self._keys.namespace, named)

    async def _record_limit(self, limit: int, begun_s: float | None) -> None:
        """Record the session limit for workers without an explicit one. A failure is only logged."""
        try:
            await self._caller.once(namespace_calls.record(self._keys, limit, self._settings), begun_s)
        except (StoreUnavailable, NotAllowed, ServerError, ConnectionLost) as failure:
            text = "max_sessions could not be recorded: a worker without this setting may enforce its own default"
            self._log_failure(text, failure)

    def _log_failure(self, text: str, failure: Exception) -> None:
        log_fields = facts(op="record", namespace=self._keys.namespace, error=type(failure).__name__)
        log.warning("%s (%s)", text, failure, extra=log_fields)


def is_given(settings: Settings, name: str) -> bool:
    """True if the setting was set in code or by the environment."""
    return name in settings.model_fields_set


def session_limit(settings: Settings, recorded: Recorded) -> int:
    """Return the session limit that a process enforces."""
    return max(settings.max_sessions, recorded.max_sessions)


def keeps_originals(settings: Settings, recorded: Recorded) -> bool:
    """True if the workers of a process keep the messages that they summarise."""
    return settings.keep_originals or recorded.keep_originals is True


def limit_to_record(settings: Settings, recorded: int) -> int:
    """Return the limit to write into the record; 0 means that no limit is written."""
    is_due = is_given(settings, "max_sessions") and recorded < settings.max_sessions
    return settings.max_sessions if is_due else 0


def given_removals(settings: Settings) -> list[str]:
    """Return the settings that decide what may be removed, as far as they were set explicitly."""
    return [name for name in _REMOVALS if is_given(settings, name)]


def find_removals(settings: Settings, recorded: Recorded) -> Iterator[tuple[str, str]]:
    """Yield each setting, with a warning, by which this process would remove more than is recorded.

    A default is nobody's wish: only an explicit value is warned of.
    """
    limit, timeout_ms = recorded.max_sessions, recorded.idle_timeout_ms
    if is_given(settings, "max_sessions") and settings.max_sessions < limit:
        yield "max_sessions", f"max_sessions is {settings.max_sessions} here, the namespace records {limit}: {_WAY_OUT}"
    if is_given(settings, "keep_originals") and keeps_originals(settings, recorded) != settings.keep_originals:
        yield "keep_originals", f"keep_originals is false here, the namespace records true: {_WAY_OUT}"
    if is_given(settings, "idle_timeout_s") and settings.idle_timeout_ms < timeout_ms:
        here, there = settings.idle_timeout_s, timeout_ms / 1000
        text = (
            f"idle_timeout_s is {here:.15g} here, the namespace records {there:.15g}: sessions that this process uses"
        )
        yield "idle_timeout_s", f"{text} expire sooner; to record this one, run `redismem worker --override`"
