"""What has changed in sessions that somebody watches: one pipelined look at all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from redismem.info import SessionInfo
from redismem.inspection.sessions import info_of
from redismem.protocol import layout, replies
from redismem.protocol.call import Call, independent
from redismem.protocol.keys import Keys
from redismem.store.store import Store


@dataclass(frozen=True, slots=True)
class Look:
    """A session as it was at one look; `info` is None if there is no such session, or it cannot be read."""

    mark: int
    """A hash of what is stored: equal for two looks in one process if nothing has changed but the activity."""
    info: SessionInfo | None
    summary_version: str

    def document(self) -> dict[str, Any]:
        """Numbers and names as JSON values: no text, no value."""
        if self.info is None:
            return {"exists": False}
        return {"exists": True, **asdict(self.info), "summary_version": self.summary_version}


async def changes_of(store: Store, seen: Mapping[str, Look | None]) -> dict[str, Look]:
    """The sessions that are not as they were seen last (None: never), in one round trip. Raises StoreUnavailable."""
    return await store.run(_changes(store.keys, seen)) if seen else {}


def _changes(keys: Keys, seen: Mapping[str, Look | None]) -> Call[dict[str, Look]]:
    def decode(*answers: Any) -> dict[str, Look]:
        found = {}
        for (session_id, last), answer in zip(seen.items(), answers, strict=True):
            stored = replies.fields(answer)
            mark = _mark(stored)
            # Only what has changed is taken apart: most of what is watched has not.
            if last is None or last.mark != mark:
                found[session_id] = _look(session_id, mark, stored)
        return found

    return independent(tuple(("HGETALL", keys.session(session_id).state) for session_id in seen), decode)


def _mark(stored: Mapping[bytes, bytes]) -> int:
    # Version, first_seq, message_count and tokens; what follows is when it was active.
    counted = tuple(stored.get(layout.COUNTERS, b"").split(b" ", 4)[:4])
    rest = frozenset(item for item in stored.items() if item[0] != layout.COUNTERS)
    return hash((counted, rest))


def _look(session_id: str, mark: int, stored: Mapping[bytes, bytes]) -> Look:
    info = info_of(session_id, stored)
    if not isinstance(info, SessionInfo):
        return Look(mark, None, "")
    return Look(mark, info, stored.get(layout.COMMITTED, b"").decode("utf-8", "replace"))
