"""Partial contexts: a tool result always comes with its call, and a call with its results."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.conversations import Conversation, conversations, is_closed

from redismem.context.context import Context
from redismem.context.results import State, Summary
from redismem.messages.message import Message
from redismem.session.paging import check, is_before, narrow

limits = st.none() | st.integers(0, 20)


def context_of(told: Conversation, summary_tokens: int = 0, newest: int | None = None) -> Context:
    """Return a whole context, or the context of a read of the `newest` elements."""
    messages = told.messages
    summaries = [Summary("i", "text", 0, 0, 0, 0, "m", summary_tokens, 0, ())] if summary_tokens else []
    first = 0 if newest is None else max(0, len(messages) - newest)
    return Context(
        "s", summaries, messages[first:], State(), len(messages), 1, len(messages), "1-a", 6, is_part=first > 0
    )


@given(
    told=conversations(max_size=16, orphans=False),
    limit=limits,
    before=limits,
    max_tokens=st.none() | st.integers(0, 60),
    summary_tokens=st.integers(0, 20),
)
def test_a_part_is_the_longest_that_is_whole(
    told: Conversation, limit: int | None, before: int | None, max_tokens: int | None, summary_tokens: int
) -> None:
    # As Session.read does: with a limit alone only the newest are read.
    newest = limit if before is None else None
    part = narrow(context_of(told, summary_tokens, newest), limit, before, max_tokens)
    whole = told.messages
    stop_limit = len(whole) if before is None else max(0, min(before - 1, len(whole)))

    def fits(start: int, stop: int) -> bool:
        tokens = sum(message.tokens for message in whole[start:stop])
        return (limit is None or stop - start <= limit) and (
            max_tokens is None or start == stop or tokens + summary_tokens <= max_tokens
        )

    seqs = [message.seq for message in part.messages]
    assert part.is_part == (len(seqs) < len(whole))
    assert seqs == list(range(seqs[0], seqs[0] + len(seqs))) if seqs else True
    start, stop = (seqs[0] - 1, seqs[-1]) if seqs else (stop_limit, stop_limit)
    # Nothing but a call without its result is parted from the newest end, so the end is the last one that is whole.
    ends = [end for end in range(stop_limit + 1) if not any(call < end <= result for call, result in told.pairs)]
    assert not seqs or stop == max(ends)
    assert fits(start, stop)
    assert is_closed(told.pairs, start, stop)
    better = [at for at in range(max(ends)) if fits(at, max(ends)) and is_closed(told.pairs, at, max(ends))]
    assert len(seqs) == (max(ends) - min(better) if better else 0)


@given(told=conversations(max_size=8))
def test_without_limits_everything_stays(told: Conversation) -> None:
    assert [message.seq for message in narrow(context_of(told), None, None, None).messages] == list(
        range(1, len(told.payloads) + 1)
    )


def test_the_summaries_count_and_stay() -> None:
    told = Conversation([{"role": "user", "content": "abc"}] * 3)
    assert [message.tokens for message in told.messages] == [3, 3, 3]
    assert len(narrow(context_of(told, summary_tokens=5), None, None, 11).messages) == 2
    empty = narrow(context_of(told, summary_tokens=50), None, None, 11)
    assert (empty.messages, len(empty.summaries)) == ([], 1)


def test_before_goes_by_the_time_given_else_by_the_time_stored() -> None:
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    given_noon = Message("user", timestamp=noon)
    stored_noon = Message("user")
    stored_noon.stored_ms = given_noon.stored_ms = int(noon.timestamp() * 1000)
    given_noon.stored_ms += 5000
    for message in (given_noon, stored_noon):
        assert not is_before(message, noon)
        assert is_before(message, noon + timedelta(milliseconds=1))
        assert not is_before(message, noon - timedelta(milliseconds=1))


def test_before_is_a_seq_or_a_moment() -> None:
    message = Message("user")
    message.seq = 5
    assert is_before(message, 6)
    assert not is_before(message, 5)


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        ((-1,), ValueError),
        ((1.0,), ValueError),
        (("5",), ValueError),
        ((True,), ValueError),
        ((None, None, -1), ValueError),
        ((None, None, 1.5), ValueError),
        ((None, "5"), TypeError),
        ((None, 1.5), TypeError),
        ((None, True), TypeError),
        ((None, datetime(2026, 1, 1)), ValueError),  # noqa: DTZ001
    ],
)
def test_what_is_no_count_seq_or_moment_is_refused(arguments: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        check(*arguments)


@pytest.mark.parametrize("arguments", [(None,), (0,), (5, 5, 5), (5, -5), (5, datetime.now(UTC), 0)])
def test_counts_seqs_and_moments_are_taken(arguments: Any) -> None:
    check(*arguments)
