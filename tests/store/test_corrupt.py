"""Unreadable sessions: quarantine, and what a listing shows of them, on both stores."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from time import monotonic
from typing import Any

import fakeredis
import pytest
from support.checks import user
from support.conversations import contents, user_message
from support.faulty import Faulty
from support.operations import ANY, OPERATIONS, UNSET
from support.quarantined import quarantine_of
from support.stored import keys_of, read_namespace, set_counters

from redismem import (
    CorruptSession,
    Memory,
    Message,
    ScriptFailed,
    Session,
    SessionNotFound,
    Settings,
    UnsupportedFormat,
)
from redismem.protocol.call import Command, Subject
from redismem.protocol.ids import session_hash
from redismem.protocol.keys import SessionKeys
from redismem.protocol.quarantine import of_session
from redismem.protocol.scripts import Script
from redismem.store.store import Store

Break = Callable[[Any, SessionKeys], Coroutine[Any, Any, Any]]
ELEMENT = b"\x95\x01\x05\x81\xa4role\xa4user\xc0\xcf" + bytes(8)


async def _foreign_state(raw: Any, keys: SessionKeys) -> None:
    await raw.delete(keys.state)
    await raw.hset(keys.state, mapping={"name": "somebody else's", "count": "5"})


async def _store_as(raw: Any, key: bytes, *command: Any) -> None:
    await raw.delete(key)
    await raw.execute_command(command[0], key, *command[1:])


CORRUPT: dict[str, Break] = {
    "state is a string": lambda raw, keys: _store_as(raw, keys.state, "SET", "x"),
    "state is a list": lambda raw, keys: _store_as(raw, keys.state, "RPUSH", "x"),
    "messages are a string": lambda raw, keys: _store_as(raw, keys.messages, "SET", "x"),
    "messages are a hash": lambda raw, keys: _store_as(raw, keys.messages, "HSET", "a", "b"),
    "messages are a zset": lambda raw, keys: _store_as(raw, keys.messages, "ZADD", "1", "b"),
    "a foreign element": lambda raw, keys: raw.lset(keys.messages, 1, '{"role": "user"}'),
    "an empty element": lambda raw, keys: raw.lset(keys.messages, 0, ""),
    "the list is missing": lambda raw, keys: raw.delete(keys.messages),
    "an element is missing": lambda raw, keys: raw.lpop(keys.messages),
    "an element too many": lambda raw, keys: raw.rpush(keys.messages, ELEMENT),
    "the state is missing": lambda raw, keys: raw.delete(keys.state),
    "a foreign state": _foreign_state,
    "no epoch": lambda raw, keys: raw.hdel(keys.state, "epoch"),
    "an epoch that is no text": lambda raw, keys: raw.hset(keys.state, "epoch", b"\xff"),
    "no counters": lambda raw, keys: raw.hdel(keys.state, "counters"),
    "a count in words": lambda raw, keys: set_counters(raw, keys.state, message_count="two"),
    "a count of the wrong form": lambda raw, keys: set_counters(raw, keys.state, tokens="1e+15"),
    "more messages than a number has digits": lambda raw, keys: set_counters(
        raw, keys.state, message_count="9" * 5_000
    ),
    "more messages than Lua can count": lambda raw, keys: set_counters(raw, keys.state, message_count="9" * 17),
    "a first seq of many digits": lambda raw, keys: set_counters(raw, keys.state, first_seq="9" * 5_000),
    "a count too few": lambda raw, keys: raw.hset(keys.state, "counters", "v1 1 2 3 4"),
    "a param that is none": lambda raw, keys: raw.hset(keys.state, "param:a", b"\xc1"),
    "a param name that is none": lambda raw, keys: raw.hset(keys.state, b"param:\xff", b"\x01"),
    "a plan that is none": lambda raw, keys: raw.hset(keys.state, "plan", b""),
    "a summary that is none": lambda raw, keys: raw.hset(keys.state, "summary:1", b"\x01"),
}


@pytest.mark.parametrize("what", CORRUPT)
async def test_an_unreadable_session_is_quarantined_and_starts_afresh(
    raw: Any, session: Session, keys: SessionKeys, namespace: str, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    first = await session.append(user_message("CANARY old"), user_message("b"), merge={"a": "CANARY"})
    assert first.created
    await CORRUPT[what](raw, keys)
    broken = await read_namespace(raw, namespace)
    with caplog.at_level(logging.DEBUG):
        context = await session.append_and_read(user_message("current"))
    assert contents(context.messages) == ["current"]
    assert (context.total_messages, context.state.params) == (1, {})
    assert context.receipt is not None
    assert context.receipt.created
    aside = {key: value for key, value in (await read_namespace(raw, namespace)).items() if b":quarantine:" in key}
    assert aside.pop(of_session(keys).note)
    assert all(key.startswith(quarantine_of(keys) + b":") for key in aside)
    assert all(expires_ms > 0 for _, expires_ms in aside.values())
    expected = {name for name in ("messages", "state", "originals") if getattr(keys, name) in broken}
    assert {key.rpartition(b":")[2].decode() for key in aside} >= expected - {"messages"}
    for key, (content, _) in aside.items():
        name = key.rpartition(b":")[2].decode()
        was = broken.get(getattr(keys, name), ([], 0))[0]
        # Messages that another append added before the damage was noticed lie behind it.
        assert content == was or (name == "messages" and content[: len(was)] == was) or name == "state"
    (record,) = [record for record in caplog.records if record.name == "redismem"]
    assert record.levelno == logging.ERROR
    assert session_hash("user-42") in record.getMessage()
    assert "user-42" not in record.getMessage()
    assert "CANARY" not in caplog.text
    assert (await session.append(user_message("next"))).last_seq == 2
    assert contents((await session.read()).messages) == ["current", "next"]


READS: dict[str, Callable[[Session], Coroutine[Any, Any, Any]]] = {
    "read": lambda session: session.read(),
    "messages": lambda session: session.messages(),
    "tail": lambda session: session.tail(5),
    "info": lambda session: session.info(),
    "state": lambda session: session.state(),
    "exists": lambda session: session.exists(),
    "recall": lambda session: session.recall("old"),
}


@pytest.mark.parametrize("what", CORRUPT)
async def test_no_read_of_a_broken_session_writes_and_at_least_one_says_it(
    raw: Any, session: Session, keys: SessionKeys, namespace: str, what: str
) -> None:
    await session.append(user_message("old"), user_message("b"), merge={"a": "CANARY"})
    await CORRUPT[what](raw, keys)
    before = await read_namespace(raw, namespace)
    raised = set()
    for name, read in READS.items():
        try:
            await read(session)
        except (CorruptSession, SessionNotFound, ScriptFailed) as error:
            raised.add((name, type(error)))
    assert {("read", CorruptSession), ("info", CorruptSession)} & raised
    assert await read_namespace(raw, namespace) == before
    assert await session.set_aside()
    assert not await session.set_aside(), "it is empty now"
    assert (await session.read()).messages == []


@pytest.mark.parametrize("method", [name for name, row in OPERATIONS.items() if row.corrupt is not UNSET])
async def test_a_read_leaves_a_foreign_key_and_every_other_method_finds_a_fresh_session(
    raw: Any, session: Session, keys: SessionKeys, namespace: str, method: str
) -> None:
    await session.append(user_message("a"))
    await CORRUPT["state is a string"](raw, keys)
    call, answer = OPERATIONS[method].call, OPERATIONS[method].corrupt
    if answer is CorruptSession:
        before = await read_namespace(raw, namespace)
        with pytest.raises(CorruptSession, match="session user-42: "):
            await call(session)
        assert await read_namespace(raw, namespace) == before
    elif isinstance(answer, type):
        with pytest.raises(answer):
            await call(session)
    else:
        result = await call(session)
        assert answer is ANY or result == answer
    assert (await raw.type(keys.state) in (b"none", b"hash")) is (answer is not CorruptSession)
    stored = 2 if method == "append" else 1  # the others use no id, or the id of this append
    assert (await session.append(user(), id="b")).last_seq == stored


async def test_two_clients_of_a_broken_session_keep_both_appends(raw: Any, memory: Memory, keys: SessionKeys) -> None:
    for what in ("state is a string", "a foreign element", "the list is missing", "an element too many"):
        await memory.session("user-42").append(user_message("a"), user_message("b"))
        await CORRUPT[what](raw, keys)
        added = range(8)
        await asyncio.gather(*(memory.session("user-42").append_and_read(user_message(number)) for number in added))
        assert sorted(contents((await memory.session("user-42").read()).messages)) == list(added)
        await memory.session("user-42").clear()


async def test_a_session_of_a_newer_release_is_left_alone(
    raw: Any, session: Session, keys: SessionKeys, namespace: str
) -> None:
    await session.append(user_message("a"), user_message("b"))
    await raw.lset(keys.messages, 1, b"\x95\x03" + ELEMENT[2:])
    before = await read_namespace(raw, namespace)
    for call in (session.read(), session.messages(), session.prune(1), session.read(limit=1)):
        with pytest.raises(UnsupportedFormat, match=r"session user-42: .* version 3"):
            await call
    assert await read_namespace(raw, namespace) == before
    with pytest.raises(UnsupportedFormat):
        await session.append_and_read(user_message("c"))
    assert await raw.lrange(keys.messages, 0, 1) == before[keys.messages][0]
    assert [key for key in await keys_of(raw, namespace) if b":quarantine:" in key] == []


async def test_a_session_that_cannot_be_quarantined_raises(
    raw: Any, session: Session, keys: SessionKeys, monkeypatch: Any
) -> None:
    """Another process breaks the session again, faster than it is mended."""
    await session.append(user_message("a"))
    send = Store.send

    async def breaking(store: Store, call: Any, **options: Any) -> Any:
        await raw.delete(keys.state)
        await raw.set(keys.state, "x")
        return await send(store, call, **options)

    monkeypatch.setattr(Store, "send", breaking)
    with pytest.raises(CorruptSession) as corrupt:
        await session.append(user_message("b"))
    assert corrupt.value.session_id == "user-42"


async def test_no_log_line_and_no_error_holds_text_or_values(
    raw: Any, session: Session, keys: SessionKeys, caplog: pytest.LogCaptureFixture
) -> None:
    secret = "CANARY"
    shown: list[str] = []
    with caplog.at_level(logging.DEBUG):
        context = await session.append_and_read(
            user_message(secret), Message("user", secret, id=secret, metadata={secret: secret}), id=secret,
            merge={"order_id": secret}, last_intent=secret, last_result={secret: secret}, plan=[secret],
        )  # fmt: skip
        shown += [repr(context), str(context), repr(context.messages), repr(context.state), repr(context.receipt)]
        shown += [repr(await session.info()), repr(await session.telemetry()), repr(await session.state())]
        shown += [repr(session), repr(await session.messages())]
        for call in (
            session.append(user_message(secret), expect=77),
            session.append(user_message(secret), user_message((secret,))),
            session.append(user_message(secret), merge={"v": {secret}}),
            session.append(user_message(secret * 2 * 10**6)),
            session.set_plan(secret * 10**5),
            session.append(user_message(secret), id=secret * 100),
            session.append(secret),  # type: ignore[arg-type]
        ):
            with pytest.raises(Exception, match="session user-42: ") as refused:
                await call
            shown.append(repr(refused.value) + str(refused.value) + repr(refused.value.__cause__))
        for what in ("a foreign element", "a param that is none", "a foreign state"):
            await session.append(user_message(secret), user_message(secret), merge={"a": secret})
            await CORRUPT[what](raw, keys)
            with pytest.raises(CorruptSession) as corrupt:
                await session.read()
            shown.append(str(corrupt.value))
            assert await session.set_aside()
    assert secret not in "".join(shown) + caplog.text
    assert "put into quarantine" in caplog.text


async def test_quarantine_and_its_call_share_one_deadline(namespace: str) -> None:
    timeouts_s: dict[str, list[float]] = {}

    class Timed(Faulty):
        async def run(
            self, commands: Sequence[Command], timeout_s: float, script: Script | None = None, subject: Subject = None
        ) -> list[Any]:
            timeouts_s.setdefault("" if script is None else script.name, []).append(timeout_s)
            return await super().run(commands, timeout_s, script, subject)

    faulty = Timed(fakeredis.FakeServer())
    settings = Settings(deadline_s=90, reply_timeout_s=90)
    async with Memory.connect(client=faulty._client, namespace=namespace, settings=settings) as memory:
        await memory.session("a").append(user_message("old"))
        memory.store.transport = faulty
        calls = memory.store.session_calls("a")
        await faulty._client.delete(calls.keys.messages)
        call = calls.append([user_message("new")], {})
        assert (await memory.store.run(call, quarantine=True, begun_s=monotonic() - 60)).created
    await faulty.aclose()
    assert {name: len(seen) for name, seen in timeouts_s.items()} == {"append": 2, "look": 1, "set_aside": 1}
    assert max(each for seen in timeouts_s.values() for each in seen) <= 30
