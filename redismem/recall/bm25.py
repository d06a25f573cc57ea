"""Rank summarised messages by the words of a query, with BM25 over the signatures of their blocks.

A search looks up the query's stems in the postings of the newest blocks, then reads only the few best blocks. The
limits below bound its cost, whatever the messages contain.
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

HITS_MOST = 64
"""The maximum number of hits."""
BLOCKS_LIMIT = 6
"""The maximum number of blocks to read per query."""
BLOCKS_BYTES = 2 * 1024 * 1024
"""The maximum unpacked size of the blocks read per query, in bytes."""
SIGNATURES_LIMIT = 1_024
"""The number of newest blocks whose signatures are searched."""
QUERY_CHARS = 16_384
"""The number of characters of a query that are used; the rest is ignored."""
_QUERY_STEMS = 64
_POSTINGS_LIMIT = 48
_BLOCKS_COUNT = 6
# Weights of stems are integers, so their sum does not depend on the order.
_SCALE = 1 << 16
# Neighbours count, because an answer need not repeat the words of its question.
_NEIGHBOUR = 0.3
_RANK_CONSTANT = 60


def query_hashes(query: str) -> list[int]:
    """Return the hashes of the query's stems. Question words are left out, since no signature contains them."""
    distinct = dict.fromkeys(islice(stems(query[:QUERY_CHARS]), 4 * _QUERY_STEMS))
    telling = [stem for stem in distinct if stem not in QUESTION_STEMS]
    return list(dict.fromkeys(map(stem_hash, telling[:_QUERY_STEMS])))


class Ranking:
    """A BM25 ranking of messages for one query. A stem's rarity is counted over the searched blocks."""

    def __init__(self, query: str) -> None:
        self.hashes = query_hashes(query)

    def best(self, postings: Postings, before_seq: int, limit: int = HITS_MOST) -> list[int]:
        """Return the seqs of matching messages before `before_seq`, best first; equal scores order newest first."""
        scores = self._scores(postings)
        score = scores.get
        ranked = [
            (
                own
                + _NEIGHBOUR * (before if (before := score(seq - 1, 0.0)) > (after := score(seq + 1, 0.0)) else after),
                seq,
            )
            for seq, own in scores.items()
        ]
        ranked.sort(reverse=True)
        hits = [seq for _, seq in ranked[: min(limit, HITS_MOST)]]
        return hits if not hits or max(hits) < before_seq else [seq for _, seq in ranked if seq < before_seq][:limit]

    def _scores(self, postings: Postings) -> dict[int, float]:
        """Return the score of each matching message by seq, for the blocks that match best."""
        weighted: list[tuple[int, list[int]]] = []
        block_scores: dict[int, int] = {}
        score, all_count = block_scores.get, postings.count
        left = _POSTINGS_LIMIT
        for entries in sorted(filter(None, map(postings.of, self.hashes)), key=len):
            left -= len(entries)
            if left < 0 and block_scores:
                break  # the rare stems came first
            counts = [(entry & PLACES).bit_count() for entry in entries]
            count = sum(counts)
            rarity = int(_SCALE * math.log(1 + (all_count - count + 0.5) / (count + 0.5)))
            weighted.append((rarity, entries))
            for entry, own_count in zip(entries, counts, strict=True):
                number = entry >> BLOCK_COUNT
                block_scores[number] = score(number, 0) + rarity * (BLOCK_COUNT + own_count)
        best_blocks = sorted(block_scores, key=block_scores.__getitem__, reverse=True)[:_BLOCKS_COUNT]
        return _score_messages(weighted, postings, best_blocks)


def _score_messages(
    weighted: Sequence[tuple[int, list[int]]], postings: Postings, numbers: Sequence[int]
) -> dict[int, float]:
    """Return the scores of the messages in these blocks, by seq. Rare stems and short messages score higher."""
    sums: dict[int, dict[int, int]] = {number: {} for number in numbers}
    for rarity, entries in weighted:
        for entry in entries:
            if (block_sums := sums.get(entry >> BLOCK_COUNT)) is not None:
                before = block_sums.get
                for place in places_of(entry & PLACES):
                    block_sums[place] = before(place, 0) + rarity
    scores: dict[int, float] = {}
    for number, block_sums in sums.items():
        if (block := postings.blocks.get(number)) is None:
            continue  # another search has dropped it meanwhile
        first_seq, weights = first_seq_of(number), block.weights
        for place, sum_ in block_sums.items():
            if weights[place]:
                scores[first_seq + place] = sum_ * weights[place]
    return scores


@lru_cache(maxsize=8_192)
def places_of(mask: int) -> tuple[int, ...]:
    """Return the positions of the bits that are set in the mask."""
    return tuple([place for place in range(BLOCK_COUNT) if mask >> place & 1])


def select_blocks(postings: Postings, hits: Sequence[int]) -> list[int]:
    """Return the numbers of the blocks that contain these hits and the messages beside them, best hit first.

    Stops at BLOCKS_LIMIT blocks, and skips a block that would exceed BLOCKS_BYTES.
    """
    selected: list[int] = []
    left, get_block = BLOCKS_BYTES, postings.blocks.get
    for seq in hits:
        number, place = divmod(seq - 1, BLOCK_COUNT)
        neighbour = number - 1 if place == 0 else number + 1 if place == BLOCK_COUNT - 1 else number
        for candidate in (number, neighbour):
            if candidate in selected or (block := get_block(candidate)) is None or block.block_bytes > left:
                continue
            if len(selected) == BLOCKS_LIMIT:
                return selected
            selected.append(candidate)
            left -= block.block_bytes
    return selected


def fuse(*rankings: Sequence[int]) -> list[int]:
    """Merge rankings by reciprocal rank fusion. Equal scores order newest first.

    The constant 60 is from Cormack, Clarke and Büttcher, "Reciprocal rank fusion outperforms Condorcet and individual
    rank learning methods", SIGIR 2009.
    """
    scores: dict[int, float] = {}
    for ranking in rankings:
        for rank, seq in enumerate(ranking, 1):
            scores[seq] = scores.get(seq, 0.0) + 1 / (_RANK_CONSTANT + rank)
    return sorted(scores, key=lambda seq: (-scores[seq], -seq))
