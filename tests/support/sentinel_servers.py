"""A primary with two replicas and three sentinels on loopback, as processes."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from support.redis_server import LOOPBACK, Host, RedisServer, free_port, say
from support.waiting import START_S, wait_until

SERVICE = "chats"
_SENTINELS_COUNT = 3
_QUORUM = 2


def tls_lines(node: RedisServer, port: int) -> list[str]:
    """Return the TLS options of a node as lines of a configuration file, with this port."""
    pairs = zip(node.options[::2], node.options[1::2], strict=True)
    said = [(name[2:], str(port) if value == "PORT" else value) for name, value in pairs]
    return [f'{name} "{value}"' for name, value in said if name.startswith(("tls-", "port"))]


class Sentinel:
    """A sentinel."""

    def __init__(
        self, folder: Path, primary: RedisServer, down_after_ms: int, password: str = "", host: Host = LOOPBACK
    ) -> None:
        self.host = host
        self.port = free_port()
        self._password = password
        self._folder = folder
        folder.mkdir(parents=True)
        self._tls = primary.tls
        lines = [
            *(tls_lines(primary, self.port) or [f"port {self.port}"]),
            f"bind {host.address}",
            f"dir {folder}",
            f"sentinel monitor {SERVICE} {primary.host.address} {primary.port} {_QUORUM}",
            f"sentinel down-after-milliseconds {SERVICE} {down_after_ms}",
            f"sentinel failover-timeout {SERVICE} 3000",
        ]
        if password:
            lines += [f"requirepass {password}", f"sentinel sentinel-pass {password}"]
        if primary.password:
            lines.append(f"sentinel auth-pass {SERVICE} {primary.password}")
        (folder / "sentinel.conf").write_text("\n".join(lines) + "\n")
        self._running: subprocess.Popen[bytes] | None = None

    @property
    def place(self) -> str:
        return f"{self.host.address}:{self.port}"

    def start(self) -> None:
        binary = shutil.which("redis-server")
        assert binary
        with (self._folder / "sentinel.log").open("ab") as log:
            command = [*self.host.entering, binary, str(self._folder / "sentinel.conf"), "--sentinel"]
            self._running = subprocess.Popen(command, stdout=log, stderr=log)

    def say(self, *words: Any) -> Any:
        return say(self.port, *words, password=self._password, host=self.host.address, **self._tls)

    @property
    def is_running(self) -> bool:
        return self._running is not None

    def stop(self) -> None:
        if self._running is not None:
            self._running.kill()
            self._running.wait()
            self._running = None


class SentinelServers:
    """The nodes and their sentinels."""

    def __init__(
        self,
        folder: Path,
        *,
        down_after_ms: int = 5_000,
        nodes_count: int = 3,
        options: tuple[str, ...] = (),
        password: str = "",
        tls: Mapping[str, Any] | None = None,
        hosts: Sequence[Host] = (LOOPBACK,) * _SENTINELS_COUNT,
    ) -> None:
        """Prepare a sentinel per host, and nodes on the first hosts. TLS is for both.

        `password` is for the sentinels; the options hold the password of the nodes.
        """
        options = ("--repl-diskless-sync-delay", "0", *options)
        self.nodes = [
            RedisServer(folder / f"node-{at}", aof=True, options=options, host=hosts[at]) for at in range(nodes_count)
        ]
        for node in self.nodes:
            node.tls = tls or {}
            node.password = options[options.index("--requirepass") + 1] if "--requirepass" in options else None
        self.sentinels = [
            Sentinel(folder / f"sentinel-{at}", self.nodes[0], down_after_ms, password, host)
            for at, host in enumerate(hosts)
        ]

    @property
    def url(self) -> str:
        return f"redis+sentinel://{','.join(each.place for each in self.sentinels)}/{SERVICE}/0"

    def start(self) -> SentinelServers:
        for node in self.nodes:
            node.start()
        for node in self.nodes[1:]:
            node.say("REPLICAOF", self.nodes[0].host.address, self.nodes[0].port)
        self.until_in_step()
        for sentinel in self.sentinels:
            sentinel.start()
        self.until_known()
        return self

    def until_in_step(self) -> None:
        """Wait until all replicas have the primary's offset."""

        def is_in_step() -> bool:
            _, offset, replicas = self.primary.say("ROLE")
            return [int(replica[2]) for replica in replicas] == [offset] * (len(self.nodes) - 1)

        wait_until(is_in_step, "all replicas have all data", START_S)

    def until_known(self) -> None:
        """Wait until each sentinel knows the other sentinels and the replicas."""
        wanted = {b"num-slaves": b"%d" % (len(self.nodes) - 1), b"num-other-sentinels": b"2", b"flags": b"master"}
        wait_until(
            lambda: all(wanted.items() <= self.describe_primary(sentinel).items() for sentinel in self.sentinels),
            "sentinels know all nodes",
            START_S,
        )

    @staticmethod
    def describe_primary(sentinel: Sentinel) -> dict[bytes, bytes]:
        words = sentinel.say("SENTINEL", "MASTER", SERVICE)
        return dict(zip(words[::2], words[1::2], strict=True))

    @property
    def primary(self) -> RedisServer:
        """The primary that the first running sentinel names."""
        watching = next((sentinel for sentinel in self.sentinels if sentinel.is_running), None)
        port = self.nodes[0].port if watching is None else int(self.describe_primary(watching)[b"port"])
        return next(node for node in self.nodes if node.port == port)

    def fail_over(self) -> None:
        """Promote a replica, and wait until all sentinels name it."""
        lost = self.primary
        wait_until(self._has_begun, "a failover begins", START_S)
        self.until_failed_over(lost)

    def until_failed_over(self, lost: RedisServer) -> None:
        """Wait until all sentinels name another primary."""

        def is_over() -> bool:
            ports = {
                int(self.describe_primary(sentinel)[b"port"]) for sentinel in self.sentinels if sentinel.is_running
            }
            return len(ports) == 1 and lost.port not in ports and self.primary.is_primary

        wait_until(is_over, "the failover", START_S)  # on a busy machine, sentinels may stay in tilt mode for 30 s

    def _has_begun(self) -> bool:
        """True if the sentinel starts a failover; it refuses while another is in progress."""
        return bool(self.sentinels[-1].say("SENTINEL", "FAILOVER", SERVICE) == b"OK")

    def cut_off(self, node: RedisServer) -> None:
        """Hide sentinels from a node: it learns of no failover."""
        node.say("ACL", "SETUSER", "default", "-replicaof", "-client", "-config", "-slaveof", "-publish")

    def join(self, node: RedisServer) -> None:
        """Undo `cut_off`."""
        node.say("ACL", "SETUSER", "default", "+@all")

    def mend(self) -> None:
        """Start all nodes and sentinels, and wait until all replicas follow the primary."""
        for sentinel in self.sentinels:
            if not sentinel.is_running:
                sentinel.start()
        for node in self.nodes:
            if node.is_stopped:
                node.go_on()
            elif not node.is_running:
                node.start()
        for node in self.nodes:  # sentinels would do it later
            if node is not self.primary:
                wait_until(partial(self._follow, node), "a replica", START_S)
        wait_until(lambda: len(self.primary.say("ROLE")[2]) == len(self.nodes) - 1, "all replicas follow", START_S)

    def _follow(self, node: RedisServer) -> Any:
        primary = self.primary
        return node.say("REPLICAOF", primary.host.address, primary.port)

    def stop(self) -> None:
        for sentinel in self.sentinels:
            sentinel.stop()
        for node in self.nodes:
            node.stop()
