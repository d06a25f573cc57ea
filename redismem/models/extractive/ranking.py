"""Which sentences a summary keeps: those whose words are rare in the session, for the room that they take. No I/O."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Sequence, Set
from typing import Protocol

from redismem.text.sentences import PIECE_LINES, Line, Work
from redismem.text.word_counts import Sketch

RARITY_POWER = 2.0
STRONG = 2.0
"""A name or a number counts as much as so many other words."""
SEEN = 0.2
"""What a word is worth that a kept sentence has already."""
TAKEN_BYTES = 40
"""What a sentence takes beside its own bytes: who said it, and that something short says little."""
KINDS = {"said": 1.0, "asked": 0.35, "called": 0.3, "changed": 2.0, "answered": 0.25, "used": 0.6}
OPEN = 1.5
DECIDED = 1.15
CORRECTED = 2.0
OUTDATED = 0.2
_TRIES = 4
_CANDIDATES = 8
_RARE = 0.45
_SAME = 0.34


def _factor(line: Line) -> float:
    factor = KINDS[line.kind]
    if line.is_open:
        factor = max(factor, 1.0) * OPEN
    if line.cue == "corrects" and line.kind == "said":
        return factor * CORRECTED
    return factor * DECIDED if line.cue == "decides" else factor


def outdated(lines: Sequence[Line], sketch: Sketch) -> Work[set[int]]:
    """The places of lines that a later one corrects: the same speaker, much of the same rare words, and a word that
    says that something has changed, or may have."""
    places: defaultdict[int, list[int]] = defaultdict(list)
    gone: set[int] = set()
    for at, line in enumerate(lines):
        if at % PIECE_LINES == 0:
            yield
        if line.kind != "said":
            continue
        rare = {word: weight for word in line.words if (weight := sketch.rarity(word)) >= _RARE}
        if line.cue in ("corrects", "changes"):
            yield
            near = sorted({other for word in rare for other in places[word][-_CANDIDATES:]})[-4 * _CANDIDATES :]
            gone.update(other for other in near if other not in gone and _is_same(lines[other], line, rare, sketch))
        for word in rare:
            places[word].append(at)
    return gone


def _is_same(older: Line, newer: Line, rare: dict[int, float], sketch: Sketch) -> bool:
    if older.speaker != newer.speaker or older.text == newer.text:
        return False
    shared = [word for word in older.words if word in rare]
    # One word alone may be a name that much is told of.
    if len(shared) < 2:
        return False
    whole = sum(weight for word in older.words if (weight := sketch.rarity(word)) >= _RARE)
    return sum(rare[word] for word in shared) >= _SAME * whole


class Room(Protocol):
    """What is left for lines."""

    def fits(self, line: Line) -> bool:
        """Whether there is room for it."""

    def take(self, line: Line) -> None:
        """Takes the room of this line, from now on."""


class Weigher:
    """The lines of a summary, chosen one by one: the next is the one that adds most for the bytes it takes."""

    def __init__(self, lines: Sequence[Line], sketch: Sketch, outdated: Set[int]) -> None:
        self._lines = lines
        self._sketch = sketch
        self._outdated = outdated
        self._kept_words: set[int] = set()
        self._weights: dict[int, list[tuple[int, float]]] = {}

    def _weighed(self, at: int) -> list[tuple[int, float]]:
        """What each word of a line adds for the bytes that the line takes."""
        line, rarity = self._lines[at], self._sketch.rarity
        factor = _factor(line) * (OUTDATED if at in self._outdated else 1) / (line.size_bytes + TAKEN_BYTES)
        return [
            (word, factor * rarity(word) ** RARITY_POWER * (STRONG if word in line.strong else 1.0))
            for word in line.words
        ]

    def _gain(self, at: int) -> float:
        kept = self._kept_words
        if at not in self._weights:
            self._weights[at] = self._weighed(at)
        return sum([weight * SEEN if word in kept else weight for word, weight in self._weights[at]])

    def chosen(self, places: Iterable[int], room: Room) -> Work[list[int]]:
        """The places that fit, the one that adds most first, each weighed by what those before it say.

        A place is weighed anew a few times at most: what this takes grows with the text and no faster.
        """
        heap: list[tuple[float, int, int]] = []
        for step, at in enumerate(places):
            if step % PIECE_LINES == 0:
                yield
            if room.fits(self._lines[at]):
                heap.append((-self._gain(at), 0, at))
        heapq.heapify(heap)
        tries = [0] * len(self._lines)
        chosen: list[int] = []
        steps = 0
        while heap:
            steps += 1
            if steps % PIECE_LINES == 0:
                yield
            _, weighed_at, at = heapq.heappop(heap)
            if not room.fits(self._lines[at]):
                continue
            if weighed_at < len(chosen) and tries[at] < _TRIES:
                gain = self._gain(at)
                if heap and gain < -heap[0][0]:
                    tries[at] += 1
                    heapq.heappush(heap, (-gain, len(chosen), at))
                    continue
            chosen.append(at)
            room.take(self._lines[at])
            self._kept_words.update(self._lines[at].words)
        return chosen
