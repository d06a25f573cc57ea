"""The page when the model, Redis or the server fails. It loses no message."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.async_api import BrowserContext, Page, Route, expect
from support.browser import (
    faults_of,
    open_page,
    park_page,
    save_screenshot,
    say,
    session_id_of,
    violations,
    visible_texts,
)
from support.checks import until
from support.forked_service import run_service
from support.provider_answers import TEXT
from support.provider_server import ProviderServer
from support.redis_server import RedisServer, free_port
from support.stores import LONG_DEADLINES

import redismem.blocking

pytestmark = pytest.mark.asyncio(loop_scope="session")
expect.set_options(timeout=60_000)


@pytest.fixture(scope="module")
def own_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A Redis that keeps its data when it is killed and restarted."""
    # `everysec` may delay a write while the disk is slow.
    server = RedisServer(tmp_path_factory.mktemp("redis"), aof=True, options=("--appendfsync", "no")).start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def url(own_redis: RedisServer, environment: dict[str, str]) -> Iterator[str]:
    with run_service("--url", own_redis.url, **environment) as address:
        yield address


# Counts the drawings with an answer in progress.
WATCH_DOTS = """window.dots = 0;
new MutationObserver(() => { dots += document.querySelectorAll(".entry.streaming").length; })
  .observe(document, {subtree: true, childList: true, attributes: true});"""


def stored_messages(server: RedisServer, page: Page) -> list[tuple[str | None, object]]:
    """Return the stored messages of the page's session."""
    with redismem.blocking.Memory.connect(server.url, settings=LONG_DEADLINES) as memory:
        return [(message.role, message.content) for message in memory.session(session_id_of(page)).messages()]


async def test_a_failed_answer_can_be_requested_again(
    context: BrowserContext, url: str, healthy_model: ProviderServer, own_redis: RedisServer
) -> None:
    page = await open_page(context, url)
    await expect(page.locator("#identity")).to_contain_text("some-model")
    healthy_model.mode = "500"
    await say(page, "Where is my parcel?")
    await expect(page.locator(".theirs .notices")).to_contain_text("The model did not answer")
    await expect(page.locator(".theirs .notices")).to_contain_text("Your message is stored.")
    await save_screenshot(page, "model-failed")
    await page.add_init_script(WATCH_DOTS)
    await page.reload()
    await expect(page.locator(".theirs .notices")).to_contain_text("The model did not answer")
    await expect(page.locator(".theirs .fault")).to_have_text("No answer: the model failed.")
    await expect(page.get_by_role("button", name="Send", exact=True)).to_be_enabled()
    assert await page.evaluate("dots") == 0, "an answer that has failed is not being written"
    healthy_model.mode = "ok"
    await page.get_by_role("button", name="Send again").click()
    await expect(page.locator(".theirs.stored .text")).to_have_text(TEXT)
    await expect(page.get_by_role("button", name="Send again")).to_have_count(0)
    assert stored_messages(own_redis, page) == [("user", "Where is my parcel?"), ("assistant", TEXT)]
    assert faults_of(page) == []


async def test_a_model_that_breaks_off_leaves_its_text(
    context: BrowserContext, url: str, healthy_model: ProviderServer
) -> None:
    page = await open_page(context, url)
    healthy_model.mode = "break"
    await say(page, "Where is my parcel?")
    await expect(page.locator(".theirs.stored .text")).to_have_text("Your parcel ")
    await expect(page.locator(".theirs .fault")).to_have_text("Incomplete: the model failed.")
    await expect(page.locator(".theirs .notices")).to_contain_text("The model broke off")
    healthy_model.mode = "ok"
    await page.get_by_role("button", name="Ask again").click()
    await expect(page.locator(".theirs.stored .text").last).to_have_text(TEXT)
    assert faults_of(page) == []


async def test_a_failed_read_is_retried(context: BrowserContext, url: str, healthy_model: ProviderServer) -> None:
    page = await open_page(context, url)
    await say(page, "Where is my parcel?")
    session_id = session_id_of(page)
    await park_page(page)
    refused: list[str] = []

    async def refuse(route: Route) -> None:
        refused.append(route.request.url)
        await route.fulfill(status=503, json={"code": "too_late", "title": "The request took too long"})

    await context.route("**/context/parts", refuse, times=1)
    page = await open_page(context, url, session_id)
    await expect(page.locator(".mine.stored .text")).to_have_text("Where is my parcel?")
    await expect(page.locator("body")).to_have_attribute("data-health", "well")
    assert len(refused) == 1
    assert faults_of(page) == []


