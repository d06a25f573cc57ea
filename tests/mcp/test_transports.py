"""The official client over stdio and HTTP, with the server as a process: two clients, outages, keys, and its end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import TextContent
from support.checks import until
from support.commands import start_command, wait_for_exit, wait_for_line
from support.proxy import Proxy
from support.redis_server import RedisServer
from support.stores import PATIENCE

from redismem import Memory, Settings, blocking
from redismem.cli import main
from redismem.protocol.scripts import load
from redismem.web.access import new_key

HELLO = {"role": "user", "content": "hello"}
LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
BEGIN: list[dict[str, Any]] = [
    {
        "jsonrpc": "2.0",
        "id": 0,
        "method": "initialize",
        "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}},
    },
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
]


async def call(client: Client, tool: str, **arguments: Any) -> Any:
    """Return the result of a call, or the line of its refusal."""
    result = await client.call_tool(tool, arguments)
    if not result.is_error:
        return result.structured_content
    (content,) = result.content
    assert isinstance(content, TextContent)
    assert "\n" not in content.text
    return content.text


def http_address(running: Any) -> str:
    found = re.search(r"http://\S+", wait_for_line(running.stdout, "speaks MCP at"))
    assert found
    return found[0]


async def check_pages(url: str) -> None:
    """No web page reaches a server without keys: one whose name was bound to 127.0.0.1 still sends its own name."""
    body = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    accept = {"Accept": "application/json, text/event-stream"}
    async with httpx.AsyncClient(trust_env=False, timeout=60) as http:
        for headers, status in (
            ({}, 200),
            ({"Origin": "http://localhost:3000"}, 200),
            ({"Origin": "https://evil.example"}, 403),
            ({"Host": "evil.example"}, 421),
            ({"Host": "evil.example:8081"}, 421),
        ):
            assert (await http.post(url, json=body, headers=accept | headers)).status_code == status


@contextlib.asynccontextmanager
async def two_clients(transport: str, url: str, namespace: str) -> AsyncIterator[tuple[Client, Client]]:
    words = ("serve", "--mcp", "--url", url, "--namespace", namespace)
    async with contextlib.AsyncExitStack() as stack:
        if transport == "stdio":
            server = StdioServerParameters(
                command=sys.executable, args=["-m", "redismem", *words], env=dict(os.environ)
            )
            clients = [Client(stdio_client(server)) for _ in range(2)]
        else:
            running = stack.enter_context(start_command(*words, "--http", "--port", "0"))
            url = await asyncio.to_thread(http_address, running)  # the proxy runs in this loop
            assert url.startswith("http://127.0.0.1:")
            await check_pages(url)
            clients = [Client(url), Client(url, mode="legacy")]
        yield (await stack.enter_async_context(clients[0]), await stack.enter_async_context(clients[1]))


@pytest.mark.parametrize("transport", [pytest.param("stdio", marks=pytest.mark.nightly), "http"])
async def test_two_clients_share_a_memory_through_faults(proxy: Proxy, namespace: str, transport: str) -> None:
    async with two_clients(transport, proxy.url, namespace) as (one, other):
        assert len((await one.list_tools()).tools) == len((await other.list_tools()).tools) == 12
        assert (await call(one, "append_messages", session_id="s", messages=[HELLO]))["last_seq"] == 1
        assert (await call(other, "append_messages", session_id="s", messages=[HELLO]))["last_seq"] == 2
        assert (await call(one, "read_context", session_id="s"))["total_messages"] == 2
        # cleared meanwhile
        assert (await call(other, "clear_session", session_id="s"))["existed"]
        assert (await call(one, "read_context", session_id="s"))["total_messages"] == 0
        assert (await call(one, "append_messages", session_id="s", messages=[HELLO], id="a"))["created"]
        # The reply is lost: the library sends the call again, and so does a client.
        proxy.break_next("reset", 1, to=load("append").sha)
        turn = {"session_id": "s", "messages": [HELLO], "id": "b"}
        sent = await call(one, "append_messages", **turn)
        assert proxy.broken_count == 1
        again = await call(other, "append_messages", **turn)
        assert sent["last_seq"] == again["last_seq"] == 2
        assert again["duplicate"]
        # The client gives up before the call reaches Redis: it is made all the same, on another connection.
        proxy.break_next("hole", 1, to=load("append").sha)
        left = asyncio.create_task(call(one, "append_messages", session_id="left", messages=[HELLO]))
        await until(lambda: proxy.broken_count == 2)
        left.cancel()
        with pytest.raises(asyncio.CancelledError):
            await left
        await proxy.refuse()
        await proxy.accept_again()
        while not (await call(other, "read_context", session_id="left"))["total_messages"]:
            pass  # each poll waits for its answer
        assert "invalid arguments" in await call(one, "append_messages", session_id="s")


@contextlib.asynccontextmanager
async def client_of(url: str, key: str, mode: Any) -> AsyncIterator[Client]:
    headers = {"Authorization": f"Bearer {key}"}
    async with (
        httpx2.AsyncClient(headers=headers, trust_env=False, timeout=60) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode) as client,
    ):
        yield client


async def test_a_key_reaches_its_namespace_alone(redis_server: RedisServer, namespace: str, tmp_path: Path) -> None:
    shop, shop_line = new_key("shop", namespace, ("read", "write"))
    read, read_line = new_key("reader", namespace, ("read",))
    bank, bank_line = new_key("bank", f"{namespace}-b", ("read", "write"))
    keys = tmp_path / "keys"
    owned, owned_line = new_key("owned", namespace, ("read", "write"), "ann")
    keys.write_text(f"{shop_line}\n{read_line}\n{bank_line}\n{owned_line}\n")
    words = (
        *("serve", "--mcp"),
        "--http",
        "--host",
        "0.0.0.0",
        "--port",
        "0",
        "--url",
        redis_server.url,
        "--keys-file",
        keys,
        "--resumable",
    )
    with start_command(*words) as running:
        url = http_address(running).replace("0.0.0.0", "127.0.0.1")
        for mode in ("auto", "legacy"):
            await check_keys(url, f"s-{mode}", mode, shop, bank, read)
        await check_refusals(url, shop, bank)
        async with httpx.AsyncClient(trust_env=False, timeout=60) as http:  # no tool takes an owner
            assert (await http.post(url, json=LIST, headers={"Authorization": f"Bearer {owned}"})).status_code == 403
        await check_resumption(url, shop, bank, read)
        # A key that leaves the file is refused.
        keys.write_text(f"{read_line}\n{bank_line}\n{owned_line}\n")
        running.send_signal(signal.SIGHUP)
        wait_for_line(running.stderr, "no longer valid: shop")
        async with httpx.AsyncClient(trust_env=False, timeout=60) as http:
            assert (await http.post(url, json=LIST, headers={"Authorization": f"Bearer {shop}"})).status_code == 401
        running.send_signal(signal.SIGTERM)
        ran = wait_for_exit(running)
    assert (ran.code, "has stopped" in ran.out) == (0, True)
    async with Memory.connect(redis_server.url, namespace=namespace, settings=Settings(**PATIENCE)) as memory:
        assert {each.session_id for each in (await memory.sessions()).sessions} == {"s-auto", "s-legacy"}
        assert len((await memory.records("mcp-events:")).records) == 1


async def check_keys(url: str, name: str, mode: Any, shop: str, bank: str, read: str) -> None:
    async with (
        client_of(url, shop, mode) as a,
        client_of(url, bank, mode) as b,
        client_of(url, read, mode) as c,
    ):
        await call(a, "append_messages", session_id=name, messages=[HELLO])
        assert (await call(b, "read_context", session_id=name))["total_messages"] == 0
        assert (await call(b, "clear_session", session_id=name))["existed"] is False
        assert (await call(c, "read_context", session_id=name))["total_messages"] == 1
        refused = await call(c, "clear_session", session_id=name)
        assert refused == "this key does not have the scope write"


async def check_refusals(url: str, key: str, other_key: str) -> None:
    known = {"Authorization": f"Bearer {key}"}
    two = [("Authorization", f"Bearer {key}"), ("Authorization", f"Bearer {other_key}")]
    async with httpx.AsyncClient(trust_env=False, timeout=60) as http:
        assert (await http.post(url, json=LIST)).status_code == 401
        assert (await http.post(url, json=LIST, headers={"Authorization": "Bearer rmk_guessed"})).status_code == 401
        assert (await http.post(url, json=LIST, headers=two)).status_code == 400
        assert (await http.get(url, headers=known)).status_code == 405
        assert (await http.post(url.replace("/mcp", "/"), json=LIST)).status_code == 404
        assert (await http.post(url, content=b"x" * 5_000_000, headers=known)).status_code == 413


async def check_resumption(url: str, key: str, *other_keys: str) -> None:
    """An answer whose stream broke comes later, to the key that has begun the session."""
    bodies: list[dict[str, Any]] = [*BEGIN, LIST | {"id": 7}]
    headers = {"Authorization": f"Bearer {key}", "Accept": "application/json, text/event-stream"}
    headers["MCP-Protocol-Version"] = "2025-11-25"
    async with httpx.AsyncClient(trust_env=False, timeout=60, headers=headers) as http:
        session = {"Mcp-Session-Id": (await http.post(url, json=bodies[0])).headers["mcp-session-id"]}
        await http.post(url, json=bodies[1], headers=session)
        async with http.stream("POST", url, json=bodies[2], headers=session) as broken:
            begun = await anext(line async for line in broken.aiter_lines() if line.startswith("id: "))
        again = session | {"Last-Event-ID": begun.removeprefix("id: ")}
        assert "append_messages" in (await http.get(url, headers=again)).text
        # A request that begins no session leaves nothing in Redis.
        assert (await http.post(url, json=LIST)).status_code == 400
        for other_key in other_keys:
            theirs = {"Authorization": f"Bearer {other_key}"}
            assert (await http.get(url, headers=again | theirs)).status_code == 404
            assert (await http.post(url, json=LIST, headers=session | theirs)).status_code == 404


def test_on_stdio_nothing_but_the_protocol_is_printed(redis_server: RedisServer, namespace: str) -> None:
    """And a signal ends the server while it waits for input."""
    asked = [
        *BEGIN,
        *(
            {
                "jsonrpc": "2.0",
                "id": number,
                "method": "tools/call",
                "params": {"name": "append_messages", "arguments": {"session_id": "s", "messages": [message]}},
            }
            for number, message in enumerate(("canary", HELLO), 1)
        ),
    ]
    words = ("--url", redis_server.url, "--namespace", namespace, "--owner", "ann")
    with start_command("serve", "--mcp", *words) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        running.stdin.write("".join(json.dumps(each) + "\n" for each in asked))
        running.stdin.flush()
        answers = [json.loads(running.stdout.readline()) for _ in range(3)]
        running.send_signal(signal.SIGTERM)
        assert running.wait(60) == 0
        ran = wait_for_exit(running)
    assert [each["result"].get("isError") for each in sorted(answers, key=lambda each: each["id"])] == [
        None,
        True,
        False,
    ]
    assert (ran.code, ran.out) == (0, "")
    assert f"speaks MCP on stdin and stdout (store: {redis_server.url}" in ran.err
    assert f"no worker runs for {namespace}: " in ran.err
    assert "the tool append_messages refused its arguments" in ran.err
    assert "canary" not in ran.err
    with blocking.Memory.connect(redis_server.url, namespace=namespace, settings=Settings(**PATIENCE)) as memory:
        assert memory.session("s").info().owner == "ann"


@pytest.mark.parametrize(
    ("words", "said"), [(("--http", "--owner", "ann"), "--owner is not for --http"), (("--owner", ""), "an owner is")]
)
def test_a_wrong_owner_is_refused(words: Sequence[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--mcp", "--url", "memory://", *words]) == 2
    assert said in capsys.readouterr().err
