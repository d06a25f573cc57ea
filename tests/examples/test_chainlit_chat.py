"""The chat on Chainlit: a thread that one server began is listed and continued by another one."""

from __future__ import annotations

import contextlib
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

pytest.importorskip("chainlit")

import socketio
from support.checks import until
from support.example_processes import Places, start_example
from support.redis_server import free_port
from support.waiting import START_S

NAME = "chainlit_chat.py"


def answers(url: str) -> bool:
    with contextlib.suppress(httpx.HTTPError):
        return httpx.get(url, trust_env=False).is_success
    return False


def log_in(base_url: str, user: str) -> httpx.Client:
    client = httpx.Client(base_url=base_url, trust_env=False, timeout=60)
    client.post("/login", data={"username": user, "password": "demo"}).raise_for_status()
    return client


def list_threads(client: httpx.Client) -> list[dict[str, Any]]:
    answer = client.post("/project/threads", json={"pagination": {"first": 20}, "filter": {}})
    answer.raise_for_status()
    return list(answer.json()["data"])


async def say(client: httpx.Client, text: str, thread_id: str | None = None) -> str:
    """Send a message, in a thread or a new one, and return the answer."""
    answers: list[str] = []
    cookie = "; ".join(f"{name}={value}" for name, value in client.cookies.items())
    auth = {"clientType": "webapp", "sessionId": str(uuid4()), "threadId": thread_id, "userEnv": "{}"}
    async with socketio.AsyncSimpleClient() as socket:
        await socket.connect(str(client.base_url), auth=auth, headers={"Cookie": cookie}, socketio_path="/ws/socket.io")
        await socket.emit("connection_successful")
        while thread_id is not None and (await socket.receive(START_S))[0] != "resume_thread":
            pass
        message = {"id": str(uuid4()), "name": "user", "type": "user_message", "output": text, "createdAt": None}
        await socket.emit("client_message", {"message": message, "fileReferences": []})
        while not answers:
            name, *arguments = await socket.receive(START_S)
            if name == "new_message" and arguments[0]["type"] == "assistant_message":
                answers.append(arguments[0]["output"])
    return answers[0]


@pytest.mark.timeout(300)
async def test_a_thread_goes_on_in_another_server_and_nobody_else_sees_it(places: Places, tmp_path: Path) -> None:
    secret = {"CHAINLIT_AUTH_SECRET": "a-secret-of-32-characters-or-more", "CHAINLIT_APP_ROOT": str(tmp_path)}
    threads: list[dict[str, Any]] = []
    for text, thread_words in (("one two", 2), ("three", 3)):
        port = free_port()
        with start_example(NAME, places, "--headless", "--port", str(port), **secret) as running:
            url = f"http://127.0.0.1:{port}"
            await until(partial(answers, url), START_S)
            with contextlib.closing(log_in(url, "ann")) as ann, contextlib.closing(log_in(url, "bob")) as bob:
                thread_id = threads[0]["id"] if threads else None
                assert await say(ann, text, thread_id) == f"This thread has {thread_words} words of yours."
                await until(partial(list_threads, ann), START_S)
                threads = list_threads(ann)
                assert len(threads) == 1
                assert list_threads(bob) == []
                assert bob.get(f"/project/thread/{threads[0]['id']}").status_code == 401
            running.kill()
    assert threads[0]["name"] == "one two"
