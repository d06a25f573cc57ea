"""`redismem import`: what a framework's own store has written, its adapter reads from here, once and whole."""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import os
import signal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import redis
from agents.extensions.memory import RedisSession
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import BaseMessage, HumanMessage, message_to_dict, messages_from_dict
from llama_index.core.base.llms.types import ChatMessage as LlamaMessage
from llama_index.core.base.llms.types import ImageBlock, MessageRole, TextBlock
from llama_index.storage.chat_store.redis import RedisChatStore
from support.checks import until
from support.commands import start_command
from support.langchain_messages import messages as langchain_messages
from support.proxy import Proxy
from support.redis_server import RedisServer
from support.waiting import START_S

from redismem import Memory, blocking
from redismem import Session as AsyncSession
from redismem.adapters.langchain import ChatMessageHistory
from redismem.adapters.llama_index import ChatStore
from redismem.adapters.openai_agents import Session
from redismem.adapters.sessions import join_id
from redismem.inspection.figures import plural

_numbers = itertools.count(1)
texts = st.text(max_size=8)
items = st.lists(
    st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant"]), "content": texts})
    | st.fixed_dictionaries({"type": st.just("function_call"), "call_id": texts, "name": texts, "arguments": texts})
    | st.fixed_dictionaries({"type": st.just("reasoning"), "encrypted_content": texts, "summary": st.just([])}),
    min_size=1,
    max_size=6,
)
llama_messages = st.lists(
    st.builds(
        lambda role, text, image: LlamaMessage(role=role, blocks=[TextBlock(text=text), ImageBlock(image=image)]),
        st.sampled_from(list(MessageRole)),
        texts,
        st.binary(min_size=1, max_size=8),
    ),
    min_size=1,
    max_size=6,
)


def push(client: redis.Redis, key: str, messages: list[BaseMessage]) -> None:
    """Store messages as langchain-community's RedisChatMessageHistory does, newest first."""
    client.lpush(key, *(json.dumps(message_to_dict(message)) for message in messages))


