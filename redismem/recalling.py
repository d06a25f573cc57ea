"""Which earlier messages a question is about: found by the signatures of their blocks, read out of the best of these.

It never looks through the history: where its words stand in the newest blocks, then a few blocks. What it costs is
bounded by the limits below, whatever the messages hold.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence, Set
from itertools import islice

from redismem.blocks import first_seq_of, number_of
from redismem.messages import Message
from redismem.postings import BLOCK_SHIFT, MASK, Postings, places_of
from redismem.recalled import LINE_TOKENS
from redismem.signatures import stem_hash
from redismem.tool_calls import may_hold_calls
from redismem.window import CallIds, answers, call_ids
from redismem.words import stems

HITS_LIMIT = 8
BLOCKS_LIMIT = 6
"""Blocks that are read for one question."""
BLOCKS_BYTES = 2 * 1024 * 1024
"""What they may have unpacked, all together."""
SIGNATURES_LIMIT = 1_024
"""Blocks that are searched, the newest."""
HITS_MOST = 64

_QUERY_CHARS = 16_384
_QUERY_STEMS = 64
_POSTINGS_LIMIT = 256
_BLOCKS_COUNT = 8
# What a message's neighbours say is a part of what it is about: an answer need not repeat the words of its question.
_NEIGHBOUR = 0.3
# Words of questions, as stems: rare in what is told, so they would weigh most, and say nothing of what is asked.
_ASKING = frozenset(
    stem
    for stem in stems(
        "what when where which who whom whose why how did do does is are was were has have had would could should can "
        "will the a an of to in on at for and or it its this that these those i me my you your he his him she her they "
        "their them we our us with from by about as be been not any some tell remember said say mention mentioned "
        "was wann wo wer wie warum welche welcher welches hat haben ist sind war der die das ein eine ich du er sie es "
        "wir und oder von zu mit que quand où qui comment pourquoi quel quelle est sont le la les un une des du de et "
        "ou je tu il elle nous vous qué cuándo dónde quién cómo cuál por el los las una es son y o yo me mi tu su"
    )
)


def query_hashes(query: str) -> list[int]:
    """What is looked for: the words of the query, without those that only ask; all of them, if no other is left."""
    found = list(dict.fromkeys(islice(stems(query[:_QUERY_CHARS]), 4 * _QUERY_STEMS)))
    telling = [stem for stem in found if stem not in _ASKING] or found
    return list(dict.fromkeys(map(stem_hash, telling[:_QUERY_STEMS])))


class Ranking:
    """Scores the messages of blocks by what the signatures say: BM25, with rarity over the blocks that are searched."""

    def __init__(self, query: str) -> None:
        self.hashes = query_hashes(query)

    def best(self, postings: Postings, before_seq: int, limit: int = HITS_MOST) -> list[int]:
        """Seqs before this one that have something of the query, best first; of the same worth, newest first."""
        scores = self._scores(postings)
        limit = min(limit, HITS_MOST)
        # What is far behind the best is not found for what its neighbours say.
        least = sorted(scores.values())[-2 * limit] if len(scores) > 2 * limit else 0.0
        score = scores.get
        whole = [
            (own + _NEIGHBOUR * max(score(seq - 1, 0.0), score(seq + 1, 0.0)), seq)
            for seq, own in scores.items()
            if own >= least and seq < before_seq
        ]
        whole.sort(reverse=True)
        return [seq for _, seq in whole[:limit]]

    def _scores(self, postings: Postings) -> dict[int, float]:
        found, kept = self._places(postings)
        scores: dict[int, float] = {}
        known, blocks, count = scores.get, postings.blocks, postings.count
        for places in found:
            size = sum([(each & MASK).bit_count() for each in places])
            rarity = math.log(1 + (count - size + 0.5) / (size + 0.5))
            for each in places:
                number = each >> BLOCK_SHIFT
                if number in kept:
                    before, weights = first_seq_of(number), blocks[number].weights
                    for place in places_of(each & MASK):
                        seq = before + place
                        scores[seq] = known(seq, 0.0) + rarity * weights[place]
        return scores

    def _places(self, postings: Postings) -> tuple[list[list[int]], Set[int]]:
        """Where the words stand, the rare ones first, until it is enough; and the blocks that have most of them."""
        sized = sorted((places for hashed in self.hashes if (places := postings.of(hashed))), key=len)
        worth: dict[int, float] = {}
        known, count = worth.get, len(postings.blocks)
        left = _POSTINGS_LIMIT
        for taken, places in enumerate(sized):
            left -= len(places)
            if left < 0 and taken:
                sized = sized[:taken]
                break
            rarity = math.log(1 + (count - len(places) + 0.5) / (len(places) + 0.5))
            for each in places:
                number = each >> BLOCK_SHIFT
                worth[number] = known(number, 0.0) + rarity
        if len(worth) <= _BLOCKS_COUNT:
            return sized, worth.keys()
        least = sorted(worth.values())[-_BLOCKS_COUNT]
        return sized, {number for number, each in worth.items() if each >= least}


def blocks_of(postings: Postings, hits: Sequence[int]) -> list[int]:
    """The numbers of the blocks to read for these seqs and their neighbours, as many as may be read."""
    chosen: list[int] = []
    left = BLOCKS_BYTES
    for seq in hits:
        for number in dict.fromkeys((number_of(seq), number_of(seq - 1), number_of(seq + 1))):
            known = postings.blocks.get(number)
            if known is None or known.block_bytes > left or number in chosen:
                continue
            if len(chosen) == BLOCKS_LIMIT:
                return chosen
            chosen.append(number)
            left -= known.block_bytes
    return chosen


def chosen(
    hits: Sequence[int],
    tokens: Mapping[int, int],
    together: Mapping[int, Set[int]],
    limit: int | None,
    max_tokens: int | None,
) -> list[int]:
    """The seqs of the best of these messages, each with its neighbours and what it belongs to; in order.

    `tokens`: of each message that may be taken. `together`: the tool calls and results that a message belongs to.
    `limit`: hits, without what comes with them. What does not fit `max_tokens` is passed over.
    """
    taken: set[int] = set()
    left = math.inf if max_tokens is None else max_tokens
    count = 0
    for hit in hits:
        if limit is not None and count == limit:
            break
        if hit not in tokens:
            continue
        count += 1
        near = [each for each in (hit - 1, hit, hit + 1) if each in tokens]
        for group in (near, [hit]):
            if together:
                group = set().union(*(together.get(each, {each}) for each in group)) & tokens.keys()
            more = [seq for seq in group if seq not in taken]
            size = sum([tokens[seq] for seq in more]) + LINE_TOKENS * len(more)
            if size <= left:
                taken.update(more)
                left -= size
                break
    return sorted(taken)


def calling(messages: Iterable[Message]) -> dict[int, CallIds]:
    """By their seqs, those of these messages that make a call or have a result, and which."""
    found = {each.seq: call_ids(each) for each in messages if may_hold_calls(each._payload)}
    return {seq: ids for seq, ids in found.items() if ids != ([], [])}


def groups(calling: Mapping[int, CallIds]) -> dict[int, Set[int]]:
    """Of each of these messages, which are in order: the seqs of all calls and results that belong together."""
    found: dict[int, Set[int]] = {}
    seqs_of = list(calling)
    for call, result, _ in answers(calling.values()):
        if call >= 0:
            seqs = {seqs_of[call], seqs_of[result]}
            joined = set().union(*(found.get(seq, {seq}) for seq in seqs))
            for seq in joined:
                found[seq] = joined
    return found
