"""Primaries of a cluster that die or stall: their sessions wait for a replica, and other sessions notice nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial

import pytest
from support.callers import Caller, Writers, check_texts, open_caller, session_ids_by_place
from support.checks import catch_unavailable, until
from support.cluster_servers import ON_DEMAND, ClusterNode, ClusterServers
from support.stores import short_deadlines

from redismem import Settings, StoreUnavailable, WrongShards
from redismem.concurrency.run_sync import run_without_loop
from redismem.inspection.check import check
from redismem.protocol.queue import calls as queue_calls

KINDS = ("asyncio", pytest.param("blocking", marks=pytest.mark.nightly))
PATIENT = Settings(shards=16, deadline_s=120, reply_timeout_s=1, fallback_after_s=60)
WITHOUT_RECORD = Settings(shards=16, deadline_s=0.5, reply_timeout_s=0.5, fallback_after_s=0.5)
"""For a process that cannot read the namespace's record, and so answers no call from Redis."""
NODE_TIMEOUT_MS = 60_000


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterServers]:
    """A cluster that fails over only on command, not because this machine is busy."""
    servers = ClusterServers(tmp_path_factory.mktemp("failovers"), node_timeout_ms=NODE_TIMEOUT_MS, more=ON_DEMAND)
    try:
        yield servers.start()
    finally:
        servers.stop()


@pytest.fixture(autouse=True)
def well(servers: ClusterServers) -> Iterator[None]:
    yield
    for node in servers.nodes:
        if node.is_stopped:
            node.go_on()
        elif not node.is_running:
            node.start()
    servers.set_timeout(1_000)  # nodes tell each other changes sooner
    servers.until_well()
    servers.set_timeout(NODE_TIMEOUT_MS)


def split_sessions(caller: Caller, servers: ClusterServers, count: int = 1) -> tuple[list[str], list[str], ClusterNode]:
    """Return sessions of two nodes, sessions of a third, and that node, which does not hold the namespace's record."""
    names = session_ids_by_place(caller, servers.topology().owners, count)
    record = servers.topology().owners[caller.slot_of_record()]
    place = next(place for place in names if place != record)
    affected = names.pop(place)
    return [name for each in names.values() for name in each], affected, servers.node_at(place)


async def until_served_at_once(caller: Caller, names: list[str], count: int = 50) -> None:
    """Append to these sessions until `count` appends in a row were each sent once. A busy machine may delay some."""

    async def is_served_at_once() -> bool:
        caller.events.clear()
        for number in range(count):
            await caller.append(names[number % len(names)], f"h.{number}")
        return caller.sent_counts() == [1] * count

    await until(is_served_at_once)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_stalled_primary_delays_no_call_to_other_nodes(
    kind: str, servers: ClusterServers, namespace: str
) -> None:
    async with open_caller(kind, servers.url, namespace) as caller:
        healthy, (name,), node = split_sessions(caller, servers)
        await caller.append_confirmed(name, "a")
        node.stop_process()
        waiting = [asyncio.ensure_future(caller.append(name, text, id=text)) for text in "bc"]
        await until_served_at_once(caller, healthy)
        assert not any(append.done() for append in waiting)
        await asyncio.to_thread(servers.fail_over, node)
        receipts = await asyncio.gather(*waiting)
        assert sorted(receipt.last_seq for receipt in receipts) == [2, 3]
        assert sorted(await caller.texts(name)) == ["a", "b", "c"]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_planned_failover_is_followed(kind: str, servers: ClusterServers, namespace: str) -> None:
    async with open_caller(kind, servers.url, namespace) as caller:
        _, (name,), node = split_sessions(caller, servers)
        await caller.append(name, "0")
        handing_over = asyncio.ensure_future(asyncio.to_thread(servers.hand_over, node))
        written = 1
        while not handing_over.done():
            await caller.append(name, str(written))
            written += 1
            await asyncio.wait([handing_over], timeout=0.01)
        await caller.append(name, str(written))
        assert await caller.texts(name) == [str(number) for number in range(written + 1)]
        assert {event.outcome for event in caller.events if event.op == "append"} == {"ok"}
        assert servers.owner(caller.slot(name)) is await handing_over


@pytest.mark.parametrize("kind", KINDS)
async def test_calls_to_a_node_that_is_down_name_it_and_others_are_served(
    kind: str, servers: ClusterServers, namespace: str
) -> None:
    async with open_caller(kind, servers.url, namespace) as caller:
        healthy, (name, other), node = split_sessions(caller, servers, 2)
        await until_served_at_once(caller, healthy, 4)
        node.stop_process()
        with short_deadlines(caller.memory):
            failed = await catch_unavailable(caller.append(name, "a"))
            assert f"Redis at {node.place} " in str(failed)
            caller.events.clear()
            # Once the node is known to be down, no call waits for it, and no other call is delayed.
            refused = await catch_unavailable(caller.append(other, "a"))
        assert f"Redis at {node.place} has not answered for" in str(refused)
        assert [event.sent_count for event in caller.events if event.op == "append"] == [0]
        await until_served_at_once(caller, healthy)
        health = caller.memory.health()
        assert (health.state, health.is_away, health.away_nodes) == ("closed", False, (node.place,))
        node.go_on()

        async def is_back() -> bool:
            try:
                return bool(await caller.append(name, "b", id="b"))
            except StoreUnavailable:
                return False

        await until(is_back)
        assert caller.memory.health().away_nodes == ()


