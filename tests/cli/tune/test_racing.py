"""The comparison of the CPU of turns, on a machine whose speed changes all the time."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redismem.cli.tune.racing import groups, ratio


@pytest.mark.parametrize(("true", "is_sure"), [(0.7, True), (1.0, False)])
def test_what_slows_both_sides_does_not_count(true: float, is_sure: bool) -> None:
    """The machine is up to four times slower from heat to heat, and a pair differs by another fifth."""
    dice = random.Random(8)
    now = [100 * dice.uniform(1, 4) for _ in range(25)]
    found = ratio([true * each * dice.uniform(0.9, 1.1) for each in now], now)
    assert found is not None
    assert found.least < true < found.most
    assert found.middle == pytest.approx(true, abs=0.05)
    assert (found.most < 1) is is_sure


def test_few_pairs_have_the_interval_of_all_and_none_has_no_ratio() -> None:
    found = ratio([1.0, 2.0, 3.0], [2.0, 2.0, 2.0, 9.0])
    assert found is not None
    assert (found.least, found.middle, found.most) == (0.5, 1.0, 1.5)
    assert ratio([1.0], [0.0]) is None, "no conversation has a request"


@given(st.lists(st.integers(1, 300), min_size=1, max_size=60))
def test_each_heat_has_enough_requests_to_be_measured(counts: list[int]) -> None:
    places = range(len(counts))
    found = groups(places, counts)
    joined = [place for group in found for place in group]
    assert joined == list(places)[: len(joined)], "each conversation once, in order"
    assert all(sum(counts[place] for place in group) >= 40 for group in found) or len(found) == 1
    total = sum(counts[place] for place in joined)
    assert total >= min(400, sum(counts))
    assert total - counts[joined[-1]] < 400
