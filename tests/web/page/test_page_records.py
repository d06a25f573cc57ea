"""Conversations of agent frameworks on the page: listed beside the memory's own, and read in the thread."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.async_api import BrowserContext, Locator, Page, expect
from support.browser import faults_of, open_page, save_screenshot, violations
from support.framework_talks import ANSWER, QUESTION, RESULT, TOOL, remove, talk_langgraph, talk_pydantic_ai
from support.redis_server import RedisServer
from support.stores import LONG_DEADLINES

from redismem import Memory
from redismem.record import Change

pytestmark = pytest.mark.asyncio(loop_scope="session")
expect.set_options(timeout=60_000)


async def check_row(row: Locator, *texts: str) -> None:
    for text in texts:
        await expect(row).to_contain_text(text)


async def check_filters(page: Page, rows: Locator) -> None:
    for owner, count in (("ann", 1), ("", 3)):
        await page.locator("#search-owner").fill(owner)
        await page.locator("#search-owner").press("Tab")
        await expect(rows).to_have_count(count)
    for text, count in (("weather 7/b", 1), ("", 3)):
        await page.locator("#search-text").fill(text)
        await expect(rows).to_have_count(count)


async def check_thread(page: Page) -> None:
    await expect(page.locator("#thread .entry")).to_have_count(4)
    await expect(page.locator("#thread .mine .text")).to_have_text(QUESTION)
    await expect(page.locator("#thread .fold.call")).to_contain_text(TOOL)
    await expect(page.locator("#thread .fold.result")).to_contain_text(RESULT)
    await expect(page.locator("#chat-title")).to_have_text(QUESTION)
    await expect(page.locator("#chat-owner")).to_have_text("ann")
    await expect(page.locator("#record-word")).to_contain_text("LangGraph")


async def test_a_framework_s_conversation_is_read_and_gone_once_removed(
    context: BrowserContext, url: str, server_options: list[Any], redis_server: RedisServer
) -> None:
    namespace = server_options[server_options.index("--namespace") + 1]
    async with Memory.connect(redis_server.url, namespace=namespace, settings=LONG_DEADLINES) as memory:
        await talk_langgraph(memory, redis_server.url, "order 7/b", "ann")
        await talk_pydantic_ai(memory, redis_server.url, "trip", None)
        await memory.record("langgraph:torn").write(Change(sets={b"v": b"1", b"c:\0z": b"x"}, adds=[b"c:\0z"]))
        page = await open_page(context, url)
        rows = page.locator("#record-list li")
        await expect(rows).to_have_count(3)  # unfolded, as there are no other conversations
        await check_row(rows.filter(has_text="LangGraph").filter(has_text="ann"), QUESTION, "order 7/b")
        await check_row(rows.filter(has_text="Pydantic AI"), ANSWER)
        await check_row(rows.filter(has_text="torn").locator(".conversation-failing"), "Damaged")
        await check_filters(page, rows)
        await rows.filter(has_text="ann").click()
        await check_thread(page)
        await expect(page.locator("#message")).to_be_hidden()
        await expect(page.get_by_role("button", name="Clear…")).to_be_disabled()
        await save_screenshot(page, "record")
        assert await violations(page) == []
        await rows.filter(has_text="torn").click()
        await expect(page.locator("#thread-fault-word")).to_contain_text("Damaged")
        await page.go_back()
        await expect(page.locator("#thread .entry")).to_have_count(4)
        await page.get_by_role("button", name="New").click()
        await expect(page.locator("#message")).to_be_enabled()
        await expect(page.locator("#record-word")).to_be_hidden()
        await expect(page.locator("#thread .entry")).to_have_count(0)
        await page.go_back()
        await expect(page.locator("#thread .entry")).to_have_count(4)
        await remove("langgraph", memory, redis_server.url, "order 7/b", "ann")
        await page.reload()
        await expect(page.locator("#thread-fault-word")).to_have_text("This conversation does not exist (any more).")
        await expect(page.locator("#record-list li")).to_have_count(2)
        await expect(page.locator("#health-text")).to_have_text("Connected")
        assert QUESTION not in await page.locator("#thread").inner_text()
        assert faults_of(page) == []
