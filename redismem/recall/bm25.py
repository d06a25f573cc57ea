"""Which earlier messages a question is about: found by the signatures of their blocks, read out of the best of these.

It never looks through the history: where its words stand in the newest blocks, then a few blocks. What it costs is
bounded by the limits below, whatever the messages hold.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import islice

from redismem.originals.blocks import BLOCK_COUNT, first_seq_of
from redismem.originals.signatures import QUESTION_STEMS, stem_hash
from redismem.recall.postings import PLACES, Postings
from redismem.text.stems import stems

HITS_LIMIT = 8
BLOCKS_LIMIT = 6
"""Blocks that are read for one question."""
BLOCKS_BYTES = 2 * 1024 * 1024
"""What they may have unpacked, all together."""
SIGNATURES_LIMIT = 1_024
"""Blocks that are searched, the newest."""
HITS_MOST = 64
QUERY_CHARS = 16_384
"""What of a question is looked at."""
_QUERY_STEMS = 64
_POSTINGS_LIMIT = 48
_BLOCKS_COUNT = 6
# Worths of words are integers: their sum is the same in every order.
_SCALE = 1 << 16
# What a message's neighbours say is a part of what it is about: an answer need not repeat the words of its question.
_NEIGHBOUR = 0.3
_RANK_CONSTANT = 60


def query_hashes(query: str) -> list[int]:
    """What is looked for: the words of the query, without those that only ask, which no signature has."""
    found = list(dict.fromkeys(islice(stems(query[:QUERY_CHARS]), 4 * _QUERY_STEMS)))
    telling = [stem for stem in found if stem not in QUESTION_STEMS]
    return list(dict.fromkeys(map(stem_hash, telling[:_QUERY_STEMS])))


class Ranking:
    """Scores the messages of blocks by what the signatures say: BM25, with rarity over the blocks that are searched."""

    def __init__(self, query: str) -> None:
        self.hashes = query_hashes(query)

    def best(self, postings: Postings, before_seq: int, limit: int = HITS_MOST) -> list[int]:
        """Seqs before this one that have something of the query, best first; of the same worth, newest first."""
        scores = self._scores(postings)
        score = scores.get
        found = [
            (
                own
                + _NEIGHBOUR * (before if (before := score(seq - 1, 0.0)) > (after := score(seq + 1, 0.0)) else after),
                seq,
            )
            for seq, own in scores.items()
        ]
        found.sort(reverse=True)
        hits = [seq for _, seq in found[: min(limit, HITS_MOST)]]
        return hits if not hits or max(hits) < before_seq else [seq for _, seq in found if seq < before_seq][:limit]

    def _scores(self, postings: Postings) -> dict[int, float]:
        """What each message with one of the words is worth, by its seq, in the blocks that have most of the words."""
        weighed: list[tuple[int, list[int]]] = []
        worth: dict[int, int] = {}
        known, all_count = worth.get, postings.count
        left = _POSTINGS_LIMIT
        for found in sorted(filter(None, map(postings.of, self.hashes)), key=len):
            left -= len(found)
            if left < 0 and worth:
                break  # the rare words came first
            counts = [(each & PLACES).bit_count() for each in found]
            count = sum(counts)
            rarity = int(_SCALE * math.log(1 + (all_count - count + 0.5) / (count + 0.5)))
            weighed.append((rarity, found))
            for each, own in zip(found, counts, strict=True):
                number = each >> BLOCK_COUNT
                worth[number] = known(number, 0) + rarity * (BLOCK_COUNT + own)
        return _sums(weighed, postings, sorted(worth, key=worth.__getitem__, reverse=True)[:_BLOCKS_COUNT])


def _sums(weighed: Sequence[tuple[int, list[int]]], postings: Postings, numbers: Sequence[int]) -> dict[int, float]:
    """What each message of these blocks is worth, by its seq: how rare its words are, and more if it is short."""
    owns: dict[int, dict[int, int]] = {number: {} for number in numbers}
    for rarity, found in weighed:
        for each in found:
            if (own := owns.get(each >> BLOCK_COUNT)) is not None:
                known = own.get
                for place in places_of(each & PLACES):
                    own[place] = known(place, 0) + rarity
    scores: dict[int, float] = {}
    for number, own in owns.items():
        if (block := postings.blocks.get(number)) is None:
            continue  # gone meanwhile
        first_seq, weights = first_seq_of(number), block.weights
        for place, sum_ in own.items():
            if weights[place]:
                scores[first_seq + place] = sum_ * weights[place]
    return scores


@lru_cache(maxsize=8_192)
def places_of(mask: int) -> tuple[int, ...]:
    """The places in the mask."""
    return tuple([place for place in range(BLOCK_COUNT) if mask >> place & 1])


def blocks_of(postings: Postings, hits: Sequence[int]) -> list[int]:
    """The numbers of the blocks to read for these seqs and their neighbours, as many as may be read."""
    chosen: list[int] = []
    left, known = BLOCKS_BYTES, postings.blocks.get
    for seq in hits:
        number, place = divmod(seq - 1, BLOCK_COUNT)
        also = number - 1 if place == 0 else number + 1 if place == BLOCK_COUNT - 1 else number
        for each in (number, also):
            if each in chosen or (block := known(each)) is None or block.block_bytes > left:
                continue
            if len(chosen) == BLOCKS_LIMIT:
                return chosen
            chosen.append(each)
            left -= block.block_bytes
    return chosen


def fused(*rankings: Sequence[int]) -> list[int]:
    """One ranking of several: each counts with the reciprocal of its rank, of the same worth the newest first.

    With the constant 60 of Cormack, Clarke and Büttcher, "Reciprocal rank fusion outperforms Condorcet and individual
    rank learning methods", SIGIR 2009.
    """
    worth: dict[int, float] = {}
    for ranking in rankings:
        for rank, seq in enumerate(ranking, 1):
            worth[seq] = worth.get(seq, 0.0) + 1 / (_RANK_CONSTANT + rank)
    return sorted(worth, key=lambda seq: (-worth[seq], -seq))
