"""Turns on the page: each tab, behind each server, shows what runs, and stops it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.async_api import BrowserContext, FloatRect, Page, Route, expect
from support.browser import PHONE, faults_of, open_page, park_page, save_screenshot, say, session_id_of, violations
from support.commands import start_command, wait_for_line
from support.forked_service import run_service
from support.provider_answers import PIECES, TEXT
from support.provider_server import ProviderServer
from support.redis_server import free_port

pytestmark = pytest.mark.asyncio(loop_scope="session")
expect.set_options(timeout=60_000)
HALF = "".join(PIECES[:2])
MESSAGE = "Where is my parcel?"


@pytest.fixture(scope="module")
def url(server_options: list[Any], environment: dict[str, str]) -> Iterator[str]:
    with run_service(*server_options[:4], **environment) as address:
        yield address


@pytest.fixture(scope="module")
def other_url(server_options: list[Any], environment: dict[str, str]) -> Iterator[str]:
    """The address of another service on the same Redis."""
    with run_service(*server_options[:4], **environment) as address:
        yield address


@pytest.fixture
def hanging_model(model: ProviderServer) -> ProviderServer:
    """The provider of the model, set to break off its answers in the middle until they are released."""
    model.mode = "hang"
    model.hold()
    return model


async def box_of(page: Page, name: str) -> FloatRect:
    box = await page.locator(name).bounding_box()
    assert box is not None
    return box


async def test_a_double_click_is_one_turn_and_stops_nothing(
    context: BrowserContext, url: str, hanging_model: ProviderServer
) -> None:
    asked_count = len(hanging_model.asked)
    page = await open_page(context, url, viewport={"width": PHONE["width"], "height": PHONE["height"]})
    await expect(page.locator("#welcome")).to_be_visible()
    before = [await box_of(page, name) for name in ("#composer", "#send", "#message")]
    await page.locator("#message").fill(MESSAGE)
    await page.locator("#send").dblclick()
    await expect(page.locator(".theirs.streaming .text")).to_have_text(HALF)
    await expect(page.locator("#message")).to_be_focused()
    await page.mouse.click(before[1]["x"] + 5, before[1]["y"] + 5)  # once more, now that Stop is there
    assert [await box_of(page, name) for name in ("#composer", "#send", "#message")] == before
    stop, dots = await box_of(page, "#stop"), await box_of(page, ".theirs .dots")
    assert stop["y"] + stop["height"] <= before[1]["y"]
    assert dots["x"] + dots["width"] <= stop["x"]
    await save_screenshot(page, "streaming")
    assert await violations(page, part=".pane.chat") == []
    await expect(page.get_by_role("button", name="Send", exact=True)).to_be_disabled()
    await page.locator("#message").press("Escape")
    await expect(page.locator(".theirs.stored .fault")).to_have_text("Incomplete: stopped.")
    await expect(page.get_by_role("button", name="Stop")).to_be_hidden()
    await page.locator("#message").press("Escape")  # there is nothing to stop
    hanging_model.mode = "ok"
    # Two keys within one task: the second comes before any answer to the first.
    await page.locator("#message").fill("And now?")
    await expect(page.get_by_role("button", name="Send", exact=True)).to_be_enabled()
    twice = "for (const _ of [1, 2]) message.dispatchEvent(new KeyboardEvent('keydown', {key: 'Enter', bubbles: true}))"
    await page.evaluate(twice)
    await expect(page.locator(".theirs.stored .text").last).to_have_text(TEXT)
    await expect(page.locator(".entry.stored")).to_have_count(4)
    assert len(hanging_model.asked) == asked_count + 2
    assert faults_of(page) == []


async def test_a_reload_and_a_tab_of_another_server_follow_a_turn_and_stop_it(
    context: BrowserContext, url: str, other_url: str, hanging_model: ProviderServer
) -> None:
    asked_count = len(hanging_model.asked)
    page = await open_page(context, url)
    other = await open_page(context, other_url, session_id_of(page))
    await say(page, MESSAGE, wait=False)
    for each in (page, other):  # the other tab was open before the turn began
        await expect(each.locator(".mine.stored .text")).to_have_text(MESSAGE)
        await expect(each.locator(".theirs.streaming .text")).to_have_text(HALF)
    await page.reload()
    await expect(page.locator(".theirs.streaming .text")).to_have_text(HALF)
    await expect(page.get_by_role("button", name="Stop")).to_be_visible()
    for is_hidden, count in (("true", 0), ("false", 1)):  # a hidden tab needs no connection for the answer
        await page.evaluate(f"Object.defineProperty(document, 'hidden', {{value: {is_hidden}, configurable: true}})")
        await page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        await expect(page.locator(".theirs.streaming")).to_have_count(count)
    await expect(other.get_by_role("button", name="Stop")).to_be_hidden()  # it is reading
    await other.get_by_role("button", name="Write as this user").click()
    await other.get_by_role("button", name="Stop").click()
    for each in (page, other):
        await expect(each.locator(".theirs.stored .fault")).to_have_text("Incomplete: stopped.")
        await expect(each.locator(".theirs .text")).to_have_text(HALF)
        await expect(each.get_by_role("button", name="Stop")).to_be_hidden()
        await expect(each.locator(".entry")).to_have_count(2)
    # The answer that the other tab asks for runs to its end here.
    await other.get_by_role("button", name="Ask again").click()
    await expect(page.locator(".theirs.streaming .text")).to_have_text(HALF)
    hanging_model.release()
    for each in (page, other):
        await expect(each.locator(".theirs.stored .text").last).to_have_text(TEXT)
        await expect(each.locator(".entry.stored")).to_have_count(4)
    assert len(hanging_model.asked) == asked_count + 2
    assert faults_of(page) + faults_of(other) == []


async def test_a_message_that_is_refused_stays_in_the_field(
    context: BrowserContext, url: str, hanging_model: ProviderServer
) -> None:
    """A turn of another program runs, of which the page does not hear."""
    first = True

    async def answer_once(route: Route) -> None:
        nonlocal first
        if first:
            first = False
            await route.fulfill(content_type="text/event-stream", body='event: changed\ndata: {"exists": false}\n\n')

    await context.route("**/events", answer_once)
    page = await open_page(context, url)
    await expect(page.locator("#welcome")).to_be_visible()  # the page has read that there is nothing
    turns = f"{url}/v1/sessions/{session_id_of(page)}/turns"
    begun = await page.request.post(turns, data={"message": MESSAGE}, headers={"Prefer": "respond-async"})
    assert begun.status == 202
    field = page.locator("#message")
    await field.fill("Me too")
    await field.press("Enter")
    await expect(page.locator("#toast")).to_contain_text("An answer is being written in this conversation.")
    await expect(field).to_have_value("Me too")
    await expect(page.locator(".mine")).to_have_count(0)
    assert await page.evaluate("sessionStorage.getItem('redismem.turns')") is None
    assert (await (await page.request.post(f"{turns}/current/stop", data={})).json()) == {"stopped": True}
    hanging_model.mode = "ok"
    await field.press("Enter")
    await expect(page.locator(".theirs.stored .text").last).to_have_text(TEXT)
    await expect(field).to_have_value("")
    assert faults_of(page) == []


async def test_the_answer_of_a_killed_server_is_marked_as_lost(
    context: BrowserContext, server_options: list[Any], environment: dict[str, str], hanging_model: ProviderServer
) -> None:
    words = ("serve", *server_options[:4], "--port", free_port())
    environment = environment | {"REDISMEM_LIVE_LEASE_S": "0.6"}
    with start_command(*words, **environment) as running:
        _, _, address = wait_for_line(running.stdout, "listens on").partition("http://")
        page = await open_page(context, f"http://{address.split()[0].rstrip('/')}")
        await say(page, MESSAGE, wait=False)
        await expect(page.locator(".theirs.streaming .text")).to_have_text(HALF)
        running.kill()
    with run_service(*words[1:], **environment):
        for _ in range(2):
            await expect(page.locator(".theirs.stored .text")).to_have_text(HALF)
            await expect(page.locator(".theirs .fault")).to_have_text("Incomplete: the server that wrote it went away.")
            await expect(page.locator(".streaming")).to_have_count(0)
            await expect(page.locator("#send")).to_be_enabled()
            await page.reload()
        assert faults_of(page) == []
        await park_page(page)
