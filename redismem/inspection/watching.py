"""Poll watched sessions for changes, all of them in one pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from redismem.context.info import SessionInfo
from redismem.inspection.sessions import info_of
from redismem.inspection.work_rules import failure_kind
from redismem.protocol import layout, replies
from redismem.protocol.call import Call, independent
from redismem.protocol.keys import Keys
from redismem.store.store import Store


@dataclass(frozen=True, slots=True)
class Look:
    """A session at one poll. `info` is `None` if the session does not exist or cannot be read."""

    mark: int
    """A hash of the stored fields. Within one process it stays equal unless more than the activity has changed."""
    info: SessionInfo | None
    summary_version: str
    stored_bytes: int = 0
    """The bytes that a poll of the session reads."""

    def document(self) -> dict[str, Any]:
        """Return numbers, names and the title as JSON values, without any message or value of the session."""
        if self.info is None:
            return {"exists": False}
        document = {"exists": True, **asdict(self.info), "summary_version": self.summary_version}
        failed = None if self.info.failure is None and self.info.queued != "dead" else failure_kind(self.info.failure)
        return document | {"failed": None if failed is None else failed.document()}


async def changes_of(store: Store, seen: Mapping[str, Look | None]) -> dict[str, Look]:
    """Return the sessions that changed since the last poll, in one round trip. `None` means not polled before.

    Raises StoreUnavailable.
    """
    return await store.run(_changes(store.keys, seen)) if seen else {}


def _changes(keys: Keys, seen: Mapping[str, Look | None]) -> Call[dict[str, Look]]:
    def decode(*answers: Any) -> dict[str, Look]:
        changed = {}
        for (session_id, last), answer in zip(seen.items(), answers, strict=True):
            stored = replies.fields(answer)
            mark = _mark(stored)
            # Most watched sessions have not changed, so decode only the ones that have.
            if last is None or last.mark != mark:
                changed[session_id] = _look(session_id, mark, stored)
        return changed

    return independent(tuple(("HGETALL", keys.session(session_id).state) for session_id in seen), decode)


def _mark(stored: Mapping[bytes, bytes]) -> int:
    # Version, first_seq, message_count and tokens; then the times of activity, and the policy behind a tilde.
    counters, _, policy = stored.get(layout.COUNTERS, b"").partition(b"~")
    counted = (*counters.split(b" ", 4)[:4], policy)
    rest = frozenset(item for item in stored.items() if item[0] != layout.COUNTERS)
    return hash((counted, rest))


def _look(session_id: str, mark: int, stored: Mapping[bytes, bytes]) -> Look:
    info = info_of(session_id, stored)
    stored_bytes = sum(len(name) + len(value) for name, value in stored.items())
    if not isinstance(info, SessionInfo):
        return Look(mark, None, "", stored_bytes)
    return Look(mark, info, stored.get(layout.COMMITTED, b"").decode("utf-8", "replace"), stored_bytes)