async def test_a_stream_that_a_proxy_ends_each_minute_is_no_lost_connection(context: BrowserContext, url: str) -> None:
    page = await open_page(context, url)
    session_id = session_id_of(page)
    await park_page(page)
    ends: list[str] = []

    async def end(route: Route) -> None:
        ends.append(route.request.url)
        await route.fulfill(content_type="text/event-stream", body='event: changed\ndata: {"exists": false}\n\n')

    await context.route("**/events", end)
    page = await open_page(context, url, session_id)
    watch = """() => {
      window.seen = [];
      new MutationObserver(() => window.seen.push(document.body.dataset.health))
        .observe(document.body, {attributeFilter: ["data-health"]});
    }"""
    await page.evaluate(watch)
    already_count = len(ends)
    await until(lambda: len(ends) > already_count + 2)
    assert "lost" not in await page.evaluate("window.seen")


async def test_an_outage_of_redis_and_a_reload_lose_no_message(
    context: BrowserContext, url: str, healthy_model: ProviderServer, own_redis: RedisServer
) -> None:
    page = await open_page(context, url)
    await say(page, "First, before the outage")
    await expect(page.locator(".entry.stored")).to_have_count(2)
    own_redis.kill()
    await expect(page.locator("#health")).to_contain_text("Memory unreachable")
    await expect(page.locator("#banner")).to_contain_text("The memory is unreachable right now.")
    await say(page, "Second, in the midst of it")
    await expect(page.locator(".theirs .notices").last).to_contain_text("based on your last message only")
    await expect(page.locator(".mine.lost .fault")).to_have_text("Not stored in the memory.")
    assert (await visible_texts(page))[:2] == ["First, before the outage", TEXT]
    await save_screenshot(page, "degraded")
    own_redis.start()
    await expect(page.locator("#health")).to_contain_text("Connected")
    await expect(page.locator("#banner")).to_be_hidden()
    await expect(page.locator(".entry.stored")).to_have_count(2)
    await page.reload()
    await expect(page.locator(".mine.lost .text")).to_have_text("Second, in the midst of it")
    await page.get_by_role("button", name="Send again").click()
    await expect(page.locator(".entry.stored")).to_have_count(4)
    await expect(page.locator(".entry.lost")).to_have_count(0)
    users = [text for role, text in stored_messages(own_redis, page) if role == "user"]
    assert users == ["First, before the outage", "Second, in the midst of it"]
    assert faults_of(page) == []


async def test_a_clear_that_fails_says_so_loses_nothing_and_can_be_tried_again(
    context: BrowserContext, url: str, healthy_model: ProviderServer, own_redis: RedisServer
) -> None:
    page = await open_page(context, url)
    await say(page, "First, before the outage")
    await expect(page.locator(".entry.stored")).to_have_count(2)
    own_redis.kill()
    await say(page, "Second, in the midst of it")
    await expect(page.locator(".mine.lost")).to_have_count(1)
    await page.locator("#message").fill("Third, not sent yet")
    await page.get_by_role("button", name="Clear…").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog).to_contain_text("1 message of this tab that the memory has not stored will be removed too.")
    await dialog.get_by_role("button", name="Clear it").click()
    await expect(dialog.get_by_role("alert")).to_have_text("The memory is unreachable right now.")
    await expect(dialog.get_by_role("button", name="Try again")).to_be_focused()
    await save_screenshot(page, "clear-failed")
    assert await violations(page, part="dialog[open]") == []
    await dialog.get_by_role("button", name="Keep it").click()
    await expect(page.locator(".mine.lost .text")).to_have_text("Second, in the midst of it")
    assert "Second" in await page.evaluate("sessionStorage.getItem('redismem.turns')")
    await page.get_by_role("button", name="Clear…").click()
    await expect(dialog.get_by_role("alert")).to_have_text("")
    await dialog.get_by_role("button", name="Clear it").click()
    await dialog.get_by_role("button", name="Try again").wait_for()
    own_redis.start()
    await expect(page.locator("body")).to_have_attribute("data-health", "well")
    await dialog.get_by_role("button", name="Try again").click()
    await expect(dialog).to_be_hidden()
    await expect(page.locator(".entry")).to_have_count(0)
    assert await page.evaluate("sessionStorage.getItem('redismem.turns')") is None
    assert await page.locator("#message").input_value() == "Third, not sent yet"
    assert faults_of(page) == []


async def test_the_page_reconnects_after_a_restart_of_the_server(
    context: BrowserContext, healthy_model: ProviderServer, own_redis: RedisServer, environment: dict[str, str]
) -> None:
    words = ("--url", own_redis.url, "--port", free_port())
    with run_service(*words, **environment) as own_url:
        page = await open_page(context, own_url)
        await say(page, "Before the restart")
        await expect(page.locator(".entry.stored")).to_have_count(2)
    await expect(page.locator("#health")).to_contain_text("No connection")
    await say(page, "In between", wait=False)
    with run_service(*words, **environment):
        await expect(page.locator("#health")).to_contain_text("Connected")
        await expect(page.locator(".entry.stored")).to_have_count(4)
        assert [text for _, text in stored_messages(own_redis, page)] == [
            "Before the restart",
            TEXT,
            "In between",
            TEXT,
        ]
        assert faults_of(page) == []
        await park_page(page)
