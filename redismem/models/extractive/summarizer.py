"""Summarise without a model: keep the most informative sentences verbatim, with their speaker and day."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence, Set

from redismem.messages.message import Message
from redismem.models.draft import Draft
from redismem.models.extractive.ranking import LineRanker, find_outdated
from redismem.text.data_runs import replace_data
from redismem.text.plain import clean_text
from redismem.text.sentences import (
    MENTIONED,
    PIECE_LINES,
    Line,
    Work,
    lines_of,
    lines_of_summary,
    speaker_of,
    split_summary,
)
from redismem.text.word_counts import Sketch

# The seconds after which other tasks get a turn: a pause takes as long as several small steps.
_TURN_S = 0.000_3
_PIECE_NUMBERS = 256
_SHORTEST_ID_CHARS = 4
# In a very small summary, ids get half of the space.
_LEAST_BYTES = 100
# The share of the limit that new lines may take when they are appended, and what remains when lines must go.
_APPENDED = 0.08
_CUT = 0.8
# A smaller summary is chosen anew each time: that is cheap, and appending would lose too many of its facts.
_LEAST_APPENDED_TO_BYTES = 7_000


class Extractive:
    """A deterministic, offline summariser, in the language of the conversation."""

    name = "extractive"
    provider = None

    def __init__(self) -> None:
        self._turns: dict[asyncio.AbstractEventLoop, asyncio.Lock] = {}

    async def summarize(
        self, messages: Sequence[Message], previous: str | None, max_tokens: int, sketch: Sketch | None = None
    ) -> Draft:
        """Return sentences in chronological order, then ids that none of them contains, in at most `max_tokens`.

        A token counts as four bytes. Old sentences, from the previous summary, and new ones compete: the rarer its
        words, the higher a sentence ranks. `sketch` tells how rare a word is in the session; without it, these texts
        do. The method yields to the event loop often, and concurrent calls run one after the other.
        """
        before = replace_data(clean_text(previous or "")).strip()
        if not messages and not before:
            raise ValueError("there is nothing to summarise")
        async with self._turn():
            return Draft(await self._compose(before, messages, max(max_tokens, 1) * 4, sketch), 0, 0, self.name)

    async def _compose(self, before: str, messages: Sequence[Message], limit_bytes: int, sketch: Sketch | None) -> str:
        work = compose(before, messages, limit_bytes, sketch)
        pause_s = time.perf_counter() + _TURN_S
        while True:
            try:
                next(work)
            except StopIteration as done:
                text: str = done.value
                return text
            if time.perf_counter() >= pause_s:
                await asyncio.sleep(0)
                pause_s = time.perf_counter() + _TURN_S

    def _turn(self) -> asyncio.Lock:
        """Return the lock for the running event loop, because a lock works in one loop only."""
        loop = asyncio.get_running_loop()
        if loop not in self._turns:
            self._turns = {each: turn for each, turn in self._turns.items() if not each.is_closed()}
            self._turns[loop] = asyncio.Lock()
        return self._turns[loop]

    async def aclose(self) -> None:
        """Do nothing: there is nothing to close."""


class _Room:
    """The bytes left for lines and for a list of ids; an id leaves the list when its sentence is chosen."""

    def __init__(self, left: int, listed: dict[str, int]) -> None:
        self.left = left - (len(MENTIONED) + sum(listed.values()) if listed else 0)
        self.listed = listed
        self.days: set[str] = set()
        self._speaker_bytes: dict[str, int] = {}

    def _size(self, line: Line) -> int:
        if (speaker_bytes := self._speaker_bytes.get(line.speaker)) is None:
            speaker_bytes = self._speaker_bytes[line.speaker] = len(line.speaker.encode())
        size = line.size_bytes + speaker_bytes + 3
        if line.day not in self.days:
            size += len(line.day) + 3
        return (
            size - sum(self.listed[number] for number in self._listed_in(line))
            if self.listed and line.numbers
            else size
        )

    def _listed_in(self, line: Line) -> list[str]:
        return [number for number in line.numbers if number in self.listed and number in line.text]

    def fits(self, line: Line) -> bool:
        return self._size(line) <= self.left

    def take(self, line: Line) -> None:
        self.left -= self._size(line)
        self.days.add(line.day)
        for number in self._listed_in(line):
            del self.listed[number]


def _choose_ids(lines: Sequence[Line], limit_bytes: int) -> Work[dict[str, int]]:
    """Choose ids to keep, and return the bytes that each takes in a list: first spoken ids, then ids of tools.

    Newer ids win. Ids from tools get an eighth of the space, because a tool may answer with hundreds.
    """
    ids: dict[str, int] = {}
    seen: set[str] = set()
    number_count = 0
    for spoken, most in ((True, limit_bytes), (False, limit_bytes // 8)):
        left = min(most, limit_bytes - sum(ids.values()))
        for line in reversed(lines):
            if (line.kind not in ("answered", "used")) is not spoken:
                continue
            for number in reversed(line.numbers):
                number_count += 1
                if number_count % _PIECE_NUMBERS == 0:
                    yield
                size = len(number.encode()) + 2
                if number not in seen and _is_id(number):
                    seen.add(number)
                    if size <= left:
                        ids[number] = size
                        left -= size
    return ids


def _is_id(number: str) -> bool:
    """True if a number is meaningful on its own: an order, a flight or a phone, but not an amount or a time."""
    letters = sum(char.isalpha() for char in number)
    digits = sum(char.isdigit() for char in number)
    return len(number) >= _SHORTEST_ID_CHARS and (letters > 0 or digits >= _SHORTEST_ID_CHARS)


def _deduplicate(lines: Sequence[Line]) -> Work[list[Line]]:
    """Drop repeated lines and group the rest by day, in order of the first line of each day.

    The days need not be in order, because the caller sets the messages' timestamps.
    """
    seen: set[tuple[str, str]] = set()
    days: dict[str, list[Line]] = {}
    for at, line in enumerate(lines):
        if at % PIECE_LINES == 0:
            yield
        content = (line.speaker, line.text) if line.text else ("", str(line.numbers))
        if content not in seen:
            seen.add(content)
            days.setdefault(line.day, []).append(line)
    return [line for lines_of_day in days.values() for line in lines_of_day]


def compose(before: str, messages: Sequence[Message], limit_bytes: int, sketch: Sketch | None = None) -> Work[str]:
    """Write a summary of messages and of an earlier summary, in at most `limit_bytes`; yields after small steps.

    With a sketch, the best new lines are appended to the earlier summary as long as they fit. Then old and new lines
    compete for a part of `limit_bytes`, so that the next summaries can append again.
    """
    new = yield from lines_of(messages)
    users = {speaker_of(message) for message in messages if message.role == "user"}
    if before and new and sketch is not None and limit_bytes >= _LEAST_APPENDED_TO_BYTES:
        appended = yield from _append(before, new, limit_bytes, sketch, users)
        if appended:
            return appended
        limit_bytes = int(limit_bytes * _CUT)
    lines = (yield from lines_of_summary(before, users)) + new
    if sketch is None:
        sketch = Sketch()
        for line in lines:
            sketch.add(line.words)
    return (yield from _choose_anew(lines, limit_bytes, sketch))


def _append(before: str, new: Sequence[Line], limit_bytes: int, sketch: Sketch, users: Set[str]) -> Work[str]:
    """Return the earlier summary with the best new lines; "" if lines must go to make room for them.

    A correction is not appended, because it lowers the rank of the line that it corrects; nor is a rule that replaces
    an earlier one.
    """
    before_bytes = len(before.encode()) + 1
    share_bytes = int(_APPENDED * limit_bytes)
    left_bytes = max(min(limit_bytes - before_bytes, share_bytes), int(_CUT * limit_bytes) - before_bytes)
    if left_bytes < share_bytes // 2 or any(line.cue == "corrects" and line.kind == "said" for line in new):
        return ""
    if any(line.is_rule for line in new):
        earlier = yield from lines_of_summary(before, users)
        if (yield from find_outdated([line for line in earlier + list(new) if line.is_rule], sketch)):
            return ""
    told = list(split_summary(before))
    ids = [number for each in told for number in each.mentioned.split(", ") if number]
    told = [each for each in told if each.text]
    known = {(each.speaker, each.text.strip()) for each in told}
    fresh = [line for line in (yield from _deduplicate(new)) if (line.speaker, line.text) not in known]
    listed = yield from _choose_ids(fresh, left_bytes // 4 - len(MENTIONED))
    room = _Room(left_bytes, {number: size for number, size in listed.items() if number not in before})
    chosen = yield from LineRanker(fresh, sketch, set()).choose(_with_text(fresh), room)
    day, speaker = (told[-1].day, told[-1].speaker) if told else ("", "")
    head = before[: before.rindex(MENTIONED)].rstrip("\n") if ids else before
    more = _format([fresh[at] for at in sorted(chosen)], [*ids, *reversed(room.listed)], day, speaker)
    text = f"{head}\n{more}" if more else head
    return text if len(text.encode()) <= limit_bytes else ""


def _with_text(lines: Sequence[Line]) -> list[int]:
    return [at for at, line in enumerate(lines) if line.text]


def _choose_anew(lines: Sequence[Line], limit_bytes: int, sketch: Sketch) -> Work[str]:
    """Return the best of all lines, as a summary in at most `limit_bytes`."""
    lines = yield from _deduplicate(lines)
    older = yield from find_outdated(lines, sketch)
    listed = yield from _choose_ids(lines, max(limit_bytes // 4, min(limit_bytes // 2, _LEAST_BYTES)) - len(MENTIONED))
    room = _Room(limit_bytes, listed)
    ranker = LineRanker(lines, sketch, older)
    left = _with_text(lines)
    text, chosen = "", list[int]()
    # A line under the same speaker or day as another takes less than its estimate. The bytes left over go to more
    # lines.
    for _ in range(3):
        more = yield from ranker.choose(left, room)
        longer = _format([lines[at] for at in sorted(chosen + more)], list(reversed(room.listed)))
        if len(longer.encode()) > limit_bytes:  # a new line may split the lines of a speaker
            break
        text, chosen = longer, chosen + more
        left = sorted({*left}.difference(more))
        room.left = limit_bytes - len(text.encode())
        if not left:
            break
    if not chosen:  # no line fits: take a part of the best one
        first = max(left, key=lambda at: (len(lines[at].words), -at), default=None)
        best = "(no text)" if first is None else f"{lines[first].speaker}: {lines[first].text}"
        piece = best.encode()[: max(room.left - 1, 0)].decode("utf-8", "ignore").strip()
        text = "\n".join(filter(None, (piece, text)))
    return text or "-"


def _format(lines: Sequence[Line], ids: Sequence[str], day: str = "", speaker: str = "") -> str:
    """Format the lines as text, with each day above its lines and each speaker before the first of several.

    `day` and `speaker` are those of the line before the first one.
    """
    texts = []
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
