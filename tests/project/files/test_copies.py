"""Conversations with summaries survive an export: each message at its seq, each summary in its place."""

from __future__ import annotations

import contextlib
import json
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.clock import Clock
from support.redis_server import RedisServer
from support.stores import Store
from support.writers import Echo, chat_message

from redismem import InvalidItem, Memory, NotInWindow, Policy, Settings
from redismem.inspection.check import check_session
from redismem.originals.fields import encode_fields
from redismem.project.files import copies
from redismem.project.project import Project
from redismem.session.session import Session
from redismem.workers.summaries import Worker

SMALL = {"threshold": 10, "recent_limit": 4}


async def create_conversation(memory: Memory, count: int = 21) -> tuple[Project, str]:
    """A conversation with summaries, a pinned message that left the window, and a message that was taken back."""
    apollo = memory.project("apollo")
    talk = await apollo.conversations.start("talk")
    session = apollo.conversations.session(talk.id)
    await apollo.conversations.add(talk.id, {"role": "system", "content": "Be kind."})
    worker = Worker(memory.store, Echo())
    for number in range(count):
        await apollo.conversations.add(talk.id, chat_message(number))
        if number in (7, count - 2):
            await session.pop()
        await worker.drain()
    return apollo, talk.id


async def test_originals_are_compressed_in_a_thread(
    store: Store, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compression takes seconds if the conversation is long."""
    compressed_in = set[int]()

    def seen(*given: Any, **named: Any) -> Any:
        compressed_in.add(threading.get_ident())
        return encode_fields(*given)

    monkeypatch.setattr(copies, "encode_fields", seen)
    async with store.memory(namespace, Settings(**SMALL)) as memory:
        apollo, _ = await create_conversation(memory)
        assert (await memory.project("other").import_files(await apollo.export_files())).added == 1
    assert len(compressed_in) == 1
    assert threading.get_ident() not in compressed_in


def conversations(files: dict[str, str]) -> Any:
    return json.loads(files["conversations.json"])["conversations"]


async def read_session(session: Session) -> Any:
    """Return all that a reader sees of a session, without its epoch."""
    context = await session.read()
    every = await session.messages(include_originals=True)

    def plain(text: str) -> str:
        return text.replace(context.epoch, "epoch")

    return (
        (context.first_seq, context.last_seq, context.total_messages),
        [plain(repr((each.encode(), each.id, each.message_ids))) for each in context.summaries],
        [(each.seq, each.to_openai(), each.beside, each.tokens, each.stored_ms, each.pinned) for each in every],
        [plain(message["content"]) for message in context.to_openai()],
        (await session.info()).pinned_count,
    )


@pytest.mark.parametrize("keeps", [True, False], ids=["with originals", "without originals"])
async def test_summaries_come_back_as_they_were(store: Store, namespace: str, clock: Clock, keeps: bool) -> None:
    limits = Settings(**SMALL, keep_originals=keeps)
    async with store.memory(namespace, limits) as memory:
        apollo, talk_id = await create_conversation(memory)
        files = await apollo.export_files()
        (entry,) = conversations(files)
        assert len(entry["summaries"]) > 1
        other = memory.project("other")
        assert (await other.import_files(files)).added == 1
        assert conversations(await other.export_files()) == [entry]
        mine, theirs = apollo.conversations.session(talk_id), other.conversations.session(talk_id)
        before, after = await read_session(mine), await read_session(theirs)
        # What a summary was encoded as holds the epoch too, whose length may differ.
        assert (before[0], before[2:]) == (after[0], after[2:])
        assert (await mine.read()).epoch != (await theirs.read()).epoch
        for session in (mine, theirs):
            assert await check_session(memory.store, session.id) == []
        async with store.client() as raw:
            assert [key async for key in raw.scan_iter(f"*{namespace}*quarantine*")] == []
        # It goes on as the other one does.
        for session in (mine, theirs):
            for number in range(12):
                await session.append(chat_message(number))
            await Worker(memory.store, Echo()).drain()
            assert await check_session(memory.store, session.id) == []
        assert (await read_session(mine))[0] == (await read_session(theirs))[0]
        found = [[each.seq for each in await session.recall("message 3")] for session in (mine, theirs)]
        assert found[0] == found[1]
        assert bool(found[0]) is keeps


@pytest.mark.parametrize("count", [0, 3, 21], ids=["empty", "without summaries", "with summaries"])
async def test_a_policy_comes_back(store: Store, namespace: str, clock: Clock, count: int) -> None:
    policy = Policy(keep_whole=count < 21, idle_timeout_s=8_000.5, exempt=True, zone="Asia/Kolkata")
    async with store.memory(namespace, Settings(**SMALL)) as memory:
        if count == 21:
            apollo, talk_id = await create_conversation(memory)
        else:
            apollo = memory.project("apollo")
            talk_id = (await apollo.conversations.start("talk")).id
        session = apollo.conversations.session(talk_id)
        if count < 21:
            await session.merge({"a": 1})
        for number in range(count % 21):
            await session.append(chat_message(number))
        assert await session.set_policy(policy)
        files = await apollo.export_files()
        other = memory.project("other")
        await other.import_files(files)
        copied = other.conversations.session(talk_id)
        assert (await copied.info()).policy == policy
        assert await check_session(memory.store, copied.id) == []
        assert conversations(await other.export_files()) == conversations(files)


@pytest.mark.parametrize("count", [0, 3, 21], ids=["empty", "without summaries", "with summaries"])
async def test_a_copy_is_forgotten_with_its_owner(store: Store, namespace: str, clock: Clock, count: int) -> None:
    async with store.memory(namespace, Settings(**SMALL)) as memory:
        apollo = memory.project("apollo")
        talk_id = (await apollo.conversations.start("talk")).id
        session = memory.session(apollo.conversations.session_id(talk_id), owner="ann")
        await session.merge({"a": 1})
        for number in range(count):
            await session.append(chat_message(number))
        await Worker(memory.store, Echo()).drain()
        assert bool((await session.read()).summaries) == (count == 21)
        files = await apollo.export_files()
        other = memory.project("other")
        await other.import_files(files)
        copied = other.conversations.session(talk_id)
        assert (await copied.info()).owner == "ann"
        assert await check_session(memory.store, copied.id) == []
        assert conversations(await other.export_files()) == conversations(files)
        assert (await memory.forget(owner="ann")).session_count == 2
        assert not await copied.exists()


async def test_a_session_that_is_there_stays_as_it_is(store: Store, namespace: str, clock: Clock) -> None:
    async with store.memory(namespace, Settings(**SMALL)) as memory:
        apollo, talk_id = await create_conversation(memory)
        files = await apollo.export_files()
        session = apollo.conversations.session(talk_id)
        await session.append(chat_message(1, "later"))
        before = await read_session(session)
        assert (await apollo.import_files(files, replace=True)).unchanged == 1
        assert await read_session(session) == before
        await apollo.conversations.clear()
        assert not await session.exists()
        await apollo.import_files(files)
        assert conversations(await apollo.export_files()) == conversations(files)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("say"), st.integers(1, 9)),
        st.tuples(st.just("pin"), st.integers(1, 2)),
        st.tuples(st.just("pop"), st.integers(1, 3)),
        st.tuples(st.just("prune"), st.integers(2, 8)),
        st.tuples(st.just("drain"), st.just(0)),
    ),
    min_size=3,
    max_size=9,
)


@given(steps=STEPS, keeps=st.booleans())
async def test_whatever_became_of_it_comes_back(
    redis_server: RedisServer, namespace: str, steps: Any, keeps: bool
) -> None:
    limits = Settings(**SMALL, keep_originals=keeps, shards=1)
    async with Memory.connect(redis_server.url, namespace=namespace, settings=limits) as memory:
        apollo, other = memory.project("apollo"), memory.project("other")
        talk = await apollo.conversations.start()
        session = apollo.conversations.session(talk.id)
        await session.append(*(chat_message(number) for number in range(12)))
        worker = Worker(memory.store, Echo())
        for what, count in [("drain", 0), *steps]:
            if what == "say":
                await session.append(*(chat_message(number) for number in range(count)))
            elif what == "pin":
                await session.append(*({"role": "system", "content": f"rule {number}"} for number in range(count)))
            elif what == "drain":
                await worker.drain()
            else:
                # What a summary covers cannot be taken back.
                with contextlib.suppress(NotInWindow):
                    await getattr(session, what)(count)
        files = await apollo.export_files()
        await other.import_files(files)
        copied = other.conversations.session(talk.id)
        assert conversations(await other.export_files()) == conversations(files)
        assert (await read_session(session))[2:] == (await read_session(copied))[2:]
        assert await check_session(memory.store, copied.id) == []
        for project in (apollo, other):
            await project.conversations.clear()


def wrong(path: str, value: Any) -> Any:
    """Put a value into a place of an entry."""

    def change(entry: Any) -> None:
        *names, last = (int(name) if name.isdigit() else name for name in path.split("/"))
        for name in names:
            entry = entry[name]
        entry[last] = value

    return change


WRONG = {
    "too many places": wrong("window/last_seq", 10**12),
    "a window before all": wrong("window/first_seq", 0),
    "a place after all": wrong("places/0/0", 10**6),
    "two at one place": wrong("places/1/0", 1),
    "no place": wrong("places", []),
    "a time that is none": wrong("places/0/1", -1),
    "a summary of what is not covered": wrong("summaries/0/last_seq", 10**6),
    "a summary before its end": wrong("summaries/0/first_seq", 0),
    "a summary without a text": wrong("summaries/0/text", None),
    "an id of nobody": wrong("summaries/0/id", "1-5:1"),
    "an unknown part": wrong("summaries/0/more", 1),
    "no summaries": wrong("summaries", {}),
    "a policy of numbers": wrong("policy", {"keep_whole": 1}),
    "a timeout below zero": wrong("policy", {"idle_timeout_s": -1}),
    "an unknown rule": wrong("policy", {"more": True}),
    "no policy": wrong("policy", []),
    "an owner that is none": wrong("owner", ""),
    "an owner of another type": wrong("owner", 7),
}


async def test_what_no_session_could_be_is_refused(store: Store, namespace: str, clock: Clock) -> None:
    async with store.memory(namespace, Settings(**SMALL)) as memory:
        apollo, _ = await create_conversation(memory)
        files = await apollo.export_files()
        other = memory.project("other")
        for what, change in WRONG.items():
            document = json.loads(files["conversations.json"])
            change(document["conversations"][0])
            try:
                await other.import_files({"conversations.json": json.dumps(document)})
            except InvalidItem as refused:
                assert "item 0 of conversations.json cannot be read" in str(refused)  # noqa: PT017
            else:
                pytest.fail(f"nobody refused {what}")
        assert await other.conversations.count() == 0