def several(messages: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(messages, min_size=1, max_size=2)


def count_of(conversations: list[list[Any]]) -> int:
    return sum(map(len, conversations))


def stored_forms(memory: blocking.Memory, session_id: str) -> list[Any]:
    """Return the role of each message of a session, and what is stored beside it if it is opaque."""
    messages = memory.session(session_id).tail(99)
    assert messages
    return [(each.role, each.beside) for each in messages]


def contents(client: redis.Redis, pattern: str) -> dict[Any, Any]:
    return {key: client.dump(key) for key in client.scan_iter(pattern)}


@pytest.mark.nightly
@given(conversations=several(st.lists(langchain_messages, min_size=1, max_size=6)), summarise=st.booleans())
def test_langchain_reads_what_langchain_community_has_stored(
    client: redis.Redis, memory: blocking.Memory, run: Any, conversations: list[list[BaseMessage]], summarise: bool
) -> None:
    prefix = f"community-{next(_numbers)}:"
    for number, messages in enumerate(conversations):
        push(client, f"{prefix}s:{number}", messages)
    before = contents(client, f"{prefix}*")
    for copied in (count_of(conversations), 0)[: 1 + summarise]:
        told = run("langchain", "--prefix", prefix, "--key-prefix", prefix, *["--summarise"] * summarise)
        assert (told["conversations"], told["messages"], told["problems"]) == (len(conversations), copied, [])
    for number, messages in enumerate(conversations):
        history = ChatMessageHistory(f"s:{number}", memory, key_prefix=prefix, summarise=summarise)
        dumped = [json.loads(json.dumps(message_to_dict(each))) for each in messages]
        assert history.messages == messages_from_dict(dumped)
        added = ChatMessageHistory(f"added:{number}", memory, key_prefix=prefix, summarise=summarise)
        added.add_messages(messages)
        assert stored_forms(memory, join_id(prefix, f"s:{number}")) == stored_forms(
            memory, join_id(prefix, f"added:{number}")
        )
    assert contents(client, f"{prefix}*") == before


@pytest.mark.nightly
@given(conversations=several(llama_messages), summarise=st.booleans())
def test_llama_index_reads_what_its_redis_store_has_stored(
    redis_server: RedisServer,
    memory: blocking.Memory,
    run: Any,
    conversations: list[list[LlamaMessage]],
    summarise: bool,
) -> None:
    prefix = f"llama-{next(_numbers)}"
    keys = [f"{prefix}:{number}" for number in range(len(conversations))]
    store = RedisChatStore(redis_server.url)
    for key, messages in zip(keys, conversations, strict=True):
        store.set_messages(key, messages)
    for copied in (count_of(conversations), 0)[: 1 + summarise]:
        told = run("llama-index", "--prefix", f"{prefix}:", *["--summarise"] * summarise)
        assert (told["messages"], told["problems"]) == (copied, [])

    async def read() -> list[list[LlamaMessage]]:
        async with Memory.connect(redis_server.url, namespace=memory.store.keys.namespace) as other:
            adapter = ChatStore(memory=other, summarise=summarise)
            for key, messages in zip(keys, conversations, strict=True):
                await adapter.set_messages(f"added:{key}", messages)
            return [await adapter.get_messages(key) for key in keys]

    assert asyncio.run(read()) == [store.get_messages(key) for key in keys] == conversations
    for key in keys:
        assert stored_forms(memory, join_id("llama_index", key)) == stored_forms(
            memory, join_id("llama_index", f"added:{key}")
        )
    store._redis_client.close()


@pytest.mark.nightly
@given(conversations=several(items), summarise=st.booleans())
def test_the_agents_sdk_reads_what_its_redis_session_has_stored(
    redis_server: RedisServer, memory: blocking.Memory, run: Any, conversations: list[list[Any]], summarise: bool
) -> None:
    prefix = f"agents-{next(_numbers)}"

    async def write(name: str, items: list[Any]) -> Any:
        session = RedisSession.from_url(name, url=redis_server.url, key_prefix=prefix, ttl=3600)
        await session.add_items(items)
        stored = await session.get_items()
        await session.close()
        return stored

    async def write_all() -> Any:
        return [await write(f"user:{number}", items) for number, items in enumerate(conversations)]

    stored, count = asyncio.run(write_all()), len(conversations)
    for copied in (count_of(conversations), 0)[: 1 + summarise]:
        told = run(*("openai-agents", "--prefix", f"{prefix}:", "--key-prefix", prefix), *["--summarise"] * summarise)
        assert (told["messages"], told["expiring"], told["problems"]) == (copied, count, [])
        assert (
            f"{plural(count, 'conversation')} of the source will expire, but not the sessions: pass --ttl"
            in told["err"]
        )

    async def read() -> Any:
        async with Memory.connect(redis_server.url, namespace=memory.store.keys.namespace) as other:
            connect = partial(Session, memory=other, key_prefix=prefix, summarise=summarise)
            for number, items in enumerate(conversations):
                await connect(f"added:{number}").add_items(items)
            return [await connect(f"user:{number}").get_items() for number in range(len(conversations))]

    assert asyncio.run(read()) == stored == conversations
    for number in range(count):
        read_id, added_id = (join_id(prefix, f"{name}:{number}") for name in ("user", "added"))
        assert stored_forms(memory, read_id) == stored_forms(memory, added_id)
        assert memory.session(read_id).info().policy.keep_whole is not summarise


def human(*texts: str) -> list[BaseMessage]:
    return [HumanMessage(text) for text in texts]


def payloads(memory: blocking.Memory, session_id: str) -> list[Any]:
    return [message.to_openai()["data"]["content"] for message in memory.session(session_id).tail(10_000)]


def test_a_second_run_adds_what_is_new_and_leaves_other_messages_alone(
    client: redis.Redis, memory: blocking.Memory, run: Any, namespace: str
) -> None:
    options = "langchain", "--prefix", f"{namespace}:"
    for name in ("grows", "goes-on", "differs", "broken", "bad\n"):
        push(client, f"{namespace}:{name}", human("a", "b"))
    client.rpush(f"{namespace}:broken", b"\xff")
    client.set(f"{namespace}:text", "no list")
    dry = run(*options, "--dry-run", code=1)
    assert (dry["copied"], dry["messages"], dry["problems_count"]) == (3, 6, 2)
    assert client.keys(f"rm:{{{namespace}:*") == []

    memory.session("langchain:differs").append({"role": "user", "content": "here first"})
    told = run(*options, code=1)
    assert (told["copied"], told["continued"], told["unchanged"], told["messages"]) == (2, 0, 0, 4)
    problems = {each["conversation"]: each["problem"] for each in told["problems"]}
    assert problems == {
        f"{namespace}:differs": "session langchain:differs has other messages: message 1 differs",
        f"{namespace}:broken": "entry 1 is not JSON",
        f"{namespace}:bad\n": problems[f"{namespace}:bad\n"],
    }
    assert "session id" in problems[f"{namespace}:bad\n"]

    push(client, f"{namespace}:grows", human("c"))
    ChatMessageHistory("goes-on", memory).add_messages(human("x"))
    told = run(*options, code=1)
    assert (told["copied"], told["continued"], told["unchanged"], told["messages"]) == (1, 1, 1, 1)
    assert payloads(memory, "langchain:grows") == ["a", "b", "c"]
    assert payloads(memory, "langchain:goes-on") == ["a", "b", "x"]
    memory.session("langchain:grows").clear()
    assert run(*options, code=1)["messages"] == 3, "what was cleared here comes back"

    memory.session("langchain:grows").pop()
    memory.session("langchain:grows").append({"role": "user", "content": "another end"})
    told = run(*options, "--replace", "--yes", code=1)
    assert (told["copied"], told["continued"], told["unchanged"], told["messages"]) == (2, 1, 1, 3)
    assert payloads(memory, "langchain:grows") == ["a", "b", "c"]
    assert payloads(memory, "langchain:differs") == ["a", "b"]
    assert payloads(memory, "langchain:goes-on") == ["a", "b", "x"]


def test_a_killed_import_goes_on_where_it_stopped(
    client: redis.Redis, memory: blocking.Memory, run: Any, redis_server: RedisServer, namespace: str
) -> None:
    """Each session of 450 messages takes three appends; the process is killed between two of them."""
    texts = [[f"{session}-{number}" for number in range(450)] for session in range(20)]
    for session in range(20):
        push(client, f"{namespace}:{session}", human(*texts[session]))

    for _ in range(2):
        least = min(range(20), key=lambda session: memory.session(f"langchain:{session}").read(0).total_messages)
        # Its third append never arrives, so the import cannot end before it is killed.
        asyncio.run(kill_import_at(texts[least][449].encode(), redis_server.port, namespace))
        assert 400 <= stored_count(memory) < 20 * 450
    told = run("langchain", "--prefix", f"{namespace}:")
    assert told["copied"] + told["unchanged"] == 20
    assert told["copied"] > 0
    assert all(payloads(memory, f"langchain:{session}") == texts[session] for session in range(20))
    assert run("langchain", "--prefix", f"{namespace}:")["unchanged"] == 20


async def kill_import_at(text: bytes, port: int, namespace: str) -> None:
    """Import through a proxy that swallows the append of this text, then kill the process."""
    async with Proxy(port) as proxy:
        proxy.break_next("hole", math.inf, to=text)
        place = "--url", proxy.url, "--namespace", namespace
        with start_command("import", "langchain", "--prefix", f"{namespace}:", *place) as running:
            await until(lambda: proxy.broken_count, START_S)
            os.kill(running.pid, signal.SIGKILL)
            running.wait()


def stored_count(memory: blocking.Memory) -> int:
    return sum(memory.session(entry.session_id).read(0).total_messages for entry in memory.sessions().sessions)


def test_documents_of_langchain_redis_are_read_from_another_redis_in_the_order_of_their_time(
    tmp_path: Path,
    memory: blocking.Memory,
    run: Any,
    command: Any,
    redis_options: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A server without RedisJSON, whose GET is called JSON.GET: it returns the text of a document."""
    server = RedisServer(tmp_path, options=("--rename-command", "GET", "JSON.GET")).start()
    with redis.Redis(port=server.port) as client:
        for number, name in enumerate("cab"):
            document = {
                "type": "human",
                "message_id": name,
                "data": {"content": name, "additional_kwargs": {}, "type": "human"},
                "session_id": "user:1",
                "timestamp": {"a": 1.0, "b": 2.0, "c": 2.0}[name],
            }
            client.set(f"chat:user:1:01ARZ3NDEKTSV4RRFFQ69G5FA{number}", json.dumps(document))
        client.set("chat:of another program", "x")
        for copied in (3, 0):
            told = run("langchain-redis", "--from", server.url)
            assert (told["conversations"], told["messages"], told["problems"]) == (1, copied, [])
        assert client.dbsize() == 4
    server.stop()
    assert ChatMessageHistory("user:1", memory).messages == human("a", "b", "c")
    monkeypatch.setenv("REDISMEM_DEADLINE_S", "0.2")
    said = ""
    while server.place not in said:  # on a machine that halts, the other Redis may not answer in time either
        ran = command("import", "langchain-redis", "--from", server.url, *redis_options)
        assert ran.code == 3
        said = ran.error_line


def test_a_source_without_the_command_is_named(
    command: Any, client: redis.Redis, redis_options: list[str], namespace: str
) -> None:
    client.set(f"{namespace}:s:01ARZ3NDEKTSV4RRFFQ69G5FAV", "{}")
    ran = command("import", "langchain-redis", "--prefix", f"{namespace}:", *redis_options)
    assert (ran.code, "interrupted after 0 conversations: " in ran.error_line) == (3, True)
    assert "json.get" in ran.error_line.lower()


def test_a_file_is_imported_line_by_line(tmp_path: Path, memory: blocking.Memory, run: Any) -> None:
    file = tmp_path / "chats.jsonl"
    told = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "a"}]
    rows = [{"session_id": "s-1", "messages": told}, {"session_id": "s-2", "messages": told[1:]}]
    archived = {"session_id": "s-3", "messages": told, "stored_pinned": []}
    file.write_text("\n".join([*map(json.dumps, [*rows, archived]), "no JSON"]))
    ran = run("jsonl", file, "--ttl", 3600, "--summarise", code=1)
    assert (ran["copied"], ran["messages"]) == (2, 3)
    assert [(each["conversation"], each["problem"][:17]) for each in ran["problems"]] == [
        ("line 3", "a line of an arch"),
        ("line 4", "not JSON: Expecti"),
    ]
    assert [message.to_openai() for message in memory.session("s-1").tail(9)] == told
    policy = memory.session("s-1").info().policy
    assert (policy.keep_whole, policy.idle_timeout_s, policy.exempt) == (False, 3600, True)


def test_a_conversation_that_does_not_read_back_as_it_was_imported_is_a_problem(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "conversations.jsonl"
    file.write_text('{"session_id": "a", "messages": [{"role": "user", "content": "Hi"}]}\n')
    append = AsyncSession.append

    async def append_changed(self: AsyncSession, *messages: Any, **options: Any) -> Any:
        return await append(self, *({**message, "content": "Ho"} for message in messages), **options)

    monkeypatch.setattr(AsyncSession, "append", append_changed)
    assert "session a does not return what was appended" in str(run("jsonl", file, code=1))


def test_a_conversation_of_many_large_messages_is_imported_whole_and_once(
    tmp_path: Path, memory: blocking.Memory, run: Any
) -> None:
    """It has more bytes than an append may hold, and than a window holds."""
    file = tmp_path / "chats.jsonl"
    told = [{"role": ("user", "assistant")[at % 2], "content": f"{at} {'x' * 800_000}"} for at in range(40)]
    file.write_text(json.dumps({"session_id": "s-1", "messages": told}))
    for copied, present in ((1, 0), (0, 1)):
        ran = run("jsonl", file)
        assert (ran["copied"], ran["unchanged"], ran["problems"]) == (copied, present, [])
    session = memory.session("s-1")
    assert any(message.shortened for message in session.read().messages)
    assert [message.to_openai() for message in session.messages(include_originals=True)] == told


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["mem0"], "mem0"),
        (["jsonl", __file__, "--owners", __file__], "--owners is for conversations in a Redis"),
        (["langchain", "--owners", "/does/not/exist"], "cannot read /does/not/exist: No such file"),
        (["langchain", "--owners", __file__], "is not JSON"),
        (["llama-index"], "needs --prefix"),
        (["langchain", "--prefix", ""], "needs --prefix"),
        (["langchain", "chats.jsonl"], "reads a Redis, not a file"),
        (["jsonl"], "jsonl needs a file"),
        (["jsonl", "/does/not/exist.jsonl"], "there is no file"),
        (["jsonl", __file__, "--prefix", "x"], "--prefix is for the keys"),
        (["langchain", "--ttl", "0"], "--ttl"),
        (["langchain", "--from", "localhost:6379"], "redis://"),
    ],
)
def test_wrong_usage_writes_nothing(
    command: Any, redis_options: list[str], client: redis.Redis, namespace: str, words: Any, said: str
) -> None:
    ran = command("import", *words, *redis_options)
    assert ran.code == 2
    assert said in ran.error_line


def test_an_import_needs_a_store_that_stays(command: Any, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("{}")
    ran = command("import", "jsonl", tmp_path / "a.jsonl")
    assert (ran.code, ran.out) == (2, "")
    assert "needs a store that outlives this command" in ran.err


def test_what_is_printed(command: Any, client: redis.Redis, redis_options: list[str], namespace: str) -> None:
    push(client, f"{namespace}:s", human("a", "b"))
    words = "import", "langchain", "--prefix", f"{namespace}:", *redis_options
    where = f"into namespace {namespace} on redis://"
    assert f"would import 2 messages of 1 conversation, {where}" in command(*words, "--dry-run").out
    ran = command(*words)
    assert (ran.code, ran.err) == (0, "")
    assert f"imported 2 messages of 1 conversation, {where}" in ran.out
    assert "0 were there already, 0 problems; all were read back and are identical" in ran.out
    ran = command("import", "langchain", "--prefix", "nothing:", *redis_options)
    assert (ran.code, "no key begins with nothing:" in ran.err) == (0, True)
