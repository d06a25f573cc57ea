"""The worker with an embedder: it makes the vectors for semantic recall, and logs its embedder."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from pydantic import SecretStr
from support.commands import start_command, wait_for_exit, wait_for_line
from support.provider_server import ProviderServer

import redismem.blocking
from redismem import Memory, Settings
from redismem.cli.worker import _embedder_words
from redismem.originals.vectors import decode_vectors
from redismem.recall.embedder import open_embedder

KEY = SecretStr("canary-key")
DOG = "My hound came from the shelter."


@pytest.fixture
def provider() -> Iterator[ProviderServer]:
    with ProviderServer() as server:
        yield server


@pytest.fixture
def by_meaning(provider: ProviderServer) -> dict[str, str]:
    """The environment of a service that embeds texts with this provider."""
    return {
        "REDISMEM_EMBED": "openai:words",
        "REDISMEM_EMBED_API_KEY": "canary-key",
        "REDISMEM_EMBED_BASE_URL": provider.base_url,
        "REDISMEM_MODEL_ALLOW_HTTP": "true",
        "REDISMEM_TICK_S": "0.05",
    }


@pytest.fixture
def memory(redis_server: Any, namespace: str) -> Iterator[redismem.blocking.Memory]:
    with redismem.blocking.Memory.connect(redis_server.url, namespace=namespace) as memory:
        memory.session("a").append(*({"role": "user", "content": f"{DOG} {n}"} for n in range(12)))
        yield memory


def dimensions_of(memory: redismem.blocking.Memory, redis_server: Any) -> list[int]:
    """Return the dimensions of the vectors beside each block of the session."""
    with redis.Redis(port=redis_server.port) as raw:
        fields: Any = raw.hgetall(memory.store.keys.session("a").originals)
    found = [decode_vectors(value) for field, value in fields.items() if field[:1] == b"v"]
    return [each.dimensions for each in found if each is not None]


def test_once_makes_vectors_of_the_originals(
    command: Any,
    memory: Any,
    redis_options: Any,
    redis_server: Any,
    provider: ProviderServer,
    by_meaning: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in by_meaning.items():
        monkeypatch.setenv(name, value)
    assert command("worker", "--once", *redis_options).code == 0
    assert dimensions_of(memory, redis_server) == [32]
    assert [text for asked in provider.asked for text in asked.texts or ()] == [f"{DOG} {n}" for n in range(6)]
    assert command("doctor", "--deep", *redis_options).code == 0


def test_a_running_worker_makes_vectors_and_logs_its_embedder(
    memory: Any, redis_options: Any, redis_server: Any, provider: ProviderServer, by_meaning: dict[str, str]
) -> None:
    with start_command("worker", "--nice", 0, *redis_options, **by_meaning) as running:
        line = wait_for_line(running.stderr, "started on")
        assert "summarize by extractive, vectors by openai" in line
        provider.wait_for_asked(1)
        running.send_signal(signal.SIGTERM)
        ran = wait_for_exit(running)
    assert (ran.code, "Unclosed" in ran.err) == (0, False)
    assert dimensions_of(memory, redis_server) == [32]
    assert DOG not in line + ran.err
    assert "canary" not in line + ran.err


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (Settings(strategy="none", embed_api_key=KEY), ", no vectors: no messages are kept"),
        (Settings(keep_originals=False, embed_api_key=KEY), ", no vectors: no messages are kept"),
        (Settings(embed_api_key=KEY), ", vectors by openai/words"),
    ],
)
async def test_without_originals_the_worker_says_that_it_makes_no_vectors(settings: Settings, words: str) -> None:
    async with Memory.connect("memory://", settings=settings) as memory:
        assert _embedder_words(memory) == ""
        memory.store.embedder = open_embedder("openai:words", memory.settings)
        assert _embedder_words(memory) == words


@pytest.mark.parametrize(
    ("embed", "said"), [("canary:words", "embed must be openai:MODEL"), ("openai:words", "REDISMEM_MODEL_ALLOW_HTTP")]
)
def test_an_invalid_embedder_stops_the_worker_and_fails_the_doctor(
    command: Any,
    memory: Any,
    redis_options: Any,
    provider: ProviderServer,
    monkeypatch: pytest.MonkeyPatch,
    embed: str,
    said: str,
) -> None:
    monkeypatch.setenv("REDISMEM_EMBED", embed)
    monkeypatch.setenv("REDISMEM_EMBED_BASE_URL", provider.base_url)
    ran = command("worker", "--once", *redis_options)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err.splitlines()[-1]
    assert memory.session("a").info().queued == "overdue"
    examined = command("doctor", "--json", *redis_options)
    (found,) = [each for each in examined.document["findings"] if each["name"] == "model"]
    assert (examined.code, found["verdict"]) == (1, "fail")
    assert said in found["seen"]
    assert "canary" not in ran.err + examined.out
