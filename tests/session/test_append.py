"""append: its id makes it once, and `expect` guards it, on both stores. (More of `expect`: test_expect.)"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.conversations import contents, user_message
from support.stored import read_namespace

from redismem import (
    Conflict,
    InvalidMessage,
    Memory,
    Session,
)
from redismem.protocol.server_errors import ServerError
from redismem.protocol.session.calls import SessionCalls


async def test_an_append_sent_again_is_known(raw: Any, session: Session, namespace: str) -> None:
    first = await session.append(user_message("a"), user_message("b"), id="turn-1", merge={"x": 1})
    await session.append(user_message("c"), id="turn-2")
    before = await read_namespace(raw, namespace)
    again = await session.append(user_message("a"), user_message("b"), id="turn-1", merge={"x": 2}, expect=99)
    assert again.duplicate
    assert not first.duplicate
    assert (again.first_seq, again.last_seq, again.total, again.created) == (1, 2, 2, True)
    context = await session.append_and_read(user_message("c"), id="turn-2")
    assert context.receipt is not None
    assert (context.receipt.first_seq, context.receipt.duplicate, context.receipt.created) == (3, True, False)
    assert contents(context.messages) == ["a", "b", "c"]
    assert await read_namespace(raw, namespace) == before


async def test_the_last_sixteen_appends_are_known_with_their_receipts(session: Session) -> None:
    receipts = []
    for number in range(40):
        receipts.append(await session.append(*[user_message(number)] * (number % 5 + 1), id=f"turn-{number}"))
        for back in range(min(16, number + 1)):
            earlier = number - back
            again = await session.append(*[user_message(earlier)] * (earlier % 5 + 1), id=f"turn-{earlier}")
            first = receipts[earlier]
            assert again.duplicate
            assert (again.first_seq, again.last_seq, again.total, again.created) == (
                first.first_seq, first.last_seq, first.total, first.created,
            )  # fmt: skip
    assert (await session.info()).total_messages == sum(number % 5 + 1 for number in range(40))


async def test_changes_of_state_in_between_are_remembered_with_the_appends(session: Session) -> None:
    await session.append(user_message("a"), id="turn-1")
    for number in range(15):
        await session.merge({"x": number})
    assert (await session.append(user_message("a"), id="turn-1")).duplicate


async def test_a_change_of_state_is_made_once_for_an_id(raw: Any, session: Session, namespace: str) -> None:
    await session.update(id="change-1", merge={"x": 1}, waiting="y")
    await session.update(merge={"x": 2}, waiting=None)
    before = await read_namespace(raw, namespace)
    await session.update(id="change-1", merge={"x": 1}, waiting="y")
    assert await read_namespace(raw, namespace) == before
    assert (await session.state()).params == {"x": 2}


async def test_appends_and_changes_of_state_need_ids_of_their_own(raw: Any, session: Session, namespace: str) -> None:
    """If one were taken for the other, it would be lost without an error."""
    await session.append(user_message(1), id="turn-1")
    await session.update(id="change-1", merge={"x": 1})
    before = await read_namespace(raw, namespace)
    with pytest.raises(InvalidMessage, match=r"already used for an append, so a change of the state needs"):
        await session.update(id="turn-1", merge={"x": 2})
    for append in (session.append, session.append_and_read):
        with pytest.raises(InvalidMessage, match=r"already used for a change of the state, so an append needs another"):
            await append(user_message(2), id="change-1")
    assert await read_namespace(raw, namespace) == before


async def test_a_change_sent_again_does_not_undo_what_another_has_changed_since(memory: Memory) -> None:
    """The reply was lost, and another client changed the state before the retry."""
    session = memory.session("s")
    call = SessionCalls(memory.store.keys.session("s"), memory.settings).update(merge={"x": "old"}, waiting="x")
    await memory.store.run(call)
    await session.update(merge={"x": "new"}, waiting=None)
    await memory.store.run(call.again())
    state = await session.state()
    assert (state.params, state.waiting_for_param) == ({"x": "new"}, None)


@pytest.mark.parametrize("id", [None, "turn-1"])
async def test_a_retry_of_the_library_is_not_reported_as_a_duplicate(memory: Memory, id: str | None) -> None:
    calls = SessionCalls(memory.store.keys.session("s"), memory.settings)
    for number in range(3):
        call = calls.append([user_message(number), user_message(number)], {"id": id and f"{id}-{number}"})
        first = await memory.store.run(call)
        again = await memory.store.run(call.again())
        assert (again, again.window_count) == (first, first.window_count)
        assert not again.duplicate
    if id is not None:
        repeated = calls.append([user_message("x")], {"id": f"{id}-1"})
        assert (await memory.store.run(repeated)).duplicate
        assert (await memory.store.run(repeated.again())).duplicate


async def test_ids_belong_to_a_session_and_its_epoch(memory: Memory) -> None:
    for session_id in ("one", "two"):
        assert not (await memory.session(session_id).append(user_message("a"), id="turn-1")).duplicate
    await memory.session("one").clear()
    assert not (await memory.session("one").append(user_message("a"), id="turn-1")).duplicate


async def test_the_first_attempt_may_arrive_after_the_retry(memory: Memory) -> None:
    """It was delayed on the way, so the memory timed out and sent it again."""
    await memory.session("s").append(user_message("a"))
    call = SessionCalls(memory.store.keys.session("s"), memory.settings).append([user_message("b")])
    receipt = await memory.store.run(call.again())
    assert not receipt.duplicate
    await memory.session("s").append(user_message("c"))
    with pytest.raises(ServerError, match="OVERTAKEN"):
        call.finish(await memory.store.transport.run(call.commands, 5, call.script))
    assert contents((await memory.session("s").read()).messages) == ["a", "b", "c"]


async def test_equal_messages_without_an_id_are_two(session: Session) -> None:
    await session.append(user_message("a"))
    assert not (await session.append(user_message("a"))).duplicate
    assert (await session.info()).total_messages == 2


async def test_one_of_two_appends_that_expect_one_seq_wins(memory: Memory) -> None:
    await memory.session("s").append(user_message("a"), expect=0)
    results = await asyncio.gather(
        *(memory.session("s").append(user_message(number), expect=1) for number in range(8)), return_exceptions=True
    )
    lost = [result for result in results if isinstance(result, Conflict)]
    assert len(lost) == 7
    assert {conflict.last_seq for conflict in lost} == {2}
    assert (await memory.session("s").append(user_message("b"), expect=2)).last_seq == 3


async def test_expect_counts_all_that_was_ever_appended(session: Session) -> None:
    await session.append(*[user_message("a")] * 5)
    await session.prune(1)
    assert (await session.append(user_message("b"), expect=5)).last_seq == 6
