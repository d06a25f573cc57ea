"""The messages of an index that match one query, and the best of them. No I/O.

`best` returns what scoring every match would (MaxScore): lists are read rarest first. Once the words left over cannot
lift a new message among the best ones, they only complete the scores of those found.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

from redismem.originals.signatures import WEIGHTS
from redismem.recall.postings import Postings
from redismem.recall.segments import Segment

# Weights of stems are integers, so their sum does not depend on the order.
SCALE = 1 << 16
"""The factor of all scores."""
MOST_WEIGHT = max(WEIGHTS)
"""The weight of a word in the shortest messages."""
POSTINGS_LIMIT = 400_000
"""The postings from which a search finds, in each further segment, only messages with the rarest of its words there."""
# An irregular form ("went") matches a little less than the word of the query ("go").
_FORM_SHARE = 0.7
# A day that the query names counts more than a word: messages of other days rarely answer it.
_PERIOD_SHARE = 1.5
# Looking up one place takes as long as reading this number of postings.
_LOOKUP_COUNT = 8


class _Row(NamedTuple):
    """The matches in one segment."""

    segment: Segment
    lists: list[tuple[int, Sequence[int]]]
    """The number of each word, and the places of the messages that contain it, rarest word first."""
    period: list[range]
    """The places on the days that the query names."""


class Matches:
    """The posting lists of a query's words, and the places on the days that it names, by segment."""

    def __init__(
        self, postings: Postings, words: Sequence[Sequence[int]], is_meant: Callable[[int], bool] | None = None
    ) -> None:
        """Look up the words.

        Args:
            postings: The index.
            words: For each word of the query, the hash of its stem, then those of its other forms.
            is_meant: True for the days since 1970 that the query names; `None` means that it names none.
        """
        rows, counts, period_count = list[_Row](), [0] * len(words), 0
        for segment in postings.segments():
            lists = list[tuple[int, Sequence[int]]]()
            for word, (hashed, *forms) in enumerate(words):
                if places := segment.find(hashed):
                    lists.append((word, places))
                    counts[word] += len(places)
                if forms and (others := {place for form in forms for place in segment.find(form)}.difference(places)):
                    lists.append((len(words) + word, sorted(others)))
                    counts[word] += len(others)
            period = [] if is_meant is None else segment.on_days(is_meant)
            period_count += sum(len(each) - segment.weights.count(0, each.start, each.stop) for each in period)
            if lists or period:
                rows.append(_Row(segment, lists, period))
        for row in rows:
            row.lists.sort(key=lambda each: counts[each[0] % len(words)])
        self._rows = rows
        self._total = postings.count
        rarities = [self._rarity(count) for count in counts]
        self.rarities = [*rarities, *(int(_FORM_SHARE * rarity) for rarity in rarities)]
        """The rarities of the words, then those of their other forms."""
        self._period_rarity = int(_PERIOD_SHARE * self._rarity(period_count))
        self.count = sum(counts) + period_count
        """The number of postings."""

    def _rarity(self, count: int) -> int:
        """Return the weight of a stem that this number of messages contain: higher if they are few."""
        return int(SCALE * math.log(1 + max(0, self._total - count + 0.5) / (count + 0.5)))

    def best(self, count: int, excluded: Collection[int] = ()) -> dict[int, float]:
        """Return the highest scores, at most `count`, by seq. Of equal scores those of the oldest messages count.

        The score of a message is the sum of its words' rarities times its weight, and the rarity of the period.
        """
        best: list[tuple[float, int]] = []
        floor, left = -1.0, POSTINGS_LIMIT
        bounds = [(self._bound(row), number) for number, row in enumerate(self._rows)]
        for bound, number in sorted(bounds, reverse=True):
            if bound < floor:
                break
            row = self._rows[number]
            sums, used_count = self._sum_up(row, floor, is_full=left > 0)
            left -= used_count
            scores = self._weigh(row, sums, excluded)
            scored = [(score, -seq) for seq, score in scores.items() if score >= floor]
            if scored:
                best = sorted([*best, *scored], reverse=True)[:count]
                floor = best[-1][0] if len(best) == count else floor
        return {-seq: score for score, seq in best}

    def _words(self, row: _Row) -> int:
        """Return the sum of the rarities of all words in a segment."""
        return sum([self.rarities[stem] for stem, _ in row.lists])

    def _bound(self, row: _Row) -> float:
        """Return a number that no score in this segment exceeds."""
        return MOST_WEIGHT * self._words(row) + (self._period_rarity if row.period else 0)

    def _sum_up(self, row: _Row, floor: float, *, is_full: bool) -> tuple[dict[int, int], int]:
        """Return the sum of the rarities of the words of each message whose score may reach the floor, by place.

        Also returns the number of postings read for it. Unless `is_full`, only messages with the rarest word count.
        """
        sums: dict[int, int] = {}
        get_sum, words_left, used_count, read_count = sums.get, self._words(row), 0, 0
        floor -= self._period_rarity if row.period else 0
        for stem, places in row.lists:
            if words_left * MOST_WEIGHT < floor or (sums and not is_full):
                break
            rarity = self.rarities[stem]
            if sums:
                for place in places:
                    sums[place] = get_sum(place, 0) + rarity
            else:
                sums.update(dict.fromkeys(places, rarity))
            words_left -= rarity
            used_count += len(places)
            read_count += 1
        else:
            weights = row.segment.weights
            for each in row.period if floor <= 0 and (is_full or not sums) else ():
                sums.update((place, 0) for place in each if weights[place] and place not in sums)
                used_count += len(each)
        return self._complete(row, sums, row.lists[read_count:], floor), used_count

    def _complete(
        self, row: _Row, sums: dict[int, int], lists: Sequence[tuple[int, Sequence[int]]], floor: float
    ) -> dict[int, int]:
        """Add the rarities of these words to the sums that may reach the floor, and drop the others."""
        if not lists:
            return sums
        weights, words = row.segment.weights, sum(self.rarities[stem] for stem, _ in lists)
        sums = {place: sum_ for place, sum_ in sums.items() if (sum_ + words) * WEIGHTS[weights[place]] >= floor}
        for stem, places in lists:
            rarity = self.rarities[stem]
            if len(sums) * _LOOKUP_COUNT < len(places):
                matching: Iterable[int] = [place for place in sums if _contains(places, place)]
            else:
                matching = sums.keys() & places
            for place in matching:
                sums[place] += rarity
        return sums

    def _weigh(self, row: _Row, sums: dict[int, int], excluded: Collection[int]) -> dict[int, float]:
        """Return the scores of these sums by seq, without the excluded seqs."""
        base, weights = row.segment.first_seq, row.segment.weights
        scores = {base + place: sum_ * WEIGHTS[weights[place]] for place, sum_ in sums.items()}
        for each in row.period:
            for seq in scores.keys() & range(base + each.start, base + each.stop):
                scores[seq] += self._period_rarity
        for seq in excluded:
            scores.pop(seq, None)
        return scores

    def every(self, excluded: Collection[int] = ()) -> dict[int, float]:
        """Return the scores of all matches, by seq."""
        scores: dict[int, float] = {}
        for row in self._rows:
            sums, _ = self._sum_up(row, -1.0, is_full=True)
            scores |= self._weigh(row, sums, excluded)
        return scores

    def scores(self, seqs: Iterable[int], excluded: Collection[int] = ()) -> dict[int, float]:
        """Return the scores of those of these messages that match, by seq."""
        scores: dict[int, float] = {}
        first_seqs = [row.segment.first_seq for row in self._rows]
        for seq in seqs:
            at = bisect_right(first_seqs, seq) - 1
            if at < 0:
                continue
            row, place = self._rows[at], seq - first_seqs[at]
            stems = [stem for stem, places in row.lists if _contains(places, place)]
            if stems or any(place in each and row.segment.weights[place] for each in row.period):
                scores |= self._weigh(row, {place: sum(self.rarities[stem] for stem in stems)}, excluded)
        return scores

    def marked(self, mark: int, count: int, excluded: Collection[int] = ()) -> list[int]:
        """Return the seqs of at most `count` messages with a mark that contain words of the query, best first.

        A word counts more if few of these messages contain it.

        Args:
            mark: The hash of the stem that is the mark.
            count: The maximum number of messages.
            excluded: Seqs to leave out.
        """
        found: dict[int, tuple[list[int], float]] = {}
        counts = [0] * len(self.rarities)
        for row in self._rows:
            base, weights = row.segment.first_seq, row.segment.weights
            places_of = {*row.segment.find(mark)}.difference([seq - base for seq in excluded])
            for stem, places in row.lists if places_of else ():
                matching = places_of.intersection(places)
                counts[stem] += len(matching)
                for place in matching:
                    found.setdefault(base + place, ([], WEIGHTS[weights[place]]))[0].append(stem)
        gains = [math.log(1 + len(found) / max(1, matching_count)) for matching_count in counts]
        keys = {
            seq: (sum([gains[stem] for stem in stems]), weight * sum([self.rarities[stem] for stem in stems]), seq)
            for seq, (stems, weight) in found.items()
        }
        return sorted(keys, key=keys.__getitem__, reverse=True)[:count]


def _contains(places: Sequence[int], place: int) -> bool:
    """True if this place is among ascending ones."""
    at = bisect_left(places, place)
    return at < len(places) and places[at] == place
