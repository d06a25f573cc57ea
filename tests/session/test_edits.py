"""pop, undo, replace and unpin: they edit messages that no summary covers, unless another writer was faster."""

from __future__ import annotations

from typing import Any

import pytest
from support.conversations import user_message
from support.edited import ANSWER, SMALL, is_sound, payloads, summarize
from support.stores import Store

from redismem import Conflict, InvalidMessage, Memory, Message, Session, SessionNotFound, Settings, TooLarge
from redismem.errors import NotInWindow


def call(*ids: str) -> dict[str, Any]:
    calls = [{"id": id, "type": "function", "function": {"name": "f", "arguments": "{}"}} for id in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def result(id: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id, "content": "found"}


async def test_the_newest_are_popped_and_no_seq_is_given_twice(memory: Memory, session: Session) -> None:
    for text in ("a", "b", "c"):
        await session.append(user_message(text), id=text)
    popped = await session.pop(2)
    assert [(message.seq, message.content) for message in popped] == [(2, "b"), (3, "c")]
    context = await session.read()
    assert (payloads(context.messages), context.last_seq, context.total_messages) == ([user_message("a")], 4, 1)
    receipt = await session.append(user_message("d"))
    assert (receipt.first_seq, receipt.last_seq) == (5, 5)
    assert [(message.seq, message.id) for message in await session.messages()] == [
        (1, f"{context.epoch}:1"),
        (5, f"{context.epoch}:5"),
    ]
    assert (await session.info()).window_count == 2
    assert await is_sound(memory)


async def test_an_append_that_was_popped_is_still_known_with_its_receipt(session: Session) -> None:
    receipts = [await session.append(user_message(text), user_message(text), id=text) for text in "abc"]
    await session.pop(3)
    await session.append(user_message("d"), id="d")
    for text, receipt in zip("abc", receipts, strict=True):
        again = await session.append(user_message(text), user_message(text), id=text)
        assert again.duplicate
        assert (again.first_seq, again.last_seq, again.created) == (
            receipt.first_seq, receipt.last_seq, receipt.created
        )  # fmt: skip
    assert [message.content for message in (await session.read()).messages] == ["a", "a", "b", "d"]


async def test_who_expects_what_was_there_before_a_pop_is_refused(session: Session) -> None:
    await session.append(user_message("question"), user_message("typo"))
    seen = await session.read()
    await session.pop(1)
    await session.append(user_message("other question"))
    for call in (
        session.append(ANSWER, expect=seen.last_seq),
        session.pop(1, expect=seen.last_seq),
        session.undo(expect=seen.last_seq),
    ):
        with pytest.raises(Conflict) as refused:
            await call
        assert refused.value.last_seq == 4
    assert (await session.append(ANSWER, expect=4)).last_seq == 5
    with pytest.raises(InvalidMessage):
        await session.pop(expect="4")  # type: ignore[arg-type]


async def test_undo_takes_the_users_last_message_and_what_follows(session: Session) -> None:
    await session.append({"role": "system", "content": "s"}, user_message("first"), ANSWER, user_message("second"))
    await session.append(call("c"), result("c"), ANSWER)
    assert payloads(await session.undo()) == [user_message("second"), call("c"), result("c"), ANSWER]
    assert payloads(await session.undo()) == [user_message("first"), ANSWER]
    assert await session.undo() == []
    context = await session.read()
    assert (context.to_openai(), context.last_seq) == ([{"role": "system", "content": "s"}], 9)


async def test_results_in_the_users_role_are_no_turn(session: Session) -> None:
    used = {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {}}]}
    found = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "found"}]}
    await session.append(user_message("question"), used, found, ANSWER)
    assert len(await session.undo()) == 4
    asked = {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {}}}]}
    told = {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {}}}]}
    await session.append({"role": "user", "parts": [{"text": "question"}]}, asked, told, ANSWER)
    assert len(await session.undo()) == 4


@pytest.mark.parametrize(("count", "left"), [(1, 1), (2, 1), (3, 1), (4, 0), (9, 0)])
async def test_a_tool_group_goes_whole(session: Session, count: int, left: int) -> None:
    await session.append(user_message("x"), call("c", "d"), result("d"), result("c"))
    await session.pop(count)
    assert len((await session.read()).messages) == left


