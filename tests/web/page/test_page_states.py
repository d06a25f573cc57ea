"""The page before it has read anything, and after a request that failed."""

from __future__ import annotations

import re
from typing import Any

import pytest
import redis
from playwright.async_api import Browser, BrowserContext, Page, expect
from support.browser import (
    append_until_summarized,
    faults_of,
    hold_request,
    open_context,
    open_page,
    save_screenshot,
    session_id_of,
    violations,
)
from support.redis_server import RedisServer
from support.stores import LONG_DEADLINES

from redismem import Memory

pytestmark = pytest.mark.asyncio(loop_scope="session")
expect.set_options(timeout=60_000)


async def check_nothing_is_claimed(page: Page) -> None:
    """Check that the page shows no figure, no text about what is stored, and no enabled button for it."""
    for name in ("tokens-count", "summaries-word", "recent-word", "state-word", "welcome", "conversations-word"):
        await expect(page.locator(f"#{name}")).to_be_hidden()
    for name in ("Clear…", "Show the request"):
        await expect(page.get_by_role("button", name=name)).to_be_disabled()
    await expect(page.locator("#given-body .skeleton")).to_be_visible()
    await expect(page.locator("#thread-skeleton")).to_be_visible()


async def test_nothing_is_claimed_before_the_first_read(context: BrowserContext, url: str) -> None:
    page = await open_page(context, url)
    await append_until_summarized(page)
    first = session_id_of(page)
    checkup = await hold_request(page, "**/v1/doctor", times=None)
    holds = [await hold_request(page, pattern) for pattern in ("**/context/parts", "**/v1/sessions?*")]
    await page.reload()
    for asked, _ in holds:
        await asked.wait()
    await check_nothing_is_claimed(page)
    await save_screenshot(page, "skeleton")
    assert await violations(page) == []
    for _, released in holds:
        released.set()
    await expect(page.locator("#tokens-count")).not_to_have_text("0")
    await expect(page.get_by_role("button", name="Clear…")).to_be_enabled()
    await expect(page.locator(".skeleton:visible")).to_have_count(0)
    # The figures of one conversation are not shown for the next.
    asked, released = await hold_request(page, "**/context/parts")
    await page.get_by_role("button", name="New").click()
    await asked.wait()
    assert session_id_of(page) != first
    await check_nothing_is_claimed(page)
    released.set()
    await expect(page.locator("#tokens-count")).to_have_text("0")
    await expect(page.locator("#welcome")).to_be_visible()
    holds = [await hold_request(page, "**/v1/load"), checkup]
    await page.get_by_role("link", name="Operations").click()
    for asked, _ in holds:
        await asked.wait()
    assert await page.locator("#operations-view .count").all_text_contents() == ["", "", ""]
    await expect(page.locator("#badges")).to_be_hidden()
    assert await page.locator("#operations-view .checks li, #tiles li, #queues tr, #processes li").count() == 0
    assert await violations(page, "empty-heading", "summary-name") == []
    for _, released in holds:
        released.set()
    await expect(page.locator("#dead-count")).to_have_text("0")
    assert faults_of(page) == []


async def test_a_conversation_that_cannot_be_read_says_why(
    context: BrowserContext, url: str, server_options: list[Any], redis_server: RedisServer
) -> None:
    namespace = server_options[server_options.index("--namespace") + 1]
    async with Memory.connect(redis_server.url, namespace=namespace, settings=LONG_DEADLINES) as memory:
        session = memory.session("of-a-later-release")
        await session.append({"role": "user", "content": "hello"})
        key = memory.store.keys.session(session.id).messages
        with redis.Redis.from_url(redis_server.url) as raw:
            element = raw.lindex(key, 0)
            raw.lset(key, 0, element[:1] + b"\x09" + element[2:])
            page = await open_page(context, url, session.id)
            await expect(page.locator("#thread-fault-word")).to_have_text(re.compile("^Another release wrote this"))
            await expect(page.locator(".skeleton:visible")).to_have_count(1)
            await save_screenshot(page, "unreadable")
            assert await violations(page, part="#thread-fault") == []
            raw.lset(key, 0, element)
        await expect(page.locator(".mine .text")).to_have_text("hello")
        await expect(page.locator("#thread-fault")).to_be_hidden()
    await page.route("**/context/parts", lambda route: route.fulfill(status=500, json={"code": "internal"}), times=1)
    await page.reload()
    await expect(page.locator("#thread-fault-word")).to_have_text("Something went wrong in the server.")
    await page.get_by_role("button", name="Try again").click()
    await expect(page.locator(".mine .text")).to_have_text("hello")
    await page.goto(f"{url}/#/s/%00")
    await expect(page.locator("#thread-fault-word")).to_have_text("No conversation can have this id.")
    await expect(page.get_by_role("button", name="Try again")).to_be_hidden()
    assert faults_of(page) == []


