"""Keep a process in agreement with the record of its namespace: layout, number of shards, and what may be removed."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine
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
from redismem.store.limits import (
    find_removals,
    given_removals,
    is_given,
    keeps_originals,
    limit_to_record,
    session_limit,
)

log = logging.getLogger("redismem")

T = TypeVar("T")
_LOOK_AGAIN_S = 1.0
"""The shortest time between two checks of the record because sessions were created."""


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
