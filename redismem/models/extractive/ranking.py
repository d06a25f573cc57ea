"""Rank sentences for a summary: the rarer their words are in the session, per byte, the better. No I/O."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Sequence, Set
from typing import Protocol

from redismem.text.rules import replaces, subject_of
from redismem.text.sentences import PIECE_LINES, Line, Work
from redismem.text.word_counts import Sketch

RARITY_POWER = 2.0
STRONG = 2.0
"""Weight of a name or a number, relative to other words."""
SEEN_FACTOR = 0.2
"""Factor for the weight of a word that a chosen sentence already contains."""
LINE_OVERHEAD_BYTES = 40
"""Overhead per sentence: its speaker, and a penalty because short sentences say little."""
KINDS = {"said": 1.0, "asked": 0.35, "called": 0.3, "changed": 2.0, "answered": 0.25, "used": 0.6}
OPEN = 1.5
DECIDED = 1.15
CORRECTED = 2.0
RULED = 6.0
"""Factor for a standing rule of a user, so that it stays though its words are common."""
OUTDATED = 0.2
_TRIES = 4
_CANDIDATES = 8
_RARE = 0.45
_SAME = 0.34
_RULES_MOST = 64


def _factor(line: Line, *, is_outdated: bool) -> float:
    factor = KINDS[line.kind]
    if line.is_open:
        factor = max(factor, 1.0) * OPEN
    if is_outdated:
        factor *= OUTDATED
    elif line.is_rule:
        return factor * RULED
    if line.cue == "corrects" and line.kind == "said":
        return factor * CORRECTED
    return factor * DECIDED if line.cue == "decides" else factor


def find_outdated(lines: Sequence[Line], sketch: Sketch) -> Work[set[int]]:
    """Return the indices of lines that a later line corrects.

    The later line has the same speaker, many of the same rare words, and a cue that signals a change; or both are rules
    of the same subject.
    """
    changing = set[int]().union(*(line.words for line in lines if _may_change(line)))
    rare = {word: weight for word, weight in sketch.rarities(changing).items() if weight >= _RARE}
    watched = {*rare}
    places: defaultdict[int, list[int]] = defaultdict(list)
    gone: set[int] = set()
    rules: dict[int, tuple[str, Set[str]]] = {}
    for at, line in enumerate(lines):
        if at % PIECE_LINES == 0:
            yield
        if line.kind != "said":
            continue
        own = watched & line.words
        if _may_change(line):
            yield
            near = sorted({other for word in own for other in places[word][-_CANDIDATES:]})[-4 * _CANDIDATES :]
            gone.update(other for other in near if other not in gone and _is_same(lines[other], line, rare, sketch))
        if line.is_rule:
            subject = subject_of(line.text)
            newest = list(rules.items())[-_RULES_MOST:]
            gone.update(other for other, (who, its) in newest if who == line.speaker and replaces(its, subject))
            rules[at] = line.speaker, subject
        for word in own:
            places[word].append(at)
    return gone


def _may_change(line: Line) -> bool:
    return line.kind == "said" and line.cue in ("corrects", "changes")


def _is_same(older: Line, newer: Line, rare: dict[int, float], sketch: Sketch) -> bool:
    if older.speaker != newer.speaker or older.text == newer.text:
        return False
    shared = rare.keys() & older.words & newer.words
    # A single shared word may be a name that many sentences mention.
    if len(shared) < 2:
        return False
    whole = sum(weight for word in older.words if (weight := sketch.rarity(word)) >= _RARE)
    return sum(rare[word] for word in shared) >= _SAME * whole


class Room(Protocol):
    """The number of bytes left for lines."""

    def fits(self, line: Line) -> bool:
        """True if the line fits."""

    def take(self, line: Line) -> None:
        """Reserve the space of this line."""


class LineRanker:
    """Choose lines greedily: the next line is the one that adds most per byte."""

    def __init__(self, lines: Sequence[Line], sketch: Sketch, outdated: Set[int]) -> None:
        self._lines = lines
        self._outdated_places = outdated
        self._kept_words: set[int] = set()
        self._weights: dict[int, tuple[float, float]] = {}
        rarities = sketch.rarities(set[int]().union(*(line.words for line in lines)))
        self._rarities = {word: rarity**RARITY_POWER for word, rarity in rarities.items()}

    def _weigh(self, at: int) -> tuple[float, float]:
        """Return the weight of a line's words together, and the factor by which the line multiplies their weights."""
        line, rarity_of = self._lines[at], self._rarities.__getitem__
        whole = sum(map(rarity_of, line.words)) + (STRONG - 1) * sum(map(rarity_of, line.strong))
        return whole, _factor(line, is_outdated=at in self._outdated_places) / (line.size_bytes + LINE_OVERHEAD_BYTES)

    def _gain(self, at: int) -> float:
        """Return the weight per byte that a line adds. A word that a chosen line already contains weighs less."""
        if at not in self._weights:
            self._weights[at] = self._weigh(at)
        whole, factor = self._weights[at]
        if seen := self._kept_words.intersection(self._lines[at].words):
            rarity_of, strong = self._rarities.__getitem__, seen & self._lines[at].strong
            known = sum(map(rarity_of, seen)) + (STRONG - 1) * sum(map(rarity_of, strong))
            whole -= (1 - SEEN_FACTOR) * known
        return factor * whole

    def choose(self, places: Iterable[int], room: Room) -> Work[list[int]]:
        """Return the indices of lines that fit, best first. A word that a chosen line already contains weighs less.

        A line is weighed again only a few times, so that the time stays linear in the text.
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
