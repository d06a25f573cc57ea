"""Long texts and chats: the browser's work is linear, all can be found and read, and answers say what they recall."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any

import pytest
from playwright.async_api import BrowserContext, Page, expect
from support.browser import append_until_summarized, faults_of, open_page, save_screenshot, say, violations
from support.clock import Clock
from support.redis_server import RedisServer
from support.stores import LONG_DEADLINES

from redismem import Memory, Settings
from redismem.messages.message import Message
from redismem.web.http.bundle import join_modules

pytestmark = pytest.mark.asyncio(loop_scope="session")
expect.set_options(timeout=60_000)

OPENERS = [
    "[a](",
    "[a]",
    "AV",
    "**_~~",
    "`a",
    "``a`",
    "> ",
    "> > a\n",
    "- AV\n",
    "1. a\n",
    "# a\n",
    "|a",
    "|a\n|-\n",
    "```\n",
    "~~~a\n",
]
OPENERS += [
    "\\[",
    "~~AV~~",
    "_AV_ ",
    "[AV](mailto:a)",
    "<b>",
    "&#",
    "![a](",
    "\u0628",
    "\u05d0(a)",
    "\u00ad",
    "e\u0301",
]
OPENERS += ["\U0001f469\u200d", "\U0001f469\U0001f3fd", "\u0e01\u0e34"]
# Draws a message of each role, lays it out, asks for more of it once, and returns the length of its longest run.
DRAW = """(openers) => openers.flatMap((opener) => ["assistant", "user"].map((role) => {
  const body = el("div", { class: "body" });
  document.querySelector("#thread .bubble").append(body);
  drawBody(body, { role, content: opener.repeat(role === "user" ? 100_000 : 20_000 / opener.length) }, new Map());
  body.querySelector("button")?.click();
  const height = body.offsetHeight;
  let [run, longest] = [0, 0];
  const walker = document.createTreeWalker(body);
  while (walker.nextNode()) {
    const { nodeName, data } = walker.currentNode;
    if (nodeName === "#text") run += data.length;
    else if (!["A", "S", "SPAN"].includes(nodeName)) run = 0;
    longest = Math.max(longest, run);
  }
  const shown = body.textContent.length;
  body.remove();
  return [opener, role, height > 0, longest, shown];
}))"""
DAY_MS = 86_400_000
DAYS = (150, 150, 250)
"""The messages of each day of a long chat."""
WATCH = """window.changes = 0;
new MutationObserver((list) => { changes += list.length; })
  .observe(thread, {subtree: true, childList: true, attributes: true, characterData: true});"""
ENTRY = """import { drawBody } from "./body.js";
import { el } from "./dom.js";
Object.assign(window, { drawBody, el });"""


def script() -> str:
    """Return a script that makes the functions that draw a message global."""
    scripts = [each for each in (files("redismem.web") / "static").iterdir() if each.name.endswith(".js")]
    return join_modules({each.name[:-3]: each.read_text() for each in scripts} | {"entry": ENTRY}, "entry")


@pytest.mark.nightly
async def test_long_texts_are_laid_out_in_linear_time(context: BrowserContext, url: str) -> None:
    messages = [{"role": role, "content": "[a](" * 5_000} for role in ("user", "assistant") for _ in range(6)]
    messages[0]["content"] = [{"type": "text", "text": "AV" * 15_000}] * 3  # type: ignore[assignment]
    assert (await context.request.post(f"{url}/v1/sessions/long/messages", data=messages)).ok
    page = await open_page(context, url, "long")
    await expect(page.locator(".entry.stored")).to_have_count(12)
    page.set_default_timeout(20_000)
    await expect(page.locator(".entry .text").last).to_have_text("[a](" * 5_000)
    # The parts of a message together are folded.
    parts = page.locator(".entry").first
    assert len(await parts.locator(".body").text_content() or "") < 21_000
    await parts.get_by_role("button", name="Show more of 30,000 characters").last.click()
    assert 39_000 < len(await parts.locator(".body").text_content() or "") < 41_000
    await page.evaluate(script())
    drawn: list[Any] = await page.evaluate(DRAW, OPENERS)
    assert [each for each in drawn if not each[2] or each[3] > 1_100] == []
    assert all(each[4] < 45_000 for each in drawn), "the rest is shown when its reader asks for it"
    assert faults_of(page) == []


async def fill_days(redis_server: RedisServer, namespace: str) -> int:
    """Store a chat of three days, and return the time of its first day. The service's workers summarise most of it."""
    settings = Settings(deadline_s=60, reply_timeout_s=20, idle_timeout_s=30 * 86_400)
    async with Memory.connect(redis_server.url, namespace=namespace, settings=settings) as memory:
        now_ms = await memory.server_time_ms()
        memory.store.clock = clock = Clock()
        session = memory.session("days")
        for day, count in enumerate(DAYS):
            clock.now_ms = now_ms - (2 - day) * DAY_MS
            texts = [f"{day}.{number}{' a Blue  needle' if number == 3 else ''}" for number in range(count)]
            await session.append(*({"role": "user", "content": text} for text in texts))
    return now_ms - 2 * DAY_MS


