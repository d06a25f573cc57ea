"""Headless Chromium for `redismem serve`, and what a person does on its page."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pytest
from playwright.async_api import Browser, BrowserContext, Page, Playwright, Request
from playwright.async_api import TimeoutError as PlaywrightTimeout

from support.commands import finished, started, wait_for_line

PATIENCE_MS = 60_000
PICTURES = Path(__file__).parents[2] / ".screenshots"
WIDE = {"width": 1280, "height": 800}
PHONE = {"width": 390, "height": 844}
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_OPTIONS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-software-rasterizer",
    "--renderer-process-limit=2",
    "--disable-features=Translate,OptimizationHints,MediaRouter,DialMediaRouteProvider,site-per-process",
)


def chromium() -> str:
    """Where the browser is; without one the test is skipped, or fails if everything must run (CI is set)."""
    found = next(filter(None, map(shutil.which, _NAMES)), None)
    if found is None:
        missing = "there is no Chromium here, so nobody has looked at the page: make have-chromium"
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    return found


async def launched(playwright: Playwright) -> Browser:
    """A browser with a profile of its own, which ends with it."""
    return await playwright.chromium.launch(executable_path=chromium(), args=list(_OPTIONS), timeout=PATIENCE_MS)


async def person(browser: Browser, **options: Any) -> BrowserContext:
    """Somebody with a browser of their own: nothing is shared with others."""
    given = {
        "viewport": WIDE,
        "locale": "en-GB",
        "timezone_id": "UTC",
        "color_scheme": "light",
        "reduced_motion": "reduce",
    } | options
    context = await browser.new_context(**given)
    context.set_default_timeout(PATIENCE_MS)
    return context


async def opened(context: BrowserContext, url: str, session_id: str | None = None) -> Page:
    """The page, as soon as it is connected. What it complains of ends up in `faults_of(page)`."""
    page = await context.new_page()
    faults: list[str] = []
    page.faults = faults  # type: ignore[attr-defined]
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda line: faults.append(line.text) if _is_fault(line) else None)
    asked: dict[Request, str] = {}
    page.on("request", lambda request: asked.update({request: "no answer"}))
    page.on("response", lambda response: asked.update({response.request: f"{response.status}, not all of it"}))
    page.on("requestfinished", lambda request: asked.update({request: "answered"}))
    page.on("requestfailed", lambda request: asked.update({request: f"failed: {request.failure}"}))
    await page.goto(url if session_id is None else f"{url}/#/s/{quote(session_id, safe='')}")
    try:
        await page.locator("body[data-health=well]").wait_for()
    except PlaywrightTimeout:
        health = await page.locator("body").get_attribute("data-health")
        said = await page.locator("#banner").text_content()
        open_ones = [f"{request.method} {request.url}: {how}" for request, how in asked.items() if how != "answered"]
        raise AssertionError(f"the page is not connected, but {health}; {said}; {open_ones}; {faults}") from None
    return page


def id_of(page: Page) -> str:
    """The session that its address names."""
    return unquote(page.url.partition("#/s/")[2])


def _is_fault(line: Any) -> bool:
    """A refused request is told in words on the page, and by the browser on its console too."""
    return line.type in ("error", "warning") and "Failed to load resource" not in line.text


def faults_of(page: Page) -> list[str]:
    """What has gone wrong in its scripts, or was refused by its policy."""
    return list(page.faults)  # type: ignore[attr-defined]


async def say(page: Page, text: str, *, wait: bool = True) -> None:
    """Writes a message and sends it; waits for the end of the answer."""
    await page.locator("#message").fill(text)
    await page.locator("#message").press("Enter")
    if wait:
        await page.locator(".entry.mine .text", has_text=text).last.wait_for()
        await page.locator("#send").wait_for()


async def summarised(page: Page) -> None:
    """Makes a conversation that is over the threshold, and waits until a worker has summarised the older messages."""
    origin, _, _ = page.url.partition("/#")
    both = [("user", "Parcel {0} goes to house {0}."), ("assistant", "Parcel {0} is on its way.")]
    said = [{"role": role, "content": text.format(number)} for number in range(1, 7) for role, text in both]
    answer = await page.request.post(f"{origin}/v1/sessions/{quote(id_of(page), safe='')}/messages", data=said)
    assert answer.ok
    await page.locator(".summary").wait_for(state="attached")


async def texts(page: Page) -> list[str]:
    """The messages that are shown."""
    return await page.locator("#thread .text:visible").all_inner_texts()


async def picture(page: Page, name: str) -> None:
    """Saves a picture of the page for people to look at."""
    PICTURES.mkdir(exist_ok=True)
    await page.screenshot(path=PICTURES / f"{name}.png", animations="disabled")


async def violations(page: Page, *rules: str) -> list[str]:
    """What axe-core finds on the page as it is: rule, and where. All rules, or these alone."""
    if not await page.evaluate("'axe' in window"):
        await page.evaluate((files("axe_playwright_python") / "axe.min.js").read_text())
    # Contrast is measured of what has arrived.
    await page.evaluate(
        "Promise.all(document.getAnimations().filter((a) => a.effect.getTiming().iterations === 1)"
        ".map((a) => a.finished.catch(() => {})))"
    )
    found = await page.evaluate("(rules) => axe.run(rules.length ? {runOnly: rules} : {})", list(rules))
    return [
        f"{each['id']}: {node['html'][:200]} {node.get('failureSummary', '')}"
        for each in found["violations"]
        for node in each["nodes"]
    ]


# A worker looks often, so that nobody waits for a summary.
QUICK = {"REDISMEM_TICK_S": "0.1", "REDISMEM_DEADLINE_S": "60", "REDISMEM_REPLY_TIMEOUT_S": "20"}


@contextlib.contextmanager
def serving(*words: object, **environment: str) -> Iterator[str]:
    """Its address. It is told to stop at the end."""
    port = () if "--port" in words else ("--port", 0)
    with started("serve", *port, *words, **QUICK | environment) as running:
        found = re.search(r"http://\S+", wait_for_line(running.stdout, "listens on"))
        assert found
        yield found[0]
        running.send_signal(signal.SIGTERM)
        ran = finished(running)
        assert ran.code == 0, ran.err
