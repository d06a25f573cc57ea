"""The messages of a bench's sessions: made up and of one size, or those of the user's conversations. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from redismem.cli.room import bytes_in_redis, json_bytes
from redismem.cli.transcripts import BadLine, Transcript, exchanges
from redismem.errors import InvalidMessage
from redismem.messages.coercion import check_role_or_type
from redismem.messages.encoding import encode_message

WINDOW_COUNT = 20
"""The most messages of a session: the window that redis-py by hand keeps. A longer conversation goes on in another."""
_MADE_UP_TURNS = 8

Said = Sequence[dict[str, Any]]
Turn = tuple[Said, Said]
"""The messages of a request and of its reply. One of both may be empty."""
Talk = Sequence[Turn]
"""The turns of one session."""


def made_up(message_bytes: int) -> Talk:
    """Return eight turns, each a question and an answer of this size."""
    question, answer = (
        {"role": "user", "content": "q" * message_bytes},
        {"role": "assistant", "content": "a" * message_bytes},
    )
    return [([question], [answer])] * _MADE_UP_TURNS


def talks_of(transcript: Transcript) -> list[Talk]:
    """Cut a conversation into sessions of at most `WINDOW_COUNT` messages.

    Raises:
        BadLine: if no session may have one of its messages.
    """
    said = [{name: value for name, value in each.items() if name != "time_ms"} for each in transcript.messages]
    for place, message in enumerate(said, 1):
        try:
            check_role_or_type(message)
            encode_message(message)
        except InvalidMessage as refused:
            raise BadLine(f"message {place}: {refused}") from None
    talks: list[list[Turn]] = []
    count = WINDOW_COUNT
    for first, reply, end in exchanges(said, WINDOW_COUNT // 2):
        count += end - first
        if count > WINDOW_COUNT:
            talks.append([])
            count = end - first
        talks[-1].append((said[first:reply], said[reply:end]))
    return list(talks)


def most_bytes(talks: Sequence[Talk]) -> int:
    """Return more than the bytes in Redis of the longest session."""
    return max(bytes_in_redis(*weigh(talk)) for talk in talks)


def weigh(talk: Talk) -> tuple[int, int]:
    """Return the number of a session's messages, and their bytes as JSON."""
    said = [message for turn in talk for part in turn for message in part]
    return len(said), sum(map(json_bytes, said))


class Feed:
    """The turns of one side. Each place has one session at a time, and begins a new one when its talk is over."""

    def __init__(self, talks: Sequence[Talk], places_count: int, new_id: Callable[[], str]) -> None:
        self._talks, self._places_count, self._new_id = talks, places_count, new_id
        self._places: dict[int, tuple[str, Talk, int]] = {}
        self._begun_count = 0
        self._left: dict[str, int] = {}
        """The number of turns that each session still has to make."""
        self.ended: list[str] = []
        """The sessions whose turns are all made."""

    def next(self, number: int) -> tuple[str, Turn]:
        """Return the session of a turn, and its messages. `end` says that it was made."""
        place = number % self._places_count
        session_id, talk, at = self._places.get(place, ("", (), 0))
        if at == len(talk):
            session_id, talk, at = self._new_id(), self._talks[self._begun_count % len(self._talks)], 0
            self._begun_count += 1
            self._left[session_id] = len(talk)
        self._places[place] = session_id, talk, at + 1
        return session_id, talk[at]

    def end(self, session_id: str) -> None:
        """Note that a turn of the session was made, or failed."""
        self._left[session_id] -= 1
        if not self._left[session_id]:
            del self._left[session_id]
            self.ended.append(session_id)

    def sessions(self) -> list[str]:
        """Return all sessions that were begun and not taken from `ended`."""
        return [*self.ended, *self._left]
