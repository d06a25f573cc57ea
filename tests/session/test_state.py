"""Conversation state, on both stores."""

from __future__ import annotations

from typing import Any

import pytest
from support.conversations import user_message
from support.stored import read_namespace

from redismem import (
    UNSET,
    InvalidState,
    Session,
)


async def test_state_is_kept_beside_the_history(session: Session) -> None:
    await session.merge({"a": 1, "b": None})
    await session.set_waiting("size")
    await session.set_last_intent({"name": "buy", "score": 1.0})
    await session.set_last_result([])
    await session.set_plan(["one", {"two": 2**70}])
    assert await session.params() == {"a": 1, "b": None}
    assert await session.waiting() == "size"
    assert await session.last_intent() == {"name": "buy", "score": 1.0}
    assert await session.last_result() == []
    assert await session.plan() == ["one", {"two": 2**70}]
    context = await session.read()
    assert context.state == await session.state()
    assert (context.messages, context.total_messages) == ([], 0)
    assert await session.messages() == []


async def test_none_and_unset_take_away(session: Session) -> None:
    await session.append(user_message("a"), merge={"a": 1, "b": 2}, waiting="a", last_intent=1, last_result=2, plan=3)
    await session.append(user_message("b"), merge={"a": UNSET, "c": UNSET}, waiting=None, last_intent=None, plan=None)
    state = await session.state()
    assert (state.params, state.waiting_for_param, state.last_intent) == ({"b": 2}, None, None)
    assert (state.last_result, state.plan) == (2, None)
    await session.append(user_message("c"))
    assert (await session.state()) == state


async def test_empty_changes_change_nothing(raw: Any, session: Session, namespace: str) -> None:
    await session.append(user_message("a"), merge={"a": 1})
    before = await read_namespace(raw, namespace)
    await session.update()
    await session.update(merge={})
    after = await read_namespace(raw, namespace)
    for content, _ in (*before.values(), *after.values()):
        if isinstance(content, dict):
            content.pop(b"ids_a", None)
    assert after == before


async def test_fields_of_the_store_cannot_be_reached_through_params(session: Session) -> None:
    names = ["epoch", "first_seq", "message_count", "waiting", "plan", "queued", "param:a", "summary:1", "evicting"]
    await session.append(user_message("a"), merge=dict.fromkeys(names, "mine"))
    context = await session.read()
    assert context.state.params == dict.fromkeys(names, "mine")
    assert (context.total_messages, context.state.plan, context.summaries) == (1, None, [])
    assert (await session.info()).params_keys == tuple(sorted(names))


async def test_a_title_is_set_beside_the_state_and_is_one_short_line(session: Session) -> None:
    assert await session.title() is None
    await session.append(user_message("a"), title="Where to, in May?", plan=1)
    assert await session.title() == "Where to, in May?"
    await session.set_title("ü" * 32)
    assert await session.title() == "ü" * 32
    context = await session.append_and_read(user_message("b"))
    assert context.state == await session.state()
    for refused in ("", " a", "a\nb", "ü" * 32 + "x", "\ud800", 7):
        with pytest.raises(InvalidState, match="a title is a string of 1 to 64 bytes"):
            await session.set_title(refused)  # type: ignore[arg-type]
    await session.update(title=UNSET, plan=None)
    assert await session.title() == "ü" * 32
    await session.set_title(None)
    assert await session.title() is None


async def test_a_title_goes_with_a_forgotten_message_and_with_the_session(session: Session) -> None:
    await session.append(user_message("a"), user_message("b"), title="about a")
    await session.pop(1)
    assert await session.title() == "about a"
    await session.forget(1)
    assert await session.title() is None
    await session.set_title("about nothing")
    await session.clear()
    assert await session.title() is None
