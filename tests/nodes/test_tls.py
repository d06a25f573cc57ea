"""The TLS settings of docs/operations.md: one node, a cluster and sentinels work with them, and errors name the
untrusted side."""

from __future__ import annotations

import asyncio
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support.callers import open_caller
from support.certificates import make_authority
from support.checks import catch_unavailable
from support.cluster_servers import ClusterServers
from support.redis_server import RedisServer
from support.sentinel_servers import SentinelServers

from redismem import Memory, Settings
from redismem.blocking import memory as blocking
from redismem.cli import main

PAGE = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
SECTION = PAGE[PAGE.index("## TLS") :].partition("\n## ")[0]
LINES, CREATION = re.findall(r"^```text\n(.*?)^```", SECTION, re.MULTILINE | re.DOTALL)
(QUERY,) = re.findall(r"`rediss://\S+(\?\S+)`", SECTION)
SETTINGS = Settings(shards=16, threshold=3, recent_limit=1, deadline_s=120, reply_timeout_s=20)
KINDS = ("asyncio", "blocking")


@pytest.fixture
def options(certificates: Path) -> tuple[str, ...]:
    """The settings, with a port and a folder of this test."""
    lines = LINES.replace("6379", "PORT").replace("/etc/redis", str(certificates))
    return tuple(word for name, value in map(shlex.split, lines.splitlines()) for word in (f"--{name}", value))


@pytest.fixture
def tls(certificates: Path) -> dict[str, Any]:
    """Options that let redis-py connect."""
    files = {"ssl_ca_certs": "ca.crt", "ssl_certfile": "pod.crt", "ssl_keyfile": "pod.key"}
    return {"ssl": True, **{name: str(certificates / file) for name, file in files.items()}}


def url_of(servers: RedisServer | ClusterServers | SentinelServers, certificates: Path) -> str:
    return servers.url.replace("redis", "rediss", 1) + QUERY.replace("/etc/pod", str(certificates))


def use(url: str, namespace: str, patch: pytest.MonkeyPatch) -> None:
    """Take turns with both memories, run a worker, and run the operators' commands."""
    for name in ("shards", "threshold", "recent_limit", "deadline_s", "reply_timeout_s"):
        patch.setenv(f"REDISMEM_{name.upper()}", str(getattr(SETTINGS, name)))
    patch.setenv("REDISMEM_URL", url)

    async def begin() -> None:
        async with Memory.connect(namespace=namespace) as memory:
            for number in range(12):
                await memory.session(f"s-{number}").append(*({"role": "user", "content": text} for text in "abc"))

    asyncio.run(begin())
    with blocking.Memory.connect(namespace=namespace) as memory:
        for number in range(12):
            context = memory.session(f"s-{number}").append_and_read({"role": "user", "content": "d"})
            assert [message.content for message in context.messages] == ["a", "b", "c", "d"]
        for words in (["worker", "--once"], ["doctor", "--deep"], ["status"]):
            assert main([*words, "--namespace", namespace]) == 0, words
        assert all(memory.session(f"s-{number}").read().summaries for number in range(12))


async def check_refused(url: str, strangers: Path) -> None:
    """Check the errors without a certificate, with a foreign certificate, and with a foreign authority."""
    certificate = re.compile(r"ssl_certfile=([^&]*)/pod.crt&ssl_keyfile=[^&]*/pod.key")
    foreign = f"ssl_certfile={strangers}/pod.crt&ssl_keyfile={strangers}/pod.key"
    for wrong, why in (
        (certificate.sub("", url).rstrip("&"), "it rejects this client: .*certificate required"),
        (certificate.sub(foreign, url), "it rejects this client: .*unknown ca"),
        (re.sub("ssl_ca_certs=[^&]*", f"ssl_ca_certs={strangers}/ca.crt", url), "the server certificate is not valid"),
    ):
        memory = Memory.connect(wrong, settings=SETTINGS)
        twin = blocking.Memory.connect(wrong, settings=SETTINGS)
        for refused in (await catch_unavailable(memory.ping()), await catch_unavailable(asyncio.to_thread(twin.ping))):
            assert re.search(why, refused.text)
            assert not refused.may_be_done
        await memory.aclose()
        await asyncio.to_thread(twin.close)


