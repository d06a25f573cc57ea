"""The tools and resources as a client sees them: typed results, and refusals in one line."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import anyio
import pytest
from mcp import Client, MCPError
from mcp.server.mcpserver import MCPServer
from mcp.types import TextContent, TextResourceContents
from support.checks import until
from support.framework_talks import QUESTION, talk_langgraph
from support.proxy import Proxy
from support.stores import PATIENCE, short_deadlines

from redismem import InvalidSessionId, Memory, Message, Settings
from redismem.mcp import create_server
from redismem.mcp.access import settle_write

HALF_AN_EMOJI = "\ud83d"
Call = Callable[..., Coroutine[Any, Any, Any]]


@pytest.fixture
def server(memory: Memory) -> MCPServer[Any]:
    return create_server(memory, hidden_params=["card"])


@contextlib.asynccontextmanager
async def calls(server: MCPServer[Any]) -> AsyncIterator[tuple[Client, Call, Call]]:
    """Yield a client, a function that calls a tool, and one that returns the line of a refused call."""
    async with Client(server) as client:

        async def call(tool: str, **arguments: Any) -> Any:
            result = await client.call_tool(tool, arguments)
            assert not result.is_error, result.content
            return result.structured_content

        async def refused(tool: str, **arguments: Any) -> str:
            result = await client.call_tool(tool, arguments)
            assert result.is_error
            assert result.structured_content is None
            (content,) = result.content
            assert isinstance(content, TextContent)
            assert "\n" not in content.text
            return content.text

        yield client, call, refused


async def read_json(client: Client, uri: str) -> Any:
    (content,) = (await client.read_resource(uri)).contents
    assert isinstance(content, TextResourceContents)
    assert content.mime_type == "application/json"
    return json.loads(content.text)


async def test_a_model_reads_what_each_tool_does(server: MCPServer[Any]) -> None:
    async with calls(server) as (client, _, _):
        tools = (await client.list_tools()).tools
        hints = {each.name: each.annotations for each in tools}
        reads = {"read_context", "recall_messages", "get_state", "project_context", "find_items"}
        assert {name for name, hint in hints.items() if hint and hint.read_only_hint} == reads
        assert [name for name, hint in hints.items() if hint and hint.destructive_hint] == ["clear_session"]
        assert all(hint and hint.open_world_hint is False for hint in hints.values())
        assert all(each.description and each.output_schema for each in tools)
        assert all(each.input_schema["additionalProperties"] is False for each in tools)
        # Every request of the client's model carries them.
        read = [(each.name, each.description, each.input_schema) for each in tools]
        assert len(json.dumps(read)) < 14_000
        instructions = client.instructions or ""
        assert {each.name for each in tools} >= {"read_context", "append_messages", "recall_messages"}
        assert all(name in instructions for name in ("read_context", "append_messages", "recall_messages"))


async def test_a_conversation(server: MCPServer[Any], memory: Memory) -> None:
    async with calls(server) as (_, call, _):
        said = {"role": "user", "content": "Where is my order?", "own": {"kept": 1}}
        first = await call("append_messages", session_id="a/../b", messages=[said], id="t-1")
        assert (first["first_seq"], first["created"], first["duplicate"]) == (1, True, False)
        again = await call("append_messages", session_id="a/../b", messages=[said], id="t-1")
        assert (again["first_seq"], again["last_seq"], again["duplicate"]) == (1, 1, True)
        assert "total_messages" not in again, "a receipt knows seqs; read_context counts messages"
        odd = Message(role="user", content=f"half {HALF_AN_EMOJI}")
        await memory.session("a/../b").append(odd, {"role": "system", "content": "Be kind."})

        await call("update_state", session_id="a/../b", set={"card": "4711", "city": "Rome"}, waiting_for_param="size")
        # Some clients pass objects as JSON text.
        await call("update_state", session_id="a/../b", set='{"open": null}', remove=["city"])
        context = await call("read_context", session_id="a/../b")
        assert [each["message"] for each in context["messages"]] == [said, {"role": "user", "content": "half \ufffd"}]
        assert [each["message"]["content"] for each in context["pinned"]] == ["Be kind."]
        state = context["state"]
        assert state == await call("get_state", session_id="a/../b")
        assert (state["params"], state["hidden_params"]) == ({"card": None, "open": None}, ["card"])
        assert state["waiting_for_param"] == "size"
        await call("update_state", session_id="a/../b", waiting_for_param=None)
        assert (await call("get_state", session_id="a/../b"))["waiting_for_param"] is None

        assert await call("clear_session", session_id="a/../b") == {"session_id": "a/../b", "existed": True}
        assert await call("clear_session", session_id="a/../b") == {"session_id": "a/../b", "existed": False}
        assert (await call("read_context", session_id="a/../b"))["total_messages"] == 0


async def test_old_messages_are_recalled_and_paged(server: MCPServer[Any], memory: Memory) -> None:
    session = memory.session("s ?#%/é")
    texts = [f"message number{number} about orders" for number in range(120)]
    await session.append(*({"role": "user", "content": text} for text in texts))
    async with calls(server) as (client, call, _):
        sessions = await read_json(client, "redismem://sessions")
        assert (sessions["sessions"][0]["session_id"], sessions["next"]) == (session.id, None)
        newest_uri = uri = sessions["sessions"][0]["uri"]
        found, pages = list[str](), 0
        while uri is not None:
            page = await read_json(client, uri)
            found = [each["message"]["content"] for each in page["messages"]] + found
            uri, pages = page["older"], pages + 1
        assert (found, pages) == (texts, 3)
        assert (await call("recall_messages", session_id=session.id, query="number7"))["messages"] == []

        await session.append({"role": "user", "content": "x" * 200_000}, {"role": "user", "content": "y" * 200_000})
        newest = await read_json(client, newest_uri)
        assert [each["seq"] for each in newest["messages"]] == [122]
        assert newest["older"].endswith("?before=122")
        for uri, line in (
            ("redismem://session/none", "session none: there is no such session"),
            ("redismem://session/none?before=x", "invalid arguments: before: "),
            ("redismem://session/none?before=-1", "before is a seq"),
            ("redismem://sessions?cursor=x", "the cursor does not come from a page"),
            ("redismem://nothing", "Unknown resource"),
        ):
            with pytest.raises(MCPError) as refused:
                await client.read_resource(uri)
            assert str(refused.value).startswith(line)


async def test_a_project(server: MCPServer[Any]) -> None:
    async with calls(server) as (_, call, refused):
        old = await call("record_decision", project="p", title="Use Postgres", rationale="known", tags=["db"])
        assert await call("record_decision", project="p", title="Use  Postgres") == old
        new = await call("record_decision", project="p", title="Use Redis", supersedes=old["id"])
        assert (new["status"], new["supersedes"]) == ("accepted", old["id"])
        task = await call("record_task", project="p", title="Move the data", assignee="Ada", priority="high")
        assert await call("record_task", project="p", title="Move the data") == task
        assert "cannot become completed" in await refused(
            "set_task_status", project="p", task_id=task["id"], status="completed"
        )
        blocked = {"project": "p", "task_id": task["id"], "status": "blocked"}
        assert "blocked_by" in await refused("set_task_status", **blocked)
        for _ in range(2):
            moved = await call("set_task_status", **blocked, blocked_by="a review")
            assert (moved["status"], moved["blocked_by"], moved["version"]) == ("blocked", ["a review"], 2)
        for status in ("in_progress", "completed", "completed"):
            moved = await call("set_task_status", project="p", task_id=task["id"], status=status)
        assert (moved["status"], moved["version"]) == ("completed", 4)
        ada = {"project": "p", "name": "Ada", "type": "person", "properties": {"card": "4711", "city": "Rome"}}
        assert (await call("record_entity", **ada, mention="moves the data"))["mention_count"] == 1
        known = await call("record_entity", project="p", name="ada")
        assert known["properties"] == {"card": None, "city": "Rome"}

        found = await call("find_items", project="p", text="us re")
        assert [each["title"] for each in found["decisions"]] == ["Use Redis"]
        found = await call("find_items", project="p", kind="decisions", limit=1, status="superseded")
        assert ([each["id"] for each in found["decisions"]], found["cursor"]) == ([old["id"]], None)
        assert (await call("find_items", project="p", kind="tasks"))["tasks"] == []
        assert (await call("find_items", project="p", text="ada"))["entities"] == [known]
        text = (await call("project_context", project="p", topic="Who is Ada?"))["text"]
        assert "Use Redis" in text
        assert "Ada (person) {city: Rome}" in text
        assert "4711" not in text


@pytest.mark.parametrize(
    ("tool", "arguments", "line"),
    [
        ("append_messages", {"session_id": "s", "messages": []}, "invalid arguments: messages: "),
        (
            "append_messages",
            {"session_id": "s", "messages": [{"content": "canary"}]},
            "invalid arguments: messages.0.role",
        ),
        ("append_messages", {"session_id": "", "messages": [{"role": "user"}]}, "invalid arguments: session_id: "),
        (
            "append_messages",
            {"session_id": "s", "messages": [{"role": "user", "content": "canary" * 1_400_000}]},
            "session s: ",
        ),
        (
            "append_messages",
            {"session_id": "s", "messages": [{"role": "canary"}] * 101},
            "invalid arguments: messages: ",
        ),
        ("append_messages", {"session_id": "s" * 257, "messages": [{"role": "user"}]}, "invalid arguments: session_id"),
        ("append_messages", {"session_id": "s", "messages": [{"role": "user"}], "Id": "x"}, "invalid arguments: Id: "),
        # A message of each of 250,000 mistakes took seconds.
        ("get_state", {f"x{at}": 1 for at in range(250_000)}, "invalid arguments: x0, x1, x2, x3, x4 and 249995 more"),
        ("read_context", {"session_id": "s", "max_tokens": 1}, "invalid arguments: max_tokens: "),
        ("read_context", {}, "invalid arguments: session_id: Field required"),
        ("recall_messages", {"session_id": "s", "query": ""}, "invalid arguments: query: "),
        ("update_state", {"session_id": "s"}, "nothing to change"),
        ("update_state", {"session_id": "s", "set": {"a": 1}, "remove": ["a"]}, "a param is named twice"),
        ("update_state", {"session_id": "s", "set": {"": 1}}, "session s: "),
        ("project_context", {"project": "no/name"}, "a project name has"),
        ("find_items", {"project": "p"}, "kind all needs text"),
        ("find_items", {"project": "p", "kind": "entities", "status": "open"}, "entities have no status"),
        ("find_items", {"project": "p", "kind": "tasks", "cursor": "canary"}, ""),
        ("record_task", {"project": "p", "title": "x", "priority": "canary"}, "invalid arguments: priority: "),
        ("record_decision", {"project": "p", "title": "x", "supersedes": "d-000000000000000000"}, ""),
        ("set_task_status", {"project": "p", "task_id": "canary", "status": "planned"}, "the id is no id"),
        ("nothing", {}, "Unknown tool: nothing"),
    ],
)
async def test_a_mistake_is_refused_in_one_line_and_writes_nothing(
    server: MCPServer[Any], memory: Memory, caplog: Any, tool: str, arguments: dict[str, Any], line: str
) -> None:
    caplog.set_level(logging.DEBUG, "redismem")
    async with calls(server) as (_, _, refused):
        said = await refused(tool, **arguments)
        assert said.startswith(line)
        assert len(said) <= 500
        assert "canary" not in said.replace(f"Unknown tool: {tool}", "")
    assert not await memory.session("s").exists()
    assert "canary" not in caplog.text
    assert any(tool in record.getMessage() for record in caplog.records)


async def test_a_list_of_another_type_is_one_mistake(server: MCPServer[Any]) -> None:
    async with calls(server) as (_, _, refused):
        messages = [{"role": "user", "content": [1] * 250_000}]
        said = await refused("append_messages", session_id="s", messages=messages)
        assert said.endswith("].0: Input should be a valid dictionary")


async def test_a_defect_is_logged_by_its_place_alone(
    server: MCPServer[Any], memory: Memory, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    text = "can" + "ary"  # the line of the error is in its traceback

    def broken(session_id: str, **_: Any) -> None:
        raise KeyError(text)

    monkeypatch.setattr(memory, "session", broken)
    async with calls(server) as (_, _, refused):
        assert await refused("get_state", session_id="s") == "a defect of the server (KeyError): its log has the place"
    (record,) = (each for each in caplog.records if each.name == "redismem")
    assert record.levelno == logging.ERROR
    assert text not in caplog.text
    assert "the tool get_state has a defect: KeyError in test_tools.py:" in caplog.text


async def test_a_call_is_refused_while_redis_is_away_and_can_be_repeated(proxy: Proxy, namespace: str) -> None:
    turn = {"session_id": "s", "messages": [{"role": "user", "content": "hello"}], "id": "t-1"}
    async with (
        Memory.connect(proxy.url, namespace=namespace, settings=Settings(**PATIENCE)) as memory,
        calls(create_server(memory)) as (_, call, refused),
    ):
        await proxy.refuse()
        with short_deadlines(memory):
            assert "session s: " in await refused("append_messages", **turn)
        await proxy.accept_again()
        await until(lambda: memory.store.availability.probe(at_once=True))
        for duplicate in (False, True):
            made = await call("append_messages", **turn)
            assert (made["last_seq"], made["duplicate"]) == (1, duplicate)


async def test_a_cancelled_write_is_settled() -> None:
    begun, released, done = anyio.Event(), anyio.Event(), list[str]()

    async def write() -> None:
        begun.set()
        await released.wait()
        done.append("written")

    async with anyio.create_task_group() as group:
        group.start_soon(settle_write, write())
        await begun.wait()
        group.cancel_scope.cancel()
        with anyio.CancelScope(shield=True):
            await anyio.lowlevel.checkpoint()
            released.set()
    assert done == ["written"]


async def test_what_a_client_stores_is_forgotten_with_the_owner_of_the_server(memory: Memory) -> None:
    owner = {"a": "ann", "b": "ann", "c": "bo"}.get
    async with calls(create_server(memory, owner=owner)) as (_, call, _):
        for session_id in "acd":
            await call("append_messages", session_id=session_id, messages=[{"role": "user", "content": "a canary"}])
        await call("update_state", session_id="b", set={"p": "a canary"})
    assert (await memory.forget(owner="ann")).session_count == 2
    assert {each.session_id for each in (await memory.sessions()).sessions} == {"c", "d"}
    async with calls(create_server(memory, owner="cy")) as (_, call, _):
        await call("append_messages", session_id="e", messages=[{"role": "user", "content": "a canary"}])
    assert (await memory.forget(owner="cy")).session_count == 1
    with pytest.raises(InvalidSessionId):
        create_server(memory, owner="")


async def test_every_tool_and_the_transcript_refuse_a_session_of_another_owner(memory: Memory) -> None:
    await memory.session("a", owner="ann").append({"role": "user", "content": "a canary"})
    arguments: dict[str, dict[str, Any]] = {
        "append_messages": {"messages": [{"role": "user", "content": "b"}]},
        "read_context": {},
        "recall_messages": {"query": "canary"},
        "get_state": {},
        "update_state": {"set": {"p": 1}},
        "clear_session": {},
    }
    async with calls(create_server(memory, owner="bob")) as (client, _, _):
        tools = (await client.list_tools()).tools
        assert arguments.keys() == {tool.name for tool in tools if "session_id" in tool.input_schema["properties"]}
        for name, more in arguments.items():
            result = await client.call_tool(name, {"session_id": "a"} | more)
            assert result.is_error, name
            assert "another owner" in repr(result), name
        with pytest.raises(MCPError, match="another owner"):
            await client.read_resource("redismem://session/a")
    assert (await memory.session("a").info()).total_messages == 1


async def test_conversations_of_frameworks_are_those_of_the_owner_alone(memory: Memory) -> None:
    for name, owner in (("of ann", "ann"), ("of bob", "bob"), ("of nobody", None)):
        await talk_langgraph(memory, "", name, owner)
    async with calls(create_server(memory, owner="bob")) as (client, _, _):
        [row] = (await read_json(client, "redismem://records"))["records"]
        assert (row["name"], row["title"]) == ("of bob", QUESTION)
        page = await read_json(client, row["uri"])
        assert (page["messages"][0]["message"]["content"], page["is_whole"]) == (QUESTION, True)
        for uri, line in (
            ("records?cursor=x", "this cursor"),
            ("records?kind=x", "a kind is one of"),
            ("record/langgraph/none", "record none: there is no such"),
            ("record/langgraph/of%20ann", "another owner"),
            ("record/langgraph/of%20nobody", "another owner"),
        ):
            with pytest.raises(MCPError, match=line):
                await client.read_resource(f"redismem://{uri}")
    async with calls(create_server(memory, owner=lambda _: "bob")) as (client, _, _):
        with pytest.raises(MCPError, match="several persons"):
            await client.read_resource("redismem://records")
    async with calls(create_server(memory)) as (client, _, _):
        rows = (await read_json(client, "redismem://records?kind=langgraph"))["records"]
        assert [row["name"] for row in rows] == ["of ann", "of bob", "of nobody"]
