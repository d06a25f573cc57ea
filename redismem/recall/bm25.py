"""Rank summarised messages by the words of a query, with BM25 over the signatures of their blocks.

A search ranks all messages of the newest blocks by their postings, then reads only the few best blocks. The limits
below bound its cost, whatever the messages contain.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence, Set
from itertools import islice
from typing import NamedTuple

from redismem.formats.days import read_period
from redismem.originals.blocks import BLOCK_COUNT
from redismem.originals.signatures import RULE_MARK, WEIGHTS, stem_hash
from redismem.recall.matches import SCALE, Matches
from redismem.recall.postings import Postings
from redismem.recall.proximity import Proximity
from redismem.text.forms import other_forms
from redismem.text.normal_forms import normalize
from redismem.text.stems import QUESTION_STEMS, stems

HITS_MOST = 64
"""The maximum number of hits."""
LIFTED_COUNT = 24
"""The number of best messages whose neighbours become candidates."""
BLOCKS_LIMIT = 12
"""The maximum number of blocks to read per query."""
BLOCKS_BYTES = 2 * 1024 * 1024
"""The maximum unpacked size of the blocks read per query, in bytes."""
RULES_MOST = 6
"""The maximum number of standing rules to look at per query."""
QUERY_CHARS = 16_384
"""The number of characters of a query that are used; the rest is ignored."""
_QUERY_STEMS = 64
MANY_POSTINGS = 8_000
"""The number of postings from which a ranking takes over a millisecond, and so runs in a thread."""
# Neighbours count, because an answer need not repeat the words of its question. A long one counts less.
_NEIGHBOUR = 0.4
_NEIGHBOURS = [_NEIGHBOUR * min(1.0, weight) for weight in WEIGHTS]
# A turn whose best message scores less than this share of the highest score of one word in a message of usual length
# asks for nothing: its words are as common as those of "Thanks". A short session has no rare words, so it has no floor.
_FLOOR, _FLOOR_COUNT = 0.75, 128
_RULE_HASH = stem_hash(RULE_MARK)
# The share of an embedder in the score of a message.
_VECTORS_SHARE = 0.2


def query_words(query: str) -> list[list[int]]:
    """Return the hashes of each word of the query: of its stem, then of its irregular forms.

    Question words are left out, since no signature contains them.
    """
    distinct = dict.fromkeys(islice(stems(query[:QUERY_CHARS]), 4 * _QUERY_STEMS))
    telling = [stem for stem in distinct if stem not in QUESTION_STEMS][:_QUERY_STEMS]
    hashes = dict.fromkeys(map(stem_hash, telling))
    forms = {stem_hash(stem): map(stem_hash, other_forms(stem)) for stem in telling}
    return [[hashed, *(each for each in forms[hashed] if each not in hashes)] for hashed in hashes]


class Ranked(NamedTuple):
    """The messages that one query matches, by seq."""

    hits: list[int]
    """The best messages, best first."""
    matching: Set[int]
    """All messages that match."""
    rules: list[int]
    """The messages that may tell a standing rule, best first."""
    proximity: Proximity | None = None
    """Orders the best messages again; `None` without any."""


class Ranking:
    """A BM25 ranking of messages for one query. A stem's rarity is counted over the searched blocks."""

    def __init__(self, query: str, today: int = 0) -> None:
        """Prepare a ranking. `today` is the day to which "last week" in the query refers."""
        self._words = query_words(query)
        self.hashes = [hashed for hashed, *_ in self._words]
        """The hashes of the query's stems."""
        self.period = read_period(normalize("NFC", query[:QUERY_CHARS]), today)

    def match(self, postings: Postings) -> Matches:
        """Look up the messages of an index that match the query."""
        return Matches(postings, self._words, None if self.period is None else self.period.matches)

    def rank(self, matches: Matches, matching: Set[int], scores: Mapping[int, float], rules: list[int]) -> Ranked:
        """Return the ranking by these scores."""
        return Ranked(rank(scores), matching, rules, Proximity(self._words, matches.rarities, scores))

    def scores(self, matches: Matches, excluded: Collection[int] = ()) -> dict[int, float]:
        """Return the scores of the HITS_MOST best messages, and of those beside them that match, by seq.

        If few messages match, all are scored, which takes less time.
        """
        if matches.count < MANY_POSTINGS:
            return matches.every(excluded)
        best = matches.best(HITS_MOST, excluded)
        beside = {seq + step for seq in islice(best, LIFTED_COUNT) for step in (-2, -1, 1, 2)}
        return best | matches.scores(beside - best.keys(), excluded)

    def rules(self, matches: Matches, excluded: Collection[int] = ()) -> list[int]:
        """Return the seqs of the messages that match the query and may tell a standing rule, best first."""
        return matches.marked(_RULE_HASH, RULES_MOST, excluded)

    def asks_nothing(self, lifted: Mapping[int, float], postings: Postings) -> bool:
        """True if the best message matches so little that a turn should quote nothing: it says "ok" or "Thanks"."""
        if self.period is not None or not lifted or postings.count < _FLOOR_COUNT:
            return False
        floor = _FLOOR * SCALE * math.log(1 + postings.count)
        best = max(lifted.values())
        return best < floor and best < floor * postings.usual_weight()


