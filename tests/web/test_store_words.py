"""Temporary errors of Redis are 503 with their word and Retry-After over HTTP, never 500."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis.asyncio
from support.checks import until
from support.http_service import RunningService, numbered_message, serve_memory
from support.redis_server import RedisServer
from support.server_words import PASSING, loading
from support.stores import LONG_DEADLINES, short_deadlines

from redismem import Memory


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A Redis that a test can make answer with an error."""
    server = RedisServer(tmp_path_factory.mktemp("words"), options=("--busy-reply-threshold", "20")).start()
    yield server
    server.stop()


async def check_refused(http: RunningService, word: str) -> None:
    headers = {"Idempotency-Key": "turn-2"}  # without a key, an unanswered append has no Retry-After

    async def refusal() -> Any:
        path = "/v1/sessions/s/messages?read=true"
        answer = await http.ask("POST", path, json=numbered_message(2), headers=headers)
        found: dict[str, Any] = answer.json()
        assert (answer.status_code, found["code"]) == (503, "store_unavailable")
        return found.get("reason") == word and answer

    answer = await until(refusal)  # on a busy machine, a call may just time out
    assert answer.headers["retry-after"] == "1"
    ready = await http.ask("GET", "/readyz")
    assert (ready.status_code, ready.json()["writable"]) == (503, False)


@pytest.mark.parametrize(
    "word", ["READONLY", *(pytest.param(word, marks=pytest.mark.nightly) for word in PASSING if word != "READONLY")]
)
async def test_a_temporary_error_of_redis_is_503_with_its_word(server: RedisServer, namespace: str, word: str) -> None:
    async with (
        redis.asyncio.Redis(port=server.port) as raw,
        Memory.connect(server.url, namespace=namespace, settings=LONG_DEADLINES) as memory,
        serve_memory(memory) as http,
    ):
        assert (await http.ask("POST", "/v1/sessions/s/messages", json=numbered_message(1))).status_code == 201
        async with PASSING[word](raw):
            with short_deadlines(memory):
                await check_refused(http, word)


async def test_a_store_that_loads_its_data_is_503(tmp_path: Path, namespace: str) -> None:
    async with (
        loading(tmp_path) as (server, _),
        contextlib.aclosing(Memory.connect(server.url, namespace=namespace, settings=LONG_DEADLINES)) as memory,
        serve_memory(memory) as http,
    ):
        with short_deadlines(memory):
            await check_refused(http, "LOADING")
