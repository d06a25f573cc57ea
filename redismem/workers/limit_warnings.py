"""Tell of the session limit before it removes sessions: in the log, as events, and to the doctor of every process."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from redismem.context.info import SessionEntry
from redismem.errors import StoreUnavailable
from redismem.events import Op, facts
from redismem.protocol.namespace.holds import note_recent
from redismem.store.agreement import NEAR_LIMIT, is_given
from redismem.store.store import Store

log = logging.getLogger("redismem.worker")

RECENT_MS = 3_600_000
"""A session that is evicted this soon after its last activity was still in use."""
_MINUTE_S, _HOUR_S = 60, 3_600
_SETTING = "REDISMEM_MAX_SESSIONS"
_told: set[tuple[str, int]] = set()


class LimitWarnings:
    """Tell of the session limit of a namespace, for the workers of one process."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._next_s: dict[str, float] = {}
        self._evicted_count = self._recent_count = 0

    def tell_of_default(self) -> None:
        """Log, once per process, that nobody chose this limit here: it is the default, or another process's."""
        settings, limit = self._store.settings, self._store.agreement.session_limit
        known = self._store.keys.namespace, limit
        if is_given(settings, "max_sessions") or known in _told:
            return
        _told.add(known)
        if limit > settings.max_sessions:
            text = (
                "another process of the namespace sets a limit of %d sessions; this worker has none set and enforces "
                "that one: set REDISMEM_MAX_SESSIONS here too"
            )
            log.warning(text, limit, extra=facts(op="enforce", setting=_SETTING))
            return
        text = (
            "above %d sessions, the default limit, workers evict the least recently active one; each session expires "
            "%g s after its last use: REDISMEM_MAX_SESSIONS and REDISMEM_IDLE_TIMEOUT_S set both"
        )
        log.info(text, limit, settings.idle_timeout_s, extra=facts(op="enforce", setting=_SETTING))

    def note_count(self, sessions_count: int) -> None:
        """Tell once an hour that the namespace is near its limit. Beyond it, evictions are told of."""
        limit = self._store.agreement.session_limit
        if NEAR_LIMIT * limit <= sessions_count <= limit and self._is_due("near", time.monotonic(), _HOUR_S):
            text = "the namespace has %d sessions, near its limit of %d (REDISMEM_MAX_SESSIONS)"
            log.warning(text, sessions_count, limit, extra=facts(op="enforce", setting=_SETTING))
            self._tell("near")

    async def note_leaving(self, leaving: Sequence[SessionEntry], now_ms: int) -> None:
        """Tell once a minute that sessions in use are evicted, within an hour of their last activity."""
        count = sum(entry.active_ms > now_ms - RECENT_MS for entry in leaving)
        self._recent_count += count
        if count and self._is_due("recent", now_ms / 1000, _MINUTE_S):
            text = "%d sessions active within the last hour are evicted: the limit is %d (REDISMEM_MAX_SESSIONS)"
            extra = facts(op="enforce", session_count=count, setting=_SETTING)
            log.warning(text, count, self._store.agreement.session_limit, extra=extra)
            self._tell("recent")
            try:
                await self._store.run(note_recent(self._store.keys, now_ms))
            except StoreUnavailable as error:  # a full Redis takes no note, and the eviction makes room
                log.warning("the doctor of other processes cannot tell of it: %s", error.text, extra=extra)

    def note_evicted(self, count: int) -> None:
        """Count evicted sessions, and log their number once a minute."""
        self._evicted_count += count
        if self._evicted_count and self._is_due("evicted", time.monotonic(), _MINUTE_S):
            text = "evicted %d sessions since the last such line, %d of them active within the hour; the limit is %d"
            extra = facts(op="enforce", session_count=self._evicted_count, setting=_SETTING)
            log.info(text, self._evicted_count, self._recent_count, self._store.agreement.session_limit, extra=extra)
            self._evicted_count = self._recent_count = 0

    def _is_due(self, what: str, now_s: float, every_s: int) -> bool:
        if now_s < self._next_s.get(what, now_s):
            return False
        self._next_s[what] = now_s + every_s
        return True

    def _tell(self, outcome: str) -> None:
        if self._store.hook is not None:
            self._store.hook.tell(Op.NEAR_LIMIT, outcome, time.monotonic(), None, None)
