"""Fixtures that all tests share: servers, and the two kinds of store."""

from __future__ import annotations

import gc
import itertools
import os
import shutil
import signal
from collections.abc import AsyncIterator, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import fakeredis
import pytest
import redis.asyncio
import redis.utils
from hypothesis import HealthCheck, settings
from support import selection
from support.certificates import make_authority
from support.clock import Clock
from support.cluster_servers import ON_DEMAND, ClusterServers
from support.proxy import Proxy
from support.redis_server import RedisServer
from support.sentinel_servers import SentinelServers
from support.stores import PATIENT, Store

from redismem import Memory, Session, Settings
from redismem.protocol import scripts
from redismem.protocol.keys import Keys, SessionKeys
from redismem.store import agreement

# Properties may be slow, and may use fixtures that are shared by all examples.
# Twelve fixed examples, so that a change does not fail for code that it did not touch; `make nightly` tries a hundred.
# `make explore` draws new ones, and more of them.
ANY_MACHINE = settings(
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    derandomize=True,
    max_examples=12,
)
PROFILES = {
    "EXPLORE": settings(ANY_MACHINE, derandomize=False, max_examples=1_000, print_blob=True),
    "EVERYTHING": settings(ANY_MACHINE, max_examples=100),
    "QUICK": settings(ANY_MACHINE, max_examples=10),
}
settings.register_profile("chosen", next((PROFILES[name] for name in PROFILES if name in os.environ), ANY_MACHINE))
settings.load_profile("chosen")

_numbers = itertools.count(1)
_shared_servers: list[RedisServer] = []
_shares = itertools.count()
_ended: list[int] = []

# Collection creates thousands of permanent objects; garbage collection would take a third of the time.
gc.disable()
# Each client of redis-py reads the metadata of its package, for half a millisecond.
redis.utils.get_lib_version = cache(redis.utils.get_lib_version)


def pytest_configure() -> None:
    """Remove settings from the environment, so that they do not change results, and set long deadlines.

    Tests build settings while they are imported, and child processes inherit the environment. Tests of the defaults
    have the fixture `default_deadlines`.
    """
    for name in [name for name in os.environ if name.startswith("REDISMEM_")]:
        del os.environ[name]
    os.environ.update(PATIENT)


@pytest.hookimpl(optionalhook=True)  # without xdist there are no processes
def pytest_configure_node(node: Any) -> None:
    """Share the tests out: with `--dist each`, each process runs all that it collects."""
    if node.config.getvalue("dist") == "each":
        node.workerinput["share"] = _ended.pop() if _ended else next(_shares)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Leave the share of a process that crashed to its successor."""
    _ended.append(node.workerinput.get("share"))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    return selection.EachItsShare(config, log) if config.getvalue("dist") == "each" else None


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    is_elsewhere = selection.is_of_another_process(collection_path, config)
    return is_elsewhere or selection.is_not_quick(collection_path) or None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    # A file that the command line names is collected by each process.
    items[:] = [item for item in items if not selection.is_of_another_process(item.path, config)]
    left_out = [item for item in items if selection.is_left_out(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not selection.is_left_out(item)]


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.fixture
def default_deadlines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the long deadlines of the tests from the environment."""
    for name in PATIENT:
        monkeypatch.delenv(name)


@pytest.fixture(scope="session", autouse=True)
def no_lower_priority() -> Iterator[None]:
    """Keep the priority of this process: `redismem worker`, run in it, would slow all later tests down."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "nice", lambda increment: increment, raising=False)
        yield


@pytest.fixture(scope="session", autouse=True)
def one_look_at_the_record() -> Iterator[None]:
    """Let a memory look at its namespace's record once: a second later, which may pass anywhere, it would again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(agreement, "_LOOK_AGAIN_S", 3_600.0)
        yield


@pytest.fixture(scope="session", autouse=True)
def ctrl_c_is_heard() -> None:
    """Restore SIGINT: a shell makes background processes ignore it, and child processes inherit that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """One server for all tests that need any Redis; each test has its own namespace."""
    server = RedisServer(tmp_path_factory.mktemp("redis")).start()
    _load_scripts(server)
    _shared_servers.append(server)
    yield server
    _shared_servers.clear()
    server.stop()


@pytest.fixture(scope="module", autouse=True)
def no_keys_of_other_files() -> Iterator[None]:
    """Empty the shared server after each file: many tests look through all keys, which would be those of the run."""
    yield
    for server in _shared_servers:
        server.say("FLUSHALL", "SYNC")
        _load_scripts(server)


def _load_scripts(server: RedisServer) -> None:
    """Load what the server lacks: else a first reply would depend on the tests before, which load scripts too."""
    known = [scripts.load(name) for name in scripts.names()]
    for script, is_loaded in zip(known, server.say("SCRIPT", "EXISTS", *(each.sha for each in known)), strict=True):
        if not is_loaded:
            server.say("SCRIPT", "LOAD", script.source)


@pytest.fixture(scope="session")
def cluster_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterServers]:
    """One Redis Cluster for all tests that do not change it."""
    servers = ClusterServers(tmp_path_factory.mktemp("cluster"), more=ON_DEMAND)
    try:
        yield servers.start()
    finally:
        servers.stop()


@pytest.fixture(scope="session")
def sentinel_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SentinelServers]:
    """One group of sentinels for all tests that do not change it."""
    servers = SentinelServers(tmp_path_factory.mktemp("sentinel"))
    try:
        yield servers.start()
    finally:
        servers.stop()


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ca.crt, node.crt and pod.crt, and their keys."""
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
    """The clock of all memories of the test's store, which the test sets."""
    return Clock()


@pytest.fixture(params=["real", "embedded"])
def store(request: pytest.FixtureRequest) -> Store:
    """Redis and the embedded store: a test runs on both if it is in `ON_BOTH_STORES` of support/selection.py."""
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
    """A memory of the test on the store."""
    async with store.memory(namespace) as memory:
        yield memory


@pytest.fixture
def session(memory: Memory) -> Session:
    """The session that most tests use."""
    return memory.session("user-42")


@pytest.fixture
def keys(namespace: str) -> SessionKeys:
    """The keys of that session."""
    return Keys(namespace, 64).session("user-42")


@pytest.fixture
async def proxy(redis_server: RedisServer) -> AsyncIterator[Proxy]:
    """A proxy in front of the shared server."""
    async with Proxy(redis_server.port) as proxy:
        yield proxy


@pytest.fixture
async def direct_memory(redis_server: RedisServer, namespace: str) -> AsyncIterator[Memory]:
    """A memory on the shared server, without the proxy."""
    settings = Settings(deadline_s=60, reply_timeout_s=20)
    async with Memory.connect(redis_server.url, namespace=namespace, settings=settings) as memory:
        yield memory
