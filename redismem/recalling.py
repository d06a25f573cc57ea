"""Which earlier messages a question is about: found by the signatures of their blocks, read out of the best of these.

It never looks through the history: the signatures of the newest blocks, then a few blocks. What it costs is bounded by
the limits below, whatever the messages hold.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

from redismem.blocks import first_seq_of, number_of
from redismem.elements import is_gap
from redismem.messages import Message
from redismem.recalled import LINE_TOKENS
from redismem.signatures import Signature, stem_hash
from redismem.tool_calls import may_hold_calls
from redismem.window import links
from redismem.words import stems

HITS_LIMIT = 8
BLOCKS_LIMIT = 6
"""Blocks that are read for one question."""
BLOCKS_BYTES = 2 * 1024 * 1024
"""What they may have unpacked, all together."""
SIGNATURES_LIMIT = 1_024
"""Blocks that are searched, the newest."""
PIECE_COUNT = 64
"""Signatures that are looked at before others get a turn."""

_QUERY_CHARS = 16_384
_QUERY_STEMS = 64
_POSTINGS_LIMIT = 1_500
_HITS = 64
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
        self._postings: dict[int, list[tuple[int, int]]] = {hashed: [] for hashed in self.hashes}
        self._signatures: dict[int, Signature] = {}

    def add(self, signatures: Iterable[tuple[int, Signature]]) -> None:
        """Takes up blocks by their numbers."""
        postings = [(hashed, self._postings[hashed]) for hashed in self.hashes]
        for number, signature in signatures:
            self._signatures[number] = signature
            hashes, masks = signature.hashes, signature.masks
            end = len(hashes)
            for hashed, found in postings:  # bisected here: a call for each of them would cost as much again
                at = bisect_left(hashes, hashed)
                if at < end and hashes[at] == hashed:
                    found.append((number, masks[at]))

    def best(self, before_seq: int) -> list[int]:
        """Seqs before this one that have something of the query, best first; of the same worth, newest first."""
        scores = self._scores()
        # What is far behind the best is not found for what its neighbours say.
        most = heapq.nlargest(2 * _HITS, scores, key=scores.__getitem__)
        score = scores.get
        whole = {
            seq: scores[seq] + _NEIGHBOUR * max(score(seq - 1, 0.0), score(seq + 1, 0.0))
            for seq in most
            if seq < before_seq
        }
        return sorted(whole, key=lambda seq: (-whole[seq], -seq))[:_HITS]

    def _scores(self) -> dict[int, float]:
        signatures = self._signatures
        count = sum(signature.count for signature in signatures.values())
        sizes = {each: sum(places.bit_count() for _, places in found) for each, found in self._postings.items()}
        scores: defaultdict[int, float] = defaultdict(float)
        left = _POSTINGS_LIMIT
        for hashed in sorted((each for each in sizes if sizes[each]), key=sizes.__getitem__):
            left -= sizes[hashed]
            if left < 0 and scores:
                break
            rarity = math.log(1 + (count - sizes[hashed] + 0.5) / (sizes[hashed] + 0.5))
            for number, places in self._postings[hashed]:
                first, weights = first_seq_of(number), signatures[number].weights
                while places:
                    place = (places & -places).bit_length() - 1
                    places &= places - 1
                    scores[first + place] += rarity * weights[place]
        return scores

    def blocks(self, hits: Sequence[int]) -> list[int]:
        """The numbers of the blocks to read for these seqs and their neighbours, as many as may be read."""
        chosen: list[int] = []
        left = BLOCKS_BYTES
        for seq in hits:
            for number in dict.fromkeys(number_of(each) for each in (seq, seq - 1, seq + 1)):
                signature = self._signatures.get(number)
                if signature is None or number in chosen or signature.block_bytes > left:
                    continue
                if len(chosen) == BLOCKS_LIMIT:
                    return chosen
                chosen.append(number)
                left -= signature.block_bytes
        return chosen


def chosen(
    hits: Sequence[int],
    messages: Mapping[int, Message],
    limit: int | None,
    max_tokens: int | None,
) -> list[Message]:
    """Of these messages the best, each with its neighbours and the tool calls and results it belongs to; in order.

    `limit`: hits, without what comes with them. What does not fit `max_tokens` is passed over.
    """
    usable = {seq: message for seq, message in messages.items() if not (message.pinned or is_gap(message))}
    together = _groups(usable)
    taken: dict[int, Message] = {}
    left = math.inf if max_tokens is None else max_tokens
    count = 0
    for hit in hits:
        if limit is not None and count == limit:
            break
        if hit not in usable:
            continue
        count += 1
        alone = together.get(hit, {hit})
        near = {seq for each in (hit - 1, hit, hit + 1) if each in usable for seq in together.get(each, {each})}
        for group in (near, alone):
            more = [usable[seq] for seq in group if seq not in taken]
            size = sum(message.tokens + LINE_TOKENS for message in more)
            if size <= left:
                taken.update((message.seq, message) for message in more)
                left -= size
                break
    return [taken[seq] for seq in sorted(taken)]


def _groups(usable: Mapping[int, Message]) -> dict[int, set[int]]:
    """Of each message that makes a call or has a result: the seqs of all that belong together."""
    ordered = [usable[seq] for seq in sorted(usable) if may_hold_calls(usable[seq]._payload)]
    groups: dict[int, set[int]] = {}
    for call, result in links(ordered):
        if call >= 0:
            seqs = {ordered[call].seq, ordered[result].seq}
            joined = set().union(*(groups.get(seq, {seq}) for seq in seqs))
            for seq in joined:
                groups[seq] = joined
    return groups
