"""What was said, sentence by sentence: who said it, on what day, which words and numbers are in it. No I/O."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple, TypeVar

from redismem.messages.message import Message
from redismem.text.cues import cue_of
from redismem.text.plain import MONTHS, day_of, ends, one_line, pieces, shortened
from redismem.text.stems import stems
from redismem.text.word_counts import hash_of

T = TypeVar("T")
Work = Generator[None, None, T]
"""A computation that stops after each small piece of it, so that others get a turn."""

MENTIONED = "Also mentioned: "
SENTENCE_BYTES = 320
# Lines, and numbers, that are looked at before others get a turn: a fraction of a millisecond.
PIECE_LINES = 16
_PIECE_NUMBERS = 256
_RESULT_LINE_BYTES = 200
# What is read of all the messages together; a small session is read whole.
_READ_BYTES = 400_000
_MESSAGE_BYTES = 16_000
_RESULT_BYTES = 2_000
_LINES_COUNT = 5_000
_SPEAKER_CHARS = 40

_SENTENCE = re.compile(r"(?<=[.!?…؟।])\s+|(?<=[。！？])|\n+")
_WORD = re.compile(r"[^\W\d_]{2,}")
_NAME = re.compile(r"(?<=[^\W\d_,;:] )[^\W\d_]{2,}")
# Order ids, dates, amounts, times, phone numbers: a run with a digit in it, with what stands inside and before it.
# Letters beside the digits only of ASCII: if a language has no spaces, the rest of the sentence is not the number.
_BESIDE = r"(?:[A-Za-z\d]|[_.,:/+@-](?=[A-Za-z\d])){0,63}"
_NUMBER = re.compile(rf"[#$€£¥]?{_BESIDE}?\d{_BESIDE}[%$€£¥]?")
_BEFORE_CHARS = 64  # how far before its first digit a number may begin
_DIGIT = re.compile(r"\d")
_QUESTION_MARKS = "?？؟"
_FIELDS = re.compile(r"[,;{}\[\]\n]+")
_LOOKS = re.compile(r"(?:get|search|list|find|read|look|fetch|check|show|calc|think)", re.IGNORECASE)
_DAY = re.compile(rf"\[(\d{{1,2}} (?:{'|'.join(MONTHS)}) \d{{1,4}})\]")
_SPEAKER = re.compile(r"([^:\s][^:]{0,39}): ")
# Names that would pass for somebody else, or for the list of ids.
_TAKEN = {"user", "assistant", "tool", "function", "system", "developer", "message", "also mentioned"}


@dataclass(frozen=True, slots=True)
class Line:
    """A sentence that may be kept. `kind`: said, asked, called, changed (a call that changes something), answered (by a
    tool), used (what of an answer was spoken of later)."""

    speaker: str
    day: str
    text: str
    words: tuple[int, ...]
    strong: frozenset[int]
    """The words among them that are names, or have digits."""
    numbers: tuple[str, ...]
    kind: str = "said"
    is_open: bool = False
    """The last question, or the very first request: what it is all about."""
    cue: str = ""
    size_bytes: int = 0


def numbers_in(text: str) -> Work[tuple[str, ...]]:
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


def names_in(text: str) -> list[str]:
    """Words with a capital letter that do not begin a sentence."""
    return [name for name in _NAME.findall(text) if name[0].isupper()]


class _Read(NamedTuple):
    """What can be told from the text of a line alone."""

    words: tuple[int, ...]
    strong: frozenset[int]
    cue: str
    size_bytes: int


# What a summary keeps is read again with each that takes it in.
@lru_cache(maxsize=4_096)
def _read(shown: str) -> _Read:
    words: dict[int, None] = {}
    strong = set()
    for stem in stems(shown):
        word = hash_of(stem)
        words[word] = None
        if not stem.isalpha() and _DIGIT.search(stem):
            strong.add(word)
    for name in names_in(shown):
        strong.update(map(hash_of, stems(name)))
    return _Read(tuple(words), frozenset(strong & words.keys()), cue_of(shown), len(shown.encode()))


def _line(speaker: str, day: str, text: str, kind: str = "said", *, is_open: bool = False) -> Work[Line]:
    shown = shortened(text, SENTENCE_BYTES if kind in ("said", "called", "changed") else _RESULT_LINE_BYTES)
    numbers = (yield from numbers_in(text)) if _DIGIT.search(text) else ()
    if kind == "said" and asks(shown):
        kind = "asked"
    read = _read(shown)
    return Line(speaker, day, shown, read.words, read.strong, numbers, kind, is_open, read.cue, read.size_bytes)


def asks(text: str) -> bool:
    """Whether nothing but signs stands behind a question mark."""
    for char in reversed(text[-SENTENCE_BYTES:]):
        if char in _QUESTION_MARKS:
            return True
        if char.isalnum() or char == "_":
            return False
    return False


def sentences(text: str) -> Iterator[str]:
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


def speaker_of(message: Message) -> str:
    """The name of who says it, else the role. A name that is a role stands behind the real one."""
    payload = message.to_openai()
    role, name = one_line(payload.get("role")) or "message", one_line(payload.get("name")).replace(":", "")
    if name.casefold() in _TAKEN:
        return f"{role} {name}".replace(":", "")[:_SPEAKER_CHARS]
    return name[:_SPEAKER_CHARS].strip() or role.replace(":", "")[:_SPEAKER_CHARS]


def lines_of_summary(previous: str) -> Work[list[Line]]:
    """The lines of a summary as `composed` wrote it, or of any other text."""
    lines = []
    speaker = day = ""
    for at, text in enumerate(previous.splitlines()):
        if at % PIECE_LINES == 0:
            yield
        if found := _DAY.fullmatch(text):
            day, speaker = found[1], ""
        elif text.startswith(MENTIONED):
            # Numbers without a sentence: worth no line, but a place in the list again.
            numbers = yield from numbers_in(text.removeprefix(MENTIONED))
            lines.append(Line("", "", "", (), frozenset(), numbers))
        elif not text.strip():
            speaker = day = ""
        else:
            if not text.startswith(" "):
                named = _SPEAKER.match(text)
                speaker = named[1] if named else ""
                text = text[named.end() :] if named else text
            fits = len(text.encode()) <= SENTENCE_BYTES
            for sentence in filter(None, [text.strip()] if fits else sentences(text)):
                line = yield from _line(speaker, day, sentence, _kind_of(sentence))
                lines.append(line)
    return lines


def _kind_of(text: str) -> str:
    """The kind of a line that was kept before."""
    if text.startswith("called "):
        return "called" if _LOOKS.match(text, len("called ")) else "changed"
    return "said"


def lines_of(messages: Sequence[Message]) -> Work[list[Line]]:
    """The lines of messages."""
    share = min(max(_READ_BYTES // max(len(messages), 1), 200), _MESSAGE_BYTES)
    lines_share = max(_LINES_COUNT // max(len(messages), 1), 1)
    last_asked = max((at for at, message in enumerate(messages) if message.role == "user"), default=-1)
    lines: list[Line] = []
    results: list[tuple[int, int, str]] = []
    last_said: dict[int, int] = {}
    for at, message in enumerate(messages):
        yield
        who, day = speaker_of(message), day_of(message)
        for kind, text in pieces(message, share):
            if kind == "text":
                for sentence in ends(list(sentences(shortened(text, share))), lines_share):
                    line = yield from _line(who, day, sentence, is_open=at == last_asked or message.seq == 1)
                    lines.append(line)
                    last_said.update(dict.fromkeys(line.words, at))
            elif kind == "result":
                results.append((len(lines), at, " ".join(shortened(text, _RESULT_BYTES).split())))
                lines.append((yield from _line(who, day, results[-1][2], "answered")))
            elif kind == "call":
                lines.append((yield from _line(who, day, f"called {text}", _kind_of(f"called {text}"))))
            else:
                lines.append((yield from _line(who, day, text, "answered")))
    for place, at, text in results:
        lines[place] = yield from _used(lines[place], at, text, last_said)
    return lines


def _used(line: Line, at: int, text: str, last_said: dict[int, int]) -> Work[Line]:
    """A tool's answer, cut to the fields with a number or a long word that somebody said later; whole if none has."""
    used = []
    for field in _FIELDS.split(text):
        shown = field.replace('"', "").strip()
        telling = (stem for stem in stems(shown) if len(stem) > 4 or _DIGIT.search(stem))
        if any(last_said.get(hash_of(stem), -1) > at for stem in telling) and shown not in used:
            used.append(shown)
        if len(used) >= 12:
            break
    if not used:
        return line
    found = yield from _line(line.speaker, line.day, ", ".join(used), "used")
    return replace(found, numbers=line.numbers)
