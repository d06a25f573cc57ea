"""Hosts in network namespaces around a router, and partitions of the network between them."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence

import pytest

from support.redis_server import Host

_CLONE_NEWNET = 0x40000000


class Network:
    """A network with addresses of 198.18.0.0/15, which is reserved for tests of networks.

    It does not change the network of the machine, as a browser would drop its requests then.
    """

    def __init__(self, count: int) -> None:
        """Prepare `count` hosts, and one more at `here`: the thread that calls `start()`, and its processes."""
        number, tag = os.getpid() % 512, f"rm-{os.getpid()}"
        self._net = f"198.{18 + number // 256}.{number % 256}"
        self._router = f"{tag}-router"
        self._rules: list[str] = []
        self.here = Host(self._address(0))
        self._names = [f"{tag}-{at}" for at in range(count + 1)]
        others = enumerate(self._names[1:], start=1)
        self.hosts = [Host(self._address(at), ("ip", "netns", "exec", name)) for at, name in others]
        self._left: int | None = None

    def _address(self, at: int, *, router: bool = False) -> str:
        """Return an address of a host's own network, which has only the host and the router."""
        return f"{self._net}.{4 * at + (1 if router else 2)}"

    def start(self) -> None:
        """Start the network. Skips the test without iproute2 or without permission."""
        if shutil.which("ip") is None:
            pytest.skip("iproute2 is not installed: no network to part")
        made = _ip([f"netns add {name}" for name in (self._router, *self._names)])
        made = made if made.returncode else self._join(0)
        if made.returncode:
            pytest.skip(f"no network namespaces can be made, as root may: {made.stderr.strip()}")
        subprocess.run(
            [*("ip", "netns", "exec", self._router), *("sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")],
            check=True,
        )
        for at in range(1, len(self._names)):
            self._join(at).check_returncode()
        self._left = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        with open(f"/run/netns/{self._names[0]}") as here:
            _enter(here.fileno())

    def _join(self, at: int) -> subprocess.CompletedProcess[str]:
        """Connect a host to the router."""
        name, router = self._names[at], self._address(at, router=True)
        made = _ip([f"link add p{at} type veth peer name eth0 netns {name}"], self._router)
        if made.returncode:
            return made
        its = [f"address add {self._address(at)}/30 dev eth0", "link set eth0 up", "link set lo up"]
        _ip([f"address add {router}/30 dev p{at}", f"link set p{at} up"], self._router).check_returncode()
        return _ip([*its, f"route add {self._net}.0/24 via {router}"], name)

    def part(self, lost: Host, others: Sequence[Host]) -> None:
        """Drop all packets between one host and the others, without an error to either side.

        Packets from the host are dropped last: what one of two replicas confirmed, the other has received.
        """
        before = [f"rule add from {other.address} to {lost.address} blackhole" for other in others]
        then = [f"rule add from {lost.address} to {other.address} blackhole" for other in others]
        for lines in (before, then):
            _ip(lines, self._router).check_returncode()
        self._rules += [*before, *then]

    def heal(self) -> None:
        """Undo all partitions."""
        lines = [line.replace("rule add", "rule del") for line in self._rules]
        self._rules.clear()
        _ip(lines, self._router).check_returncode()

    def stop(self) -> None:
        """Remove the namespaces, and their links with them."""
        if self._left is not None:
            _enter(self._left)
            os.close(self._left)
        for name in (self._router, *self._names):
            _ip([f"netns del {name}"])


def _enter(namespace: int) -> None:
    """Move this thread, and processes it starts, into the namespace by setns(2)."""
    if ctypes.CDLL(None, use_errno=True).setns(namespace, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "the network namespace cannot be entered")


def _ip(lines: Sequence[str], name: str = "") -> subprocess.CompletedProcess[str]:
    """Run `ip` with these lines in the named namespace; an empty name is the namespace of this process."""
    command = ["ip", *(("-n", name) if name else ()), "-batch", "-"]
    return subprocess.run(command, input="\n".join(lines) + "\n", text=True, capture_output=True, check=False)


@contextlib.contextmanager
def hosts(count: int) -> Iterator[Network]:
    """Start a network with `count` hosts. Skips the test if that is not possible."""
    network = Network(count)
    try:
        network.start()
        yield network
    finally:
        network.stop()
