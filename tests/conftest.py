"""Fixtures for all tests: a redis-server per process, and the two stores that tests run on."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import fakeredis
import pytest
import redis.asyncio
from hypothesis import HealthCheck, settings
from support.certificates import make_authority
from support.clock import Clock
from support.cluster_servers import ON_DEMAND, ClusterServers
from support.proxy import Proxy
from support.redis_server import RedisServer
from support.sentinel_servers import SentinelServers
from support.stores import Store

from redismem import Memory, Session, Settings
from redismem.protocol.keys import Keys, SessionKeys

# No property depends on the machine's pace, nor on a fixture that is the same for all of its examples.
ANY_MACHINE = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
# The examples are the same each time, so that nobody's change fails for what it has not touched; `make explore` draws
# new ones, and more of them.
settings.register_profile("any machine", deadline=None, suppress_health_check=ANY_MACHINE, derandomize=True)
settings.register_profile(
    "explore", settings.get_profile("any machine"), derandomize=False, max_examples=1_000, print_blob=True
)
settings.load_profile("explore" if "EXPLORE" in os.environ else "any machine")

_numbers = itertools.count(1)

LONGEST_FIRST = (
    "workers/test_worker_processes.py",
    "model_check/test_mutants.py",
    "workers/test_outages.py",
    "nodes/test_outages.py",
    "nodes/test_parted.py",
    "repository/test_typed.py",
    "repository/test_benchmarks.py",
    "project_model/test_models.py",
    "workers/test_outage_processes.py",
    "nodes/test_sentinel.py",
    "store/test_outages.py",
    "web/page/test_page_access.py",
    "project_model/test_mutants.py",
    "web/page/test_page_faults.py",
    "web/page/test_page_chat.py",
    "session/test_model.py",
)
"""Long files, started first by parallel test processes, so that no process waits for one of them at the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {Path(__file__).parent / name: place for place, name in enumerate(LONGEST_FIRST)}
    assert all(path.is_file() for path in places), "a file of LONGEST_FIRST has another name"
    items.sort(key=lambda item: places.get(item.path, len(places)))


@pytest.fixture(scope="session", autouse=True)
def no_settings_from_outside() -> Iterator[None]:
    """Remove settings from the environment, so that they do not affect the tests."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("REDISMEM_")]:
            patch.delenv(name)
        yield


@pytest.fixture(scope="session", autouse=True)
def ctrl_c_is_heard() -> None:
    """Restore SIGINT: a shell makes background processes ignore it, and their children inherit that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """One server for all tests that only need a real one; each test has a namespace of its own."""
    server = RedisServer(tmp_path_factory.mktemp("redis")).start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def cluster_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterServers]:
    """One Redis Cluster for all tests that only need one and leave it as it was."""
    servers = ClusterServers(tmp_path_factory.mktemp("cluster"), more=ON_DEMAND)
    try:
        yield servers.start()
    finally:
        servers.stop()


@pytest.fixture(scope="session")
def sentinel_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SentinelServers]:
    """One primary with sentinels for all tests that only need one and leave it as it was."""
    servers = SentinelServers(tmp_path_factory.mktemp("sentinel"))
    try:
        yield servers.start()
    finally:
        servers.stop()


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ca.crt, and node.crt and pod.crt with their keys."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed: no certificates to test TLS with")
    folder = tmp_path_factory.mktemp("certificates")
    make_authority(folder)
    return folder


@pytest.fixture
def namespace() -> str:
    return f"test-{os.getpid()}-{next(_numbers)}"


@pytest.fixture
def clock() -> Clock:
    """A clock that a test sets: memories of its store use it instead of the server's time."""
    return Clock()


@pytest.fixture(params=["real", "embedded"])
def store(request: pytest.FixtureRequest) -> Store:
    """The store: real Redis and the embedded store; a test with this fixture runs on both."""
    clock: Clock | None = request.getfixturevalue("clock") if "clock" in request.fixturenames else None
    if request.param == "real":
        server: RedisServer = request.getfixturevalue("redis_server")
        return Store(lambda: redis.asyncio.Redis(port=server.port), clock)
    fake = fakeredis.FakeServer()
    return Store(lambda: fakeredis.FakeAsyncRedis(server=fake), clock)


@pytest.fixture
async def raw(store: Store) -> Any:
    """A raw client on the store."""
    async with store.client() as client:
        yield client


@pytest.fixture
async def memory(store: Store, namespace: str) -> Any:
    """A memory of this test's own, on the store."""
    async with store.memory(namespace) as memory:
        yield memory


@pytest.fixture
def session(memory: Memory) -> Session:
    """The session that most tests use."""
    return memory.session("user-42")


@pytest.fixture
def keys(namespace: str) -> SessionKeys:
    """The keys of the session of most tests."""
    return Keys(namespace, 64).session("user-42")


@pytest.fixture
async def proxy(redis_server: RedisServer) -> AsyncIterator[Proxy]:
    """A proxy in front of the shared server, which can disturb the connection."""
    async with Proxy(redis_server.port) as proxy:
        yield proxy


@pytest.fixture
async def near(redis_server: RedisServer, namespace: str) -> AsyncIterator[Memory]:
    """A memory that connects to the shared server without the proxy."""
    settings = Settings(deadline_s=60, reply_timeout_s=20)
    async with Memory.connect(redis_server.url, namespace=namespace, settings=settings) as memory:
        yield memory
