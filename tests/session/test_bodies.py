"""No append is refused for what earlier turns hold: the bodies of the oldest large messages leave the window."""

from __future__ import annotations

from typing import Any

import pytest
from support.conversations import user_message
from support.stores import Store

from redismem import Memory, Policy, Settings
from redismem.blocking import memory as blocking
from redismem.inspection.check import check_session
from redismem.protocol.session import bodies
from redismem.protocol.session.edits import edit
from redismem.session.session import Session
from redismem.workers.strategies import Trim, from_settings
from redismem.workers.summaries import Worker

_LIMIT = 64 * 1024
_RESULT = "row " * 2_500


def call(number: int) -> dict[str, Any]:
    function = {"name": "read", "arguments": "{}"}
    return {"role": "assistant", "tool_calls": [{"id": f"c{number}", "type": "function", "function": function}]}


def result(number: int, text: str = _RESULT) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": f"c{number}", "content": f"{number} {text}"}


def body_settings(**given: Any) -> Settings:
    return Settings(max_window_bytes=_LIMIT, **given)


async def fill(session: Session, turns: int = 12) -> None:
    """Append turns, waiting for what each starts."""
    for number in range(turns):
        await session.append(user_message(f"question {number}"), call(number))
        await session.append_and_read(result(number))
        await session._store.side_work.end(10)
    await session.append({"role": "assistant", "content": "done"})


@pytest.mark.parametrize("keeps", [True, False], ids=["originals", "no originals"])
@pytest.mark.parametrize(
    "given", [{"strategy": "none"}, {"threshold": 500}, {"threshold": 8, "recent_limit": 6}], ids=str
)
async def test_the_window_stays_small_and_every_message_whole(
    store: Store, namespace: str, raw: Any, keeps: bool, given: dict[str, Any]
) -> None:
    async with store.memory(namespace, body_settings(keep_originals=keeps, **given)) as memory:
        session = memory.session("s", policy=Policy(keep_whole=True))
        await fill(session)
        context = await session.read()
        whole = await session.messages(include_originals=True)
        assert sum(len(str(message.content)) for message in context.messages) < _LIMIT
        assert [message.content for message in whole if message.role == "tool"] == [
            result(number)["content"] for number in range(12)
        ]
        assert [message.seq for message in whole] == [message.seq for message in context.messages]
        assert whole[-2] == context.messages[-2]  # the newest result is in the window
        sent = context.to_openai()
        assert [each.get("tool_call_id") for each in sent] == [each.to_openai().get("tool_call_id") for each in whole]
        assert "have left the context" in sent[2]["content"]
        assert sent[2]["content"].startswith("0 row row")
        assert await check_session(memory.store, session.id) == []
        await session.clear()
        assert await raw.exists(memory.store.keys.session("s").originals) == 0


