"""Sentences of a conversation, each with its speaker, day, words and numbers. No I/O."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator, Sequence, Set
from functools import lru_cache
from typing import NamedTuple, TypeVar

from redismem.formats import sections
from redismem.messages.message import Message
from redismem.text.cues import cue_of
from redismem.text.normal_forms import normalize
from redismem.text.plain import MONTHS, day_of, keep_ends, one_line, pieces, shorten
from redismem.text.rules import is_rule
from redismem.text.stems import stems
from redismem.text.word_counts import hash_of, hashes_in, hashes_of

T = TypeVar("T")
Work = Generator[None, None, T]
"""A computation that yields after each small piece, so that other tasks get a turn."""

MENTIONED = "Also mentioned: "
SENTENCE_BYTES = 320
# The number of lines, and of numbers, to read before other tasks get a turn; it takes a fraction of a millisecond.
PIECE_LINES = 16
_PIECE_NUMBERS = 256
_RESULT_LINE_BYTES = 200
# Bytes to read of all messages together. A small session is read completely.
_READ_BYTES = 400_000
_MESSAGE_BYTES = 16_000
_RESULT_BYTES = 2_000
_LINES_COUNT = 5_000
_SPEAKER_CHARS = 40

# Sentences end with one of these before a space, or with one of the others wherever it is, or with the line.
_ENDS, _WIDE_ENDS = frozenset(".!?…؟।"), re.compile("(?<=[。！？])")
_END = re.compile("[.!?…؟।] ")
_WORD = re.compile(r"[^\W\d_]{2,}")
_NAME = re.compile(r"(?<=[^\W\d_,;:] )[^\W\d_]{2,}")
_ASCII_NAME = re.compile(" (?<=[A-Za-z] )([A-Z][A-Za-z]+)")  # begins with the space, which `re` finds at once
# Order ids, dates, amounts, times, phone numbers: a run with a digit, its signs and its letters. Only ASCII letters
# belong to it: in a language without spaces, the rest of the sentence is not part of the number.
_BESIDE = r"(?:[A-Za-z\d]|[_.,:/+@-](?=[A-Za-z\d])){0,63}"
_NUMBER = re.compile(rf"[#$€£¥]?{_BESIDE}?\d{_BESIDE}[%$€£¥]?")
_BEFORE_CHARS = 64  # the most characters of a number before its first digit
_DIGIT, _DIGITS = re.compile(r"\d"), b"0123456789"
_QUESTION_MARKS = "?？؟"
# The fields of a tool's answer. A short list belongs to the name before it.
_FIELD = re.compile(r"(?:[^,;{}\[\]\n]|\[[^{}\[\]]{0,60}\])+")
_LOOKS = re.compile(r"(?:get|search|list|find|read|look|fetch|check|show|calc|think)", re.IGNORECASE)
_DAY = re.compile(rf"\[(\d{{1,2}} (?:{'|'.join(MONTHS)}) \d{{1,4}})\]")
_SPEAKER = re.compile(r"([^:\s][^:]{0,39}): ")
# Names that could be mistaken for another speaker or for the list of ids.
_TAKEN = {"user", "assistant", "tool", "function", "system", "developer", "message", "also mentioned"}


class Line(NamedTuple):
    """A sentence that a summary may keep.

    `kind` is one of: said, asked, called, changed (a call that changes something), answered (by a tool), used (the
    fields of a tool's answer that a later message repeats).
    """

    speaker: str
    day: str
    text: str
    words: Set[int]
    """The hashes of the words."""
    strong: Set[int]
    """The hashes of names and of words with digits."""
    numbers: tuple[str, ...]
    kind: str = "said"
    is_open: bool = False
    """True for the last question, and for the very first request, because the two set the topic."""
    cue: str = ""
    size_bytes: int = 0
    is_rule: bool = False
    """True for a standing rule or preference of a user."""


def numbers_in(text: str) -> Work[tuple[str, ...]]:
    """Return the distinct numbers in a text. `_NUMBER.findall` would scan each letter of a long word 64 times."""
    numbers: dict[str, None] = {}
    at = numbers_count = 0
    while digit := _DIGIT.search(text, at):
        match = _NUMBER.search(text, max(at, digit.start() - _BEFORE_CHARS)) or digit
        numbers[match.group()] = None
        at = match.end()
        numbers_count += 1
        if numbers_count % _PIECE_NUMBERS == 0:
            yield
    return tuple(numbers)


def names_in(text: str) -> list[str]:
    """Return the capitalised words that do not begin a sentence."""
    if not text.isascii():
        return [name for name in _NAME.findall(text) if name[0].isupper()]
    return _ASCII_NAME.findall(text)


class _Features(NamedTuple):
    """The features of a line that depend on its text alone."""

    words: Set[int]
    strong: Set[int]
    cue: str
    size_bytes: int
    has_digits: bool


# Each later summary reads the lines of the earlier ones again.
@lru_cache(maxsize=4_096)
def _features_of(shown: str) -> _Features:
    words, strong, is_ascii, encoded = hashes_in(shown), set[int](), shown.isascii(), shown.encode()
    # Deleting bytes takes a quarter of the time of the pattern.
    has_digits = len(encoded.translate(None, _DIGITS)) < len(encoded) or (not is_ascii and bool(_DIGIT.search(shown)))
    if has_digits or (not is_ascii and _DIGIT.search(normalize("NFKC", shown))):
        strong.update([hash_of(stem) for stem in stems(shown) if not stem.isalpha() and _DIGIT.search(stem)])
    strong.update(*map(hashes_of, names_in(shown)))
    return _Features(words, strong & words, cue_of(shown), len(encoded), has_digits)


def _line(
    speaker: str, day: str, text: str, kind: str = "said", *, is_open: bool = False, of_user: bool = False
) -> Work[Line]:
    shown = shorten(text, SENTENCE_BYTES if kind in ("said", "called", "changed") else _RESULT_LINE_BYTES)
    words, strong, cue, size_bytes, has_digits = _features_of(shown)
    numbers = (yield from numbers_in(text)) if has_digits or len(shown) != len(text) else ()
    if kind == "said" and is_question(shown):
        kind = "asked"
    tells_rule = of_user and kind == "said" and is_rule(shown)
    return Line(speaker, day, shown, words, strong, numbers, kind, is_open, cue, size_bytes, tells_rule)


def is_question(text: str) -> bool:
    """True if no word follows the last question mark."""
    for char in reversed(text[-SENTENCE_BYTES:]):
        if char in _QUESTION_MARKS:
            return True
        if char.isalnum() or char == "_":
            return False
    return False


def split_sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a text."""
    held: list[str] = []
    for part in _split_at_ends(text):
        held.append(part)
        # A part such as "5." is the number of a list item and belongs to the next part.
        if _WORD.search(part):
            yield " ".join(held)
            held = []
    if held:
        yield " ".join(held)


def _split_at_ends(text: str) -> Iterator[str]:
    is_wide = not text.isascii() and _WIDE_ENDS.search(text) is not None
    for line in text.split("\n"):
        line = line.strip()
        if not is_wide and line.isprintable() and "  " not in line:  # no other spaces to put in order
            begin = 0
            for match in _END.finditer(line):
                yield line[begin : match.start() + 1]
                begin = match.end()
            if line:
                yield line[begin:]
            continue
        for run in _WIDE_ENDS.split(line) if is_wide else (line,):
            words, begin = run.split(), 0
            for stop, word in enumerate(words, 1):
                if word[-1] in _ENDS:
                    yield " ".join(words[begin:stop])
                    begin = stop
            if begin < len(words):
                yield " ".join(words[begin:])


def speaker_of(message: Message) -> str:
    """Return the speaker's name, or the role without a name. A name that is a role follows the real role."""
    payload = message.visible
    role = one_line(sections.speaker_of(payload)) or "message"
    name = one_line(sections.name_of(payload) or payload.get("name")).replace(":", "")
    if name.casefold() in _TAKEN:
        return f"{role} {name}".replace(":", "")[:_SPEAKER_CHARS]
    return name[:_SPEAKER_CHARS].strip() or role.replace(":", "")[:_SPEAKER_CHARS]


class Told(NamedTuple):
    """A line of an earlier summary: its speaker, day and text; or the list of numbers, which has no text."""

    speaker: str
    day: str
    text: str
    mentioned: str = ""


def split_summary(previous: str) -> Iterator[Told]:
    """Yield the lines of an earlier extractive summary, or of any other text."""
    speaker = day = ""
    for text in previous.splitlines():
        if match := _DAY.fullmatch(text):
            day, speaker = match[1], ""
        elif text.startswith(MENTIONED):
            yield Told("", "", "", text.removeprefix(MENTIONED))
        elif not text.strip():
            speaker = day = ""
        else:
            if not text.startswith(" "):
                named = _SPEAKER.match(text)
                speaker = named[1] if named else ""
                text = text[named.end() :] if named else text
            yield Told(speaker, day, text)


def lines_of_summary(previous: str, users: Set[str] = frozenset()) -> Work[list[Line]]:
    """Return the lines of an earlier extractive summary, or of any other text. `users` are the names of users."""
    lines = []
    for at, (speaker, day, text, mentioned) in enumerate(split_summary(previous)):
        if at % PIECE_LINES == 0:
            yield
        if not text:
            # Numbers without a sentence get no line, but stay in the list.
            lines.append(Line("", "", "", set(), set(), (yield from numbers_in(mentioned))))
            continue
        fits = len(text.encode()) <= SENTENCE_BYTES
        for sentence in filter(None, [text.strip()] if fits else split_sentences(text)):
            of_user = speaker == "user" or speaker in users
            line = yield from _line(speaker, day, sentence, _kind_of(sentence), of_user=of_user)
            lines.append(line)
    return lines


def _kind_of(text: str) -> str:
    """Return the kind of a line from an earlier summary."""
    if text.startswith("called "):
        return "called" if _LOOKS.match(text, len("called ")) else "changed"
    return "said"


def lines_of(messages: Sequence[Message]) -> Work[list[Line]]:
    """Return the lines of messages."""
    share = min(max(_READ_BYTES // max(len(messages), 1), 200), _MESSAGE_BYTES)
    lines_share = max(_LINES_COUNT // max(len(messages), 1), 1)
    last_asked = max((at for at, message in enumerate(messages) if message.role == "user"), default=-1)
    lines: list[Line] = []
    results: list[tuple[int, int, str]] = []
    last_said: dict[int, int] = {}
    said: list[tuple[int, Set[int]]] = []
    for at, message in enumerate(messages):
        yield
        speaker, day = speaker_of(message), day_of(message)
        for kind, text in pieces(message, share):
            if kind == "text":
                for sentence in keep_ends(list(split_sentences(shorten(text, share))), lines_share):
                    is_open = at == last_asked or message.seq == 1
                    of_user = message.role == "user"
                    line = yield from _line(speaker, day, sentence, is_open=is_open, of_user=of_user)
                    lines.append(line)
                    said.append((at, line.words))
            elif kind == "result":
                results.append((len(lines), at, " ".join(shorten(text, _RESULT_BYTES).split())))
                lines.append((yield from _line(speaker, day, results[-1][2], "answered")))
            elif kind == "call":
                lines.append((yield from _line(speaker, day, f"called {text}", _kind_of(f"called {text}"))))
            else:
                lines.append((yield from _line(speaker, day, text, "answered")))
    for at, words in said if results else ():
        last_said.update(dict.fromkeys(words, at))
    for place, at, text in results:
        lines[place] = yield from _keep_used(lines[place], at, text, last_said)
    return lines


def _keep_used(line: Line, at: int, text: str, last_said: dict[int, int]) -> Work[Line]:
    """Reduce a tool's answer to the fields whose numbers or long words a later message repeats.

    If no field is repeated, the answer stays whole.
    """
    used = []
    for field in _FIELD.findall(text):
        shown = field.replace('"', "").strip()
        telling = (stem for stem in stems(shown) if len(stem) > 4 or _DIGIT.search(stem))
        if any(last_said.get(hash_of(stem), -1) > at for stem in telling) and shown not in used:
            used.append(shown)
        if len(used) >= 12:
            break
    if not used:
        return line
    cut = yield from _line(line.speaker, line.day, ", ".join(used), "used")
    return cut._replace(numbers=line.numbers)
