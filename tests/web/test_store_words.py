"""What Redis refuses for a while is 503 with its word and a Retry-After, over HTTP too, and never 500."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis.asyncio
from support.http_service import Served, said, served
from support.redis_server import RedisServer
from support.server_words import PASSING, loading

from redismem import Memory, Settings

HASTY = Settings(deadline_s=3, reply_timeout_s=1)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """It says for a while what a test makes it say."""
    server = RedisServer(tmp_path_factory.mktemp("words"), options=("--busy-reply-threshold", "20")).start()
    yield server
    server.stop()


async def check_refused(http: Served, word: str) -> None:
    headers = {"Idempotency-Key": "turn-2"}  # a call may have been sent that was not answered in time
    answer = await http.ask("POST", "/v1/sessions/s/messages?read=true", json=said(2), headers=headers)
    found: dict[str, Any] = answer.json()
    assert (answer.status_code, found["code"], found["reason"]) == (503, "store_unavailable", word)
    assert answer.headers["retry-after"] == "1"
    ready = await http.ask("GET", "/readyz")
    assert (ready.status_code, ready.json()["writable"]) == (503, False)


@pytest.mark.parametrize(
    "word", ["READONLY", *(pytest.param(word, marks=pytest.mark.nightly) for word in PASSING if word != "READONLY")]
)
async def test_a_word_that_passes_is_told_as_503(server: RedisServer, namespace: str, word: str) -> None:
    async with (
        redis.asyncio.Redis(port=server.port) as raw,
        Memory.connect(server.url, namespace=namespace, settings=HASTY) as memory,
        served(memory) as http,
    ):
        assert (await http.ask("POST", "/v1/sessions/s/messages", json=said(1))).status_code == 201
        async with PASSING[word](raw):
            await check_refused(http, word)


async def test_a_store_that_loads_is_503(tmp_path: Path, namespace: str) -> None:
    async with (
        loading(tmp_path) as (server, _),
        contextlib.aclosing(Memory.connect(server.url, namespace=namespace, settings=HASTY)) as memory,
        served(memory) as http,
    ):
        await check_refused(http, "LOADING")
