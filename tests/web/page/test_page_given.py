"""The panel of the model's input, in a real browser: its figures are the server's, and its request is exact."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import BrowserContext, Page, expect
from support.browser import faults_of, open_page, park_page, save_screenshot, violations
from support.forked_service import run_service
from support.redis_server import RedisServer
from support.writers import Echo

from redismem import Context, Memory, Settings
from redismem.session.session import Session
from redismem.workers.summaries import Worker

pytestmark = pytest.mark.asyncio(loop_scope="session")
expect.set_options(timeout=60_000)
PROMPT = {"role": "system", "content": "You sell kettles. Be brief, and be kind."}
# JavaScript would round this number, and sort the keys before it.
EXACT = {"role": "user", "content": "Which kettles?", "metadata": {"10": 1, "2": 12345678901234567890}}
LONG_COUNT = 300


def numbered(first: int, count: int) -> list[dict[str, Any]]:
    roles = ("user", "assistant")
    return [
        {"role": roles[number % 2], "content": f"{number}: the kettle is {'very ' * 60}blue."}
        for number in range(first, first + count)
    ]


@pytest_asyncio.fixture(loop_scope="session")
async def long_session(redis_server: RedisServer, namespace: str) -> AsyncIterator[Session]:
    """A session with a system prompt, a summary, and 300 messages after it."""
    settings = Settings(deadline_s=60, reply_timeout_s=20)
    async with Memory.connect(redis_server.url, namespace=namespace, settings=settings) as memory:
        session = memory.session("long")
        await session.append(PROMPT, *numbered(1, 26))
        await Worker(memory.store, Echo()).drain()
        for at in range(0, LONG_COUNT - 1, 300):
            await session.append(*numbered(at, min(300, LONG_COUNT - 1 - at)))
        await session.append(EXACT)
        yield session


async def check_figures(page: Page, whole: Context) -> None:
    """Check counts and tokens of all parts against the context."""
    parts = {name: getattr(whole, name) for name in ("summaries", "pinned", "pending", "recent")}
    tokens = {name: sum(each.tokens for each in part) for name, part in parts.items()}
    await expect(page.locator("#tokens-count")).to_have_text(f"{sum(tokens.values()):,}")
    legend = [f"{name} {count:,}" for name, count in tokens.items()]
    await expect(page.locator("#tokens-legend li:visible")).to_have_text(legend)
    for name, part in parts.items():
        await expect(page.locator(f"#{name}-count")).to_have_text(f"{len(part):,}")
    await expect(page.locator("#pinned .line-text")).to_have_text([PROMPT["content"]])
    unread_count = whole.window_count - 200
    await expect(page.locator("#pending-word")).to_contain_text(f"The {unread_count:,} earliest are not listed")
    await page.get_by_role("button", name="Show earlier messages").click()
    # All of one day.
    await expect(page.locator("#pending-word")).to_have_text("In full, until a summary replaces them.")


async def copied_request(page: Page, call: str) -> str:
    """Return the text that the button copies once the dialog shows the request of this call."""
    dialog = page.get_by_role("dialog", name="The request to the model")
    await expect(dialog.get_by_role("status")).to_contain_text(f"context.{call}() returns it. Only the beginning")
    assert await page.locator("#request-text").inner_text() != ""
    await dialog.get_by_role("button", name="Copy").click()
    await expect(dialog.get_by_role("status")).to_have_text("Copied.")
    return str(await page.evaluate("navigator.clipboard.readText()"))


async def test_figures_and_request_are_those_of_the_whole_context(
    context: BrowserContext, redis_server: RedisServer, namespace: str, long_session: Session
) -> None:
    await context.grant_permissions(["clipboard-read", "clipboard-write"])
    whole = await long_session.read()
    assert (len(whole.summaries), len(whole.pinned)) == (1, 1)
    assert len(whole.pending) > LONG_COUNT - 10
    assert whole.pinned[0].seq < whole.first_seq, "the prompt has left the window"
    with run_service("--no-workers", "--url", redis_server.url, "--namespace", namespace) as url:
        page = await open_page(context, url, long_session.id)
        await check_figures(page, whole)
        await save_screenshot(page, "figures")
        await page.get_by_role("button", name="Show the request").press("Enter")
        await expect(page.get_by_label("OpenAI")).to_be_focused()
        text = await copied_request(page, "to_openai")
        assert json.loads(text) == {"messages": whole.to_openai()}
        assert '"10": 1,\n        "2": 12345678901234567890' in text
        await save_screenshot(page, "request")
        assert await violations(page, part="dialog[open]") == []
        for call in ("to_anthropic", "to_gemini"):
            await page.get_by_role("radio", checked=True).press("ArrowRight")
            assert json.loads(await copied_request(page, call)) == getattr(whole, call)()
        await long_session.clear()
        await expect(page.locator("#request")).to_be_hidden()
        assert await page.locator("#request-text").text_content() == ""
        await expect(page.get_by_role("button", name="Show the request")).to_be_disabled()
        assert faults_of(page) == []
        await park_page(page)
