"""Each fault that a real server can have is on the page at the next look; its advice, followed, makes it green."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import pytest_asyncio
import redis.asyncio
from playwright.async_api import BrowserContext, Locator, Page, expect
from support.browser import faults_of, open_page, save_screenshot, violations
from support.checks import until
from support.forked_service import run_service
from support.redis_server import REDIS_8, RedisServer, binary_of
from support.selection import EVERYTHING
from support.stores import LONG_DEADLINES

from redismem import Memory, Settings
from redismem.errors import ModelFailed, ProviderUnavailable
from redismem.inspection import quarantine
from redismem.inspection.loading import load_scripts
from redismem.models import Draft
from redismem.workers.scheduler import Scheduler
from redismem.workers.summaries import Worker

pytestmark = pytest.mark.asyncio(loop_scope="session")
expect.set_options(timeout=60_000)
OPTIONS = ("--maxmemory", "100mb", "--client-output-buffer-limit", "normal 64mb 16mb 10")
NAMESPACE = "sick"


class Writer:
    """A strategy that writes summaries, unless the test sets an error."""

    provider = "openai"

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error

    async def compact(self, messages: Any, previous: str | None) -> Draft:
        if self.error is not None:
            raise self.error
        return Draft("they said x", 0, 0, "m")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A server in which the doctor finds nothing."""
    server = RedisServer(tmp_path_factory.mktemp("sick"), aof=True, options=OPTIONS)
    server.binary = binary_of(REDIS_8)
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def url(server: RedisServer) -> Iterator[str]:
    # A call waits so long for somebody who loads the scripts.
    with run_service("--no-workers", "--url", server.url, "--namespace", NAMESPACE, REDISMEM_DEADLINE_S="1") as address:
        yield address


@pytest_asyncio.fixture(loop_scope="session")
async def memory(server: RedisServer) -> AsyncIterator[Memory]:
    # The scheduler ticks once and holds its works for long: the page looks at them later.
    settings = Settings(deadline_s=60, reply_timeout_s=20, extractive_after_s=0, max_attempts=1, tick_s=300)
    async with Memory.connect(server.url, namespace=NAMESPACE, settings=settings) as memory:
        yield memory


@pytest_asyncio.fixture(loop_scope="session")
async def raw(server: RedisServer) -> AsyncIterator[Any]:
    async with redis.asyncio.Redis(port=server.port) as raw:
        yield raw


async def check_again(page: Page) -> None:
    async with page.expect_response("**/v1/doctor?again=true"):
        await page.get_by_role("button", name="Check again").click()
    await expect(page.get_by_role("button", name="Check again")).to_be_enabled()


async def expect_shown(page: Page, expected: dict[str, str]) -> None:
    """Check again until exactly these findings are shown: on a busy machine, one more may come and go."""
    shown: dict[str, str] = {}

    async def are_shown() -> bool:
        await check_again(page)
        pairs = await page.locator("#findings li").evaluate_all(
            "rows => rows.map(row => [row.dataset.key, row.querySelector('.chip').innerText])"
        )
        shown.clear()
        shown.update(pairs)
        return shown == expected

    try:
        await until(are_shown)
    except TimeoutError:
        assert shown == expected


async def expect_green(page: Page) -> None:
    await expect_shown(page, {})
    await expect(page.locator("#doctor[data-verdict=ok] #doctor-word")).to_have_text("No problems found")


async def expect_findings(page: Page, **expected: str) -> dict[str, Locator]:
    """Check that exactly these findings are shown, and return their rows."""
    await expect_shown(page, expected)
    return {name: page.locator(f"#findings li[data-key={name}]") for name in expected}


async def fill(memory: Memory, count: int) -> None:
    for number in range(count):
        await memory.session(f"s-{number}").append(*({"role": "user", "content": "x"} for _ in range(12)))


async def tick(scheduler: Scheduler) -> None:
    await scheduler.tick()
    await asyncio.gather(*scheduler._running)


async def test_each_finding_is_shown_and_its_advice_makes_the_page_green(
    context: BrowserContext, url: str, server: RedisServer, memory: Memory, raw: Any
) -> None:
    page = await open_page(context, url)
    await page.get_by_role("link", name="Operations").click()
    await expect(page.locator("#processes-checks .seen")).to_have_text("no worker runs for this namespace")
    await expect_green(page)
    for scene in (configure, restrict, forget_scripts, *([work] if EVERYTHING else []), harm):
        await scene(page, memory, raw)
        await expect_green(page)
    await asyncio.to_thread(server.kill)
    await expect(page.locator("#findings li[data-key=connection]")).to_contain_text("Is the server up")
    await asyncio.to_thread(server.start)
    await expect_green(page)
    assert faults_of(page) == []


