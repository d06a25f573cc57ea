"""Run the command line inside this process, on both stores."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from typing import Any

import pytest
from support.commands import Outcome, TransportLayer
from support.redis_server import RedisServer

from redismem import Memory, Settings
from redismem.blocking import Memory as BlockingMemory
from redismem.cli import main, place
from redismem.store.store import Store
from redismem.transport.connect import connect


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Outcome]:
    """Return a function that runs a command line in this process, 80 columns wide."""
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)

    def run(*words: object) -> Outcome:
        capsys.readouterr()
        code = main([str(word) for word in words])
        printed = capsys.readouterr()
        return Outcome(code, printed.out, printed.err)

    return run


@pytest.fixture(params=["real", "embedded"])
def store_options(request: pytest.FixtureRequest) -> list[str]:
    """The options that name the store: a real Redis, or none for the embedded one."""
    if request.param == "embedded":
        return []
    return ["--url", request.getfixturevalue("redis_server").url]


@pytest.fixture
def redis_options(redis_server: RedisServer, namespace: str) -> list[str]:
    """The options that name the real Redis and this test's namespace."""
    return ["--url", redis_server.url, "--namespace", namespace]


@pytest.fixture
def used_options(redis_options: list[str]) -> list[str]:
    """The same options, after a session was begun and cleared in the namespace: commands refuse an unused one."""
    with BlockingMemory.connect(redis_options[1], namespace=redis_options[3]) as memory:
        memory.session("cleared").append({"role": "user", "content": "x"})
        memory.session("cleared").clear()
    return redis_options


@pytest.fixture
def intercept(monkeypatch: pytest.MonkeyPatch, namespace: str) -> Callable[[type[TransportLayer]], None]:
    """Return a function that puts a Between in front of the transport of every memory that a command connects."""

    def install(kind: type[TransportLayer]) -> None:
        def connected(url: str | None, client: Any, settings: Settings) -> Any:
            inner = connect(url, client, settings)
            return kind(inner, Memory(Store(inner, namespace, settings)))

        monkeypatch.setattr(place, "connect_transport", connected)

    return install


@pytest.fixture
def keyboard(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that types an answer on a terminal."""

    def type_in(answer: str) -> None:
        keyboard = io.StringIO(answer)
        monkeypatch.setattr(keyboard, "isatty", lambda: True)
        monkeypatch.setattr(sys, "stdin", keyboard)

    return type_in