async def test_an_action_that_fails_is_told_where_one_looks(context: BrowserContext, url: str) -> None:
    page = await open_page(context, url)
    at = page.url
    await page.route("**/v1/sessions", lambda route: route.fulfill(status=503, json={"code": "overloaded"}), times=1)
    await page.get_by_role("button", name="New").click()
    await expect(page.locator("#toast")).to_contain_text("This server is overloaded. Try again in a moment.")
    await save_screenshot(page, "toast")
    assert await violations(page, part="#toast") == []
    assert page.url == at
    await page.get_by_role("button", name="Dismiss").click()
    await expect(page.locator("#toast")).to_be_hidden()
    assert faults_of(page) == []


async def test_the_page_takes_few_requests_and_few_bytes(browser: Browser, context: BrowserContext, url: str) -> None:
    page = await open_page(context, url)
    await append_until_summarized(page)
    address = page.url
    fresh = await open_context(browser)
    page = await fresh.new_page()
    received_bytes: dict[str, float] = {}
    cdp = await fresh.new_cdp_session(page)
    await cdp.send("Network.enable")
    cdp.on("Network.requestWillBeSent", lambda event: received_bytes.update({event["requestId"]: 0}))
    cdp.on(
        "Network.loadingFinished", lambda event: received_bytes.update({event["requestId"]: event["encodedDataLength"]})
    )
    await page.goto(address)
    await expect(page.locator(".summary")).to_have_count(1)
    await expect(page.locator(".conversation[aria-current]")).to_have_count(1)
    assert len(received_bytes) <= 12
    assert 10_000 < sum(received_bytes.values()) < 100_000
    received_bytes.clear()
    await page.reload()
    await expect(page.locator(".summary")).to_have_count(1)
    # Script, styles and icon come from the cache.
    assert sum(received_bytes.values()) < 10_000
    await fresh.close()


async def test_what_can_be_read_of_a_damaged_conversation_is_shown_with_the_fault(
    context: BrowserContext, url: str, server_options: list[Any], redis_server: RedisServer
) -> None:
    namespace = server_options[server_options.index("--namespace") + 1]
    async with Memory.connect(redis_server.url, namespace=namespace, settings=LONG_DEADLINES) as memory:
        session = memory.session("damaged")
        await session.append({"role": "user", "content": "hello"}, {"role": "assistant", "content": "lost"})
        key = memory.store.keys.session(session.id).messages
        with redis.Redis.from_url(redis_server.url) as raw:
            raw.lset(key, 1, b"\xc1")
            page = await open_page(context, url, session.id)
            damaged = re.compile("^The stored conversation is damaged")
            await expect(page.locator("#thread-fault-word")).to_have_text(damaged)
            await expect(page.locator(".mine .text")).to_have_text("hello")
            await expect(page.locator("#sick")).to_contain_text("Damaged: it cannot be read as a whole")
            await expect(page.locator("#sick")).to_contain_text("A message cannot be decoded.")
            await save_screenshot(page, "damaged")
            assert await violations(page, part="#thread-fault") == []
            assert raw.lrange(key, 1, 1) == [b"\xc1"], "an opened page changes nothing"
        await session.append_and_read({"role": "user", "content": "anew"})
        await expect(page.locator(".mine .text")).to_have_text("anew")
        await expect(page.locator("#thread-fault")).to_be_hidden()
    assert faults_of(page) == []
