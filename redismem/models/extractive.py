"""The summariser that needs no model: it keeps the sentences that say most, word for word, and every number it can."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from redismem.messages import Message
from redismem.models import Draft
from redismem.models.transcript import cleaned, pieces, shortened, speaker

MENTIONED = "Also mentioned: "
_SENTENCE_BYTES = 320
_RESULT_LINE_BYTES = 200
# What is read of all the messages together; a small session is read whole.
_READ_BYTES = 400_000
_MESSAGE_BYTES = 16_000
_RESULT_BYTES = 2_000

_SENTENCE = re.compile(r"(?<=[.!?…؟।])\s+|(?<=[。！？])|\n+")
_WORD = re.compile(r"[^\W\d_]{3,}")
_NAME = re.compile(r"(?<=[^\W\d_,;:] )[^\W\d_]{2,}")
# Order ids, dates, amounts, times, phone numbers: a run with a digit in it, with what stands inside and before it.
# Letters beside the digits only of ASCII: where a language has no spaces, the rest of the sentence is not the number.
_BESIDE = r"(?:[A-Za-z\d]|[_.,:/+@-](?=[A-Za-z\d])){0,63}"
_NUMBER = re.compile(rf"[#$€£¥]?{_BESIDE}?\d{_BESIDE}[%$€£¥]?")
_QUESTION = re.compile(r"[?？؟]\W*$")
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

    async def summarize(self, messages: Sequence[Message], previous: str | None, max_tokens: int) -> Draft:
        """Sentences in the order they were said, then the numbers that stand in none of them, in `max_tokens` at most.

        A token is taken for four bytes. What the previous summary kept is weighed anew beside what came after it.
        """
        before = cleaned(previous or "").strip()
        if not messages and not before:
            raise ValueError("there is nothing to summarise")
        lines = list(_distinct([*_previous_lines(before), *_message_lines(messages)]))
        text = _composed(lines, max(max_tokens, 1) * 4)
        return Draft(text, 0, 0, self.name)

    async def aclose(self) -> None:
        """Nothing to close."""


def _line(text: str, bonus: float, prefix: str = "", *, spoken: bool = True) -> Line:
    shown = shortened(prefix + text, _SENTENCE_BYTES if spoken else _RESULT_LINE_BYTES)
    words = frozenset(word.casefold() for word in _WORD.findall(shown))
    numbers = tuple(dict.fromkeys(_NUMBER.findall(text)))
    return Line(shown, bonus + _kind_bonus(text, bool(numbers and words)), words, numbers, spoken)


def _kind_bonus(text: str, has_numbers: bool) -> float:
    bonus = 1.0 if has_numbers else 0.0
    if _QUESTION.search(text):
        bonus += 0.7
    if _DECISION.search(text):
        bonus += 0.8
    if any(name[0].isupper() for name in _NAME.findall(text)):
        bonus += 0.6
    return bonus


def _sentences(text: str) -> Iterator[str]:
    head = ""
    for sentence in _SENTENCE.split(text):
        sentence = " ".join(f"{head} {sentence or ''}".split())
        # "5." opens a point of a list.
        head = "" if _WORD.search(sentence) else sentence
        if sentence and not head:
            yield sentence
    if head:
        yield head


def _previous_lines(previous: str) -> Iterator[Line]:
    for text in previous.splitlines():
        if text.startswith(MENTIONED):
            # Numbers without a sentence: worth no line, but a place in the list again.
            yield Line("", 0.0, frozenset(), tuple(_NUMBER.findall(text.removeprefix(MENTIONED))), True)
        else:
            fits = len(text.encode()) <= _SENTENCE_BYTES
            yield from (_line(line, 0.5) for line in ([text] if fits else _sentences(text)) if line.strip())


def _message_lines(messages: Sequence[Message]) -> Iterator[Line]:
    share = max(_READ_BYTES // max(len(messages), 1), 200)
    last_asked = max((at for at, message in enumerate(messages) if message.role == "user"), default=-1)
    for at, message in enumerate(messages):
        who = speaker(message)
        # The first request says what it is all about, the last one what is open.
        place = 0.6 if at == 0 else 0.0
        if at == last_asked:
            place += 0.8
        for kind, text in pieces(message):
            if kind == "text":
                sentences = _sentences(shortened(text, min(share, _MESSAGE_BYTES)))
                yield from (_line(sentence, place + 0.3, f"{who}: ") for sentence in sentences)
            elif kind == "result":
                yield _line(
                    " ".join(shortened(text, min(share, _RESULT_BYTES)).split()), -1.0, f"{who}: ", spoken=False
                )
            else:
                yield _line(text, -0.8, f"{who} called " if kind == "call" else f"{who}: ")


def _distinct(lines: Iterable[Line]) -> Iterator[Line]:
    seen = set()
    for line in lines:
        if not line.text or line.text not in seen:
            yield line
        seen.add(line.text)


def _ranked(lines: Sequence[Line]) -> list[int]:
    """Places of the lines, the weightiest first: words that few other lines have, and the kind of line."""
    spread = Counter(word for line in lines for word in line.words)
    rarity = {word: math.log(1 + len(lines) / times, 1 + len(lines)) for word, times in spread.items()}

    def weight(at: int) -> float:
        line = lines[at]
        # sorted: the order of a set, and so the sum of its floats, differs from run to run.
        told = sum(sorted(rarity[word] for word in line.words)) / math.sqrt(len(line.words) + 4)
        return told + line.bonus + 0.5 * at / len(lines)

    return sorted((at for at in range(len(lines)) if lines[at].text), key=lambda at: (-weight(at), at))


def _numbers(lines: Sequence[Line], limit_bytes: int) -> dict[str, int]:
    """The numbers to keep, and the bytes each takes in a list: all that were said, then those that tools answered.

    Of too many, those of the newest lines. A tool may answer hundreds: they get an eighth of the room, and what is
    shorter than an id is left out.
    """
    spoken = (number for line in reversed(lines) if line.spoken for number in reversed(line.numbers))
    said = dict.fromkeys(number for number in spoken if len(number) > 1)
    answered = (number for line in reversed(lines) if not line.spoken for number in reversed(line.numbers))
    others = dict.fromkeys(number for number in answered if len(number) >= 5 and number not in said)
    kept: dict[str, int] = {}
    for numbers, most in ((said, limit_bytes), (others, limit_bytes // 8)):
        left = min(most, limit_bytes - sum(kept.values()))
        for number in numbers:
            size = len(number.encode()) + 2
            if size <= left:
                kept[number] = size
                left -= size
    return kept


def _composed(lines: Sequence[Line], limit_bytes: int) -> str:
    listed = _numbers(lines, limit_bytes // 2 - len(MENTIONED))
    left = limit_bytes - (len(MENTIONED) + sum(listed.values()) if listed else 0)
    ranked = _ranked(lines)
    chosen = []
    for at in ranked:
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