async def configure(page: Page, memory: Memory, raw: Any) -> None:
    """Spoil the configuration, and set what the advice says."""
    good: dict[str, str] = {}
    spoilt = {"maxmemory-policy": "allkeys-lru", "appendonly": "no", "busy-reply-threshold": "0"}
    for name, value in spoilt.items():
        good |= await raw.config_get(name)
        await raw.config_set(name, value)
    rows = await expect_findings(page, memory="fail", persistence="warn", config="warn")
    await expect(page.locator("#findings li").first).to_contain_text("maxmemory-policy noeviction")
    await expect(rows["persistence"].locator(".advice code")).to_have_text(["appendonly yes", "appendfsync everysec"])
    await expect(rows["config"].locator(".advice")).to_contain_text("busy-reply-threshold 5000")
    for name in spoilt:
        await raw.config_set(name, good[name])


async def restrict(page: Page, memory: Memory, raw: Any) -> None:
    """Take a right from the service's user, and run the command that the page shows."""
    await raw.acl_setuser("admin", enabled=True, passwords=["+pw"], keys=["*"], categories=["+@all"])
    await raw.execute_command("ACL", "SETUSER", "default", "-zadd")
    try:
        await expect_findings(page, commands="fail")
        line = (await page.locator("#acl").inner_text()).replace(" USER ", " default ", 1)
        await raw.execute_command(*(word for word in line.split() if not word.startswith(("~rm:", "&rm:"))))
    finally:
        await raw.execute_command("ACL", "SETUSER", "default", "+zadd")


async def forget_scripts(page: Page, memory: Memory, raw: Any) -> None:
    """Let nobody but the deployer load scripts, as docs/operations.md says, and forget the scripts."""
    await raw.execute_command("ACL", "SETUSER", "default", "-script|load", "-eval")
    await raw.script_flush()
    rows = await expect_findings(page, scripts="fail")
    await expect(rows["scripts"]).to_contain_text("redismem repair scripts")
    deployer = f"redis://admin:pw@127.0.0.1:{raw.connection_pool.connection_kwargs['port']}/0"
    async with Memory.connect(deployer, namespace=NAMESPACE, settings=LONG_DEADLINES) as other:
        await load_scripts(other.store)
    await expect_green(page)
    await raw.execute_command("ACL", "SETUSER", "default", "+@all")


async def work(page: Page, memory: Memory, raw: Any) -> None:
    """Stop all work: no worker, a provider that fails, sessions that are late, and one that is dead."""
    await fill(memory, 41)
    rows = await expect_findings(page, ticks="warn")
    await expect(rows["ticks"]).to_contain_text("41 sessions overdue")
    await expect(page.locator("#dead-checks .seen")).to_have_text("no session is dead")
    writer = Writer(ProviderUnavailable("503", reason="503 overloaded", retry_after_s=0.01))
    await Worker(memory.store, writer).drain()
    await expect_findings(page, providers="fail", ticks="warn")
    await expect(page.locator("#findings li[data-key=providers]")).to_contain_text("503 overloaded")
    await save_screenshot(page, "operations-sick")
    assert await violations(page) == []
    writer.error = None
    await until_written(memory, writer)
    await expect_green(page)
    writer.error = ModelFailed("400", reason="400 too_long", permanent=True)
    await fill(memory, 1)
    await until_written(memory, writer)
    rows = await expect_findings(page, dead="warn")
    await expect(rows["dead"]).to_contain_text("400 too_long")
    writer.error = None
    await page.get_by_role("button", name="Retry s-0").click()
    await expect(page.locator("#dead li")).to_have_count(0)
    await until_written(memory, writer)
    keys = memory.store.keys.session("s-0")
    late_ms = await memory.server_time_ms() - 300_000
    await raw.zadd(keys.shard.overdue, {"s-0": late_ms})
    await expect_findings(page, ticks="warn", summaries="warn")
    scheduler = Scheduler(memory.store, writer)
    await tick(scheduler)
    await expect_green(page)
    await expect(page.locator("#processes li")).to_contain_text("summaries (openai)")
    await scheduler.stop()


async def until_written(memory: Memory, writer: Writer) -> None:
    """Drain until no session is due."""
    while (await memory.queues()).overdue.count:
        await Worker(memory.store, writer).drain()


async def harm(page: Page, memory: Memory, raw: Any) -> None:
    """Let other programs harm sessions, and fill the namespace."""
    await memory.session("kept").append({"role": "user", "content": "x"})
    await raw.persist(memory.store.keys.session("kept").state)
    await memory.session("broken").append({"role": "user", "content": "x"})
    await raw.hset(memory.store.keys.session("broken").state, "counters", "broken")
    await memory.session("broken").touch()
    await raw.hset(memory.store.keys.dictionaries, "1", b"broken")
    await expect_findings(page, expiry="fail", dictionaries="fail", quarantine="warn")
    await memory.session("kept").touch()
    await raw.delete(memory.store.keys.dictionaries)
    await quarantine.drop(memory.store, await quarantine.find(memory.store, "broken", None))
