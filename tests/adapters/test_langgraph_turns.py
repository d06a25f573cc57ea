"""LangGraph's runs within turns: of two processes that resume one interrupt at once, one pays."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, TypedDict

import pytest
import redis.asyncio
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt
from support.checks import until
from support.redis_server import RedisServer

from redismem import Memory, RecordConflict, RedismemError, Settings, TurnBusy, TurnKnown, TurnLost, blocking
from redismem.adapters.langgraph import RedismemSaver

ROOT = Path(__file__).parents[2]
ROUNDS = 50
LEASE_S = 0.4
WAIT_S = 20


class State(TypedDict):
    paid: str


def place(thread_id: str) -> Any:
    return {"configurable": {"thread_id": thread_id}}


def compile_graph(saver: Any, raw: Any, thread_id: str) -> Any:
    """A graph that asks before it pays. The payment goes on once the other process was refused."""

    async def pay(_: State) -> Any:
        answer = interrupt("Pay 20 euros?")
        await raw.incr(f"paid:{thread_id}")
        await raw.blpop(f"refused:{thread_id}", timeout=WAIT_S)
        return {"paid": answer}

    builder: Any = StateGraph(State)
    builder.add_node("pay", pay).add_edge(START, "pay").add_edge("pay", END)
    return builder.compile(checkpointer=saver)


async def resume(saver: Any, raw: Any, thread_id: str, id: str) -> str:
    """Answer the interrupt, and return the name of what came of it."""
    came = "stopped"
    try:
        async with saver.aturn(place(thread_id), id=id):
            graph = compile_graph(saver, raw, thread_id)
            came = (await graph.ainvoke(Command(resume="yes"), place(thread_id)))["paid"]
    except RedismemError as refused:
        await raw.rpush(f"refused:{thread_id}", "")
        return type(refused).__name__
    return came


async def work(url: str, port: str, namespace: str, name: str, lease_s: str) -> None:
    """A process that resumes the thread of each line of its input: once for all, or under a name of its own."""
    memory = Memory.connect(url, namespace=namespace, settings=Settings(live_lease_s=float(lease_s)))
    async with memory, redis.asyncio.Redis(port=int(port)) as raw:
        for line in iter(sys.stdin.readline, ""):
            thread_id = line.strip()
            id = "approve" if int(thread_id) % 2 else f"approve-{name}"
            sys.stdout.write(await resume(RedismemSaver(memory), raw, thread_id, id) + "\n")
            sys.stdout.flush()


PROGRAM = "import asyncio, sys; from adapters.test_langgraph_turns import work; asyncio.run(work(*sys.argv[1:]))"


async def start(server: RedisServer, namespace: str, name: str, lease_s: float = 15) -> Any:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PROGRAM, server.url, str(server.port), namespace, name, str(lease_s)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"},
    )


async def tell(process: Any, thread_id: str) -> str:
    process.stdin.write(f"{thread_id}\n".encode())
    return str((await asyncio.wait_for(process.stdout.readline(), 60)).decode().strip())


@pytest.fixture
async def raw(redis_server: RedisServer) -> AsyncIterator[Any]:
    async with redis.asyncio.Redis(port=redis_server.port) as raw:
        await raw.flushdb()
        yield raw


@pytest.fixture
async def savers(redis_server: RedisServer, namespace: str) -> AsyncIterator[list[RedismemSaver]]:
    """The savers of two processes."""
    settings = Settings(live_lease_s=LEASE_S)
    async with (
        Memory.connect(redis_server.url, namespace=namespace, settings=settings) as memory,
        Memory.connect(redis_server.url, namespace=namespace, settings=settings) as other,
    ):
        yield [RedismemSaver(memory), RedismemSaver(other)]


async def ask(saver: Any, raw: Any, thread_id: str) -> None:
    async with saver.aturn(place(thread_id), id="ask"):
        result = await compile_graph(saver, raw, thread_id).ainvoke({"paid": "no"}, place(thread_id))
    assert result["__interrupt__"]


async def test_of_two_processes_that_resume_one_interrupt_at_once_one_pays(
    redis_server: RedisServer, namespace: str, raw: Any, savers: list[Any]
) -> None:
    processes = [await start(redis_server, namespace, name) for name in "ab"]
    try:
        for number in range(ROUNDS):
            await ask(savers[0], raw, str(number))
            told = await asyncio.gather(*(tell(each, str(number)) for each in processes))
            assert sorted(told) == ["TurnKnown" if number % 2 else "TurnBusy", "yes"]
            assert await raw.get(f"paid:{number}") == b"1"
            snapshot = await compile_graph(savers[1], raw, str(number)).aget_state(place(str(number)))
            assert (snapshot.values, snapshot.next) == ({"paid": "yes"}, ())
            with pytest.raises(TurnKnown):  # approved again, later
                await ask(savers[1], raw, str(number))
    finally:
        for process in processes:
            process.kill()
            await process.wait()


async def test_a_process_that_dies_while_it_pays_leaves_the_turn_to_the_next(
    redis_server: RedisServer, namespace: str, raw: Any, savers: list[Any]
) -> None:
    process = await start(redis_server, namespace, "a", LEASE_S)
    await ask(savers[0], raw, "1")
    telling = asyncio.create_task(tell(process, "1"))
    await until(lambda: raw.get("paid:1"), WAIT_S)
    with pytest.raises(TurnKnown):
        async with savers[0].aturn(place("1"), id="approve"):  # `resume` would let the payment go on
            pass
    process.kill()
    await process.wait()
    telling.cancel()
    await raw.rpush("refused:1", "")

    async def resume_again() -> bool:
        return await resume(savers[0], raw, "1", "approve") == "yes"  # TurnKnown until the lease has ended

    await until(resume_again, WAIT_S)
    snapshot = await compile_graph(savers[1], raw, "1").aget_state(place("1"))
    assert snapshot.values == {"paid": "yes"}


async def test_what_a_run_stores_after_another_turn_has_begun_is_refused(raw: Any, savers: list[Any]) -> None:
    turn = savers[0].aturn(place("1"), id="slow")
    core = await turn.__aenter__()
    core._live.end(core._writing)  # this process says nothing more
    checkpoint: Any = {"v": 1, "id": "1", "ts": "", "channel_values": {}, "channel_versions": {}, "versions_seen": {}}
    config = await savers[0].aput(place("1"), checkpoint, {}, {})
    async with savers[1].aturn(place("1"), id="next", when_busy="wait"):
        with pytest.raises(RecordConflict, match="another turn"):
            await savers[0].aput(config, checkpoint | {"id": "2"}, {}, {})
        with pytest.raises(RecordConflict, match="another turn"):
            await savers[0].aput_writes(config, [("paid", "twice")], "task")
    with pytest.raises(TurnLost):
        await turn.__aexit__(None, None, None)
    assert [each.checkpoint["id"] async for each in savers[1].alist(place("1"))] == ["1"]
    await savers[1].aput(config, checkpoint | {"id": "3"}, {}, {})  # a writer without a turn is as free as before


async def test_a_run_stops_the_one_that_goes_on_and_goes_on_itself(raw: Any, savers: list[Any]) -> None:
    await ask(savers[0], raw, "1")
    paying = asyncio.create_task(resume(savers[0], raw, "1", "a"))
    await until(lambda: raw.get("paid:1"))
    async with savers[1].aturn(place("1"), id="b", when_busy="interrupt"):
        assert await paying == "stopped"
        graph = compile_graph(savers[1], raw, "1")
        assert (await graph.aget_state(place("1"))).interrupts  # the payment was cancelled, so it is still to come
        await raw.rpush("refused:1", "")
        assert (await graph.ainvoke(Command(resume="later"), place("1")))["paid"] == "later"


async def test_a_turn_begins_in_a_thread_that_cannot_be_read(raw: Any, namespace: str, savers: list[Any]) -> None:
    await ask(savers[0], raw, "1")
    for key in await raw.keys(f"*{namespace}:*record:langgraph:1"):
        await raw.set(key, "damaged")
    async with savers[1].aturn(place("1"), id="anew"):
        result = await compile_graph(savers[1], raw, "1").ainvoke({"paid": "no"}, place("1"))
    assert result["__interrupt__"]


async def test_threads_are_deleted_and_forgotten_with_their_turns_and_many_turns_leave_little(
    redis_server: RedisServer, namespace: str
) -> None:
    async with Memory.connect(redis_server.url, namespace=namespace) as memory:
        saver = RedismemSaver(memory, owner_key="user")
        config: Any = {"configurable": {"thread_id": "1", "user": "anna"}}
        for number in range(40):
            async with saver.aturn(config, id=str(number)) as turn:
                assert len(turn.context.messages) <= 18
        assert len((await memory.sessions()).sessions) == 1
        await saver.adelete_thread("1")
        assert (await memory.sessions()).sessions == []
        async with saver.aturn(config, id="0"):
            pass
        forgotten = await memory.forget(owner="anna")
        assert (forgotten.session_count, forgotten.record_count) == (1, 1)


def test_without_await_too(redis_server: RedisServer, namespace: str) -> None:
    def pay(_: State) -> Any:
        return {"paid": interrupt("Pay?")}

    builder: Any = StateGraph(State)
    builder.add_node("pay", pay).add_edge(START, "pay").add_edge("pay", END)
    with (
        blocking.Memory.connect(redis_server.url, namespace=namespace) as memory,
        blocking.Memory.connect(redis_server.url, namespace=namespace) as other,
    ):
        ours, theirs = RedismemSaver(memory), RedismemSaver(other)
        graph = builder.compile(checkpointer=ours)
        with ours.turn(place("1"), id="ask"):
            graph.invoke({"paid": "no"}, place("1"))
            with pytest.raises(TurnBusy), theirs.turn(place("1"), id="other"):
                pytest.fail("two turns")
        with ours.turn(place("1"), id="approve") as turn:
            assert graph.invoke(Command(resume="yes"), place("1"))["paid"] == "yes"
        assert turn.outcome == "done"
        with pytest.raises(TurnKnown), theirs.turn(place("1"), id="approve"):
            pytest.fail("twice")
        theirs.delete_thread("1")
        with theirs.turn(place("1"), id="approve"):
            pass


async def test_a_blocking_memory_has_turns_without_await_alone() -> None:
    with RedismemSaver.from_conn_string("memory://") as saver:
        turn = saver.aturn(place("1"), id="1")
        with pytest.raises(TypeError, match="turn"):
            await turn.__aenter__()
        with saver.turn(place("1"), id="1"), pytest.raises(TurnBusy), saver.turn(place("1"), id="2"):
            pytest.fail("two turns")
