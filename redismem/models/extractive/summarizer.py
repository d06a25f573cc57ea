"""The summariser that needs no model: it keeps the sentences that say most, word for word, who said them and when."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from redismem.messages.message import Message
from redismem.models.draft import Draft
from redismem.models.extractive.ranking import Weigher, outdated
from redismem.text.plain import cleaned
from redismem.text.sentences import MENTIONED, PIECE_LINES, Line, Work, lines_of, lines_of_summary
from redismem.text.word_counts import Sketch

_PIECE_NUMBERS = 256
_SHORTEST_ID_CHARS = 4
# If there is hardly any room, ids have half of it.
_LEAST_BYTES = 100


class Extractive:
    """Deterministic, offline, in the language of the conversation."""

    name = "extractive"
    provider = None

    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    async def summarize(
        self, messages: Sequence[Message], previous: str | None, max_tokens: int, sketch: Sketch | None = None
    ) -> Draft:
        """Sentences in the order they were said, then ids that stand in none of them, in `max_tokens` at most.

        A token is taken for four bytes. What the previous summary kept is weighed anew beside what came after it, by
        how rare its words are in the session, which the `sketch` knows; without one, in what is given here.
        It works in small pieces on the event loop, one summary at a time.
        """
        before = cleaned(previous or "").strip()
        if not messages and not before:
            raise ValueError("there is nothing to summarise")
        async with self._turn:
            work = _composed(before, messages, max(max_tokens, 1) * 4, sketch)
            while True:
                try:
                    next(work)
                except StopIteration as done:
                    return Draft(done.value, 0, 0, self.name)
                await asyncio.sleep(0)

    async def aclose(self) -> None:
        """Nothing to close."""


class _Room:
    """The bytes that are left, of lines and of a list of ids: an id whose sentence is kept leaves the list."""

    def __init__(self, left: int, listed: dict[str, int]) -> None:
        self.left = left - (len(MENTIONED) + sum(listed.values()) if listed else 0)
        self.listed = listed
        self.days: set[str] = set()

    def _size(self, line: Line) -> int:
        size = line.size_bytes + len(line.speaker.encode()) + 3
        if line.day not in self.days:
            size += len(line.day) + 3
        return size - sum(self.listed[number] for number in self._said(line)) if line.numbers else size

    def _said(self, line: Line) -> list[str]:
        return [number for number in line.numbers if number in self.listed and number in line.text]

    def fits(self, line: Line) -> bool:
        return self._size(line) <= self.left

    def take(self, line: Line) -> None:
        self.left -= self._size(line)
        self.days.add(line.day)
        for number in self._said(line):
            del self.listed[number]


def _ids(lines: Sequence[Line], limit_bytes: int) -> Work[dict[str, int]]:
    """The ids to keep, and the bytes each takes in a list: all that were said, then those that tools answered.

    Of too many, those of the newest lines. A tool may answer hundreds: they get an eighth of the room.
    """
    kept: dict[str, int] = {}
    known: set[str] = set()
    looked_at = 0
    for spoken, most in ((True, limit_bytes), (False, limit_bytes // 8)):
        left = min(most, limit_bytes - sum(kept.values()))
        for line in reversed(lines):
            if (line.kind not in ("answered", "used")) is not spoken:
                continue
            for number in reversed(line.numbers):
                looked_at += 1
                if looked_at % _PIECE_NUMBERS == 0:
                    yield
                size = len(number.encode()) + 2
                if number not in known and _is_id(number):
                    known.add(number)
                    if size <= left:
                        kept[number] = size
                        left -= size
    return kept


def _is_id(number: str) -> bool:
    """Whether a number says something without its sentence: an order, a flight, a phone; not an amount or a time."""
    letters = sum(char.isalpha() for char in number)
    digits = sum(char.isdigit() for char in number)
    return len(number) >= _SHORTEST_ID_CHARS and (letters > 0 or digits >= _SHORTEST_ID_CHARS)


def _ordered(lines: Sequence[Line]) -> Work[list[Line]]:
    """The lines, of those that say the same the first; those of a day together, in the order in which the days begin.

    Callers may give messages any time.
    """
    seen: set[tuple[str, str]] = set()
    days: dict[str, list[Line]] = {}
    for at, line in enumerate(lines):
        if at % PIECE_LINES == 0:
            yield
        said = (line.speaker, line.text) if line.text else ("", str(line.numbers))
        if said not in seen:
            seen.add(said)
            days.setdefault(line.day, []).append(line)
    return [line for told in days.values() for line in told]


def _composed(before: str, messages: Sequence[Message], limit_bytes: int, sketch: Sketch | None) -> Work[str]:
    lines = (yield from lines_of_summary(before)) + (yield from lines_of(messages))
    if sketch is None:
        sketch = Sketch()
        for line in lines:
            sketch.add(line.words)
    lines = yield from _ordered(lines)
    older = yield from outdated(lines, sketch)
    listed = yield from _ids(lines, max(limit_bytes // 4, min(limit_bytes // 2, _LEAST_BYTES)) - len(MENTIONED))
    room = _Room(limit_bytes, listed)
    weigher = Weigher(lines, sketch, older)
    left = [at for at, line in enumerate(lines) if line.text]
    text, chosen = "", list[int]()
    # A line whose speaker and day stand above it already takes less than it was counted for: what is left is for more.
    for _ in range(3):
        more = yield from weigher.chosen(left, room)
        longer = _written([lines[at] for at in sorted(chosen + more)], list(reversed(room.listed)))
        if len(longer.encode()) > limit_bytes:  # one that comes between two of a speaker's: the second names him again
            break
        text, chosen = longer, chosen + more
        left = sorted({*left}.difference(more))
        room.left = limit_bytes - len(text.encode())
        if not left:
            break
    if not chosen:  # no line fits: a piece of the best one
        first = max(left, key=lambda at: (len(lines[at].words), -at), default=None)
        best = "(no text)" if first is None else f"{lines[first].speaker}: {lines[first].text}"
        piece = best.encode()[: max(room.left - 1, 0)].decode("utf-8", "ignore").strip()
        text = "\n".join(filter(None, (piece, text)))
    return text or "-"


def _written(lines: Sequence[Line], ids: Sequence[str]) -> str:
    """The lines as text: a day above its lines, a speaker before the first of several."""
    texts = []
    day = speaker = ""
    for line in lines:
        if line.day != day:
            if line.day:
                texts.append(f"[{line.day}]")
            else:
                texts.append("")
            day, speaker = line.day, ""
        if not line.speaker:
            texts.append(line.text)
        else:
            texts.append(f" {line.text}" if line.speaker == speaker else f"{line.speaker}: {line.text}")
        speaker = line.speaker
    if ids:
        texts.append(MENTIONED + ", ".join(ids))
    return "\n".join(texts).strip("\n")