async def test_a_body_that_is_gone_is_told_by_check_and_in_the_log(
    store: Store, namespace: str, raw: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with store.memory(namespace, body_settings()) as memory:
        session = memory.session("s")
        await fill(session)
        await raw.hdel(memory.store.keys.session("s").originals, "b3")
        (broken,) = await check_session(memory.store, session.id)
        assert "message 3 is shortened, and its body is gone" in str(broken)
        assert (await session.messages(include_originals=True))[2].shortened
        assert "the bodies of 1 messages cannot be read" in caplog.text


async def test_bodies_expire_with_their_session(store: Store, namespace: str, raw: Any) -> None:
    async with store.memory(namespace, body_settings()) as memory:
        session, keys = memory.session("s"), memory.store.keys.session("s")
        await fill(session)
        for use in (
            session.append(user_message("later")),
            session.touch(),
            session.set_policy(Policy(keep_whole=True)),
        ):
            words = (await raw.hget(keys.state, "counters")).split(b" ")
            words[4] = b"1000"  # last used long ago
            await raw.hset(keys.state, "counters", b" ".join(words))
            await raw.pexpire(keys.originals, 60_000)
            await use
            assert await raw.pexpiretime(keys.originals) == await raw.pexpiretime(keys.state)
            assert await check_session(memory.store, "s") == []


@pytest.mark.parametrize("keeps", [True, False], ids=["originals", "no originals"])
@pytest.mark.parametrize("edit", ["prune", "pop", "rewrite", "replace", "forget", "drain", "archive", "trim"])
async def test_each_removal_takes_the_bodies_with_it(
    store: Store, namespace: str, raw: Any, edit: str, keeps: bool
) -> None:
    if edit == "archive" and not keeps:
        pytest.skip("refused without originals")
    async with store.memory(namespace, body_settings(keep_originals=keeps, threshold=20, recent_limit=4)) as memory:
        session = memory.session("s")
        await fill(session)
        await _edit(memory, session, edit)
        fields = await raw.hkeys(memory.store.keys.session("s").originals)
        bodies = {int(field[1:]) for field in fields if field.startswith(b"b")}
        whole = {message.seq: message for message in await session.messages(include_originals=True)}
        assert bodies <= whole.keys()
        assert not any(message.shortened for message in whole.values())
        assert all(len(whole[seq].content) > 9_000 for seq in bodies)
        assert await check_session(memory.store, session.id) == []


async def _edit(memory: Memory, session: Session, edit: str) -> None:
    context = await session.read()
    first = next(message for message in context.messages if message.shortened)
    if edit == "prune":
        await session.prune(9)
    elif edit == "pop":
        popped = await session.pop(len(context.messages) - 3)
        assert not any(message.shortened for message in popped)
    elif edit == "rewrite":
        await session.rewrite(first.seq, [result(0, "short")])
    elif edit == "replace":
        await session.replace(first, first.to_openai() | {"content": "short"})
    elif edit == "forget":
        await session.forget(first.seq)
    elif edit == "archive":
        archived = await session.archive(9)
        assert not any(message.shortened for message in archived)
    else:
        strategy = Trim() if edit == "trim" else from_settings(memory.store.settings)
        assert strategy is not None
        assert await Worker(memory.store, strategy).drain()


def test_a_blocking_memory_moves_bodies_too(redis_server: Any, namespace: str) -> None:
    with blocking.Memory.connect(redis_server.url, namespace=namespace, settings=body_settings()) as memory:
        session = memory.session("s")
        for number in range(12):
            session.append(user_message("question"), call(number))
            session.append(result(number))
        session.append({"role": "assistant", "content": "done"})
    with blocking.Memory.connect(redis_server.url, namespace=namespace, settings=body_settings()) as memory:
        session = memory.session("s")
        assert any(message.shortened for message in session.read().messages)
        assert not any(message.shortened for message in session.messages(include_originals=True))


async def test_a_repeated_append_of_a_shortened_message_is_recognised(store: Store, namespace: str) -> None:
    async with store.memory(namespace, body_settings()) as memory:
        session = memory.session("s")
        await session.append(call(0), result(0), id="first")
        for number in range(1, 6):
            await session.append(call(number), result(number), {"role": "assistant", "content": "ok"})
            await memory.store.side_work.end(10)
        assert (await session.read()).messages[1].shortened
        assert (await session.append(call(0), result(0), id="first")).duplicate


async def test_what_the_model_has_not_answered_stays(store: Store, namespace: str) -> None:
    async with store.memory(namespace, body_settings()) as memory:
        session = memory.session("s")
        await session.append(*(call(number) for number in range(5)))
        for number in range(5):
            await session.append(result(number))
        await memory.store.side_work.end(10)
        assert not any(message.shortened for message in (await session.read()).messages)


async def test_nothing_moves_from_a_window_that_another_writer_has_changed(store: Store, namespace: str) -> None:
    async with store.memory(namespace, body_settings()) as memory:
        session = memory.session("s")
        await fill(session, 3)
        view = await session._editor.view("prune")
        await session.append({"role": "assistant", "content": "x" * 30_000})
        await session.pop(1)
        chosen = [bodies.Shortened(2, 3, view.elements[2], view.elements[0], 0)]
        assert await memory.store.run(edit(session._calls, view, bodies.move(view, chosen), bool)) is False
