"""The best matches of a query are those that scoring every message would find."""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redismem.originals.signatures import WEIGHTS, Signature, decode_signature, encode_signature, stem_hash
from redismem.recall import matches
from redismem.recall.matches import SCALE, Matches
from redismem.recall.postings import Postings
from redismem.text.stems import stems

# The first words are frequent, so a question has rare and common ones.
WORDS = ("red", "red", "red", "red", "green", "green", "blue", "iron", "gold", "silver")
TEXTS = st.lists(st.sampled_from(WORDS), max_size=5).map(" ".join)
BLOCKS = st.lists(st.tuples(TEXTS, st.integers(0, 2)), min_size=1, max_size=16)


def hash_word(word: str) -> int:
    (stem,) = stems(word)
    return stem_hash(stem)


def sign(messages: Sequence[tuple[str, int]]) -> Signature:
    return decode_signature(encode_signature(0, [[text] for text, _ in messages], 100, [day for _, day in messages]))


def score_all(
    blocks: Mapping[int, Sequence[tuple[str, int]]],
    words: Mapping[str, str | None],
    day: int | None,
    excluded: Container[int],
) -> dict[int, float]:
    """Score every message that matches these words, or their other forms, one after another."""
    told = {
        number * 16 + place + 1: (set(text.split()), weight, day_of)
        for number, messages in blocks.items()
        for place, ((text, day_of), weight) in enumerate(zip(messages, sign(messages).weights, strict=False))
        if text
    }

    def rarity(count: int) -> int:
        return int(SCALE * math.log(1 + max(0, len(told) - count + 0.5) / (count + 0.5)))

    rarities = {word: rarity(sum(bool(texts & {word, words[word]}) for texts, _, _ in told.values())) for word in words}
    of_period = int(1.5 * rarity(sum(day_of == day for _, _, day_of in told.values())))

    def score(texts: set[str], weight: float, day_of: int) -> float:
        exact = sum(rarities[word] for word in words if word in texts)
        others = sum(int(0.7 * rarities[word]) for word in words if word not in texts and words[word] in texts)
        return (exact + others) * weight + (of_period if day_of == day else 0)

    return {
        seq: score(texts, weight, day_of)
        for seq, (texts, weight, day_of) in told.items()
        if seq not in excluded and (texts & {*words, *words.values()} or day_of == day)
    }


@given(
    st.lists(BLOCKS, min_size=1, max_size=8),
    st.lists(st.tuples(st.integers(0, 800), st.integers(0, 7)), min_size=1, max_size=60),
    st.dictionaries(st.sampled_from(WORDS), st.none() | st.sampled_from(("green", "iron"))),
    st.none() | st.integers(0, 2),
    st.sampled_from([1, 5, 64]),
    st.integers(1, 14_000),
    st.booleans(),
)
def test_the_best_are_those_of_an_exhaustive_ranking(
    told: list[list[tuple[str, int]]],
    numbers: list[tuple[int, int]],
    words: dict[str, str | None],
    day: int | None,
    count: int,
    before_seq: int,
    grows: bool,
) -> None:
    words = {word: None if form in words else form for word, form in words.items()}
    blocks = {number: told[which % len(told)] for number, which in sorted(numbers)}
    *whole, last = [(number, sign(messages)) for number, messages in blocks.items()]
    postings = Postings()
    postings.add(whole if grows else [*whole, last])
    if grows:
        postings.grow(*last)
    window = range(before_seq, postings.stop_seq)
    hashes = [[hash_word(each) for each in pair if each] for pair in words.items()]
    found = Matches(postings, hashes, None if day is None else lambda each: each == day)
    scored = score_all(blocks, words, day, window)
    best = sorted(scored.items(), key=lambda each: (-each[1], each[0]))[:count]
    assert [*found.best(count, window).items()] == best
    assert found.scores(range(1, 14_000), window) == found.every(window) == scored


def test_a_message_with_the_rarest_word_is_found_however_many_postings_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(matches, "POSTINGS_LIMIT", 0)
    common, rare = sign([("red green", 0)] * 16), sign([("red green", 0)] * 15 + [("green blue", 0)])
    postings = Postings()
    postings.add([(number, rare if number == 300 else common) for number in range(1_000)])
    best = Matches(postings, [[hash_word(word)] for word in ("red", "green", "blue")]).best(64)
    assert next(iter(best)) == 300 * 16 + 16
    assert best[300 * 16 + 16] > WEIGHTS[-1] * SCALE
