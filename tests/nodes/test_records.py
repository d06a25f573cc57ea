"""Records on a cluster: one tag on one node, lists and sweeps over all of them, and slots that move."""

from __future__ import annotations

import pytest
from pydantic_ai import Conversation
from pydantic_ai.messages import ModelRequest, UserPromptPart
from support.cluster_servers import ClusterServers

from redismem import InvalidRecord, Memory, RecordConflict, Settings
from redismem.adapters.pydantic_ai import ConversationStore
from redismem.inspection.records import check_records
from redismem.protocol.slots import slot_of
from redismem.record import Change, Head
from redismem.record.sweeping import RecordSweep

SETTINGS = Settings(deadline_s=60, reply_timeout_s=20)


async def test_records_of_a_cluster_are_written_listed_moved_and_forgotten(
    cluster_servers: ClusterServers, namespace: str
) -> None:
    async with Memory.connect(cluster_servers.url, namespace=namespace, settings=SETTINGS) as memory:
        users = [memory.record(f"user-{number:02}", owner="ann") for number in range(20)]
        for user in users:
            talk = memory.record(f"talk of {user.id}", tag=user.id)
            await user.write(Change(sets={b"u": b"1"}), (talk, Change(sets={b"m": Head().encode()}, adds=[b"m"])))
        with pytest.raises(InvalidRecord, match="one tag"):
            await users[0].write(Change(), *((user, Change()) for user in users[1:]))
        assert [entry.id for entry in (await memory.records("user-", limit=30)).records] == [user.id for user in users]
        assert len((await memory.records(limit=100)).records) == 40
        assert [found async for found in check_records(memory.store)] == []
        assert await RecordSweep(memory.store).sweep() == (0, 0)

        tag = users[0].keys.record.partition(b"{")[2].partition(b"}")[0]
        source = cluster_servers.owner(slot_of(tag))
        target = next(node for node in cluster_servers.primaries() if node is not source)
        cluster_servers.move(slot_of(tag), target)
        try:
            await users[0].write(Change(equals={b"u": b"1"}, sets={b"u": b"2"}, adds=[b"u"]))
            with pytest.raises(RecordConflict):
                await users[0].write(Change(equals={b"u": b"1"}, sets={b"u": b"3"}))
            newest = await users[0].newest()
            assert newest is not None
            assert (newest.value, len((await memory.records(limit=100)).records)) == (b"2", 40)
        finally:
            cluster_servers.move(slot_of(tag), source)
        forgotten = await memory.forget(owner="ann")
        assert (forgotten.record_count, forgotten.proven_ms is not None) == (20, True)
        assert (await memory.forget(prefix="talk of ")).record_count == 20


async def test_conversations_of_a_cluster_are_forked_from_node_to_node_and_listed_by_scope(
    cluster_servers: ClusterServers, namespace: str
) -> None:
    async with Memory.connect(cluster_servers.url, namespace=namespace, settings=SETTINGS) as memory:
        store = ConversationStore(memory=memory)
        question = ModelRequest(parts=[UserPromptPart("hello")])
        [entry] = await store.save(Conversation(conversation_id="a", messages=[question]), scope="ann")
        names = [f"fork-{number}" for number in range(12)]
        for name in names:
            await store.fork("a", new_conversation_id=name, scope="bo")
        tags = [memory.record(f"pydantic_ai:{name}").keys.record.partition(b"}")[0] for name in ("a", *names)]
        assert len({cluster_servers.owner(slot_of(tag.partition(b"{")[2])).port for tag in tags}) > 1
        await store.delete("a")
        listed = await store.list_conversations(scope="bo")
        assert [record.conversation_id for record in listed] == names[::-1]
        assert {record.head_id for record in listed} == {entry.id}
        assert (await store.read_entry(str(entry.id))).message == question
        assert (await memory.forget(owner="bo")).record_count == 12