@pytest.fixture(scope="module")
def strangers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with certificates of another authority."""
    folder = tmp_path_factory.mktemp("strangers")
    make_authority(folder)
    return folder


def test_one_node_over_tls(
    options: tuple[str, ...],
    tls: dict[str, Any],
    certificates: Path,
    strangers: Path,
    tmp_path: Path,
    namespace: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    server = RedisServer(tmp_path, options=options)
    server.tls = tls
    server.start()
    url = url_of(server, certificates)
    try:
        use(url, namespace, monkeypatch)
        asyncio.run(check_refused(url, strangers))
        capsys.readouterr()
        assert main(["doctor", "--url", url.partition("&")[0]]) == 3
        assert "certificate required" in " ".join("".join(capsys.readouterr()).split())
    finally:
        server.stop()


def test_a_cluster_made_over_tls(
    options: tuple[str, ...],
    tls: dict[str, Any],
    certificates: Path,
    strangers: Path,
    tmp_path: Path,
    namespace: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if shutil.which("redis-cli") is None:
        pytest.skip("redis-cli is not installed: the cluster is made with it")
    servers = ClusterServers(tmp_path, replicas=False, more=options, tls=tls)
    try:
        for node in servers.nodes:
            node.start()
        command = CREATION.replace("/etc/redis", str(certificates)).replace("HOST:PORT", "").split()
        places = [node.place for node in servers.nodes]
        subprocess.run([*command, *places, "--cluster-yes"], check=True, capture_output=True)
        servers.until_well()
        url = url_of(servers, certificates)
        use(url, namespace, monkeypatch)
        asyncio.run(follow(servers, url, namespace))
        asyncio.run(check_refused(url, strangers))
    finally:
        servers.stop()


async def follow(servers: ClusterServers, url: str, namespace: str) -> None:
    """Move a slot with its keys, over TLS between the nodes too."""
    for kind in KINDS:
        async with open_caller(kind, url, namespace, SETTINGS) as caller:
            name = f"moved-{kind}"
            await caller.append(name, "a")
            slot = caller.slot(name)
            source = servers.owner(slot)
            servers.move(slot, next(node for node in servers.nodes if node is not source))
            await caller.append(name, "b")
            assert await caller.texts(name) == ["a", "b"]
            assert caller.sent_counts() == [1, 1]


@pytest.mark.nightly  # a cluster shows it nearly as well
def test_sentinels_and_replicas_over_tls(
    options: tuple[str, ...],
    tls: dict[str, Any],
    certificates: Path,
    strangers: Path,
    tmp_path: Path,
    namespace: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    servers = SentinelServers(tmp_path, down_after_ms=60_000, nodes_count=2, options=options, tls=tls)
    try:
        servers.start()
        url = url_of(servers, certificates)
        use(url, namespace, monkeypatch)
        asyncio.run(fail_over(servers, url, namespace))
        asyncio.run(check_refused(url, strangers))
    finally:
        servers.stop()


async def fail_over(servers: SentinelServers, url: str, namespace: str) -> None:
    async with (
        open_caller("asyncio", url, namespace, SETTINGS) as caller,
        open_caller("blocking", url, namespace, SETTINGS) as blocked,
    ):
        await caller.append("user-42", "a")
        was = servers.primary
        servers.until_in_step()
        was.kill()
        waiting = [
            asyncio.ensure_future(each.append("user-42", text, id=text))
            for each, text in ((caller, "b"), (blocked, "c"))
        ]
        await asyncio.to_thread(servers.fail_over)
        await asyncio.gather(*waiting)
        assert sorted(await caller.texts("user-42")) == ["a", "b", "c"]
