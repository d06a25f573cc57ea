"""Slots that move between nodes, nodes that join and leave, scripts that are flushed: no caller notices."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator

import pytest
from support.callers import PATIENT, STEADY, Caller, open_caller, session_ids_by_place
from support.checks import until
from support.cluster_servers import ClusterNode, ClusterServers

from redismem.inspection.check import check
from redismem.protocol.scripts import Script
from redismem.protocol.server_errors import ServerError
from redismem.transport.nodes.cluster import Cluster
from redismem.transport.nodes.seeds import parse_cluster
from redismem.transport.nodes.sides import LoopSide, ThreadSide
from redismem.transport.nodes.slots import slot_of

KINDS = ("asyncio", "blocking")


@pytest.fixture(params=KINDS)
async def caller(
    request: pytest.FixtureRequest, cluster_servers: ClusterServers, namespace: str
) -> AsyncIterator[Caller]:
    async with open_caller(request.param, cluster_servers.url, namespace, STEADY) as caller:
        yield caller


def transport(kind: str, servers: ClusterServers, user: str = "") -> Cluster:
    side = LoopSide(60) if kind == "asyncio" else ThreadSide(16)
    url = servers.url.replace("://", f"://{user}:@") if user else servers.url
    return Cluster(parse_cluster(url), side, reply_timeout_s=60)


def refusals(node: ClusterNode, word: str) -> int:
    """Return how often the node has replied with this error word."""
    lines = node.say("INFO", "errorstats").decode().splitlines()
    counts = [line.partition("=")[2] for line in lines if line.startswith(f"errorstat_{word}:")]
    return int(counts[0]) if counts else 0


def other_nodes(servers: ClusterServers, node: ClusterNode) -> list[ClusterNode]:
    return [other for other in servers.primaries() if other is not node]


async def test_calls_about_a_namespace_go_to_all_nodes(caller: Caller, cluster_servers: ClusterServers) -> None:
    names = session_ids_by_place(caller, cluster_servers.topology().owners)
    assert len(names) == 3
    for (name,) in names.values():
        assert [message.content for message in (await caller.turn(name, "a")).messages] == ["a"]
    assert await caller.count() == 3
    assert caller.sent_counts() + caller.sent_counts("append_and_read") + caller.sent_counts("count") == [1] * 4


async def test_a_slot_that_has_moved_is_followed(caller: Caller, cluster_servers: ClusterServers) -> None:
    source = cluster_servers.owner(caller.slot("user-42"))
    target = other_nodes(cluster_servers, source)[0]
    await caller.append("user-42", "a")
    before = refusals(source, "MOVED")
    cluster_servers.move(caller.slot("user-42"), target)
    try:
        await caller.append("user-42", "b")
        await caller.append("user-42", "c")
        assert await caller.texts("user-42") == ["a", "b", "c"]
        assert caller.sent_counts() == [1, 1, 1]
        # A node that has not heard of the move yet may send the client back once or twice, never for each call.
        assert refusals(source, "MOVED") > before

        async def is_direct() -> bool:
            told = refusals(source, "MOVED")
            await caller.append("user-42", "d")
            return refusals(source, "MOVED") == told

        await until(is_direct)
    finally:
        cluster_servers.move(caller.slot("user-42"), source)
    assert (await caller.texts("user-42"))[:3] == ["a", "b", "c"]


async def test_calls_about_a_namespace_work_while_a_slot_has_moved(
    caller: Caller, cluster_servers: ClusterServers
) -> None:
    names = [f"session-{number}" for number in range(8)]
    for name in names:
        await caller.append(name, "a")
    source = cluster_servers.owner(caller.slot(names[0]))
    cluster_servers.move(caller.slot(names[0]), other_nodes(cluster_servers, source)[0])
    try:
        assert await caller.count() == 8
        assert caller.sent_counts("count") == [1]
    finally:
        cluster_servers.move(caller.slot(names[0]), source)


@pytest.mark.parametrize("right", ["+script", "-script"])
@pytest.mark.parametrize("kind", KINDS)
async def test_a_transaction_follows_its_keys_to_the_importing_node(
    kind: str, right: str, cluster_servers: ClusterServers, namespace: str
) -> None:
    key, other = f"{{{namespace}}}-a".encode(), f"{{{namespace}}}-b".encode()
    source_text = b"#!lua\nreturn redis.call('RPUSH', KEYS[1], ARGV[1]) + redis.call('LLEN', KEYS[2]) --%s" % key
    script = Script("pushing", source_text, hashlib.sha1(source_text, usedforsecurity=False).hexdigest().encode())
    slot = slot_of(key)
    source = cluster_servers.owner(slot)
    target = other_nodes(cluster_servers, source)[0]
    for node in cluster_servers.nodes:
        node.say("ACL", "SETUSER", namespace, "on", "nopass", "~*", "+@all", right)
    lanes = transport(kind, cluster_servers, namespace)
    try:
        assert await lanes.run([("RPUSH", key, "1"), ("RPUSH", other, "1")], 60) == [1, 1]
        cluster_servers.begin_move(slot, source, target)
        assert cluster_servers.move_keys(slot, source, target) >= 2, "of other tests there may be more"
        turn = [("EVALSHA", script.sha, 2, key, other, "2"), ("LRANGE", key, 0, -1)]
        # The target learns the script when it is first asked.
        assert await lanes.run(turn, 60, script) == [3, [b"1", b"2"]]
        assert await lanes.run(turn, 60, script) == [4, [b"1", b"2", b"2"]]
        assert await lanes.run([("LLEN", key)], 60) == [3]
        assert await lanes.run_independent([("LLEN", key), ("LLEN", other), ("LLEN", f"{key!r}-no")], 60) == [3, 1, 0]
        assert refusals(source, "ASK") >= 5
        # A refusal by the target is raised as it is without a move.
        (refused,) = await lanes.run([("GET", key)], 60)
        assert isinstance(refused, ServerError)
        assert refused.word == "WRONGTYPE"
    finally:
        cluster_servers.end_move(slot, target)
        cluster_servers.move(slot, source)
        await lanes.aclose()


async def test_a_turn_in_the_middle_of_a_move_waits_for_its_end(
    caller: Caller, cluster_servers: ClusterServers
) -> None:
    slot = caller.slot("user-42")
    source = cluster_servers.owner(slot)
    target = other_nodes(cluster_servers, source)[0]
    await caller.turn("user-42", "0")
    before = refusals(source, "TRYAGAIN")
    cluster_servers.begin_move(slot, source, target)
    cluster_servers.move_keys(slot, source, target, 1)
    turns = asyncio.ensure_future(_take_two_turns(caller, "user-42"))

    async def has_tried() -> bool:
        return await asyncio.to_thread(refusals, source, "TRYAGAIN") >= before + 3

    try:
        await until(has_tried)
        assert not turns.done()
    finally:
        cluster_servers.move_keys(slot, source, target)
        cluster_servers.end_move(slot, target)
    assert await turns == [["0", "1"], ["0", "1", "2"]]
    cluster_servers.move(slot, source)
    assert await caller.texts("user-42") == ["0", "1", "2"]


async def _take_two_turns(caller: Caller, session_id: str) -> list[list[object]]:
    contexts = [await caller.turn(session_id, text) for text in "12"]
    return [[message.content for message in context.messages] for context in contexts]


async def test_writers_go_on_while_a_busy_slot_moves(cluster_servers: ClusterServers, namespace: str) -> None:
    async with open_caller("asyncio", cluster_servers.url, namespace, PATIENT) as caller:
        slot = caller.slot("user-42")
        source = cluster_servers.owner(slot)
        target = other_nodes(cluster_servers, source)[0]
        acked: dict[int, list[str]] = {writer: [] for writer in range(3)}
        stopping = False

        async def write(writer: int) -> None:
            while not stopping:
                text = f"{writer}.{len(acked[writer])}"
                await caller.append("user-42", text)
                acked[writer].append(text)

        writers = [asyncio.ensure_future(write(writer)) for writer in acked]
        try:
            for place in (target, source):
                written = sum(map(len, acked.values()))

                async def went_on(least: int = written + 20) -> bool:
                    return sum(map(len, acked.values())) >= least

                await until(went_on)
                await asyncio.to_thread(cluster_servers.move, slot, place)
        finally:
            stopping = True
            await asyncio.gather(*writers)
        texts = await caller.texts("user-42")
        for writer, own in acked.items():
            assert [text for text in texts if text.startswith(f"{writer}.")] == own
        assert len(texts) == sum(map(len, acked.values()))


async def test_flushed_scripts_are_loaded_into_the_nodes_that_lack_them(
    caller: Caller, cluster_servers: ClusterServers
) -> None:
    names = session_ids_by_place(caller, cluster_servers.topology().owners)
    for text in "ab":
        for (name,) in names.values():
            await caller.turn(name, text)
        for node in cluster_servers.primaries():
            node.say("SCRIPT", "FLUSH")
    assert caller.sent_counts("append_and_read") == [1] * 6
    for (name,) in names.values():
        assert await caller.texts(name) == ["a", "b"]


async def test_a_new_node_and_a_removed_node_are_followed(cluster_servers: ClusterServers, namespace: str) -> None:
    async with (
        open_caller("asyncio", cluster_servers.url, namespace) as one,
        open_caller("blocking", cluster_servers.url, namespace) as two,
    ):
        slot = one.slot("user-42")
        source = cluster_servers.owner(slot)
        await asyncio.gather(one.append("user-42", "a"), two.append("user-42", "a"))
        new = await asyncio.to_thread(cluster_servers.new_node)
        try:
            cluster_servers.begin_move(slot, source, new)
            pending = [asyncio.ensure_future(caller.append("user-42", "b")) for caller in (one, two)]
            await asyncio.sleep(0)
            cluster_servers.move_keys(slot, source, new)
            cluster_servers.end_move(slot, new)
            await asyncio.gather(*pending)
            for caller in (one, two):
                await caller.append("user-42", "c")
                assert await caller.count() == 1
            assert cluster_servers.owner(slot) is new
            cluster_servers.move(slot, source)
        finally:
            cluster_servers.forget(new)
        for caller in (one, two):
            await caller.append("user-42", "d")
            assert await caller.texts("user-42") == [*"aabbcc", *"d" * (1 + (caller is two))]
            assert await caller.count() == 1


@pytest.mark.parametrize("kind", KINDS)
async def test_all_keys_of_all_nodes_are_scanned_once(
    kind: str, cluster_servers: ClusterServers, namespace: str
) -> None:
    lanes = transport(kind, cluster_servers)
    try:
        wanted = {f"{namespace}-{number}".encode() for number in range(200)}
        await lanes.run_independent([("SET", key, 1) for key in wanted], 60)
        found: list[bytes] = []
        cursor = 0
        while True:
            ((next_cursor, page),) = await lanes.run([("SCAN", cursor, "MATCH", f"{namespace}-*", "COUNT", 20)], 60)
            cursor = int(next_cursor)
            found += page
            if cursor == 0:
                break
        assert set(found) == wanted
    finally:
        await lanes.aclose()


async def test_a_moved_session_passes_the_check(cluster_servers: ClusterServers, namespace: str) -> None:
    """Its keys expire a little later than noted, one after the other, until a write sets their expiry again."""
    async with open_caller("asyncio", cluster_servers.url, namespace) as caller:
        await caller.append("user-42", "a")
        keys = caller.store.keys.session("user-42")
        source = cluster_servers.owner(caller.slot("user-42"))
        moment = source.say("PEXPIRETIME", keys.messages)
        source.say("PEXPIREAT", keys.messages, moment + 64)
        assert [violation async for violation in check(caller.store)] == []
        for wrong in (moment - 1, moment + 3_600_000):
            source.say("PEXPIREAT", keys.messages, wrong)
            assert [violation.invariant async for violation in check(caller.store)] == ["I8"]
