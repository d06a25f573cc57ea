"""Hosts of the tests' own, in network namespaces around a router, and the network between them parted for real."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence

import pytest

from support.redis_server import Host


class Network:
    """Addresses are of 198.18.0.0/15, which no network uses but those that are tested."""

    def __init__(self, count: int) -> None:
        """This process is one more host, at `here`."""
        number, self._tag = os.getpid() % 512, f"rm-{os.getpid()}"
        self._net = f"198.{18 + number // 256}.{number % 256}"
        self._router = f"{self._tag}-router"
        self._rules: list[str] = []
        self.here = Host(self._address(0))
        names = [f"{self._tag}-{at}" for at in range(1, count + 1)]
        self.hosts = [Host(self._address(at), ("ip", "netns", "exec", name)) for at, name in enumerate(names, start=1)]
        self._names = [self._router, *names]

    def _address(self, at: int, *, router: bool = False) -> str:
        """Each host has a network of four addresses with the router alone."""
        return f"{self._net}.{4 * at + (1 if router else 2)}"

    def start(self) -> None:
        """Skips the test where that cannot be done."""
        if shutil.which("ip") is None:
            pytest.skip("iproute2 is not installed: no network to part")
        lines = [f"netns add {name}" for name in self._names]
        lines.append(f"link add {self._tag} type veth peer name p0 netns {self._router}")
        made = _ip(lines)
        if made.returncode:
            pytest.skip(f"no network namespaces can be made, as root may: {made.stderr.strip()}")
        subprocess.run(
            [*("ip", "netns", "exec", self._router), *("sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")],
            check=True,
        )
        self._join("", self._tag, 0)
        for at, name in enumerate(self._names[1:], start=1):
            _ip([f"link add p{at} type veth peer name eth0 netns {name}"], self._router).check_returncode()
            self._join(name, "eth0", at)

    def _join(self, name: str, device: str, at: int) -> None:
        router = self._address(at, router=True)
        its = [f"address add {self._address(at)}/30 dev {device}", f"link set {device} up"]
        its += ["link set lo up"] if name else []
        _ip([*its, f"route add {self._net}.0/24 via {router}"], name).check_returncode()
        _ip([f"address add {router}/30 dev p{at}", f"link set p{at} up"], self._router).check_returncode()

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
        for name in self._names:
            _ip([f"netns del {name}"])


def _ip(lines: Sequence[str], name: str = "") -> subprocess.CompletedProcess[str]:
    """What `ip` does in the namespace of the name, or in this process' own."""
    command = ["ip", *(("-n", name) if name else ()), "-batch", "-"]
    return subprocess.run(command, input="\n".join(lines) + "\n", text=True, capture_output=True, check=False)


@contextlib.contextmanager
def hosts(count: int) -> Iterator[Network]:
    """So many of them. Skips the test where there can be none."""
    network = Network(count)
    try:
        network.start()
        yield network
    finally:
        network.stop()
