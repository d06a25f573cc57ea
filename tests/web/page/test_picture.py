"""The screenshot in the README: a customer of `redismem serve --demo` asks what only an old message answers.

`make picture` takes it. The reply is scripted; the request that it answers has the recalled message.
The outline beside the picture holds it to the page: the page's accessibility tree at the time it was taken.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import BrowserContext, Page, expect
from support.browser import PICTURES, faults_of, open_page, park_page, save_screenshot, say
from support.forked_service import run_service
from support.page_states import OPTIONS
from support.provider_server import ProviderServer
from support.redis_server import REDIS_8, RedisServer, binary_of
from support.stores import LONG_DEADLINES

from redismem import Memory
from redismem.cli.demo import filling
from redismem.models import Draft
from redismem.workers.summaries import Worker

pytestmark = pytest.mark.asyncio(loop_scope="session")
expect.set_options(timeout=60_000)
MOST_BYTES = 250_000
ROOT = PICTURES.parent
OUTLINE = Path("docs/page-outline.txt")
MOVING = (
    (r"\b\d\d:\d\d\b", "HH:MM"),
    (r"\b(just now|now|\d+ (s|min)( ago)?)\b", "AGO"),
    (r"version [\w-]+", "version V"),
    (r"\d+ \w+ \d{4}", "DAY"),
    (r'(link "Operations)[^"]*"', r'\1"'),  # a busy machine has warnings
)
ROWS = r'(?<=recently active first":\n      - list:\n).*?(?=  - region)'
ROW = r"(?m)(?=^        - listitem:\n)"


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A server in which the doctor finds nothing, so that the header has no badge."""
    server = RedisServer(tmp_path_factory.mktemp("picture"), aof=True, options=OPTIONS)
    server.binary = binary_of(REDIS_8)
    server.start()
    yield server
    server.stop()


async def outline_of(page: Page) -> str:
    """Return the page's accessibility tree, without what differs between two runs."""
    outline = "\n".join([await page.locator(part).aria_snapshot() for part in ("header.top", "#chat-view")])
    for pattern, word in MOVING:
        outline = re.sub(pattern, word, outline)
    # The list sorts by the second of the last use, and a demo fills several of its conversations in one second.
    rows = re.search(ROWS, outline, re.DOTALL)
    assert rows is not None
    return outline.replace(rows[0], "".join(sorted(re.split(ROW, rows[0])))) + "\n"


CHAT = "web-20977-mara"
OWNER = "mara.weiss"
SAID = (
    "Hi! We have just bought a Brewline Duo for the office. Anything to know before the first coffee?",
    "Congratulations! Rinse the tank, run two tanks of water through, and set the hardness of your water.",
    "Where do I find that? The city says that ours is 18 °dH.",
    "That is hard water. Hold both buttons for 5 s, and choose level 4.",
    "Done. And there are about 30 of us, is that too much for it?",
    "No, up to 80 cups a day are fine. Empty the tray in the evening.",
    "Which beans do you recommend? Most of us drink cappuccino.",
    "A dark roast, then: House Blend No. 3 keeps its taste in milk.",
    "We take 5 kg of it every month. Can you send it to the reception?",
    "Yes. Your first bag of House Blend No. 3 leaves on Monday, addressed to the reception.",
    "It has arrived, thank you! But the espresso runs too fast.",
    "Then it is ground too coarse: turn the grinder two steps towards fine, and make one cup.",
    "Better! 26 seconds now.",
    "That is right where it should be: 25 to 30 seconds.",
    "The milk foam has large bubbles, though.",
    "Purge the steam wand first, then hold its tip just below the surface. Cold milk helps.",
    "That did it. The whole team says hello.",
    "Hello back! Enjoy your coffee.",
)
FACT = "Where do I find that? The city says that ours is 18 °dH."
QUESTION = "How often must we descale it, with our hard water?"
REPLY = (
    "With your **18 °dH** and about 30 people: **every four weeks**.\n\n"
    "- The Duo counts for you: at level 4, its light asks for it after 600 cups.\n"
    "- A filter in the tank doubles that to eight weeks."
)
SUMMARY = (
    "Mara's office has a new Brewline Duo for about 30 people. It is set up: water level 4, grinder two steps finer, "
    "26 seconds an espresso, good milk foam. They get 5 kg of House Blend No. 3 a month, sent to the reception."
)


class Written:
    """A strategy that writes the summary of the picture."""

    async def compact(self, messages: Any, previous: str | None) -> Draft:
        return Draft(SUMMARY, 0, 0, "any-model")


async def fill_chat(url: str) -> None:
    """Store the conversation, as an application does, with its summary."""
    async with Memory.connect(url, namespace=filling.NAMESPACE, settings=LONG_DEADLINES) as memory:
        session = memory.session(CHAT, owner=OWNER)
        for number, text in enumerate(SAID):
            await session.append({"role": ("user", "assistant")[number % 2], "content": text})
        await session.update(title="A machine for the office", merge={"machine": "Brewline Duo", "water_level": 4})
        await Worker(memory.store, Written()).attend(CHAT)


@pytest.mark.nightly
async def test_the_picture_shows_the_page_as_it_is(
    context: BrowserContext, server: RedisServer, model: ProviderServer, environment: dict[str, str]
) -> None:
    model.mode, model.pieces = "ok", [f"{word} " for word in REPLY.split(" ")]
    settings = environment | {"REDISMEM_MODEL": "any-model"}
    with run_service("--demo", "--no-workers", "--url", server.url, **settings) as url:
        await fill_chat(server.url)
        page = await open_page(context, url, CHAT)
        await expect(page.locator(".summary")).to_have_count(1)
        await say(page, QUESTION)
        await expect(page.locator(".entry.stored")).to_have_count(len(SAID) + 2)
        asked = json.dumps(model.bodies[-1], ensure_ascii=False)
        assert FACT in asked, "the model was not given the message that its reply quotes"
        assert FACT not in SUMMARY
        fold = page.locator(".recalled").last
        await fold.locator("summary").click()
        await expect(fold.locator(".recalled-row", has_text="18 °dH")).to_be_visible()
        await expect(page.locator(".conversation")).to_have_count(6)
        await expect(page.locator(".conversation-text").first).to_contain_text("Answer: With your 18 °dH and")
        await page.locator("#message").focus()
        await page.mouse.move(0, 0)
        await save_screenshot(page, "page", always=True)
        outline = await outline_of(page)
        assert faults_of(page) == []
        await park_page(page)
    taken = PICTURES / "page.png"
    assert taken.stat().st_size < MOST_BYTES
    if os.environ.get("PICTURE"):
        shutil.copy(taken, ROOT / os.environ["PICTURE"])
        (ROOT / OUTLINE).write_text(outline)
    assert outline == (ROOT / OUTLINE).read_text(), "the page has changed since its picture was taken: make picture"


async def test_the_readme_shows_it() -> None:
    kept = ROOT / "docs" / "page.png"
    assert kept.stat().st_size < MOST_BYTES
    assert struct.unpack(">II", kept.read_bytes()[16:24]) == (1280, 800)
    assert "](docs/page.png)" in (ROOT / "README.md").read_text()
