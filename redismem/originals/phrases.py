"""Find the phrases that several people share: the only text of messages that a dictionary may contain. No I/O.

A phrase is a run of tokens that the messages of at least PEOPLE_COUNT people contain, byte for byte. A token is a word,
a letter of a script without spaces, or a single other character.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TypeVar

T = TypeVar("T", bound=Hashable)
Tokens = Sequence[bytes | None]
"""Consecutive tokens. None stands for a token that no phrase may contain."""
Pair = tuple[bytes | None, bytes | None]

PEOPLE_COUNT = 3
"""The smallest number of people who share a phrase."""

# A phrase has at most two to this power of tokens.
_ROUNDS_COUNT = 12
_LEAST_BYTES = 8
_SEPARATOR = b"\0"
# Phrases that stand next to each other must not form a run of so many words that fewer people share.
_RUN_COUNTS = (4, 8)
_TRIES_COUNT = 3
_WITHOUT_SPACES = "\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3"
_WORD = re.compile(f"[{_WITHOUT_SPACES}]|[^\\W{_WITHOUT_SPACES}]+")
_TOKEN = re.compile(f"{_WORD.pattern}|\\W")
_DIGIT = re.compile(r"\d")


def split_text(text: str, with_digits: bool) -> list[bytes | None]:
    """Return the tokens of a text. Without `with_digits`, None replaces every token that contains a digit."""
    return [None if not with_digits and _DIGIT.search(token) else token.encode() for token in _TOKEN.findall(text)]


def find_phrases(people: Iterable[Iterable[Tokens]]) -> list[bytes]:
    """Return the phrases of the lines of tokens of each person, the most useful first.

    Each round joins adjacent phrases that PEOPLE_COUNT people have next to each other, the most common pairs first.
    """
    lines_of = [list(lines) for lines in people]
    for _ in range(_ROUNDS_COUNT):
        counts = _count_people(map(_pairs, lines_of))
        if not counts:
            break
        lines_of = [[_join_pairs(line, counts) for line in lines] for lines in lines_of]
    counts_of_phrases = _count_people(
        {phrase for line in lines for phrase in line if phrase is not None and len(phrase) >= _LEAST_BYTES}
        for lines in lines_of
    )
    return sorted(counts_of_phrases, key=lambda phrase: (-counts_of_phrases[phrase] * len(phrase), phrase))


def join_phrases(phrases: Iterable[bytes], people: Iterable[Sequence[str]], most_bytes: int) -> bytes:
    """Join as many phrases as fit into `most_bytes`. The first phrase comes last, where zstd finds it at least cost.

    A phrase is left out if the joined phrases contain it. It gets another place, or is left out, if its last words and
    the words behind it are a run of words from the texts of fewer than PEOPLE_COUNT people. `people` has the texts of
    each person.
    """
    texts_of = list(people)
    rare = [(count, _rare_runs(texts_of, count)) for count in _RUN_COUNTS]
    joined: list[bytes] = []
    content, words_after = bytearray(), list[str]()
    waiting = list(phrases)
    for _ in range(_TRIES_COUNT):
        untried, waiting = waiting, []
        for phrase in untried:
            if len(content) + len(phrase) + len(_SEPARATOR) > most_bytes or phrase in content:
                continue
            words = _WORD.findall(phrase.decode("utf-8", "replace")) + words_after
            if any(not runs.isdisjoint(_hash_runs(words, count)) for count, runs in rare):
                waiting.append(phrase)
                continue
            words_after = words[: max(_RUN_COUNTS) - 1]
            joined.append(phrase + _SEPARATOR)
            content += joined[-1]
    return b"".join(reversed(joined))


def _count_people(items_of: Iterable[Iterable[T]]) -> dict[T, int]:
    """Return the number of people for each item that at least PEOPLE_COUNT people have."""
    counts = Counter[T]()
    for items in items_of:
        counts.update(items)
    return {item: count for item, count in counts.items() if count >= PEOPLE_COUNT}


def _pairs(lines: Iterable[Tokens]) -> set[Pair]:
    return {pair for line in lines for pair in pairwise(line) if pair[0] is not None and pair[1] is not None}


def _join_pairs(line: Tokens, counts_of: Mapping[Pair, int]) -> Tokens:
    """Join each pair that more people share than the pair before it, and not fewer than the pair behind it.

    So a run of tokens is joined in the same way wherever it occurs.
    """
    counts = [counts_of.get(pair, 0) for pair in pairwise(line)]
    counts.append(0)
    joined: list[bytes | None] = []
    at = before = 0
    while at < len(line):
        left = line[at]
        if counts[at] > before and counts[at] >= counts[at + 1]:
            joined.append((left or b"") + (line[at + 1] or b""))
            at, before = at + 2, 0
        else:
            joined.append(left)
            at, before = at + 1, counts[at]
    return joined


def _rare_runs(texts_of: Iterable[Sequence[str]], count: int) -> set[int]:
    """Return the hashes of all runs of `count` words that fewer than PEOPLE_COUNT people have."""
    counts = Counter[int]()
    for texts in texts_of:
        counts.update({run for text in texts for run in _hash_runs(_WORD.findall(text), count)})
    return {run for run, people_count in counts.items() if people_count < PEOPLE_COUNT}


def _hash_runs(words: Sequence[str], count: int) -> Iterable[int]:
    return map(hash, zip(*(words[at:] for at in range(count)), strict=False))