async def check_finding(page: Page) -> None:
    """Check that finding goes from hit to hit, loads what is not read, and keeps the focus."""
    await page.get_by_role("button", name="Find").click()
    field, word = page.get_by_label("Find in all messages"), page.locator("#find-word")
    await expect(field).to_be_focused()
    await field.fill("blue needle")
    await expect(word).to_have_text("3 of 3")
    for seq, told in ((304, "3 of 3"), (154, "2 of 3"), (4, "1 of 3"), (304, "3 of 3")):
        hit = page.locator(f".entry[data-found][data-seq='{seq}']")
        await expect(hit).to_be_in_viewport()
        await expect(word).to_have_text(told)
        await expect(field).to_be_focused()
        await field.press("Enter")
    await save_screenshot(page, "find")
    assert await violations(page, part=".pane.chat") == []
    await field.fill("no such text")
    await expect(word).to_have_text("No hits")
    await expect(page.locator("[data-found]")).to_have_count(0)


async def test_a_long_chat_is_read_by_day_and_searched_as_a_whole(
    context: BrowserContext, url: str, server_options: list[Any], redis_server: RedisServer
) -> None:
    namespace = server_options[server_options.index("--namespace") + 1]
    first_ms = await fill_days(redis_server, namespace)
    page = await open_page(context, url, "days")
    entries, days = page.locator(".entry"), page.locator(".day")
    await expect(page.locator(".summary")).to_have_count(1)
    await expect(entries).to_have_count(200)
    await expect(days).to_have_count(1)
    top = page.locator(".entry[data-seq='351']")
    await page.get_by_role("button", name="Show earlier messages").click()
    await expect(entries).to_have_count(400)  # the rest of the last day, with the day before
    await expect(days).to_have_count(2)
    await expect(top).to_be_in_viewport()
    await check_finding(page)
    await expect(entries).to_have_count(sum(DAYS))
    await page.get_by_label("Go to day").fill(f"{datetime.fromtimestamp(first_ms / 1000, UTC):%Y-%m-%d}")
    await expect(page.locator(".entry[data-seq='1']")).to_be_in_viewport()
    await page.get_by_label("Find in all messages").press("Escape")
    await expect(page.locator("#find")).to_be_hidden()
    await expect(page.get_by_role("button", name="Find")).to_be_focused()
    await page.evaluate(WATCH)
    answer = await page.request.post(f"{url}/v1/sessions/days/messages", data={"role": "user", "content": "one more"})
    assert answer.ok
    await expect(entries).to_have_count(sum(DAYS) + 1)
    assert await page.evaluate("changes") < 100, "a message more is no reason to draw the others again"
    assert faults_of(page) == []


async def test_an_answer_says_what_it_remembered(context: BrowserContext, url: str) -> None:
    page = await open_page(context, url)
    await append_until_summarized(page)
    await say(page, "Which house does Parcel 1 go to?")
    summary = page.locator(".recalled summary")
    await expect(summary).to_have_text(re.compile(r"^Remembered \d+ messages?, \d+ tokens$"))
    told = await summary.inner_text()
    await page.reload()
    await expect(summary).to_have_text(told)
    await summary.press("Enter")
    row = page.locator(".recalled-row", has_text="Parcel 1 goes to house 1.")
    await expect(row.locator(".recalled-who")).to_have_text("User")
    await expect(row.locator(".recalled-day")).to_have_text(re.compile(r"\d{4}$"))
    await save_screenshot(page, "recalled")
    assert await violations(page, part="#thread") == []
    for _ in range(2):  # also when the address names the message already
        await row.press("Enter")
        await expect(page.locator(".entry[data-seq='1']")).to_be_focused()
    assert faults_of(page) == []


async def test_what_was_remembered_of_another_conversation_opens_it(
    context: BrowserContext, url: str, server_options: list[Any], redis_server: RedisServer
) -> None:
    namespace = server_options[server_options.index("--namespace") + 1]
    numbers = {"seqs": [1, 7], "days": ["2026-01-31", ""], "sessions": ["elsewhere", "elsewhere"], "tokens": 9}
    numbers["unsearched"] = 4_096
    unreadable: tuple[Any, ...] = (
        {"seqs": "x"},
        {"seqs": [0], "days": []},
        5,
        {"seqs": [{}], "days": {}},
        {"seqs": [1], "days": [{}]},
    )
    replies = [
        Message.restored({"role": "assistant", "content": "So."}, {"metadata": {"recalled": each}}, 0, 0, 0, "")
        for each in (*unreadable, numbers)
    ]
    async with Memory.connect(redis_server.url, namespace=namespace, settings=LONG_DEADLINES) as memory:
        await memory.session("elsewhere").append({"role": "user", "content": "I live in Zürich."})
        await memory.session("remembering").append(*replies)
    page = await open_page(context, url, "remembering")
    told = ["Remembered 1 message", "Remembered 2 messages, 9 tokens, 4,096 earlier messages not searched"]
    await expect(page.locator(".recalled summary")).to_have_text(told)
    await page.locator(".recalled summary").last.press("Enter")
    rows = page.locator(".recalled-row")
    words = [re.compile("31 Jan 2026.*I live in Zürich.*in elsewhere"), re.compile("Not stored any more")]
    await expect(rows).to_have_text(words)
    await rows.first.press("Enter")
    await expect(page.locator("#chat-id")).to_have_text("elsewhere")
    await expect(page.locator(".entry[data-seq='1']")).to_be_focused()
    assert faults_of(page) == []
