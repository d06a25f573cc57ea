"""Vectors in bytes: they decode to nearly equal vectors, and foreign bytes are detected."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redismem.errors import ModelFailed
from redismem.messages.values import Undecodable
from redismem.originals.vectors import Vectors, decode_vectors, encode_vectors, field_bytes, mark_of
from redismem.recall.bm25 import HITS_MOST, LIFTED_COUNT, fuse, rank
from redismem.recall.nearest import find_nearest, knows_words, quantize

MARK = mark_of("a model")
numbers = st.floats(-1e300, 1e300, allow_subnormal=False)
lists = st.integers(1, 40).flatmap(
    lambda size: st.lists(st.lists(numbers, min_size=size, max_size=size), min_size=1, max_size=16)
)


def decode(encoded: bytes) -> Vectors:
    found = decode_vectors(encoded, MARK)
    assert found is not None
    return found


@given(lists, st.data())
def test_what_is_stored_points_where_it_pointed(vectors: list[list[float]], data: Any) -> None:
    dimensions, rows = quantize(vectors, len(vectors))
    place = data.draw(st.integers(0, 16 - len(rows)))
    without = data.draw(st.sets(st.integers(place, place + len(rows) - 1)))
    kept = {at: row for at, row in enumerate(rows, place) if at not in without}
    found = decode(encode_vectors(MARK, dimensions, kept, place, place + len(rows)))
    assert (found.dimensions, found.place, found.stop) == (dimensions, place, place + len(rows))
    for at, row in enumerate(rows, place):
        assert found.row(at) == (bytes(len(row)) if at in without else row)
    assert found.row(place - 1) is found.row(found.stop) is None
    assert decode_vectors(encode_vectors(MARK, dimensions, kept, place, found.stop), mark_of("another")) is None
    for at, vector in enumerate(vectors, place):
        largest = max(map(abs, vector))
        if at in kept and largest:
            (seq,) = find_nearest(rows[at - place], {3: Vectors(dimensions, 0, kept[at][:4], kept[at][4:])}, 10**9, 1)
            assert seq == 49
            back = [each - 256 * (each > 127) for each in kept[at][4:]]
            norm = math.sqrt(sum((each / largest) ** 2 for each in vector))
            stored = math.sqrt(sum(each**2 for each in back))
            cosine = sum(a / largest * b for a, b in zip(vector, back, strict=True)) / norm / stored
            assert cosine > 0.99


@given(st.binary(max_size=200))
def test_foreign_bytes_are_none(encoded: bytes) -> None:
    with pytest.raises(Undecodable):
        decode_vectors(encoded)


@given(st.data())
def test_a_changed_byte_is_noticed(data: Any) -> None:
    dimensions, rows = quantize([[1.0, 2.0, -3.0]] * 16, 16)
    whole = encode_vectors(MARK, dimensions, dict(enumerate(rows)), 0, 16)
    assert len(whole) == field_bytes(dimensions)
    at = data.draw(st.integers(0, len(whole) - 1))
    changed = whole[:at] + bytes([whole[at] ^ data.draw(st.integers(1, 255))]) + whole[at + 1 :]
    for broken in (changed, whole[:at], whole + b"x"):
        with pytest.raises(Undecodable):
            decode_vectors(broken)


class Elsewhere:
    """A tensor on another device."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise RuntimeError("call detach() first")


@pytest.mark.parametrize(
    "given",
    [
        *(
            Elsewhere(),
            None,
            7,
            [],
            [[]],
            [[], []],
            [[1.0], [1.0, 2.0]],
            ["x", "y"],
            [[1.0]],
            [[math.nan], [1.0]],
            [[math.inf], [1.0]],
        ),
        *([[0.1] * 4_097] * 2, [[[1.0]], [[1.0]]], {"a": 1}),
    ],
)
def test_what_is_not_a_vector_for_each_text_is_refused(given: Any) -> None:
    with pytest.raises(ModelFailed) as refused:
        quantize(given, 2)
    assert refused.value.permanent


def test_the_nearest_come_first_and_those_that_point_away_not_at_all() -> None:
    _, rows = quantize([[1, 0, 0], [0.9, 0.1, 0], [0.5, 0.5, 0], [-1, 0, 0], [0, 0, 0], [0, 1, 0]], 6)
    block = decode(encode_vectors(MARK, 3, dict(enumerate(rows, 2)), 2, 8))
    other = decode(encode_vectors(MARK, 1, {0: quantize([[1]], 1)[1][0]}, 0, 1))
    blocks = {2: block, 7: other}
    nearest = find_nearest(rows[0], blocks, 10**9, 64)
    assert list(nearest) == [35, 36, 37]
    assert list(nearest.values()) == pytest.approx([1, 0.994, 0.707], abs=0.01)
    assert list(find_nearest(rows[0], blocks, 36, 64)) == [35]
    assert list(find_nearest(rows[0], blocks, 10**9, 1)) == [35]
    assert find_nearest(quantize([[0, 0, 0]], 1)[1][0], blocks, 10**9, 64) == {}


@given(st.dictionaries(st.integers(1, 200), st.floats(0.1, 50), min_size=1), st.floats(0.01, 1))
def test_an_embedder_to_which_all_is_alike_changes_no_ranking(words: dict[int, float], cosine: float) -> None:
    everything = dict.fromkeys(range(1, 201), cosine)
    nearest = dict(list(everything.items())[:HITS_MOST])
    assert rank(fuse(words, nearest)) == rank(words)[:HITS_MOST]
    assert fuse(words, {}) == words


@given(
    st.dictionaries(st.integers(1, 200), st.floats(0.1, 50), min_size=1),
    st.dictionaries(st.integers(1, 200), st.floats(0.01, 1), min_size=1, max_size=LIFTED_COUNT),
)
def test_what_words_and_meaning_rank_first_is_first(words: dict[int, float], cosines: dict[int, float]) -> None:
    best = rank(words)[0]
    others = {seq: cosine for seq, cosine in cosines.items() if abs(seq - best) > 2}
    near = max(others.values(), default=0.0) + 1
    assert rank(fuse(words, others | {best: near}))[0] == best
    fused = fuse(words, cosines)
    assert words.keys() <= fused.keys()
    assert cosines.keys() <= fused.keys()
    assert max(fused.values()) <= 1.25 * max(words.values(), default=1) + 1e-9


def rows_of(table: Any) -> dict[int, Any]:
    _, rows = quantize(table, len(table))
    return {
        at // 16: decode(encode_vectors(MARK, len(table[0]), dict(enumerate(rows[at : at + 16])), 0, 16))
        for at in range(0, len(table), 16)
    }


def test_vectors_by_chance_know_no_words_and_those_that_follow_words_do() -> None:
    chosen = random.Random(7)
    pairs = [(seq, seq + 64) for seq in range(1, 65)]
    noise = [[chosen.gauss() for _ in range(64)] for _ in range(128)]
    topics = [[chosen.gauss() for _ in range(64)] for _ in range(64)]
    follow = [[0.5 * a + b for a, b in zip(topics[at % 64], row, strict=True)] for at, row in enumerate(noise)]
    assert knows_words(pairs, rows_of(follow))
    assert not knows_words(pairs, rows_of(noise))
    assert not knows_words(pairs, rows_of([[value + 100 for value in row] for row in noise])), "nearly all is alike"
    assert knows_words(pairs[:31], rows_of(noise)), "too few to tell"
    assert knows_words(pairs, {}), "no vectors here"
    same = [noise[at % 64] for at in range(128)]
    assert knows_words(pairs, rows_of(same)), "equal texts tell nothing"
