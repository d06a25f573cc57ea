"""`expect`: the life and the last seq that a caller has seen; and append ids that come again."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from redismem import Conflict, IdReused, InvalidMessage, Memory, Message, Session, SessionNotFound
from redismem.context.context import Context
from redismem.context.results import Receipt

USER = {"role": "user", "content": "Where is my order?"}
REPLY = {"role": "assistant", "content": "On its way."}


async def start_another_life(session: Session) -> None:
    """Clear the session and bring a new one of its id to the same seq."""
    await session.clear()
    await session.append(USER)


async def append_for(session: Session, kind: str) -> Context | Receipt:
    context = await session.append_and_read(USER)
    assert context.receipt is not None
    if kind == "receipt of append":
        return await session.append(USER)
    return context if kind == "context" else context.receipt


@pytest.mark.parametrize("kind", ["context", "receipt of append_and_read", "receipt of append"])
async def test_a_reply_to_a_cleared_conversation_is_refused(session: Session, kind: str) -> None:
    expect = await append_for(session, kind)
    await session.clear()
    await session.append(*[USER] * (2 if kind == "receipt of append" else 1))
    with pytest.raises(Conflict, match="cleared") as refused:
        await session.append(REPLY, expect=expect)
    assert refused.value.cleared
    assert [message.role for message in (await session.read()).messages] == ["user"] * refused.value.last_seq


@pytest.mark.parametrize("kind", ["context", "receipt of append_and_read", "receipt of append"])
async def test_a_reply_to_the_conversation_as_it_was_read_is_stored(session: Session, kind: str) -> None:
    expect = await append_for(session, kind)
    receipt = await session.append(REPLY, expect=expect)
    assert (await session.append(REPLY, expect=receipt)).epoch == expect.epoch != ""


async def test_a_message_in_between_is_a_conflict_but_no_clear(session: Session) -> None:
    context = await session.append_and_read(USER)
    await session.append(USER)
    with pytest.raises(Conflict) as refused:
        await session.append(REPLY, expect=context)
    assert (refused.value.cleared, refused.value.last_seq) == (False, 2)


async def test_a_session_that_is_gone_counts_as_cleared(session: Session) -> None:
    context = await session.append_and_read(USER)
    await session.clear()
    with pytest.raises(Conflict) as refused:
        await session.append(REPLY, expect=context)
    assert refused.value.cleared
    assert not await session.exists()


async def test_the_context_of_no_session_expects_that_there_is_none(session: Session) -> None:
    context = await session.read()
    await session.append(USER)
    with pytest.raises(Conflict):
        await session.append(REPLY, expect=context)


async def test_a_bare_seq_does_not_tell_lives_apart(session: Session) -> None:
    receipt = await session.append(USER)
    await start_another_life(session)
    assert (await session.append(REPLY, expect=receipt.last_seq)).last_seq == 2


async def test_a_degraded_context_expects_its_life_alone(session: Session) -> None:
    context = await session.append_and_read(USER)
    context.degraded = True
    await session.append(USER)
    await session.append(REPLY, expect=context)
    await start_another_life(session)
    with pytest.raises(Conflict, match="cleared"):
        await session.append(REPLY, expect=context)


@pytest.mark.parametrize("edit", ["pop", "undo", "replace"])
async def test_an_edit_of_another_life_is_refused(session: Session, edit: str) -> None:
    context = await session.append_and_read(USER)
    await start_another_life(session)
    arguments: tuple[Any, ...] = (1, REPLY) if edit == "replace" else ()
    with pytest.raises(Conflict, match="cleared"):
        await getattr(session, edit)(*arguments, expect=context)
    assert [message.content for message in (await session.read()).messages] == [USER["content"]]


@pytest.mark.parametrize("edit", ["pop", "undo", "replace"])
async def test_an_edit_of_the_session_as_it_was_read_is_made(session: Session, edit: str) -> None:
    context = await session.append_and_read(USER)
    arguments: tuple[Any, ...] = (1, REPLY) if edit == "replace" else ()
    await getattr(session, edit)(*arguments, expect=context)
    assert USER["content"] not in [message.content for message in (await session.read()).messages]


@pytest.mark.parametrize("edit", ["pop", "undo", "replace"])
async def test_an_edit_after_another_message_is_refused(session: Session, edit: str) -> None:
    receipt = await session.append(USER)
    await session.append(REPLY)
    arguments: tuple[Any, ...] = (1, REPLY) if edit == "replace" else ()
    with pytest.raises(Conflict):
        await getattr(session, edit)(*arguments, expect=receipt)
    assert (await session.read()).total_messages == 2


@pytest.mark.parametrize("wrong", ["3", True, 1.0, -1])
async def test_what_no_caller_can_have_seen_is_refused_before_anything_is_written(session: Session, wrong: Any) -> None:
    with pytest.raises(InvalidMessage, match="expect"):
        await session.append(USER, expect=wrong)
    assert not await session.exists()


async def test_the_context_of_another_session_is_refused(memory: Memory, session: Session) -> None:
    context = await memory.session("another").append_and_read(USER)
    with pytest.raises(InvalidMessage, match="another session"):
        await session.append(USER, expect=context)


async def test_an_id_that_comes_again_with_another_message_is_an_error(session: Session) -> None:
    first = await session.append(USER, id="turn-1")
    for _ in range(2):
        with pytest.raises(IdReused) as refused:
            await session.append(REPLY, id="turn-1")
    assert "for other messages: 1 at " in str(refused.value)
    assert (refused.value.first_seq, refused.value.last_seq) == (first.first_seq, first.last_seq)
    assert refused.value.stored_ms == (await session.read()).messages[0].stored_ms
    with pytest.raises(IdReused):
        await session.append_and_read(USER, USER, id="turn-1")
    assert (await session.read()).total_messages == 1
    again = await session.append(USER | {"metadata": {"attempt": 2}}, id="turn-1")
    assert (again, again.duplicate) == (Receipt(1, 1, 1, True, True), True)


async def test_an_id_of_a_change_of_the_state_is_not_one_of_messages(session: Session) -> None:
    await session.update(id="turn-1", merge={"city": "Rome"})
    with pytest.raises(IdReused):
        await session.append(USER, id="turn-1")


async def test_an_id_is_compared_after_edits_too(session: Session) -> None:
    await session.append(USER, REPLY)
    await session.pop()
    await session.append(USER, id="turn-1")
    assert (await session.append(USER, id="turn-1")).duplicate
    with pytest.raises(IdReused):
        await session.append(REPLY, id="turn-1")
    assert [message.role for message in await session.tail(9)] == ["user", "user"]
    await session.replace(4, REPLY)
    assert (await session.append(USER, id="turn-1")).duplicate, "the first message cannot be compared any more"
    await session.pop()
    assert (await session.append(USER, id="turn-1")).duplicate, "a popped message is known by its id alone"


async def test_a_rewrite_of_the_same_id_and_other_messages_is_refused(session: Session) -> None:
    await session.append(USER)
    await session.rewrite(1, [USER], id="r")
    assert (await session.rewrite(1, [USER], id="r")).duplicate
    with pytest.raises(IdReused):
        await session.rewrite(1, [REPLY], id="r")


class Part(BaseModel):
    type: str = "text"
    text: str = "x"


@pytest.mark.parametrize(
    ("first", "other"),
    [
        ({"role": "user", "content": [Part()]}, {"role": "user", "content": [Part(text="y")]}),
        (Message("user", "x", parts=[Part()]), Message("user", "x", parts=[])),
        ({"role": "user", "n": 1}, {"role": "user", "n": True}),
        ({"role": "user", "n": 1}, {"role": "user", "n": 1.0}),
        (Message.opaque({"id": "1"}), Message.opaque({"id": "2"})),
        (Message.opaque({"role": "user"}), {"role": "user"}),
    ],
)
async def test_messages_are_compared_as_they_are_stored(session: Session, first: Any, other: Any) -> None:
    await session.append(first, id="turn-1")
    assert (await session.append(first, id="turn-1")).duplicate
    with pytest.raises(IdReused):
        await session.append(other, id="turn-1")


@pytest.mark.parametrize("edit", ["pop", "undo", "replace", "rewrite"])
async def test_an_edit_of_a_session_that_is_gone_says_that_it_was_cleared(session: Session, edit: str) -> None:
    context = await session.append_and_read(USER)
    await session.clear()
    arguments: tuple[Any, ...] = {"replace": (1, REPLY), "rewrite": (1, [REPLY])}.get(edit, ())
    with pytest.raises(Conflict) as refused:
        await getattr(session, edit)(*arguments, expect=context)
    assert refused.value.cleared
    with pytest.raises(SessionNotFound):
        await getattr(session, edit)(*arguments)
