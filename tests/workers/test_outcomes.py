"""Workers report outcomes of one type, which covers every word of the scripts."""

from __future__ import annotations

import pytest
from support.stores import Store
from support.writers import Echo, fill

from redismem.protocol.layout import ClaimOutcome, CommitOutcome, ReleaseOutcome
from redismem.workers.outcomes import SummaryOutcome
from redismem.workers.summaries import Worker

SCRIPTS_SAY = {*ClaimOutcome, *CommitOutcome, *ReleaseOutcome} - {ClaimOutcome.JOB, CommitOutcome.ALREADY}


@pytest.mark.parametrize("word", sorted(SCRIPTS_SAY))
def test_each_outcome_of_a_script_is_one_of_a_summary(word: str) -> None:
    assert SummaryOutcome(word) == word


async def test_a_worker_counts_members_not_words(store: Store, namespace: str) -> None:
    async with store.memory(namespace) as memory:
        await fill(memory.session("a"), 11)
        worker = Worker(memory.store, Echo())
        assert await worker.summarise("unknown") is SummaryOutcome.GONE
        assert await worker.attend("a") is SummaryOutcome.OK
        assert await worker.attend("a") is SummaryOutcome.NONE
        assert [type(outcome) for outcome in worker.outcomes] == [SummaryOutcome, SummaryOutcome]
