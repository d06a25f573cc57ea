"""The summariser that needs no model: it keeps the sentences that say most, word for word, and every number it can."""

from __future__ import annotations

import asyncio
import math
import re
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from redismem.messages import Message
from redismem.models.draft import Draft
from redismem.models.transcript import cleaned, ends, pieces, shortened, speaker

T = TypeVar("T")
Work = Generator[None, None, T]
"""A computation that stops after each small piece of it, so that others get a turn."""

MENTIONED = "Also mentioned: "
_SENTENCE_BYTES = 320
_RESULT_LINE_BYTES = 200
# What is read of all the messages together; a small session is read whole.
_READ_BYTES = 400_000
_MESSAGE_BYTES = 16_000
_RESULT_BYTES = 2_000
_LINES_COUNT = 5_000
# Lines, and numbers, that are looked at before others get a turn: a fraction of a millisecond.
_PIECE_LINES = 16
_PIECE_NUMBERS = 256

_SENTENCE = re.compile(r"(?<=[.!?…؟।])\s+|(?<=[。！？])|\n+")
_WORD = re.compile(r"[^\W\d_]{3,}")
_NAME = re.compile(r"(?<=[^\W\d_,;:] )[^\W\d_]{2,}")
# Order ids, dates, amounts, times, phone numbers: a run with a digit in it, with what stands inside and before it.
# Letters beside the digits only of ASCII: if a language has no spaces, the rest of the sentence is not the number.
_BESIDE = r"(?:[A-Za-z\d]|[_.,:/+@-](?=[A-Za-z\d])){0,63}"
_NUMBER = re.compile(rf"[#$€£¥]?{_BESIDE}?\d{_BESIDE}[%$€£¥]?")
_BEFORE_CHARS = 64  # how far before its first digit a number may begin
_DIGIT = re.compile(r"\d")
_QUESTION_MARKS = "?？؟"
_DECISION = re.compile(
    r"\b(?:agree|approv|book|cancel|chang|choos|chose|confirm|decid|deliver|must|need|never|paid|plan|prefer|promis|"
    r"refund|refus|remember|schedul|want|will|won't)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Line:
    """A sentence that may be kept, what its kind adds to its weight, and the numbers in it. `spoken`: by a person or
    a model, not by a tool."""

    text: str
    bonus: float
    words: frozenset[str]
    numbers: tuple[str, ...]
    spoken: bool


class Extractive:
    """Deterministic, offline, in the language of the conversation."""

    name = "extractive"
    provider = None

    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    async def summarize(self, messages: Sequence[Message], previous: str | None, max_tokens: int) -> Draft:
        """Sentences in the order they were said, then the numbers that stand in none of them, in `max_tokens` at most.

        A token is taken for four bytes. What the previous summary kept is weighed anew beside what came after it.
        It works in small pieces on the event loop, one summary at a time.
        """
        before = cleaned(previous or "").strip()
        if not messages and not before:
            raise ValueError("there is nothing to summarise")
        async with self._turn:
            work = _composed(before, messages, max(max_tokens, 1) * 4)
            while True:
                try:
                    next(work)
                except StopIteration as done:
                    return Draft(done.value, 0, 0, self.name)
                await asyncio.sleep(0)

    async def aclose(self) -> None:
        """Nothing to close."""


def _line(text: str, bonus: float, prefix: str = "", *, spoken: bool = True) -> Work[Line]:
    shown = shortened(prefix + text, _SENTENCE_BYTES if spoken else _RESULT_LINE_BYTES)
    words = frozenset(word.casefold() for word in _WORD.findall(shown))
    numbers = yield from _numbers_in(text)
    return Line(shown, bonus + _kind_bonus(text, bool(numbers and words)), words, numbers, spoken)


def _numbers_in(text: str) -> Work[tuple[str, ...]]:
    """What `_NUMBER.findall` finds, each once; that alone would look at each letter of a long word 64 times."""
    numbers: dict[str, None] = {}
    at = found_count = 0
    while digit := _DIGIT.search(text, at):
        found = _NUMBER.search(text, max(at, digit.start() - _BEFORE_CHARS)) or digit
        numbers[found.group()] = None
        at = found.end()
        found_count += 1
        if found_count % _PIECE_NUMBERS == 0:
            yield
    return tuple(numbers)


def _asks(text: str) -> bool:
    """Whether nothing but signs stands behind a question mark."""
    for char in reversed(text[-_SENTENCE_BYTES:]):
        if char in _QUESTION_MARKS:
            return True
        if char.isalnum() or char == "_":
            return False
    return False


def _kind_bonus(text: str, has_numbers: bool) -> float:
    bonus = 1.0 if has_numbers else 0.0
    if _asks(text):
        bonus += 0.7
    if _DECISION.search(text):
        bonus += 0.8
    if any(name[0].isupper() for name in _NAME.findall(text)):
        bonus += 0.6
    return bonus


def _sentences(text: str) -> Iterator[str]:
    held: list[str] = []
    for found in _SENTENCE.split(text):
        words = (found or "").split()
        if not words:
            continue
        held += words
        # "5." opens a point of a list.
        if _WORD.search(" ".join(words)):
            yield " ".join(held)
            held = []
    if held:
        yield " ".join(held)


def _previous_lines(previous: str) -> Iterator[Line | None]:
    for text in previous.splitlines():
        if text.startswith(MENTIONED):
            # Numbers without a sentence: worth no line, but a place in the list again.
            numbers = yield from _numbers_in(text.removeprefix(MENTIONED))
            yield Line("", 0.0, frozenset(), numbers, True)
        else:
            fits = len(text.encode()) <= _SENTENCE_BYTES
            for line in [text] if fits else _sentences(text):
                if line.strip():
                    yield (yield from _line(line, 0.5))


def _message_lines(messages: Sequence[Message]) -> Iterator[Line | None]:
    """The lines, and None whenever others may get a turn."""
    share = max(_READ_BYTES // max(len(messages), 1), 200)
    lines_share = max(_LINES_COUNT // max(len(messages), 1), 1)
    last_asked = max((at for at, message in enumerate(messages) if message.role == "user"), default=-1)
    for at, message in enumerate(messages):
        yield None
        who = speaker(message)
        # The first request says what it is all about, the last one what is open.
        place = 0.6 if at == 0 else 0.0
        if at == last_asked:
            place += 0.8
        for kind, text in pieces(message, min(share, _MESSAGE_BYTES)):
            if kind == "text":
                sentences = ends(list(_sentences(shortened(text, min(share, _MESSAGE_BYTES)))), lines_share)
                for sentence in sentences:
                    yield (yield from _line(sentence, place + 0.3, f"{who}: "))
            elif kind == "result":
                text = " ".join(shortened(text, min(share, _RESULT_BYTES)).split())
                yield (yield from _line(text, -1.0, f"{who}: ", spoken=False))
            else:
                yield (yield from _line(text, -0.8, f"{who} called " if kind == "call" else f"{who}: "))


def _distinct(before: str, messages: Sequence[Message]) -> Work[list[Line]]:
    """The lines of the previous summary, then those of the messages; none with the text of an earlier one."""
    seen = set()
    lines = []
    for source in (_previous_lines(before), _message_lines(messages)):
        for at, line in enumerate(source):
            if line is None or at % _PIECE_LINES == 0:
                yield
            if line is not None and (not line.text or line.text not in seen):
                lines.append(line)
                seen.add(line.text)
    return lines


def _ranked(lines: Sequence[Line]) -> Work[list[int]]:
    """Places of the lines, the weightiest first: words that few other lines have, and the kind of line."""
    spread: Counter[str] = Counter()
    for at, line in enumerate(lines):
        spread.update(line.words)
        if at % _PIECE_LINES == 0:
            yield
    rarity = {times: math.log(1 + len(lines) / times, 1 + len(lines)) for times in range(1, len(lines) + 1)}
    weights = {}
    for at, line in enumerate(lines):
        # sorted: the order of a set, and so the sum of its floats, differs from run to run.
        told = sum(sorted(rarity[spread[word]] for word in line.words)) / math.sqrt(len(line.words) + 4)
        if line.text:
            weights[at] = told + line.bonus + 0.5 * at / len(lines)
        if at % _PIECE_LINES == 0:
            yield
    return sorted(weights, key=lambda at: (-weights[at], at))


def _numbers(lines: Sequence[Line], limit_bytes: int) -> Work[dict[str, int]]:
    """The numbers to keep, and the bytes each takes in a list: all that were said, then those that tools answered.

    Of too many, those of the newest lines. A tool may answer hundreds: they get an eighth of the room, and what is
    shorter than an id is left out.
    """
    said: set[str] = set()
    kept: dict[str, int] = {}
    looked_at = 0
    for spoken, shortest, most in ((True, 2, limit_bytes), (False, 5, limit_bytes // 8)):
        left = min(most, limit_bytes - sum(kept.values()))
        for number in (each for line in reversed(lines) if line.spoken is spoken for each in reversed(line.numbers)):
            looked_at += 1
            if looked_at % _PIECE_NUMBERS == 0:
                yield
            size = len(number.encode()) + 2
            if len(number) >= shortest and number not in said:
                said.add(number)
                if size <= left:
                    kept[number] = size
                    left -= size
    return kept


def _composed(before: str, messages: Sequence[Message], limit_bytes: int) -> Work[str]:
    lines = yield from _distinct(before, messages)
    listed = yield from _numbers(lines, limit_bytes // 2 - len(MENTIONED))
    left = limit_bytes - (len(MENTIONED) + sum(listed.values()) if listed else 0)
    ranked = yield from _ranked(lines)
    chosen = []
    for at in ranked:
        if at % _PIECE_LINES == 0:
            yield
        text = lines[at].text
        said = [number for number in lines[at].numbers if number in listed and number in text]
        size = len(text.encode()) + 1 - sum(listed[number] for number in said)
        if size <= left:
            left -= size
            chosen.append(at)
            for number in said:
                del listed[number]
    texts = [lines[at].text for at in sorted(chosen)]
    if listed:
        texts.append(MENTIONED + ", ".join(reversed(listed)))
    if not chosen:  # no line fits: a piece of the best one
        best = lines[ranked[0]].text if ranked else "(no text)"
        texts.insert(0, best.encode()[: max(left - 1, 0)].decode("utf-8", "ignore").strip())
    return "\n".join(filter(None, texts)) or "-"