def lift_neighbours(scores: Mapping[int, float], postings: Postings | None = None) -> dict[int, float]:
    """Return the scores of the best messages and of the messages beside them, by seq.

    A message gets a share of the scores of the messages before and after it in addition. The share of a long message is
    smaller, by the weight of its words in `postings`. Without an index, all messages count as equally long.
    """
    score, beside = scores.get, dict[int, float]()
    for seq in sorted(scores, key=scores.__getitem__, reverse=True)[:LIFTED_COUNT]:
        own, before, after = scores[seq], score(seq - 1, 0.0), score(seq + 1, 0.0)
        beside[seq] = before + after
        beside[seq - 1] = own + score(seq - 2, 0.0)
        beside[seq + 1] = own + score(seq + 2, 0.0)
    if postings is None:
        return {seq: score(seq, 0.0) + _NEIGHBOUR * lift for seq, lift in beside.items()}
    shares = map(_NEIGHBOURS.__getitem__, postings.message_weights(beside))
    return {seq: score(seq, 0.0) + share * lift for (seq, lift), share in zip(beside.items(), shares, strict=True)}


def rank(scores: Mapping[int, float]) -> list[int]:
    """Return the seqs with the HITS_MOST highest scores, best first; equal scores order newest first."""
    newest_first = sorted(scores, reverse=True)
    return sorted(newest_first, key=scores.__getitem__, reverse=True)[:HITS_MOST]  # the sort keeps the order of equals


def select_blocks(postings: Postings, hits: Sequence[int]) -> list[int]:
    """Return the numbers of the blocks that contain these hits and the messages beside them, best hit first.

    Stops at BLOCKS_LIMIT blocks, and skips a block that would exceed BLOCKS_BYTES.
    """
    selected: dict[int, None] = {}
    left, last_place = BLOCKS_BYTES, BLOCK_COUNT - 1
    for seq in hits:
        number, place = divmod(seq - 1, BLOCK_COUNT)
        if number in selected and 0 < place < last_place:
            continue
        for candidate in (number, number - 1 if place == 0 else number + 1 if place == last_place else number):
            if candidate in selected or (block_bytes := postings.block_bytes(candidate)) is None or block_bytes > left:
                continue
            if len(selected) == BLOCKS_LIMIT:
                return list(selected)
            selected[candidate] = None
            left -= block_bytes
    return list(selected)


def fuse(words: Mapping[int, float], cosines: Mapping[int, float]) -> dict[int, float]:
    """Return scores that combine the lifted scores of words with the highest cosine similarities, by seq.

    Their scale is that of the words.
    Of HITS_MOST similarities the least counts as none, so an embedder to which all messages are alike changes nothing.
    """
    if not cosines:
        return dict(words)
    least = min(cosines.values()) if len(cosines) >= HITS_MOST else 0.0
    near = lift_neighbours({seq: cosine - least for seq, cosine in cosines.items() if cosine > least})
    highest = max(words.values(), default=1.0) / max(near.values(), default=1.0)
    near_scale = _VECTORS_SHARE / (1 - _VECTORS_SHARE) * highest
    return {seq: words.get(seq, 0.0) + near.get(seq, 0.0) * near_scale for seq in {*words, *near}}
