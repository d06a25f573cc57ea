"""The operations view: its numbers, its plots, and the retry of dead sessions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from playwright.async_api import BrowserContext, expect
from support.browser import faults_of, open_page, save_screenshot, say
from support.forked_service import run_service
from support.redis_server import RedisServer

from redismem import Memory, Settings
from redismem.errors import ModelFailed
from redismem.workers.outcomes import SummaryOutcome
from redismem.workers.summaries import Worker

pytestmark = pytest.mark.asyncio(loop_scope="session")
expect.set_options(timeout=60_000)
REASON = "openai answered 400 context_length_exceeded"


class Refusing:
    """A strategy that refuses every summary for good."""

    async def compact(self, messages: Any, previous: str | None) -> Any:
        raise ModelFailed("400", reason=REASON, permanent=True)


@pytest.fixture(scope="module")
def url(server_options: list[Any]) -> Iterator[str]:
    """A service without workers, so queues do not drain."""
    with run_service("--no-workers", *server_options) as address:
        yield address


@pytest.fixture(autouse=True)
def remove_sessions(server_options: list[Any], redis_server: RedisServer) -> Iterator[None]:
    """Remove all sessions after each test, because the tests count them."""
    yield
    with redis.Redis(port=redis_server.port) as client:
        client.delete(*client.scan_iter(f"rm:{{{server_options[3]}:*"))


async def kill_sessions(redis_server: RedisServer, namespace: str, *names: str) -> None:
    """Create dead sessions: the model refuses their summaries for good."""
    settings = Settings(extractive_after_s=0, deadline_s=60, reply_timeout_s=20)
    async with Memory.connect(redis_server.url, namespace=namespace, settings=settings) as memory:
        for name in names:
            await memory.session(name).append(*({"role": "user", "content": f"{number}"} for number in range(12)))
        worker = Worker(memory.store, Refusing())
        await worker.drain()
        assert worker.outcomes[SummaryOutcome.DEAD] >= len(names)


async def test_operations_show_numbers_and_retry_dead_sessions(
    context: BrowserContext, url: str, server_options: list[Any], redis_server: RedisServer
) -> None:
    page = await open_page(context, url)
    await say(page, "A turn to be counted")
    await kill_sessions(redis_server, server_options[3], "dead/1", "dead/2", "dead/3")
    await page.get_by_role("link", name="Operations").click()
    tile = page.locator(".tile")
    await expect(tile.filter(has_text="Sessions")).to_contain_text("4of 1,000")
    await expect(tile.filter(has_text="Turns per second")).to_contain_text("0 failed")
    await expect(tile.filter(has_text="p99")).to_contain_text(" ms")
    await expect(tile.filter(has_text="Store")).to_contain_text("answers")
    await expect(page.locator("#plots .plot-card")).to_have_count(3)
    times = page.locator(".plot-card", has_text="Time of a turn in the memory")
    await expect(times.locator(".plot-word")).to_have_text(re.compile(r"p50 [\d.]+ ms, p99 [\d.]+ ms"))
    await expect(times.locator(".plot-line-1")).to_have_attribute("d", re.compile(r"^M"))
    await expect(page.locator("#queues tr", has_text="dead").locator(".number").first).to_have_text("3")
    await expect(page.locator("#queues tr", has_text="dead").locator(".number").last).to_have_text(re.compile(r"\d"))

    rows = page.locator("#dead li")
    await expect(rows).to_have_count(3)
    await expect(rows.first).to_contain_text(f"{REASON}, after 1 attempt, just now")
    await save_screenshot(page, "operations")
    await rows.last.scroll_into_view_if_needed()
    await save_screenshot(page, "operations-dead")
    await page.get_by_role("button", name="Retry dead/1").click()
    await expect(rows).to_have_count(2)
    await expect(page.locator("#queues tr", has_text="overdue").locator(".number").first).to_have_text("1")
    await page.get_by_role("button", name="Retry all").click()
    await expect(page.locator("#dead-checks .seen")).to_have_text("no session is dead")
    await expect(page.locator("#queues tr", has_text="overdue").locator(".number").first).to_have_text("3")
    assert faults_of(page) == []


async def test_the_chat_shows_a_notice_and_all_messages_of_a_dead_session(
    context: BrowserContext, url: str, server_options: list[Any], redis_server: RedisServer
) -> None:
    await kill_sessions(redis_server, server_options[3], "dead/4")
    page = await open_page(context, url, "dead/4")
    await expect(page.locator(".entry.stored")).to_have_count(12)
    more = [{"role": "user", "content": f"more {number}"} for number in range(6)]
    assert (await page.request.post(f"{url}/v1/sessions/dead%2F4/messages", data=more)).ok
    await say(page, "and one more")
    await expect(page.locator(".theirs .notices").last).to_contain_text("Nothing is lost")
    await page.get_by_label("failing").check()
    await expect(page.locator(".conversation-failing")).to_have_text(f"Dead, its summary failed for good: {REASON}")
    assert faults_of(page) == []
