"""The screenshot in the README: `redismem serve --demo`, a turn later. `make picture` takes it.

The outline beside the picture holds it to the page: the page's accessibility tree at the time it was taken.
"""

from __future__ import annotations

import os
import re
import shutil
import struct
from pathlib import Path

import pytest
from playwright.async_api import BrowserContext, Page, expect
from support.browser import PICTURES, faults_of, open_page, park_page, save_screenshot, say
from support.forked_service import run_service
from support.redis_server import RedisServer
from support.stores import LONG_DEADLINES

from redismem import Memory
from redismem.cli.demo import filling
from redismem.models import open_extractive
from redismem.workers.strategies import Summarize
from redismem.workers.summaries import Worker

pytestmark = pytest.mark.asyncio(loop_scope="session")
expect.set_options(timeout=60_000)
MOST_BYTES = 250_000
ROOT = PICTURES.parent
OUTLINE = Path("docs/page-outline.txt")
MOVING = (
    (r"\b\d\d:\d\d\b", "HH:MM"),
    (r"just now|\d+ (s|min) ago", "AGO"),
    (r"version [\w-]+", "version V"),
    (r"\[\d+ \w+ \d{4}\]", "[DAY]"),
)


async def outline_of(page: Page) -> str:
    """Return the page's accessibility tree, without what differs between two runs."""
    outline = "\n".join([await page.locator(part).aria_snapshot() for part in ("header.top", "#chat-view")])
    for pattern, word in MOVING:
        outline = re.sub(pattern, word, outline)
    return outline + "\n"


@pytest.mark.nightly
async def test_the_picture_shows_the_page_as_it_is(context: BrowserContext, redis_server: RedisServer) -> None:
    with run_service("--demo", "--no-workers", "--url", redis_server.url) as url:
        page = await open_page(context, url, filling.CHAT)
        await expect(page.locator(".summary")).to_have_count(1)
        await say(page, "Is the new tank steel, too?")
        await say(page, "Did you keep my new address?")
        await say(page, "And when does my shipment arrive?")
        await expect(page.locator(".entry.stored")).to_have_count(26)
        async with Memory.connect(redis_server.url, namespace=filling.NAMESPACE, settings=LONG_DEADLINES) as memory:
            await Worker(memory.store, Summarize(open_extractive())).attend(filling.CHAT)
        await expect(page.locator(".summary.arrived")).to_have_count(1)
        await expect(page.locator(".conversation")).to_have_count(5)
        await expect(page.locator(".divider")).to_have_count(1)  # with a pinned message above it, after many drawings
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
