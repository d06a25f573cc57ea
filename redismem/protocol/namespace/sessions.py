"""Read a page of the live sessions: the newest of all shards, at a cost that grows with the page. No I/O."""

from __future__ import annotations

import base64
import binascii
import heapq
import json
import math
from collections import deque
from collections.abc import Iterator
from typing import Any

from redismem.context.info import SessionEntry, SessionPage
from redismem.events import Op
from redismem.protocol.call import Call, Command, independent
from redismem.protocol.keys import Keys
from redismem.protocol.namespace.calls import name_of, scored_members

_LIMIT = 10_000
_FOREIGN_CURSOR = "this cursor was not returned by sessions()"
_MOST = 1 << 53
# Of one round trip: few enough that sending and decoding them does not delay a turn.
_COMMANDS_COUNT = 256
_ELEMENTS_COUNT = 4_096


def check_limit(limit: int) -> None:
    """Check the number of sessions per page. Raises ValueError."""
    if type(limit) is not int or not 1 <= limit <= _LIMIT:
        raise ValueError(f"limit is an integer, from 1 to {_LIMIT}")


class _Range:
    """The live sessions of one shard that count for the session limit, or the exempt ones, newest first."""

    __slots__ = ("count", "is_exempt", "key", "last", "start")

    def __init__(self, key: bytes, start: int | str, is_exempt: bool, count: int) -> None:
        self.key = key
        self.start = start
        self.is_exempt = is_exempt
        self.count = count
        self.last: tuple[int, bytes] | None = None
        """The last session read; `None` if there is none so far."""

    def command(self, since_ms: int) -> Command:
        window = ("WITHSCORES", "LIMIT", 0, self.count)
        if self.is_exempt:  # the scores of exempt sessions are negative
            return ("ZRANGEBYSCORE", self.key, self.start, f"({-since_ms}", *window)
        return ("ZREVRANGEBYSCORE", self.key, self.start, f"({since_ms}", *window)

    def take(self, answer: Any) -> Iterator[tuple[int, bytes]]:
        """Yield the sessions that no earlier read has returned."""
        last, read = self.last, None
        for member, score in scored_members(answer):
            read = (abs(score), member)
            if last is None or read[0] < last[0]:
                is_new = True
            else:
                is_new = member > last[1] if self.is_exempt else member < last[1]
            if is_new:
                yield read
        self.last = read or last

    def go_on(self) -> None:
        """Continue at the last session, whose millisecond is read again, since other sessions may share it."""
        assert self.last is not None
        self.start = -self.last[0] if self.is_exempt else self.last[0]
        self.count *= 2


class SessionsReader:
    """Reads one page, by (last activity, id), newest first.

    The first read asks each shard for little more than its share of the page. Only a shard whose sessions are all on
    the page is asked again, for twice as many. So the number of entries read grows with the page, not with the page
    times the shards. The cursor is the last returned session; nothing in it decides how much is read.
    """

    def __init__(self, keys: Keys, limit: int, cursor: str | None, since_ms: int) -> None:
        """Begin a page of the sessions that were active after `since_ms`.

        Raises:
            ValueError: the cursor was not returned by sessions(), or the limit is out of range.
        """
        check_limit(limit)
        self._limit = limit
        self._since_ms = since_ms
        self._after = None if cursor is None else decode_cursor(cursor)
        share = limit / keys.shard_count
        count = min(limit + 1, math.ceil(share + 2 * math.sqrt(share)) + 2)
        normal: int | str = "+inf" if self._after is None else self._after[0]
        exempt: int | str = "-inf" if self._after is None else -self._after[0]
        self._waiting = deque(
            _Range(shard.active, start, is_exempt, count)
            for shard in keys.shards()
            for start, is_exempt in ((normal, False), (exempt, True))
        )
        self._unfinished: list[_Range] = []
        self._newest: list[tuple[int, bytes]] = []
        """A heap of the newest sessions, at most one more than the limit."""

    def next_call(self) -> Call[int] | None:
        """Return a call that reads on and counts the ranges that it read; `None` if the page is complete."""
        if not self._waiting:
            self._waiting.extend(each for each in self._unfinished if self._may_have_more(each))
            self._unfinished = []
            for each in self._waiting:
                each.go_on()
        ranges: list[_Range] = []
        elements_count = 0
        while self._waiting and len(ranges) < _COMMANDS_COUNT and (not ranges or elements_count < _ELEMENTS_COUNT):
            ranges.append(self._waiting.popleft())
            elements_count += ranges[-1].count

        def decode(*answers: Any) -> int:
            for each, answer in zip(ranges, answers, strict=True):
                self._add(each, answer)
            return len(ranges)

        commands = tuple(each.command(self._since_ms) for each in ranges)
        return independent(commands, decode, Op.SESSIONS) if ranges else None

    def _add(self, part: _Range, answer: Any) -> None:
        read_count = len(answer) if answer and isinstance(answer[0], list | tuple) else len(answer) // 2
        if read_count == part.count:
            self._unfinished.append(part)
        newest, after = self._newest, self._after
        for entry in part.take(answer):
            if after is not None and entry >= after:
                continue
            if len(newest) <= self._limit:
                heapq.heappush(newest, entry)
            elif entry > newest[0]:
                heapq.heapreplace(newest, entry)

    def _may_have_more(self, part: _Range) -> bool:
        """True if unread sessions of this range may belong to the page."""
        if len(self._newest) <= self._limit or part.last is None:
            return True
        # Redis returns exempt sessions of one millisecond in ascending order, so the greatest may be unread.
        return part.last[0] >= self._newest[0][0] if part.is_exempt else part.last > self._newest[0]

    def page(self) -> SessionPage:
        """Return the page, once `next_call` has returned `None`."""
        newest = sorted(self._newest, reverse=True)[: self._limit]
        # A session that became exempt meanwhile was read twice.
        active_ms = {name_of(member): at_ms for at_ms, member in reversed(newest)}
        sessions = [SessionEntry(session_id, at_ms) for session_id, at_ms in reversed(active_ms.items())]
        return SessionPage(sessions, encode_cursor(sessions[-1]) if len(self._newest) > self._limit else None)


def encode_cursor(last: SessionEntry) -> str:
    """Return the cursor of the sessions after this one."""
    return base64.urlsafe_b64encode(json.dumps([last.active_ms, last.session_id]).encode()).decode()


def decode_cursor(cursor: str) -> tuple[int, bytes]:
    """Return last activity and id of the session that a cursor names.

    Raises:
        ValueError: the cursor was not returned by sessions().
    """
    if type(cursor) is not str:
        raise ValueError(_FOREIGN_CURSOR)
    try:
        after_ms, after_id = json.loads(base64.urlsafe_b64decode(cursor.encode()))
        member = after_id.encode("utf-8", "surrogateescape")
    except (AttributeError, binascii.Error, ValueError, TypeError, RecursionError) as cause:
        raise ValueError(_FOREIGN_CURSOR) from cause
    if type(after_ms) is not int or not 0 <= after_ms <= _MOST:
        raise ValueError(_FOREIGN_CURSOR)
    return after_ms, member
