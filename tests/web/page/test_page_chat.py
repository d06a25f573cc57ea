"""The chat view in a real browser, with the real service and a real Redis."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.async_api import BrowserContext, Locator, Page, Route, expect
from support.browser import (
    append_until_summarized,
    faults_of,
    hold_request,
    open_page,
    park_page,
    save_screenshot,
    say,
    session_id_of,
    violations,
    visible_texts,
)
from support.forked_service import run_service

pytestmark = pytest.mark.asyncio(loop_scope="session")
expect.set_options(timeout=60_000)


async def test_a_reload_shows_the_same_conversation(context: BrowserContext, url: str) -> None:
    page = await open_page(context, url)
    await expect(page.locator("#welcome")).to_be_visible()
    await say(page, "Where is my blue kettle?")
    await expect(page.locator(".theirs .text")).to_have_text("This is your first message in this conversation.")
    await expect(page.locator("#composer-word")).to_contain_text("No model is set up: answers quote the memory.")
    await expect(page.locator(".entry.stored")).to_have_count(2)
    said, at = await visible_texts(page), session_id_of(page)
    await page.reload()
    await expect(page.locator(".entry.stored")).to_have_count(2)
    assert (await visible_texts(page), session_id_of(page)) == (said, at)
    await expect(page.locator("#recent li")).to_have_count(2)
    await expect(page.locator(".conversation[aria-current]")).to_contain_text("Where is my blue kettle?")
    assert faults_of(page) == []


async def test_a_summary_that_swaps_in_is_highlighted_and_announced(context: BrowserContext, url: str) -> None:
    page = await open_page(context, url)
    # Record all announcements to screen readers.
    await page.evaluate(
        "window.told = []; new MutationObserver(() => told.push(announcer.textContent))"
        ".observe(announcer, {childList: true, characterData: true, subtree: true})"
    )
    await page.evaluate(
        "window.lit = 0; new MutationObserver(() => { lit += document.querySelectorAll('.summary.arrived').length })"
        ".observe(summaries, {childList: true, attributes: true, subtree: true})"
    )
    await expect(page.locator("#summaries-word")).to_contain_text("11 more messages")
    await append_until_summarized(page)
    await page.wait_for_function("lit > 0 && told.some((text) => text.startsWith('A summary now replaces messages'))")
    await expect(page.locator(".summary-head")).to_contain_text("Messages 1 to")
    await expect(page.locator(".summary-more")).to_contain_text(re.compile(r"by extractive · \d+ tokens · version \S+"))
    await expect(page.locator(".summary-text")).to_contain_text("Parcel 1")
    # The summarised messages stay on the page, above a divider.
    await expect(page.locator(".divider")).to_contain_text("a summary of messages 1 to")
    await expect(page.locator(".entry.covered").first).to_contain_text("Parcel 1 goes to house 1.")
    await expect(page.locator("#recent li")).to_have_count(6)
    await expect(page.locator("#tokens-bar")).to_have_attribute("aria-label", re.compile(r"summaries \d+.*recent \d+"))
    await page.reload()
    await expect(page.locator(".divider")).to_contain_text("a summary of messages 1 to")
    await expect(page.locator(".summary.arrived")).to_have_count(0)
    assert faults_of(page) == []


async def test_the_policy_of_a_conversation_is_shown_when_it_changes(context: BrowserContext, url: str) -> None:
    page = await open_page(context, url)
    await say(page, "Keep every word of this")
    await expect(page.locator("#summaries-word")).to_contain_text("9 more messages")
    await expect(page.locator("#policy-part")).to_be_hidden()
    at = f"{url}/v1/sessions/{session_id_of(page)}"
    rules = {"keep_whole": True, "idle_timeout_s": 900, "exempt": True, "zone": None}
    for timeout_s, words in ((900.5, "900.5 seconds"), (34_560_000, "400 days"), (3_601, "3,601 seconds")):
        assert (await page.request.put(f"{at}/policy", data=rules | {"idle_timeout_s": timeout_s})).ok
        await expect(page.locator("#policy")).to_contain_text(f"Expires {words} after")
    assert (await page.request.put(f"{at}/policy", data=rules)).ok
    await expect(page.locator("#policy li")).to_have_text(
        [
            "Kept whole: no summary replaces its messages.",
            "Expires 15 minutes after its last use.",
            "Exempt from the session limit: never evicted to make room.",
        ]
    )
    await expect(page.locator("#summaries-word")).to_have_text("None: this conversation is kept whole.")
    messages = [{"role": "user", "content": f"number {number}"} for number in range(8)]
    assert (await page.request.post(f"{at}/messages", data=messages)).ok
    await expect(page.locator("#pending-word")).to_have_text("In full, because this conversation is kept whole.")
    await save_screenshot(page, "policy")
    assert (
        await page.request.put(
            f"{at}/policy", data={"keep_whole": False, "idle_timeout_s": None, "exempt": False, "zone": None}
        )
    ).ok
    await expect(page.locator("#policy-part")).to_be_hidden()
    assert faults_of(page) == []


async def test_summarised_messages_stay_in_view_even_if_the_memory_drops_them(
    context: BrowserContext, server_options: list[Any]
) -> None:
    options = [*server_options[:2], "--workers", "--namespace", "drops-originals"]
    with run_service(*options, REDISMEM_KEEP_ORIGINALS="false") as url:
        page = await open_page(context, url)
        at = f"{url}/v1/sessions/{session_id_of(page)}"
        # A pinned message keeps its place, so the page of stored messages begins before the covered ones.
        begin = [{"role": "system", "content": "Be brief."}, *({"role": "user", "content": f"{n}"} for n in range(9))]
        assert (await page.request.post(f"{at}/messages", data=begin)).ok
        await expect(page.locator(".entry.stored")).to_have_count(10)
        more = [{"role": "user", "content": f"later {n}"} for n in range(6)]
        assert (await page.request.post(f"{at}/messages", data=more)).ok
        await expect(page.locator(".summary")).to_have_count(1)
        await expect(page.locator(".entry.covered").first).to_contain_text("0")
        await expect(page.locator(".entry.stored")).to_have_count(16)
        stored = (await (await page.request.get(f"{at}/messages?include_originals=true")).json())["messages"]
        assert len(stored) < 16
        await park_page(page)


async def test_enter_does_not_send_while_an_input_method_composes(context: BrowserContext, url: str) -> None:
    page = await open_page(context, url)
    field = page.locator("#message")
    await field.fill("かな")
    await field.dispatch_event("keydown", {"key": "Enter", "isComposing": True})
    assert await field.input_value() == "かな"
    await expect(page.locator(".entry")).to_have_count(0)
    await field.dispatch_event("keydown", {"key": "Enter"})
    await expect(page.locator(".mine .text")).to_have_text("かな")
    assert await field.input_value() == ""


async def test_a_cleared_conversation_is_empty(context: BrowserContext, url: str) -> None:
    page = await open_page(context, url)
    await append_until_summarized(page)
    at = session_id_of(page)
    await expect(page.locator(f".conversation[title='{at}']")).to_have_count(1)
    await page.get_by_role("button", name="Clear…").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog).to_contain_text(f"12 messages, 1 summary and 0 params of {at}.")
    await page.keyboard.press("Escape")
    await expect(dialog).to_be_hidden()
    await expect(page.locator(".summary")).to_have_count(1)
    await page.get_by_role("button", name="Clear…").click()
    await dialog.get_by_role("button", name="Clear it").click()
    await expect(page.locator(".entry, .divider, .summary, .lines li")).to_have_count(0)
    await expect(page.locator("#welcome")).to_be_visible()
    await expect(page.locator("#message")).to_be_focused()
    await expect(page.locator(f".conversation[title='{at}']")).to_have_count(0)
    assert session_id_of(page) == at
    await say(page, "Anew")
    await expect(page.locator(".theirs .text")).to_contain_text("This is your first message in this conversation.")
    await expect(page.locator(".mine .seq")).to_have_text("#1")


@pytest.mark.nightly  # test_watching.py shows it without a page
async def test_two_people_on_two_servers_see_each_others_turns(
    context: BrowserContext, url: str, server_options: list[Any]
) -> None:
    with run_service("--no-workers", *server_options) as other_url:
        mine = await open_page(context, url)
        await say(mine, "Hello from the first server")
        at = session_id_of(mine)
        same = await open_page(context, url, at)
        other = await open_page(context, other_url, at)
        for page in (same, other):
            await expect(page.locator(".entry.stored")).to_have_count(2)
        await say(other, "And hello from the second")
        for page in (mine, same):
            await expect(page.locator(".entry.stored")).to_have_count(4)
            await expect(page.locator(".mine .text").last).to_have_text("And hello from the second")
        assert await visible_texts(mine) == await visible_texts(same) == await visible_texts(other)
        await mine.bring_to_front()
        await mine.get_by_role("button", name="Clear…").click()
        await mine.get_by_role("button", name="Clear it").click()
        for page in (mine, same, other):
            await expect(page.locator(".entry")).to_have_count(0)
        assert [faults_of(page) for page in (mine, same, other)] == [[], [], []]
        for page in (mine, same, other):
            await park_page(page)


async def test_text_from_users_never_becomes_markup(context: BrowserContext, url: str) -> None:
    page = await open_page(context, url)
    hostile = "<img src=x onerror=document.title='taken'><script>document.title='taken'</script>"
    await say(page, hostile)
    await say(page, "x" * 3_000)
    await say(page, "مرحبا، أين طلبي رقم 4711؟")
    assert await page.locator(".mine .text").first.inner_text() == hostile
    assert (await page.title()).endswith(" · redismem")
    assert await page.locator("#thread img, #thread script, .lines img").count() == 0
    for place in ("body", "#thread-scroll", ".given-scroll", ".conversations .scroll"):
        wide = await page.locator(place).evaluate("(node) => [node.scrollWidth, node.clientWidth]")
        assert wide[0] <= wide[1], place
    last = page.locator(".mine .text").last
    assert await last.evaluate("(node) => getComputedStyle(node).direction") == "rtl"
    await save_screenshot(page, "hostile")
    assert faults_of(page) == []


async def check_owner_field(page: Page, rows: Locator) -> None:
    """Check that the list follows the field as one types."""
    await page.get_by_label("Owner", exact=True).press_sequentially("ann")
    await expect(page.locator("#conversations-word")).to_have_text("No conversation matches.")  # without Enter
    await expect(rows).to_have_count(0)
    await page.get_by_label("Owner", exact=True).fill("ann b")
    await expect(page.locator(".conversation-title")).to_have_text([f"number {number}" for number in (30, 20, 10)])
    await expect(page.locator(".conversation-owner")).to_have_text(["ann b"] * 3)
    await save_screenshot(page, "owner")


async def test_conversations_are_searched_paged_and_begun(context: BrowserContext, url: str) -> None:
    page = await open_page(context, url, "shelf/one two-№7")
    await say(page, "A book about lakes")
    for number in range(31):
        body = {"role": "user", "content": f"number {number}"}
        query = "?owner=ann%20b" if number % 10 == 0 else ""
        answer = await page.request.post(f"{url}/v1/sessions/many-{number:02}/messages{query}", data=body)
        assert answer.ok
    rows = page.locator(".conversation")
    await page.reload()
    await expect(rows).to_have_count(30)
    await page.get_by_role("button", name="Show more").click()
    await expect(rows.nth(30)).to_be_visible()
    last = page.locator(".conversation[title=many-00]")
    await expect(last).to_have_count(1)
    assert (await page.request.delete(f"{url}/v1/sessions/many-00")).ok
    await say(page, "And one about rivers")
    await expect(last).to_have_count(0)  # behind the first page, too
    await page.get_by_label("Search conversations by title, owner or id").fill("TWO-№")
    await expect(rows).to_have_count(1)
    await page.get_by_role("button", name="New").click()
    await expect(page.locator("#welcome")).to_be_visible()
    await expect(page.locator("#message")).to_be_focused()
    await page.get_by_label("Search conversations by title, owner or id").press("Enter")
    await expect(page.locator(".mine .text").first).to_have_text("A book about lakes")
    await page.get_by_label("Search conversations by title, owner or id").fill("many-3")
    await expect(rows).to_have_count(1)
    await page.get_by_label("Search conversations by title, owner or id").fill("no such thing")
    await expect(page.locator("#conversations-word")).to_contain_text("No title, owner or id matches.")
    await page.get_by_label("Search conversations by title, owner or id").fill("")
    await check_owner_field(page, rows)
    await page.get_by_label("Search conversations by title, owner or id").fill("ANN 20")
    await page.get_by_label("Search conversations by title, owner or id").press("Enter")
    await expect(page.locator("#chat-title")).to_have_text("number 20")
    await expect(page.locator("#chat-owner")).to_have_text("ann b")
    await expect(page.locator("#chat-id")).to_have_text("many-20")
    assert faults_of(page) == []


async def test_a_search_by_name_goes_on_until_it_finds_one(context: BrowserContext, url: str) -> None:
    page = await open_page(context, url)
    row = {"session_id": "old", "active_ms": 1, "owner": None, "title": "Kettles", "last_role": None, "last_text": ""}
    asked: list[Any] = []

    async def answer(route: Route) -> None:
        asked.append(route.request.post_data_json)
        found = {"sessions": [row], "cursor": "c3"} if len(asked) == 3 else {"sessions": [], "cursor": f"c{len(asked)}"}
        await route.fulfill(json=found)

    await page.route("**/v1/search", answer)
    await page.get_by_label("Search conversations by title, owner or id").fill("kettle")
    await expect(page.locator("#conversations-word")).to_have_text("1 conversation found so far.")
    assert [(each["name"], each.get("cursor")) for each in asked] == [
        ("kettle", None),
        ("kettle", "c1"),
        ("kettle", "c2"),
    ]
    await page.get_by_role("button", name="Search older conversations").click()
    await expect(page.get_by_role("button", name="Search older conversations")).to_be_visible()
    assert faults_of(page) == []


async def test_a_conversation_is_renamed(context: BrowserContext, url: str) -> None:
    page = await open_page(context, url)
    await say(page, "Which kettle?")
    await expect(page.locator("#chat-title")).to_have_text("Which kettle?")
    rename = page.get_by_role("button", name="Edit title")
    await rename.click()
    dialog = page.get_by_role("dialog", name="Rename this conversation")
    await dialog.get_by_role("textbox").fill("ü" * 33)
    await dialog.get_by_role("button", name="Rename").click()
    assert await dialog.get_by_role("textbox").evaluate("(field) => field.validationMessage") == (
        "A title has at most 64 bytes."
    )
    assert await violations(page, part="dialog[open]") == []
    await dialog.get_by_role("textbox").fill("Kettles <b>of</b> Zürich")
    await dialog.get_by_role("textbox").press("Enter")
    for name in ("#chat-title", ".conversation[aria-current] .conversation-title"):
        await expect(page.locator(name)).to_have_text("Kettles <b>of</b> Zürich")
    other = await open_page(context, url, session_id_of(page))
    await expect(other.locator("#chat-title")).to_have_text("Kettles <b>of</b> Zürich")
    await expect(other.get_by_role("button", name="Edit title")).to_be_hidden()  # it is reading
    await rename.click()
    await dialog.get_by_role("textbox").fill("")
    await dialog.get_by_role("textbox").press("Enter")
    for each in (page, other):
        await expect(each.locator("#chat-title")).to_have_text("Which kettle?")
    assert faults_of(page) + faults_of(other) == []


async def test_a_message_is_copied(context: BrowserContext, url: str) -> None:
    await context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = await open_page(context, url)
    await say(page, "Copy this, please")
    await page.locator(".entry.mine .copy").click()
    await expect(page.locator("#announcer")).to_have_text("The message is copied.")
    assert await page.evaluate("navigator.clipboard.readText()") == "Copy this, please"
    await expect(page.locator(".mine time")).to_have_text(re.compile(r"^\d\d:\d\d"))


async def test_the_page_shows_and_stores_sensitive_values_nowhere(context: BrowserContext, url: str) -> None:
    page = await open_page(context, url)
    heard: list[str] = []
    page.on("response", lambda answer: heard.append(answer.url))
    await say(page, "I want to pay")
    await expect(page.locator("#waiting")).to_have_text("Waiting for an answer: size")
    await expect(page.locator(".state-waiting")).to_contain_text("size")
    await say(page, "Medium")
    await expect(page.locator(".theirs .text").last).to_contain_text("One of: Small, Large.")
    await say(page, "large")
    await expect(page.locator("#waiting")).to_contain_text("What you type is hidden")
    await expect(page.locator("#message")).to_have_class("masked")
    await expect(page.locator(".state-param")).to_contain_text("Large")
    await save_screenshot(page, "waiting")
    await page.locator("#message").fill("31415926")
    asked, released = await hold_request(page, "**/api/chat*")
    await page.locator("#message").press("Enter")
    await asked.wait()
    kept = "() => document.documentElement.outerHTML + JSON.stringify({...sessionStorage, ...localStorage})"
    assert "31415926" not in await page.evaluate(kept), "while the message is sent"
    assert "[card]" in await page.evaluate("sessionStorage.getItem('redismem.turns')")
    released.set()
    await expect(page.locator(".mine .text").last).to_have_text("[card]")
    await expect(page.locator(".state-hidden dd")).to_have_text("hidden")
    await expect(page.locator("#waiting")).to_be_hidden()
    await expect(page.locator("#message")).not_to_have_class("masked")
    await expect(page.locator(".entry.stored")).to_have_count(8)
    assert "31415926" not in await page.evaluate(kept)
    at = f"{url}/v1/sessions/{session_id_of(page)}"
    for path in ("", "/context", "/messages", "/state"):
        assert "31415926" not in await (await page.request.get(at + path)).text()
    assert "31415926" not in "".join(heard) + page.url
    await page.reload()
    await expect(page.locator(".state-hidden dd")).to_have_text("hidden")
    assert "31415926" not in await page.evaluate(kept)
    assert faults_of(page) == []
