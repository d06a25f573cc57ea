"""Hosts of the tests' own, in network namespaces around a router, and the network between them parted for real."""

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
    """Addresses are of 198.18.0.0/15, which no network uses but those that are tested.

    What this machine calls its network stays as it is: a browser would drop its requests whenever that changes.
    """

    def __init__(self, count: int) -> None:
        """The thread that starts it is one more host, at `here`, until it is stopped; and so is what it begins."""
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
        """Each host has a network of four addresses with the router alone."""
        return f"{self._net}.{4 * at + (1 if router else 2)}"

    def start(self) -> None:
        """Starts the network. Skips the test if that cannot be done."""
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
        """Gives a host its cable to the router."""
        name, router = self._names[at], self._address(at, router=True)
        made = _ip([f"link add p{at} type veth peer name eth0 netns {name}"], self._router)
        if made.returncode:
            return made
        its = [f"address add {self._address(at)}/30 dev eth0", "link set eth0 up", "link set lo up"]
        _ip([f"address add {router}/30 dev p{at}", f"link set p{at} up"], self._router).check_returncode()
        return _ip([*its, f"route add {self._net}.0/24 via {router}"], name)

    def part(self, lost: Host, others: Sequence[Host]) -> None:
        """Nothing comes through between one host and the others any more, and nobody is told.

        What it sends is dropped last: so what one of two replicas has confirmed to it, the other has received.
        """
        before = [f"rule add from {other.address} to {lost.address} blackhole" for other in others]
        then = [f"rule add from {lost.address} to {other.address} blackhole" for other in others]
        for lines in (before, then):
            _ip(lines, self._router).check_returncode()
        self._rules += [*before, *then]

    def heal(self) -> None:
        """All is as it was."""
        lines = [line.replace("rule add", "rule del") for line in self._rules]
        self._rules.clear()
        _ip(lines, self._router).check_returncode()

    def stop(self) -> None:
        """Its links end with it."""
        if self._left is not None:
            _enter(self._left)
            os.close(self._left)
        for name in (self._router, *self._names):
            _ip([f"netns del {name}"])


def _enter(namespace: int) -> None:
    """Puts this thread, and what it starts, into the namespace, by setns(2)."""
    if ctypes.CDLL(None, use_errno=True).setns(namespace, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "the network namespace cannot be entered")


def _ip(lines: Sequence[str], name: str = "") -> subprocess.CompletedProcess[str]:
    """What `ip` does in the namespace of the name, or in this process' own."""
    command = ["ip", *(("-n", name) if name else ()), "-batch", "-"]
    return subprocess.run(command, input="\n".join(lines) + "\n", text=True, capture_output=True, check=False)


@contextlib.contextmanager
def hosts(count: int) -> Iterator[Network]:
    """A network of so many hosts. Skips the test if there can be none."""
    network = Network(count)
    try:
        network.start()
        yield network
    finally:
        network.stop()