async def test_what_a_summary_covers_is_refused(store: Store, namespace: str) -> None:
    async with store.memory(namespace, Settings(**SMALL)) as memory:
        session = memory.session("a")
        await session.append(*(user_message(str(number)) for number in range(3)), ANSWER, ANSWER)
        assert await summarize(memory) == 1
        before = await session.read()
        with pytest.raises(NotInWindow, match=r"cannot pop 3 messages: summaries cover all but 2"):
            await session.pop(3)
        with pytest.raises(NotInWindow, match="summaries cover all messages of the user"):
            await session.undo()
        for seq in (0, 1, 3, 6, -1):
            with pytest.raises(NotInWindow, match=f"message {seq} is neither in the window nor pinned"):
                await session.replace(seq, user_message("x"))
            with pytest.raises(NotInWindow):
                await session.unpin(seq)
        assert await session.read() == before
        assert len(await session.pop(2)) == 2
        assert await is_sound(memory)


async def test_what_is_no_count_and_no_message_is_refused(session: Session) -> None:
    with pytest.raises(SessionNotFound, match="cannot pop: there is no such session"):
        await session.pop()
    with pytest.raises(SessionNotFound, match="cannot replace: there is no such session"):
        await session.replace(1, user_message("x"))
    await session.append(user_message("a"))
    for count in (0, -1, 1.0, True, "1"):
        with pytest.raises(ValueError, match="count must be an integer, 1 or more"):
            await session.pop(count)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="pass the message's seq"):
        await session.replace("1", user_message("x"))  # type: ignore[arg-type]
    with pytest.raises(InvalidMessage):
        await session.replace(1, {"role": "user", "content": ("a tuple",)})
    with pytest.raises(InvalidMessage):
        await session.replace(1, "x")  # type: ignore[arg-type]


async def test_more_than_a_batch_is_refused_and_a_window_is_never_full_of_gaps(store: Store, namespace: str) -> None:
    async with store.memory(namespace, Settings(max_batch_count=3, max_window_count=10)) as memory:
        session = memory.session("a")
        for _ in range(2):
            await session.append(*[user_message("x")] * 2)
        with pytest.raises(TooLarge, match="4 messages in one pop, over 3"):
            await session.pop(4)
        for _ in range(20):
            await session.pop(1)
            await session.append(user_message("x"))
        context = await session.read()
        assert ([message.seq for message in context.messages], context.last_seq) == ([1, 2, 3, 44], 44)
        assert await is_sound(memory)


async def test_a_message_is_replaced_in_its_place(memory: Memory, session: Session) -> None:
    await session.append(user_message("a"), Message("user", "b", id="mine", metadata={"k": 1}), user_message("c"))
    stored = await session.replace(2, Message("user", "better" * 50, id="other"))
    context = await session.read()
    assert [message.content for message in context.messages] == ["a", "better" * 50, "c"]
    assert context.messages[1] == stored
    assert (stored.id, stored.metadata, stored.seq) == ("other", None, 2)
    assert (await session.info()).window_tokens == sum(message.tokens for message in context.messages)
    assert context.window_version != ""
    assert await is_sound(memory)


async def test_of_two_who_replace_what_they_read_one_is_refused(session: Session) -> None:
    await session.append(user_message("a"))
    read = (await session.read()).messages[0]
    await session.replace(read, user_message("first"))
    with pytest.raises(Conflict, match="changed it after it was read"):
        await session.replace(read, user_message("second"))
    await session.pop(1)
    with pytest.raises(NotInWindow):
        await session.replace(read, user_message("third"))


async def test_a_replacement_keeps_calls_and_results_together(session: Session) -> None:
    await session.append(call("c"), result("c"))
    for seq, wrong in (
        (1, user_message("x")),
        (1, call("d")),
        (1, call("c", "d")),
        (2, user_message("x")),
        (2, result("d")),
    ):
        with pytest.raises(InvalidMessage, match="the same tool calls and hold the same results"):
            await session.replace(seq, wrong)
    await session.replace(2, result("c") | {"content": "approved"})
    assert (await session.read()).to_openai()[1]["content"] == "approved"
