"""The screenshot in the README. `make picture` takes it."""

from __future__ import annotations

import os
import shutil
import struct

import pytest
from playwright.async_api import Browser, expect
from support.browser import PICTURES, faults_of, open_context, open_page, run_service, save_screenshot, say
from support.provider_server import ProviderServer
from support.redis_server import RedisServer
from support.writers import Echo

from redismem import Memory, Settings
from redismem.models import Draft
from redismem.workers.summaries import Worker

pytestmark = pytest.mark.asyncio(loop_scope="session")
expect.set_options(timeout=60_000)
MOST_BYTES = 200_000
ROOT = PICTURES.parent

OTHERS = {
    "web-7c1e-rosa": "Can I change the colour to green?",
    "app-90f2-jun": "Thanks, that was quick!",
    "web-31aa-noor": "My invoice has the old address on it.",
    "mail-5d08-theo": "When does the shop in Ghent open?",
}
BEFORE = [
    ("Hello! I ordered a blue kettle last Tuesday, order O-4711. Where is it?", "It left our warehouse on Wednesday."),
    ("It should go to Lindenstraße 8 in Bremen. I hope that is what you have?", "That is the address on the parcel."),
    ("I am away on Friday. Could a neighbour take it?", "Of course. Who is it?"),
    ("Ada Okafor, at number 10.", "Noted: Ada Okafor, Lindenstraße 10."),
]
SUMMARY = (
    "The customer ordered a blue kettle (O-4711), to be delivered to Lindenstraße 8, Bremen. It left the warehouse on "
    "Wednesday. They are away on Friday and want a neighbour to take it."
)
NOW = [
    ("Does the driver ring twice? Her bell is quiet.", "I have added a note for the driver: please ring twice."),
    ("And what do I owe for that?", "Nothing. Changing where a parcel goes is free until it is out for delivery."),
    (
        "Great. So what happens on Friday?",
        "The driver brings your blue kettle to Ada Okafor at number 10, rings twice, and you get a message when it is "
        "there.",
    ),
]


async def test_the_picture_of_the_page(browser: Browser, redis_server: RedisServer, provider: ProviderServer) -> None:
    settings = Settings(threshold=13, recent_limit=6, deadline_s=60, reply_timeout_s=20)
    async with Memory.connect(redis_server.url, namespace="kettles", settings=settings) as memory:
        for name, text in OTHERS.items():
            await memory.session(name).append({"role": "user", "content": text})
        session = memory.session("web-4711-bremen")
        for asked, answered in BEFORE:
            await session.append({"role": "user", "content": asked}, {"role": "assistant", "content": answered})
        await session.merge({"order_id": "O-4711", "deliver_to": "Ada Okafor, Lindenstraße 10"})
        environment = {
            "REDISMEM_MODEL_PROVIDER": "openai",
            "REDISMEM_MODEL": "example-model",
            "REDISMEM_MODEL_BASE_URL": provider.base_url,
            "REDISMEM_MODEL_ALLOW_HTTP": "true",
            "REDISMEM_THRESHOLD": "13",
        }
        with run_service("--no-workers", "--url", redis_server.url, "--namespace", "kettles", **environment) as url:
            context = await open_context(browser)
            page = await open_page(context, url, session.id)
            await page.locator("#budget").fill("600")
            await page.locator("#budget").press("Enter")
            for asked, answered in NOW:
                provider.pieces = [answered]
                await say(page, asked)
            await expect(page.locator(".entry.stored")).to_have_count(14)
            echo = Echo()
            echo.drafts.append(Draft(SUMMARY, 0, 0, "example-model"))
            await Worker(memory.store, echo).drain()
            await expect(page.locator(".summary.arrived")).to_have_count(1)
            await expect(page.locator(".conversation")).to_have_count(5)
            await save_screenshot(page, "page")
            assert faults_of(page) == []
            await context.close()
    taken = PICTURES / "page.png"
    if os.environ.get("PICTURE"):
        shutil.copy(taken, ROOT / os.environ["PICTURE"])
    assert taken.stat().st_size < MOST_BYTES


async def test_the_readme_shows_it() -> None:
    kept = ROOT / "docs" / "page.png"
    assert kept.stat().st_size < MOST_BYTES
    assert struct.unpack(">II", kept.read_bytes()[16:24]) == (1280, 800)
    assert "](docs/page.png)" in (ROOT / "README.md").read_text()
