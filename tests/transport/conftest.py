"""Both event loops, and a Redis with users, TLS and a unix socket."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from support.lanes import lane_to
from support.redis_server import RedisServer, free_port
from support.servers import GuardedServer, TlsServer

from redismem.transport.lane import Lane


def pytest_asyncio_loop_factories(item: pytest.Item) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The lane's tests run on asyncio's own loop, and on uvloop where that is installed."""
    factories: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {"asyncio": asyncio.new_event_loop}
    if item.path.name.startswith(("test_lane", "test_address")):
        with contextlib.suppress(ImportError):
            import uvloop

            factories["uvloop"] = uvloop.new_event_loop
    return factories


@pytest.fixture
async def lane(redis_server: RedisServer) -> AsyncIterator[Lane]:
    async with lane_to(redis_server.port) as lane:
        yield lane


def _openssl(folder: Path, *words: str) -> None:
    subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ca.crt, and node.crt and node.key for 127.0.0.1 and localhost."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed: no certificates to test TLS with")
    folder = tmp_path_factory.mktemp("certificates")
    new = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    # Newer Pythons refuse certificates that do not say what they are for and who signed them.
    usage = ("-subj", "/CN=test CA", "-addext", "keyUsage=critical,keyCertSign,cRLSign")
    _openssl(folder, "req", "-x509", *new, "-keyout", "ca.key", "-out", "ca.crt", *usage, "-days", "2")
    _openssl(folder, "req", *new, "-keyout", "node.key", "-out", "node.csr", "-subj", "/CN=node")
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\nauthorityKeyIdentifier=keyid\n")
    signed_by = ("-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "names", "-days", "2")
    _openssl(folder, "x509", "-req", "-in", "node.csr", *signed_by, "-out", "node.crt")
    return folder


@pytest.fixture(scope="session")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedServer]:
    folder = tmp_path_factory.mktemp("guarded")
    socket_path = folder / "redis.sock"
    server = GuardedServer(folder, options=("--unixsocket", str(socket_path)))
    server.socket_path = socket_path
    server.start()
    server.let_nobody_in()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def tls_server(certificates: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsServer]:
    """Wants a client's certificate on its TLS port."""
    tls_port = free_port()
    files = {"--tls-ca-cert-file": "ca.crt", "--tls-cert-file": "node.crt", "--tls-key-file": "node.key"}
    options = [word for option, name in files.items() for word in (option, str(certificates / name))]
    server = TlsServer(tmp_path_factory.mktemp("tls"), options=("--tls-port", str(tls_port), *options))
    server.tls_port = tls_port
    server.start()
    yield server
    server.stop()