@pytest.mark.parametrize("kind", KINDS)
async def test_with_the_fallback_only_sessions_of_the_missing_node_are_degraded(
    kind: str, servers: ClusterServers, namespace: str
) -> None:
    async with open_caller(kind, servers.url, namespace, PATIENT, fallback=True) as caller:
        healthy, (name,), node = split_sessions(caller, servers)
        await caller.append_confirmed(name, "a")
        await caller.turn(name, "b")
        await caller.append_confirmed(name, "c")
        node.kill()
        with short_deadlines(caller.memory):
            turn = await caller.turn(name, "d")
        assert turn.degraded
        assert [message.content for message in turn.messages] == ["a", "b", "c", "d"]
        for number in range(20):
            context = await caller.turn(healthy[number % len(healthy)], f"h.{number}")
            assert not context.degraded
        await asyncio.to_thread(servers.fail_over, node)

        async def is_replayed() -> bool:
            health = caller.memory.health()
            return not health.backlog_session_count and not health.away_nodes

        await until(is_replayed)
        turn = await caller.turn(name, "e")
        assert not turn.degraded
        assert [message.content for message in turn.messages] == ["a", "b", "c", "d", "e"]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_process_may_start_while_the_node_with_the_record_is_away(
    kind: str, servers: ClusterServers, namespace: str
) -> None:
    """The process has not checked the namespace's record, so its fallback serves all sessions."""
    async with open_caller("asyncio", servers.url, namespace) as caller:
        names = session_ids_by_place(caller, servers.topology().owners)
        node = servers.owner(caller.slot_of_record())
        for (name,) in names.values():
            await caller.append_confirmed(name, "a")
        node.kill()
        hit = names.pop(node.place)[0]
        async with open_caller(kind, servers.url, namespace, WITHOUT_RECORD, fallback=True) as started:
            for name in (hit, *(name for (name,) in names.values())):
                for text in "bc":
                    assert (await started.turn(name, text)).degraded
            refused = await catch_unavailable(started.count())
            assert f"Redis at {node.place} " in str(refused)
            assert node.place in started.memory.health().away_nodes
            await asyncio.to_thread(servers.fail_over, node)

            async def is_replayed() -> bool:
                return not started.memory.health().backlog_session_count

            await until(is_replayed)
            for name in (hit, *(name for (name,) in names.values())):
                assert await caller.texts(name) == ["a", "b", "c"]


async def test_another_number_of_shards_is_refused_once_the_record_is_back(
    servers: ClusterServers, namespace: str
) -> None:
    """Nothing accepted meanwhile is written to a shard where no process would find it."""
    async with open_caller("asyncio", servers.url, namespace) as caller:
        names = session_ids_by_place(caller, servers.topology().owners)
        node = servers.owner(caller.slot_of_record())
        await caller.append_confirmed(names[node.place][0], "a")  # the record is on the replica too
        node.kill()
        other = WITHOUT_RECORD.model_copy(update={"shards": 32})
        async with open_caller("asyncio", servers.url, namespace, other, fallback=True) as wrong:
            given = [f"user-{number}" for number in range(12)]  # on any node
            for name in given:
                assert (await wrong.turn(name, "b")).degraded
            await asyncio.to_thread(servers.fail_over, node)

            async def is_refused() -> bool:
                try:
                    await wrong.texts("another")
                except WrongShards:
                    return True
                except StoreUnavailable:
                    return False
                return False

            await until(is_refused)
            assert wrong.memory.health().backlog_message_count == len(given)
        assert await caller.count() == 1
        keys = [key for primary in servers.primaries() for key in primary.say("KEYS", f"*{namespace}*:state:*")]
        assert len(keys) == 1


async def test_a_primary_that_is_killed_under_three_writers(servers: ClusterServers, namespace: str) -> None:
    async with (
        open_caller("asyncio", servers.url, namespace) as first,
        open_caller("asyncio", servers.url, namespace) as second,
        open_caller("blocking", servers.url, namespace) as third,
        open_caller("asyncio", servers.url, namespace) as healthy,
    ):
        well, hit, node = split_sessions(first, servers, 2)
        writers = Writers((first, second, third), well + hit)
        await until_served_at_once(healthy, well, 4)
        tasks = writers.begin()
        try:
            await until(partial(_is, lambda: writers.least_count() >= 5))
            node.kill()
            await until_served_at_once(healthy, well)
            most = max(own[name] for own in writers.acked for name in well + hit)
            await asyncio.to_thread(servers.fail_over, node)
            await until(partial(_is, lambda: writers.least_count() >= most + 3))
        finally:
            await writers.stop()
            await asyncio.gather(*tasks)
        for name in well + hit:
            texts = [text for text in await first.texts(name) if not text.startswith("h.")]
            check_texts(texts, [own[name] for own in writers.acked] if name in well else None)
        assert [violation async for violation in check(first.store)] == []


async def _is(condition: object) -> bool:
    assert callable(condition)
    return bool(condition())


@pytest.mark.parametrize("kind", KINDS)
async def test_calls_that_any_node_can_take_go_to_one_that_answers(
    kind: str, servers: ClusterServers, namespace: str
) -> None:
    async with open_caller(kind, servers.url, namespace) as caller:
        healthy, _, _ = split_sessions(caller, servers)
        await until_served_at_once(caller, healthy, 2)
        first = servers.node_at(servers.topology().primaries[0])
        hit = session_ids_by_place(caller, servers.topology().owners)[first.place][0]
        first.stop_process()
        with short_deadlines(caller.memory):
            await catch_unavailable(caller.append(hit, "a"))
        for _ in range(20):
            assert await caller.memory.ping()
        # The sessions due on other nodes are found without it.
        with short_deadlines(caller.memory):
            await catch_unavailable(caller.count())
        oldest = queue_calls.due_sessions(caller.store.keys.shards(), 0, 1)
        found = caller.store.run(oldest)
        assert (await asyncio.to_thread(run_without_loop, found) if kind == "blocking" else await found) == []
