"""The messages of a bench's sessions, from the user's conversations."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redismem.cli.bench.talks import WINDOW_COUNT, Feed, made_up, talks_of, weigh
from redismem.cli.transcripts import BadLine, Transcript


@given(st.lists(st.sampled_from(["system", "user", "assistant", "tool"]), min_size=1, max_size=70))
def test_a_conversation_is_cut_into_sessions_that_redis_py_by_hand_keeps_whole(roles: Any) -> None:
    said = [{"role": role, "content": str(number), "time_ms": 1} for number, role in enumerate(roles)]
    talks = talks_of(Transcript(1, "", said))
    joined = [message for talk in talks for turn in talk for part in turn for message in part]
    assert joined == [{"role": each["role"], "content": each["content"]} for each in said]
    assert all(0 < weigh(talk)[0] <= WINDOW_COUNT for talk in talks)


def test_a_message_that_no_session_may_have_is_named() -> None:
    with pytest.raises(BadLine, match="message 2: the role"):
        talks_of(Transcript(1, "", [{"role": "user", "content": "a"}, {"role": "narrator", "content": "secret"}]))


def test_each_place_has_one_session_at_a_time_until_its_talk_is_over() -> None:
    ids = iter("abcdef")
    feed = Feed([made_up(1)[:2], made_up(1)[:1]], 2, lambda: next(ids))
    begun = [feed.next(number)[0] for number in (0, 1, 2, 3, 0)]
    assert begun == ["a", "b", "a", "c", "d"]
    assert feed.ended == [], "a turn that is under way would write to its session again"
    for session_id in begun:
        feed.end(session_id)
    assert feed.ended == ["b", "a", "d"]
    assert sorted(feed.sessions()) == ["a", "b", "c", "d"]
