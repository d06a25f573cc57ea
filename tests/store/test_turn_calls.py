"""The calls of turns through a store: lost and late replies, cut logs, a cluster, an outage, the embedded store."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import redis.asyncio
from support.checks import until, user
from support.cluster_servers import ClusterServers
from support.cut_logs import SETTINGS, check_cut_anywhere, crash
from support.faulty import Faulty
from support.proxy import Proxy
from support.redis_server import RedisServer

from redismem import Conflict, Memory, OwnerMismatch, Session, Settings, StoreUnavailable, TurnBusy, TurnKnown, TurnLost
from redismem.inspection.check import check
from redismem.protocol.call import Call
from redismem.protocol.live.calls import (
    Appended,
    Begun,
    LookUp,
    TurnEnd,
    TurnRead,
    TurnWrite,
    append_turn,
    begin_turn,
    claim_turn,
    due_turns,
    look_up_turn,
    read_turn,
    stop_turn,
    write_turns,
)
from redismem.protocol.live.turns import TurnField, TurnRecord, end_line, message_line, new_holder, turn_name
from redismem.protocol.session.calls import SessionCalls
from redismem.protocol.slots import slot_of

DONE = TurnEnd("done", "", {"out": 3}, has_reply=True)
FAILED = TurnEnd("failed", "Boom", None, has_reply=False)
DELTA = b'{"type":"text","delta":"hi"}\n'


class Turns:
    """The calls of turns of the session "a"."""

    def __init__(self, memory: Memory, owner: str | None = None) -> None:
        self.run = memory.store.run
        self.settings = memory.store.settings
        self.calls: SessionCalls = memory.store.session_calls("a", owner)
        self.keys = self.calls.keys

    def beginning(self, content: int = 1, id: str = "t-1", holder: str | None = None, **changed: Any) -> Call[Begun]:
        named: dict[str, Any] = {"turn_id": id, "holder": holder or new_holder(), "ticket": None, "again": None}
        return begin_turn(self.calls, [user(content)], {}, **named | changed)

    async def begin(self, *arguments: Any, **changed: Any) -> Begun:
        return await self.run(self.beginning(*arguments, **changed), quarantine=True)

    def ending(self, turn: TurnField, offset: int, end: TurnEnd | None = DONE, number: int = 1) -> Call[Appended]:
        messages = [user(2)] if end is None or end.has_reply else []
        return append_turn(self.calls, turn, messages, {}, offset=offset, number=number, end=end)

    def write(self, turn: TurnField, offset: int, data: bytes) -> Any:
        return self.run(write_turns(self.settings, None, [TurnWrite(self.keys, turn, offset, data)]))

    async def read(self) -> TurnRead:
        return await self.run(read_turn(self.keys, 0))

    async def look_up(self, id: str = "t-1") -> LookUp:
        return await self.run(look_up_turn(self.keys, turn_name(id)))


@pytest.fixture
def turns(memory: Memory) -> Turns:
    return Turns(memory)


async def check_whole_turn(memory: Memory) -> None:
    turns = Turns(memory)
    begun = await turns.begin()
    turn = begun.turn
    assert (turn.status, turn.first_seq, begun.context.to_openai()) == ("running", 1, [user(1)])
    assert begun.kept_ms == memory.store.settings.kept_ms
    assert (begun.context.receipt, begun.receipt) != (None, None)
    at = len(message_line(1, 1))
    assert await turns.write(turn, at, DELTA) == [("ok", at + len(DELTA), None)]
    assert await turns.run(stop_turn(turns.keys, "user", generation=turn.generation, name=turn_name("t-1")))
    (reply,) = await turns.write(turn, at + len(DELTA), b"")
    assert reply.stop == "user"
    log = message_line(1, 1) + DELTA
    assert await turns.read() == TurnRead(turn, log)
    appended = await turns.run(turns.ending(turn, len(log)))
    log += message_line(2, 2) + end_line("done", "", 2, {"out": 3})
    assert (appended.receipt.last_seq, appended.log_bytes) == (2, len(log))
    ended = replace(turn, status="done")
    assert await turns.read() == TurnRead(ended, log)
    assert await turns.look_up() == LookUp(ended, TurnRecord(1, 2, "done", has_reply=True))
    assert [json.loads(line)["type"] for line in log.splitlines()] == ["message", "text", "message", "end"]
    assert not await turns.run(stop_turn(turns.keys, "late", generation=None, name=None))
    assert (await turns.write(turn, len(log), DELTA))[0].state == "lost"
    assert [found async for found in check(memory.store)] == []


async def test_a_whole_turn(memory: Memory) -> None:
    await check_whole_turn(memory)


async def test_a_whole_turn_in_the_embedded_store() -> None:
    async with Memory.connect("memory://") as memory:
        await check_whole_turn(memory)


async def test_a_whole_turn_in_a_cluster(cluster_servers: ClusterServers, namespace: str) -> None:
    async with Memory.connect(cluster_servers.url, namespace=namespace, settings=SETTINGS) as memory:
        keys = memory.store.keys.session("a")
        owner = cluster_servers.owner(slot_of(keys.live.partition(b"{")[2].partition(b"}")[0]))
        async with redis.asyncio.Redis(port=owner.port) as client, client.pubsub() as listener:
            await listener.ssubscribe(keys.live, keys.shard.stops)
            await check_whole_turn(memory)
            told = [message async for message in messages_of(listener, 6) if message["type"] == "smessage"]
    assert [message["channel"] for message in told] == [keys.live, keys.live, keys.shard.stops, keys.live]
    assert told[2]["data"].endswith(b" user")


async def messages_of(listener: Any, count: int) -> AsyncIterator[dict[str, Any]]:
    for _ in range(count):
        message = await listener.get_message(timeout=10)
        assert message is not None
        yield message


async def test_a_turn_is_claimed_and_ended_by_another_process(memory: Memory) -> None:
    turns = Turns(memory)
    turn = (await turns.begin()).turn
    now_ms = await memory.store.server_time_ms()
    lease_ms = int(turns.settings.live_lease_s * 1_000)
    shards = memory.store.keys.shards()
    assert await turns.run(due_turns(shards, now_ms)) == []
    assert await turns.run(due_turns(shards, now_ms + 2 * lease_ms)) == ["a"]
    holder = new_holder()
    states = []
    for late in (0, 2, 4):
        claim = claim_turn(turns.keys, turns.settings, partial(int, now_ms + late * lease_ms), holder)
        states.append(await turns.run(claim))
    assert [each.state for each in states] == ["leased", "doubted", "claimed"]
    claimed = states[-1].turn
    assert claimed == replace(turn, holder=holder)
    at = len(message_line(1, 1))
    with pytest.raises(TurnLost):
        await turns.run(turns.ending(turn, at))
    await turns.run(turns.ending(claimed, at, TurnEnd("lost", "lost", None, has_reply=False)))
    record = (await turns.look_up()).record
    assert record == TurnRecord(1, 1, "lost", has_reply=False)
    again = await turns.begin(again=record)
    assert (again.turn.first_seq, len(again.context.messages)) == (1, 1)
    assert await turns.run(due_turns(shards, now_ms + 2 * lease_ms)) == ["a"]


async def test_refusals_are_errors_with_their_values(memory: Memory) -> None:
    turns = Turns(memory)
    turn = (await turns.begin()).turn
    with pytest.raises(TurnKnown) as known:
        await turns.begin()
    assert (known.value.how, known.value.generation, known.value.first_seq) == ("running", turn.generation, 1)
    for ticket in (None, "aa"):
        with pytest.raises(TurnBusy) as busy:
            await turns.begin(2, "t-2", ticket=ticket)
        assert (busy.value.turn, busy.value.left_ms > 0) == (turn.generation, True)
    await turns.run(turns.ending(turn, len(message_line(1, 1))))
    with pytest.raises(TurnKnown) as known:
        await turns.begin()
    assert (known.value.how, known.value.outcome, known.value.first_seq) == ("ended", "done", 1)
    assert (known.value.last_seq, known.value.reply_seq) == (2, 2)
    with pytest.raises(TurnBusy) as busy:
        await turns.begin(2, "t-2")
    assert (busy.value.turn, busy.value.left_ms) == ("", 0), "one waits"
    with pytest.raises(OwnerMismatch):
        await Turns(memory, "anna").begin(2, "t-2")
    with pytest.raises(Conflict):
        await turns.begin(2, "t-3", ticket="aa", again=TurnRecord(1, 1, "failed", has_reply=False))
    with pytest.raises(TurnLost):
        await turns.run(turns.ending(turn, 0, number=2))


async def test_a_session_that_cannot_be_read_is_put_aside_and_the_turn_begins(memory: Memory) -> None:
    turns, raw = Turns(memory), memory.store
    await memory.session("a").append(user(1))
    await raw.run(Call("a", (("RPOP", turns.keys.messages),), bool))
    begun = await turns.begin()
    assert (begun.turn.first_seq, begun.context.to_openai()) == (1, [user(1)])
    await raw.run(Call("a", (("RPOP", turns.keys.messages),), bool))
    with pytest.raises(TurnLost):
        await turns.run(turns.ending(begun.turn, len(message_line(1, 1))), quarantine=True)


@pytest.fixture
async def proxy(redis_server: RedisServer) -> AsyncIterator[Proxy]:
    async with Proxy(redis_server.port) as proxy:
        yield proxy


@pytest.mark.parametrize("how", ["reset", "truncate", "late"])
async def test_a_lost_reply_or_late_bytes_change_nothing(proxy: Proxy, namespace: str, how: Any) -> None:
    settings = Settings(deadline_s=60, reply_timeout_s=10)
    async with Memory.connect(proxy.url, namespace=namespace, settings=settings) as memory:
        turns = Turns(memory)
        await memory.session("other").append(user(1))
        proxy.break_next(how, 1, b"EVALSHA")
        turn = (await turns.begin()).turn
        at = len(message_line(1, 1))
        proxy.break_next(how, 1, b"EVALSHA")
        assert await turns.write(turn, at, DELTA) == [("ok", at + len(DELTA), None)]
        at += len(DELTA)
        proxy.break_next(how, 1, b"EVALSHA")
        appended = await turns.run(turns.ending(turn, at, None))
        assert (appended.receipt.last_seq, appended.receipt.duplicate) == (2, False)
        proxy.break_next(how, 1, b"EVALSHA")
        ended = await turns.run(turns.ending(turn, appended.log_bytes, number=2))
        assert (ended.receipt.last_seq, ended.receipt.duplicate) == (3, False)
        before = await turns.read()
        assert before.log == (
            message_line(1, 1) + DELTA + message_line(2, 2) + message_line(3, 3) + end_line("done", "", 3, {"out": 3})
        )
        assert len(await proxy.deliver()) == (4 if how == "late" else 0)
        assert await turns.read() == before
        assert len(await memory.session("a").messages()) == 3


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path / "redis", aof=True, options=("--appendfsync", "no")).start()
    yield server
    server.stop()


Q, R = message_line(2, 2), message_line(3, 3)
CUT: dict[str, tuple[str, bytes, TurnRecord | None]] = {
    "begin": ("running", Q, None),
    "write": ("running", Q + DELTA, None),
    "append": ("running", Q + R, None),
    "end": ("done", Q + R + end_line("done", "", 3, {"out": 3}), TurnRecord(2, 3, "done", has_reply=True)),
}
"""For each call: the status, the log and the record afterwards."""


@pytest.mark.parametrize("what", CUT)
async def test_a_log_cut_within_a_script_is_made_whole_by_the_resent_call(server: RedisServer, what: str) -> None:
    async with Memory.connect(server.url, settings=SETTINGS) as memory:
        turns, seen = Turns(memory), set[Any]()
        await memory.session("a").append(user(0))
        call: Call[Any] = turns.beginning()
        if what != "begin":
            turn = (await turns.begin()).turn
            call = turns.ending(turn, len(Q), DONE if what == "end" else None)
            if what == "write":
                begun_ms = await memory.server_time_ms()  # within a second, a write notes no activity
                await until(lambda: time.time() * 1_000 > begun_ms + 1_100)
                call = write_turns(turns.settings, None, [TurnWrite(turns.keys, turn, len(Q), DELTA)])

        async def note(session: Session) -> None:
            """Note what is there, also after one more start, which replays the cut part and the resent call."""
            del session
            for _ in range(2):
                read, found = await turns.read(), await turns.look_up()
                assert read.turn is not None
                seen.add((read.turn.status, read.log, found.record))
                await crash(server)

        assert await check_cut_anywhere(server, memory, call, note) > 3
        assert seen == {CUT[what]}


async def test_while_redis_is_away_turns_are_refused_and_what_they_stored_is_served(
    degradable: Memory, faulty: Faulty
) -> None:
    turns = Turns(degradable)
    turn = (await turns.begin()).turn
    await turns.run(turns.ending(turn, len(message_line(1, 1)), None))
    faulty.is_away = True
    calls: list[Call[Any]] = [turns.beginning(3, "t-2"), turns.ending(turn, 0, number=2)]
    for call in calls:
        with pytest.raises(StoreUnavailable):
            await turns.run(call)
    context = await degradable.session("a").read()
    assert (context.degraded, context.to_openai()) == (True, [user(1), user(2)])
    assert degradable.health().backlog_message_count == 0
