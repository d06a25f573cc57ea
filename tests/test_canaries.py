"""A text of one person, copied in each way there is, is nowhere once the person was forgotten."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from mcp import Client
from pydantic_ai import Conversation
from pydantic_ai.messages import ModelRequest, UserPromptPart
from support.checks import until
from support.edited import is_sound, summarize
from support.http_service import read_events, serve_memory
from support.stored import read_namespace
from support.stores import PATIENCE, Store
from support.turns import begin

from redismem import Memory, Policy, Session, Settings
from redismem.adapters.langgraph import RedismemSaver, RedismemStore
from redismem.adapters.pydantic_ai import ConversationStore
from redismem.inspection import quarantine
from redismem.mcp import create_server
from redismem.record import Change
from redismem.workers.eviction import Eviction

CANARY = "quokkazebu"
SAID = {"role": "user", "content": f"{CANARY} is my word"}
SETTINGS = Settings(shards=2, threshold=8, recent_limit=4, keep_originals=True, **PATIENCE)
TURN_KINDS = (b"live", b"turned", b"waiters")
KINDS = (b"messages", b"state", b"originals", *TURN_KINDS, b"quarantine", b"record", b"order", b"index")
Copy = Callable[[Memory, Any, str], Awaitable[None]]


@pytest.fixture
async def memory(store: Store, namespace: str) -> AsyncIterator[Memory]:
    async with store.memory(namespace, SETTINGS) as memory:
        yield memory


async def say(memory: Memory, raw: Any, owner: str) -> None:
    """Append so much that a part is summarised, and indexed for recall over all conversations."""
    for _ in range(12):
        await memory.session(f"{owner}-said", owner=owner).append(SAID, SAID, merge={"word": CANARY}, title=CANARY)
    await summarize(memory)
    assert await memory.session(f"{owner}-said", owner=owner).recall(CANARY, scope="owner")


async def tell(memory: Memory, raw: Any, owner: str) -> None:
    """A turn that runs, and one that has ended, whose logs quote the word."""
    await begin(memory, f"{owner}-telling", CANARY, owner)
    assert await (await begin(memory, f"{owner}-told", CANARY, owner)).end()


async def restore_session(memory: Memory, raw: Any, owner: str) -> None:
    """A session that was salvaged from quarantine, where its whole stays, in place of the one begun meanwhile."""
    session = memory.session(f"{owner}-broken", owner=owner)
    await session.append(SAID, merge={"word": CANARY})
    await raw.hset(memory.store.keys.session(session.id).state, "counters", b"broken")
    await session.append({"role": "user", "content": "begun anew"})
    found = await quarantine.find(memory.store, session.id, None)
    await quarantine.restore(memory.store, found, salvage=True, swap=True)
    assert (await session.info()).owner == owner


async def restore_record(memory: Memory, raw: Any, owner: str) -> None:
    record = memory.record(f"{owner}-broken", owner=owner)
    await record.write(Change(sets={b"a": CANARY.encode()}))
    keys = record.keys
    await raw.set(keys.order, "foreign")
    assert await record.set_aside()
    await memory.record(f"{owner}-broken", owner=owner).write(Change(sets={b"a": CANARY.encode()}))
    found = await quarantine.find(memory.store, record.id, None, is_record=True)
    await quarantine.restore(memory.store, found, salvage=True, swap=True)
    assert await record.get(b"a") == [CANARY.encode()]


async def copy_thread(memory: Memory, raw: Any, owner: str) -> None:
    saver, thread = RedismemSaver(memory, owner_key="user"), {"thread_id": f"{owner}-t", "checkpoint_ns": ""}
    checkpoint: Any = {"id": "1", "channel_values": {"m": CANARY}, "channel_versions": {"m": 1}}
    place = await saver.aput({"configurable": thread | {"user": owner}}, checkpoint, {}, {"m": 1})
    await saver.aput_writes(place, [("m", CANARY)], "task")
    await saver.acopy_thread(f"{owner}-t", f"{owner}-copied")


async def put_item(memory: Memory, raw: Any, owner: str) -> None:
    store = RedismemStore(memory, owner=lambda namespace: namespace[1])
    await store.aput(("people", owner, "likes"), "word", {"text": CANARY})


async def fork_conversation(memory: Memory, raw: Any, owner: str) -> None:
    store = ConversationStore(memory=memory)
    messages: Any = [ModelRequest(parts=[UserPromptPart(CANARY)])]
    await store.save(Conversation(conversation_id=f"{owner}-a", messages=messages), scope=owner)
    await store.fork(f"{owner}-a", new_conversation_id=f"{owner}-forked")


async def import_project(memory: Memory, raw: Any, owner: str) -> None:
    project = memory.project("apollo")
    talk = await project.conversations.start()
    for _ in range(12):
        await project.conversations.add(talk.id, SAID, SAID, owner=owner)
    await summarize(memory)
    await memory.project("copied").import_files(await project.export_files())


async def ask_over_http(memory: Memory, raw: Any, owner: str) -> None:
    async with serve_memory(memory) as http:
        for method, path, body in (
            ("POST", f"{owner}-post/messages", SAID),
            ("PATCH", f"{owner}-patch/state", {"params": {"word": CANARY}}),
        ):
            answer = await http.ask(method, f"/v1/sessions/{path}?owner={owner}", json=body)
            assert answer.status_code in (201, 204)
        asked = {"session_id": f"{owner}-chat", "message": CANARY, "owner": owner}
        assert (await read_events(http.client, "/api/chat", json=asked))[-1].event == "end"


async def call_a_tool(memory: Memory, raw: Any, owner: str) -> None:
    async with Client(create_server(memory, owner=owner)) as client:
        await client.call_tool("append_messages", {"session_id": f"{owner}-tool", "messages": [SAID]})


COPIES: list[Copy] = [
    say,
    tell,
    restore_session,
    restore_record,
    copy_thread,
    put_item,
    fork_conversation,
    import_project,
    ask_over_http,
    call_a_tool,
]


async def forget(memory: Memory) -> None:
    await memory.forget(owner="ann")


async def forget_over_http(memory: Memory) -> None:
    async with serve_memory(memory) as http:
        assert (await http.ask("DELETE", "/v1/sessions?owner=ann")).json()["unattributed_count"] == 0


@pytest.mark.parametrize("remove", [forget, forget_over_http])
async def test_no_copy_of_a_text_outlives_the_person(
    memory: Memory, store: Store, namespace: str, raw: Any, remove: Callable[[Memory], Awaitable[None]]
) -> None:
    for make in COPIES:
        await make(memory, raw, "ann")
    async with store.memory(namespace, SETTINGS) as other:
        assert await other.session("ann-said", owner="ann").recall(CANARY, scope="owner")
        with_ann = await read_namespace(raw, namespace)
        await remove(memory)
        left = await read_namespace(raw, namespace)
        assert not [key for key in left if key.split(b":")[2] in KINDS], (
            "no key that may have a text in any form is left"
        )
        assert (CANARY in repr(left), "ann" in repr(left)) == (False, False), "neither a text nor a name is left"
        for process in (memory, other):
            assert (await process.sessions()).sessions == []
            assert (await process.records()).records == []
            assert await process.session("asking", owner="ann").recall(CANARY, scope="owner") == []
            assert not await process.session("ann-said").exists()
    assert CANARY in repr(with_ann)
    assert await is_sound(memory)


async def test_copies_of_others_stay(memory: Memory, raw: Any) -> None:
    for owner in ("bo", "ann"):
        for make in COPIES:
            await make(memory, raw, owner)
    counted = [len((await memory.sessions()).sessions), len((await memory.records()).records)]
    removed = await memory.forget(owner="ann")
    left = [len((await memory.sessions()).sessions), len((await memory.records()).records)]
    assert [removed.session_count, removed.record_count] == left == [count // 2 for count in counted]
    assert await memory.session("bo-said", owner="bo").recall(CANARY, scope="owner")


async def set_aside(session: Session, memory: Memory, raw: Any) -> None:
    await raw.hset(memory.store.keys.session(session.id).state, "counters", b"broken")
    assert await session.set_aside()


async def break_session(session: Session, memory: Memory, raw: Any) -> None:
    await raw.hset(memory.store.keys.session(session.id).state, "counters", b"broken")
    assert (await session.append({"role": "user", "content": "begun anew"})).created


async def evict(session: Session, memory: Memory, raw: Any) -> None:
    for number in range(10):
        await memory.session(f"newer-{number}").append({"role": "user", "content": "newer"})
    await Eviction(memory.store).enforce()
    assert not await session.exists()


async def expire(session: Session, memory: Memory, raw: Any) -> None:
    await session.set_policy(Policy(idle_timeout_s=0.2))
    await until(lambda: is_gone(session, memory, raw))


async def is_gone(session: Session, memory: Memory, raw: Any) -> bool:
    keys = memory.store.keys.session(session.id)
    return not await raw.exists(keys.state, keys.live, keys.turned)


Removal = Callable[[Session, Memory, Any], Awaitable[Any]]
REMOVALS: dict[str, Removal] = {
    "clear": lambda session, memory, raw: session.clear(),
    "forget": lambda session, memory, raw: session.forget(2),
    "forget the owner": lambda session, memory, raw: memory.forget(owner="ann"),
    "forget a prefix": lambda session, memory, raw: memory.forget(prefix="to"),
    "evict": evict,
    "expire": expire,
    "quarantine": break_session,
    "set aside": set_aside,
}


@pytest.mark.parametrize("ends", [False, True], ids=["running", "ended"])
@pytest.mark.parametrize("removal", REMOVALS)
async def test_what_a_turn_told_goes_with_its_session_and_with_what_is_forgotten(
    store: Store, namespace: str, raw: Any, removal: str, ends: bool
) -> None:
    """The words of a model are in the log of a turn before a message has them. A lost turn does not bring them back."""
    async with store.memory(namespace, SETTINGS.model_copy(update={"max_sessions": 8})) as memory:
        session = memory.session("told", owner="ann")
        await session.append({"role": "user", "content": "before"})
        turn = await begin(memory, "told", CANARY, "ann")
        assert not ends or await turn.end()
        assert await is_sound(memory)
        assert CANARY in repr(await read_namespace(raw, namespace))
        await REMOVALS[removal](session, memory, raw)
        assert not await turn.write(CANARY)
        assert not await turn.end() or ends
        left = await read_namespace(raw, namespace)
        assert CANARY not in repr(left)
        assert [key for key in left if key.split(b":")[2] == b"live"] == []
        assert await is_sound(memory)
