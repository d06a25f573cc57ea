"""A primary with two replicas and three sentinels of the tests' own, on loopback, by real processes."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

from support.cluster_servers import say, until
from support.redis_server import RedisServer, free_port

SERVICE = "chats"
_SENTINELS_COUNT = 3
_NODES_COUNT = 3
_QUORUM = 2


class SentinelNode(RedisServer):
    """One with data."""

    def say(self, *words: Any) -> Any:
        return say(self.port, *words)

    @property
    def is_primary(self) -> bool:
        return bool(self.say("ROLE")[0] == b"master")

    def stop_process(self) -> None:
        """SIGSTOP: it is there, and says nothing."""
        os.kill(self.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        os.kill(self.pid, signal.SIGCONT)


class Sentinel:
    """One that watches."""

    def __init__(self, folder: Path, primary: RedisServer, down_after_ms: int, password: str = "") -> None:
        self.port = free_port()
        self._folder = folder
        folder.mkdir(parents=True)
        lines = [
            f"port {self.port}",
            "bind 127.0.0.1",
            f"dir {folder}",
            f"sentinel monitor {SERVICE} 127.0.0.1 {primary.port} {_QUORUM}",
            f"sentinel down-after-milliseconds {SERVICE} {down_after_ms}",
            f"sentinel failover-timeout {SERVICE} 3000",
        ]
        if password:
            lines += [f"requirepass {password}", f"sentinel sentinel-pass {password}"]
        (folder / "sentinel.conf").write_text("\n".join(lines) + "\n")
        self._running: subprocess.Popen[bytes] | None = None

    @property
    def place(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        binary = shutil.which("redis-server")
        assert binary
        with (self._folder / "sentinel.log").open("ab") as log:
            command = [binary, str(self._folder / "sentinel.conf"), "--sentinel"]
            self._running = subprocess.Popen(command, stdout=log, stderr=log)

    def say(self, *words: Any) -> Any:
        return say(self.port, *words)

    def stop(self) -> None:
        if self._running is not None:
            self._running.kill()
            self._running.wait()
            self._running = None


class SentinelServers:
    """All of them."""

    def __init__(self, folder: Path, *, down_after_ms: int = 5_000) -> None:
        self.nodes = [
            SentinelNode(folder / f"node-{at}", aof=True, options=("--repl-diskless-sync-delay", "0"))
            for at in range(_NODES_COUNT)
        ]
        self.sentinels = [
            Sentinel(folder / f"sentinel-{at}", self.nodes[0], down_after_ms) for at in range(_SENTINELS_COUNT)
        ]

    @property
    def url(self) -> str:
        return f"redis+sentinel://{','.join(each.place for each in self.sentinels)}/{SERVICE}/0"

    def start(self) -> SentinelServers:
        for node in self.nodes:
            node.start()
        for node in self.nodes[1:]:
            node.say("REPLICAOF", "127.0.0.1", self.nodes[0].port)
        self.until_in_step()
        for sentinel in self.sentinels:
            sentinel.start()
        self.until_known()
        return self

    def until_in_step(self) -> None:
        """Until there is one primary, and all others follow it."""
        until(lambda: len(self.primary.say("ROLE")[2]) == _NODES_COUNT - 1, "that all replicas follow")

    def until_known(self) -> None:
        """Until each sentinel knows the others and the replicas."""
        wanted = {b"num-slaves": b"2", b"num-other-sentinels": b"2", b"flags": b"master"}
        until(
            lambda: all(wanted.items() <= self._seen_by(sentinel).items() for sentinel in self.sentinels),
            "that sentinels know all",
        )

    @staticmethod
    def _seen_by(sentinel: Sentinel) -> dict[bytes, bytes]:
        words = sentinel.say("SENTINEL", "MASTER", SERVICE)
        return dict(zip(words[::2], words[1::2], strict=True))

    @property
    def primary(self) -> SentinelNode:
        """The one that the sentinels name."""
        port = int(self._seen_by(self.sentinels[0])[b"port"]) if self._is_watched else self.nodes[0].port
        return next(node for node in self.nodes if node.port == port)

    @property
    def _is_watched(self) -> bool:
        return self.sentinels[0]._running is not None

    def until_failed_over(self, lost: SentinelNode) -> None:
        """Until another is the primary, and all sentinels say so."""

        def is_over() -> bool:
            ports = {int(self._seen_by(sentinel)[b"port"]) for sentinel in self.sentinels}
            return len(ports) == 1 and lost.port not in ports and self.primary.is_primary

        until(is_over, "the failover")

    def stop(self) -> None:
        for sentinel in self.sentinels:
            sentinel.stop()
        for node in self.nodes:
            node.stop()
