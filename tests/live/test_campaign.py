"""Writers, listeners, connections and Redis die, and each word of each turn is told and stored once.

`make turns` plays the campaign for a minute, or for TURNS_SECONDS, and prints what it has shown.
"""

from __future__ import annotations

import pytest
from support.claims import printed_by
from support.turn_campaign import play
from support.turn_mutants import FAULTS

SECONDS = 3


@pytest.mark.nightly
async def test_whatever_dies_each_word_is_told_and_stored_once() -> None:
    verdict, report = await play(SECONDS)
    assert verdict.violations == [], report
    assert verdict.counts["deliveries"] > 100, report
    assert printed_by("make turns").search(report)


@pytest.mark.nightly
@pytest.mark.parametrize("fault", FAULTS)
async def test_it_notices_a_script_without_its_check(fault: str) -> None:
    for seed in range(4):
        verdict, _ = await play(12, seed, fault)
        if verdict.violations:
            return
    pytest.fail("not noticed")
