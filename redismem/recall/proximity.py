"""Order the best matches again by what the index does not tell: words that stand together, and who speaks. No I/O.

Only messages whose blocks a search reads anyway are looked at, so it reads no more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from redismem.originals.signatures import stem_hash
from redismem.recall.matches import SCALE
from redismem.recall.selection import count_hits
from redismem.text.stems import QUESTION_STEMS, stems

# Two words of the query side by side count half of the rarity of the less rare one; at a distance, by its square less.
_PAIR_SHARE = 0.5
# A message of the speaker whom the query names counts more than one that mentions the name: most questions ask what
# somebody said.
_SPEAKER = 0.4
_TEXT_CHARS = 2_048


class LineWords(NamedTuple):
    """The words of a message's line, a character per stem: its 16-bit hash. A stem is found as fast as a character."""

    speaker: str
    """The stems of the speaker's name."""
    words: str
    """The stems of the first 2,048 characters, without question words."""


def read_line(line: str) -> LineWords:
    """Return the words of a message's line, see `formats.recalled.format_line`."""
    speaker, _, text = line.partition(": ")
    _, _, name = speaker.partition(" ")
    return LineWords(_encode(name), _encode(text[:_TEXT_CHARS]))


def _encode(text: str) -> str:
    return "".join([chr(stem_hash(stem)) for stem in stems(text) if stem not in QUESTION_STEMS]) if text else ""


class Proximity:
    """The words and scores of a query, to order its best matches again."""

    def __init__(self, words: Sequence[Sequence[int]], rarities: Sequence[int], scores: Mapping[int, float]) -> None:
        """Prepare the order.

        Args:
            words: For each word of the query, the hash of its stem, then those of its other forms.
            rarities: The rarity of each word.
            scores: The scores of the messages, by seq.
        """
        self._words = {chr(hashed): word for word, hashes in enumerate(words) for hashed in hashes}
        self._rarities = rarities
        self._scores = scores
        self._speakers: dict[str, float] = {"": 0.0}

    def order(
        self,
        hits: Sequence[int],
        words_of: Callable[[int], LineWords | None],
        limit: int | None,
        max_tokens: int | None,
    ) -> list[int]:
        """Return these seqs, with those that a search considers ordered again.

        With a limit and a budget the order stays: what a limit finds must not depend on the budget.

        Args:
            hits: The best messages, best first.
            words_of: Returns the words of a message; `None` if it was not read.
            limit: The limit of the search.
            max_tokens: The budget of the search.
        """
        if limit is not None and max_tokens is not None:
            return list(hits)
        count = len(hits) if max_tokens is None else count_hits(max_tokens)
        scores = {seq: self._scores[seq] + self._bonus(words_of(seq)) for seq in hits[:count]}
        return [*sorted(scores, key=scores.__getitem__, reverse=True), *hits[count:]]

    def _bonus(self, line: LineWords | None) -> float:
        if line is None:
            return 0.0
        speaker, words = line
        if (of_speaker := self._speakers.get(speaker)) is None:
            is_named = any(char in speaker for char in self._words)
            of_speaker = self._speakers[speaker] = _SPEAKER * SCALE if is_named else 0.0
        chars = [char for char in self._words if char in words]
        return of_speaker + (_PAIR_SHARE * self._closeness(words, chars) if len(chars) > 1 else 0.0)

    def _closeness(self, words: str, chars: Sequence[str]) -> float:
        """Return the sum over the pairs of words that follow each other: the lower rarity by the squared distance."""
        places = list[tuple[int, int]]()
        find = words.find
        for char in chars:
            word, at = self._words[char], find(char)
            while at >= 0:
                places.append((at, word))
                at = find(char, at + 1)
        closest: dict[tuple[int, int], int] = {}
        for (before, one), (after, other) in pairwise(sorted(places)):
            if one != other:
                pair = (one, other) if one < other else (other, one)
                closest[pair] = min(closest.get(pair, after - before), after - before)
        rarities = self._rarities
        return sum([min(rarities[one], rarities[other]) / gap**2 for (one, other), gap in closest.items()])
