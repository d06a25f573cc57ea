"""The ranking by words: rare ones decide, short messages weigh more, and a search is bounded."""

from __future__ import annotations

from redismem.originals.signatures import Signature, decode_signature, encode_signature
from redismem.recall.bm25 import BLOCKS_LIMIT, HITS_MOST, Ranking, lift_neighbours, rank, select_blocks
from redismem.recall.matches import Matches
from redismem.recall.postings import Postings


def signature(*texts: str) -> Signature:
    return decode_signature(encode_signature(0, [[text] for text in texts], 1_000))


def test_the_rare_word_decides_and_what_only_asks_does_not() -> None:
    def best(before_seq: int) -> list[int]:
        scores = ranking.scores(ranking.match(postings), range(before_seq, 100))
        return rank(lift_neighbours(scores))

    ranking = Ranking("what did the dog do")
    common = [f"what did the man do {number}" for number in range(15)]
    postings = Postings()
    postings.add([(0, signature(*common, "a dog")), (1, signature("the dog and what the man did " * 9))])
    assert best(33)[0] == 16, "a stem counts more in a short message"
    assert set(best(33)) == {15, 16, 17, 18}, "with the messages beside them"
    assert best(17)[0] == 16, "messages of the window are no hits"


def test_a_long_message_gets_less_of_what_lies_beside_it_and_counts_in_the_floor() -> None:
    long = " ".join(f"word{number}" for number in range(150))
    postings = Postings()
    postings.add([(0, signature("so", "a dog", long, *["so"] * 13))])
    lifted = lift_neighbours(Ranking("dog").scores(Ranking("dog").match(postings)), postings)
    assert lifted.keys() == {1, 2, 3}
    assert 3 * lifted[3] < 2 * lifted[1] < 2 * lifted[2]
    for count, text in enumerate((long, "so it is")):
        told = Postings()
        told.add([(number, signature(*[text] * 15, f"{text} {'dog' if number == 3 else ''}")) for number in range(9)])
        asked, thanked = Ranking("dog"), Ranking("so word7")
        assert not asked.asks_nothing(lift_neighbours(asked.scores(asked.match(told)), told), told), count
        assert thanked.asks_nothing(lift_neighbours(thanked.scores(thanked.match(told)), told), told), count


def test_a_day_weighs_by_its_messages_and_not_by_the_empty_places_of_a_block() -> None:
    (postings := Postings()).grow(0, decode_signature(encode_signature(0, [["a walk"], ["a talk"]], 9, [19_000] * 2)))
    (segment,) = postings.segments()
    assert segment.on_days(lambda day: day == 19_000) == [range(16)]
    assert Matches(postings, [], lambda day: day == 19_000).best(9).keys() == {1, 2}


def test_what_is_looked_at_is_bounded() -> None:
    ranking = Ranking(" ".join(f"word{number}" for number in range(10_000)))
    assert len(ranking.hashes) <= 64
    block = signature(*[" ".join(f"word{number}" for number in range(64))] * 16)
    (postings := Postings()).add([(number, block) for number in range(1_024)])
    hits = rank(lift_neighbours(ranking.scores(ranking.match(postings))))
    assert 0 < len(hits) <= HITS_MOST
    assert len(select_blocks(postings, hits)) <= BLOCKS_LIMIT
    large = Signature(block.weights, block.count, 10**9, block.hashes, block.masks)
    postings.grow(1_024, large)
    assert select_blocks(postings, [1_024 * 16 + 3, 5]) == [0]
