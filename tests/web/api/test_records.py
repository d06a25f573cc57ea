"""The conversations of the four frameworks over HTTP: listed, shown, and gone once the framework has removed them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import pytest
from support.framework_talks import ANSWER, QUESTION, RESULT, TALKS, TOOL, name_of, remove
from support.http_service import RunningService, serve_memory
from support.redis_server import RedisServer
from support.stores import PATIENCE

from redismem import Memory, Settings
from redismem.record import Change
from redismem.web.access import Access, new_key


@pytest.fixture
async def memory(redis_server: RedisServer, namespace: str) -> AsyncIterator[Memory]:
    async with Memory.connect(redis_server.url, namespace=namespace, settings=Settings(**PATIENCE)) as memory:
        yield memory


async def test_each_framework_is_listed_shown_and_gone(
    memory: Memory, redis_server: RedisServer, http: RunningService
) -> None:
    for talk in TALKS.values():
        await talk(memory, redis_server.url, "monday", "ann")
    await memory.record("mine").write(Change(sets={b"revision": b"1", b"m": b"x", b"v": b"y"}))  # of no framework
    rows = (await http.ask("GET", "/v1/records")).json()["records"]
    named = {row["kind"]: row for row in rows if row["kind"] and row["fault"] is None}
    for kind in TALKS:
        row, name = named[kind], name_of(kind, "monday", "ann")
        assert (row["name"], row["owner"], row["title"], row["messages_count"]) == (name, "ann", QUESTION, 4)
        assert (row["last_role"], row["last_text"]) == ("assistant", ANSWER)
        assert (row["created_ms"] or row["updated_ms"]) <= row["updated_ms"]
        for record_id in (row["id"], name):
            path = f"/v1/records/{kind}/{quote(record_id, safe='')}"
            document = (await http.ask("GET", path)).json()
            asked, called, answered, said = [each["message"] for each in document["messages"]]
            assert (asked["role"], asked["content"], document["is_whole"]) == ("user", QUESTION, True)
            assert [call["function"]["name"] for call in called["tool_calls"]] == [TOOL]
            assert (answered["role"], answered["tool_call_id"]) == ("tool", called["tool_calls"][0]["id"])
            assert RESULT in answered["content"]
            assert (said["role"], said["content"]) == ("assistant", ANSWER)
        short = (await http.ask("GET", path, params={"limit": 1})).json()
        assert (short["messages"][-1]["message"], short["is_whole"]) == (said, False)
        of_kind = (await http.ask("GET", "/v1/records", params={"kind": kind})).json()["records"]
        assert [each["name"] for each in of_kind if each["fault"] is None] == [name]
        assert (await http.ask("GET", path, params={"owner": "bob"})).json()["code"] == "other_owner"
        await remove(kind, memory, redis_server.url, "monday", "ann")
        assert (await http.ask("GET", path)).json()["code"] == "not_found"
    rows = (await http.ask("GET", "/v1/records")).json()["records"]
    assert QUESTION not in repr(rows)


@contextlib.asynccontextmanager
async def serve_key(memory: Memory, owner: str) -> AsyncIterator[tuple[RunningService, dict[str, Any]]]:
    key, line = new_key("key", memory.store.keys.namespace, ("read",), owner)
    async with serve_memory(memory, access=Access.of(line)) as http:
        yield http, {"headers": {"authorization": f"Bearer {key}"}}


async def test_a_key_of_one_owner_sees_his_records_alone(memory: Memory, redis_server: RedisServer) -> None:
    for name, owner in (("of-ann", "ann"), ("of-bob", "bob"), ("of-nobody", None)):
        await TALKS["langgraph"](memory, redis_server.url, name, owner)
    await memory.record("langgraph:damaged", owner="ann").write(Change(sets={b"v": b"1"}))
    keys = memory.record("langgraph:damaged").keys
    await memory.store.run(spoil(keys.record))
    async with serve_key(memory, "bob") as (http, key):
        rows = (await http.ask("GET", "/v1/records", **key)).json()["records"]
        assert [(row["name"], row["title"]) for row in rows] == [("of-bob", QUESTION)]
        assert (await http.ask("GET", "/v1/records/langgraph/of-bob", **key)).json()["owner"] == "bob"
        for name in ("of-ann", "of-nobody", "damaged"):
            for query in ("", "?owner=ann"):
                answer = await http.ask("GET", f"/v1/records/langgraph/{name}{query}", **key)
                assert (answer.status_code, answer.json()["code"]) == (403, "other_owner"), (name, query)
                assert QUESTION not in answer.text
        assert (await http.ask("GET", "/v1/records?owner=ann", **key)).status_code == 403


async def test_a_damaged_record_says_so_and_ends_no_list(
    memory: Memory, redis_server: RedisServer, http: RunningService
) -> None:
    for name in ("a", "b", "c"):
        await TALKS["langgraph"](memory, redis_server.url, name, None)
    await memory.store.run(spoil(memory.record("langgraph:b").keys.record))
    await memory.record("langgraph:a").write(Change(sets={b"c:\0zz": b"no head"}, adds=[b"c:\0zz"]))
    rows = (await http.ask("GET", "/v1/records")).json()["records"]
    assert {row["name"]: row["fault"] is None for row in rows} == {"a": False, "b": False, "c": True}
    assert (await http.ask("GET", "/v1/records/langgraph/b")).json()["code"] == "unreadable"
    document = (await http.ask("GET", "/v1/records/langgraph/a")).json()
    assert (document["messages"], "redismem doctor --deep" in document["fault"]) == ([], True)
    await memory.record("langgraph:b").set_aside()
    assert (await http.ask("GET", "/v1/records/langgraph/b")).json()["code"] == "not_found"


def spoil(key: bytes) -> Any:
    from redismem.protocol.call import Call

    return Call(None, (("HSET", key, b"", b"v1"),), lambda reply: reply)
