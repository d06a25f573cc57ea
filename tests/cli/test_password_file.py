"""`redismem worker` and `redismem serve` as processes, while the password of their Redis user changes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.commands import start_command, wait_for_exit, wait_for_line
from support.redis_server import RedisServer
from support.waiting import wait_until

import redismem.blocking

OLD, NEW = "old-5d1f", "new-5d1f"


class Rotating:
    """A Redis user whose password is in a file."""

    def __init__(self, server: RedisServer, file: Path, name: str) -> None:
        self._server, self._file, self._name = server, file, name
        self.environment: dict[str, Any] = {
            "REDISMEM_USERNAME": name,
            "REDISMEM_PASSWORD_FILE": str(file),
            "REDISMEM_TICK_S": "0.05",
        }

    def rotate(self, password: str) -> None:
        """Change the password, and close all connections of the user."""
        self._file.write_text(f"{password}\n")
        self._server.say("ACL", "SETUSER", self._name, "on", "resetpass", f">{password}", "~*", "&*", "+@all")
        self._server.say("CLIENT", "KILL", "USER", self._name)


@pytest.fixture
def rotating(redis_server: RedisServer, tmp_path: Path, namespace: str) -> Iterator[Rotating]:
    rotating = Rotating(redis_server, tmp_path / "password", namespace)
    rotating.rotate(OLD)
    yield rotating
    redis_server.say("ACL", "DELUSER", namespace)


@pytest.fixture
def memory(redis_server: RedisServer, namespace: str) -> Any:
    with redismem.blocking.Memory.connect(redis_server.url, namespace=namespace) as memory:
        yield memory


def is_summarised(session: redismem.blocking.Session) -> bool:
    return bool(session.read().summaries)


@pytest.mark.nightly
def test_a_worker_goes_on(redis_options: Any, memory: Any, rotating: Rotating) -> None:
    texts = [{"role": "user", "content": f"text {number}."} for number in range(12)]
    with start_command("worker", "--nice", 0, *redis_options, **rotating.environment) as running:
        for number, password in enumerate([OLD, NEW, OLD]):
            rotating.rotate(password)
            session = memory.session(f"user-{number}")
            session.append(*texts)
            wait_until(partial(is_summarised, session), "a summary is written")
        running.terminate()
        ended = wait_for_exit(running)
    assert "5d1f" not in ended.out + ended.err


def test_a_server_goes_on(redis_options: Any, memory: Any, rotating: Rotating) -> None:
    with start_command("serve", "--workers", "--port", "0", *redis_options, **rotating.environment) as running:
        found = re.search(r"http://\S+", wait_for_line(running.stdout, "listens on"))
        assert found
        with httpx.Client(base_url=found[0], trust_env=False, timeout=60) as client:
            for number, password in enumerate((OLD, NEW, OLD)):
                rotating.rotate(password)
                message, headers = {"role": "user", "content": password}, {"Idempotency-Key": f'"{number}"'}
                assert client.post("/v1/sessions/s/messages", json=message, headers=headers).status_code == 201
        running.terminate()
        logged = wait_for_exit(running).err
    assert "5d1f" not in logged
    assert "no worker runs" not in logged, "it has workers itself"
    assert [message.content for message in memory.session("s").messages()] == [OLD, NEW, OLD]


def test_a_file_without_a_password_is_refused_at_the_start(
    command: Any, redis_options: Any, rotating: Rotating, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "password").write_text("")
    for name, value in rotating.environment.items():
        monkeypatch.setenv(name, value)
    for words in (["worker"], ["serve", "--port", "0"], ["doctor", "--deep"]):
        ran = command(*words, *redis_options)
        assert ran.code == 2
        assert ran.error_line == "redismem: the file of REDISMEM_PASSWORD_FILE is empty"
