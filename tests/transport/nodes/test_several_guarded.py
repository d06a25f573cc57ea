"""Clusters and sentinels with TLS and users: one URL suffices, and the documented permissions do too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.callers import PATIENT, open_caller
from support.checks import catch_unavailable
from support.redis_server import RedisServer, free_port, say
from support.sentinel_servers import SERVICE
from support.waiting import wait_until

from redismem import Memory, NotAllowed
from redismem.protocol import permissions

KINDS = ("asyncio", "blocking")


def tls_options(certificates: Path, port: int) -> tuple[str, ...]:
    files = {"--tls-ca-cert-file": "ca.crt", "--tls-cert-file": "node.crt", "--tls-key-file": "node.key"}
    words = [word for option, name in files.items() for word in (option, str(certificates / name))]
    return ("--tls-port", str(port), "--tls-auth-clients", "no", *words)


@pytest.fixture(scope="module")
def alone(certificates: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RedisServer, int]]:
    """A cluster of one node, which announces its TLS port to clients that use TLS."""
    tls_port = free_port()
    cluster = ("--cluster-enabled", "yes", "--cluster-port", str(free_port()), "--tls-cluster", "yes")
    options = (*cluster, *tls_options(certificates, tls_port))
    server = RedisServer(tmp_path_factory.mktemp("alone"), options=options).start()
    try:
        server.say("CLUSTER", "ADDSLOTSRANGE", 0, 16_383)
        wait_until(lambda: b"cluster_state:ok" in server.say("CLUSTER", "INFO"), "that the cluster is up")
        yield server, tls_port
    finally:
        server.stop()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_cluster_over_tls(
    kind: str, alone: tuple[RedisServer, int], certificates: Path, namespace: str
) -> None:
    _, tls_port = alone
    url = f"rediss+cluster://127.0.0.1:{tls_port}?ssl_ca_certs={certificates / 'ca.crt'}"
    async with open_caller(kind, url, namespace) as caller:
        await caller.append("user-42", "a")
        assert await caller.texts("user-42") == ["a"]
    memory = Memory.connect(url.partition("?")[0], namespace=namespace, settings=PATIENT)
    assert "the server certificate is not valid" in str(await catch_unavailable(memory.ping()))
    await memory.aclose()


@pytest.mark.parametrize("kind", KINDS)
async def test_the_documented_permissions_are_enough_on_a_cluster(
    kind: str, alone: tuple[RedisServer, int], namespace: str
) -> None:
    server, _ = alone
    line = f"ACL SETUSER app on >pw resetchannels resetkeys -@all {permissions.acl(namespace)}"
    say(server.port, *line.split())
    url = f"redis+cluster://app:pw@127.0.0.1:{server.port}"
    async with open_caller(kind, url, namespace) as caller:
        await caller.turn("user-42", "a")
        assert await caller.texts("user-42") == ["a"]
        assert await caller.count() == 1
    say(server.port, "ACL", "SETUSER", "app", "-cluster|slots")
    memory = Memory.connect(url, namespace=namespace, settings=PATIENT)
    with pytest.raises(NotAllowed, match=r"CLUSTER\|SLOTS"):
        await memory.ping()
    await memory.aclose()


async def test_a_single_node_is_not_a_cluster(redis_server: RedisServer, namespace: str) -> None:
    url = redis_server.url.replace("redis://", "redis+cluster://")
    memory = Memory.connect(url, namespace=namespace, settings=PATIENT)
    assert "it is a single node, not a cluster: its URL begins with redis://" in str(
        await catch_unavailable(memory.ping())
    )
    await memory.aclose()


@pytest.mark.parametrize("kind", KINDS)
async def test_sentinels_over_tls(kind: str, certificates: Path, tmp_path: Path, namespace: str) -> None:
    tls_port, sentinel_port = free_port(), free_port()
    server = RedisServer(tmp_path / "node", options=tls_options(certificates, tls_port)).start()
    folder = tmp_path / "sentinel"
    folder.mkdir()
    lines = [f"sentinel monitor {SERVICE} 127.0.0.1 {tls_port} 1", f"dir {folder}", "tls-replication yes"]
    (folder / "sentinel.conf").write_text("\n".join(lines) + "\n")
    sentinel = Watching(folder, options=tls_options(certificates, sentinel_port)).start()
    url = f"rediss+sentinel://127.0.0.1:{sentinel_port}/{SERVICE}/0?ssl_ca_certs={certificates / 'ca.crt'}"
    try:
        async with open_caller(kind, url, namespace) as caller:
            await caller.append("user-42", "a")
            assert await caller.texts("user-42") == ["a"]
    finally:
        sentinel.stop()
        server.stop()


class Watching(RedisServer):
    """A sentinel with its own settings file."""

    def command(self) -> list[str]:
        binary, *options = super().command()
        return [binary, str(self.folder / "sentinel.conf"), "--sentinel", *options]
