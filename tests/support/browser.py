"""Headless Chromium for `redismem serve`, and what a person does on its page."""

from __future__ import annotations

import asyncio
import os
import shutil
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pytest
from playwright.async_api import Browser, BrowserContext, Page, Playwright, Request, Route, ViewportSize
from playwright.async_api import TimeoutError as PlaywrightTimeout

from support.selection import EVERYTHING

PATIENCE_MS = 60_000
PICTURES = Path(__file__).parents[2] / ".screenshots"
WIDE: ViewportSize = {"width": 1280, "height": 800}
PHONE = {"width": 390, "height": 844}
NARROW: ViewportSize = {"width": 320, "height": 640}
# The first has no windows, which costs a sixth less; it is used where it is installed.
_NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
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
    "--disable-features=Translate,OptimizationHints,MediaRouter,DialMediaRouteProvider,site-per-process"
    # A process that waits for a page of another site, which no test opens.
    ",SpareRendererForSitePerProcess",
)


def chromium() -> str:
    """Return the path of Chromium. Without Chromium the test is skipped, and fails if CI is set."""
    found = next(filter(None, map(shutil.which, _NAMES)), None)
    if found is None:
        missing = "Chromium is not installed, so the page is not tested: make have-chromium"
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    return found


async def launch_browser(playwright: Playwright) -> Browser:
    """Start a browser with a temporary profile."""
    return await playwright.chromium.launch(executable_path=chromium(), args=list(_OPTIONS), timeout=PATIENCE_MS)


async def open_context(browser: Browser, **options: Any) -> BrowserContext:
    """Open a browser context that shares nothing with other contexts."""
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


async def open_page(
    context: BrowserContext, url: str, session_id: str | None = None, viewport: ViewportSize | None = None
) -> Page:
    """Open the page and wait until it is connected. `faults_of(page)` collects its errors."""
    page = await _take_parked(context) or await context.new_page()
    if viewport is not None:
        await page.set_viewport_size(viewport)
    asked, faults = _watch(page)
    await page.goto(url if session_id is None else f"{url}/#/s/{quote(session_id, safe='')}")
    try:
        await page.locator("body[data-health=well]").wait_for()
    except PlaywrightTimeout:
        health = await page.locator("body").get_attribute("data-health")
        said = await page.locator("#banner").text_content()
        open_ones = [f"{request.method} {request.url}: {how}" for request, how in asked.items() if how != "answered"]
        raise AssertionError(f"the page is not connected, but {health}; {said}; {open_ones}; {faults}") from None
    return page


def _watch(page: Page) -> tuple[dict[Request, str], list[str]]:
    """Collect the page's requests, with the state of each, and its faults; drop those of an earlier use of the page."""
    if not hasattr(page, "watched"):
        asked: dict[Request, str] = {}
        faults: list[str] = []
        page.watched = asked, faults  # type: ignore[attr-defined]
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("console", lambda line: faults.append(line.text) if _is_fault(line) else None)
        page.on("request", lambda request: asked.update({request: "no answer"}))
        page.on("response", lambda response: asked.update({response.request: f"{response.status}, not all of it"}))
        page.on("requestfinished", lambda request: asked.update({request: "answered"}))
        page.on("requestfailed", lambda request: asked.update({request: f"failed: {request.failure}"}))
    watched: tuple[dict[Request, str], list[str]] = page.watched  # type: ignore[attr-defined]
    for collected in watched:
        collected.clear()
    return watched


async def park_page(page: Page) -> None:
    """Stop the page, so that `open_page` uses it again: a new one costs as much as a load."""
    if hasattr(page, "parking"):
        return
    # From this address any other is a new document.
    await page.evaluate("sessionStorage.clear(); history.replaceState(null, '', '/parked')")
    cdp = await page.context.new_cdp_session(page)
    await cdp.send("Emulation.setScriptExecutionDisabled", {"value": True})
    await cdp.send("Page.stopLoading")
    await cdp.send("Storage.clearDataForOrigin", {"origin": "*", "storageTypes": "all"})
    await page.unroute_all()
    await page.mouse.move(0, 0)
    await page.set_viewport_size(WIDE)
    await page.emulate_media(color_scheme="light")
    page.parking = cdp  # type: ignore[attr-defined]


async def _take_parked(context: BrowserContext) -> Page | None:
    """Return the page of the context that is parked, if there is one. Its scripts may run again."""
    page = next((page for page in context.pages if hasattr(page, "parking")), None)
    if page is not None:
        await page.parking.detach()
        del page.parking
    return page


def session_id_of(page: Page) -> str:
    """Return the session that the address names."""
    return unquote(page.url.partition("#/s/")[2])


def _is_fault(line: Any) -> bool:
    """True for an error or warning, except the browser's line about a refused request: the page reports that."""
    return line.type in ("error", "warning") and "Failed to load resource" not in line.text


def faults_of(page: Page) -> list[str]:
    """Return the errors of the page's scripts, and violations of its security policy."""
    return list(page.watched[1])  # type: ignore[attr-defined]


async def say(page: Page, text: str, *, wait: bool = True) -> None:
    """Send a message, and wait for the end of the answer unless `wait` is false. Asks to write, if need be."""
    if await page.locator("#write").is_visible():
        await page.locator("#write").click()
    await page.locator("#message").fill(text)
    await page.locator("#message").press("Enter")
    if wait:
        await page.locator(".entry.mine .text", has_text=text).last.wait_for()
        await page.locator("#send[aria-disabled=false]").wait_for()


async def hold_request(
    page: Page | BrowserContext, pattern: str, *, times: int | None = 1
) -> tuple[asyncio.Event, asyncio.Event]:
    """Hold the next requests to such an address; `None` holds all of them.

    Return an event that is set by the first request, and one to release them.
    """
    asked, released = asyncio.Event(), asyncio.Event()

    async def hold(route: Route) -> None:
        asked.set()
        await released.wait()
        await route.continue_()

    await page.route(pattern, hold, times=times)
    return asked, released


async def append_until_summarized(page: Page) -> None:
    """Append messages beyond the threshold, and wait until a worker has summarised the older ones."""
    origin, _, _ = page.url.partition("/#")
    both = [("user", "Parcel {0} goes to house {0}."), ("assistant", "Parcel {0} is on its way.")]
    said = [{"role": role, "content": text.format(number)} for number in range(1, 7) for role, text in both]
    answer = await page.request.post(f"{origin}/v1/sessions/{quote(session_id_of(page), safe='')}/messages", data=said)
    assert answer.ok
    await page.locator(".summary").wait_for(state="attached")


async def visible_texts(page: Page) -> list[str]:
    """Return the visible messages."""
    return await page.locator("#thread .text:visible").all_inner_texts()


async def save_screenshot(page: Page, name: str, *, always: bool = False) -> None:
    """Save a screenshot of the page for people to look at: in `make nightly`, or `always`."""
    if EVERYTHING or always:
        PICTURES.mkdir(exist_ok=True)
        await page.screenshot(path=PICTURES / f"{name}.png", animations="disabled")


async def violations(page: Page, *rules: str, part: str = "html", always: bool = False) -> list[str]:
    """Return the violations that axe-core finds in a part of the page: rule and element. Without `rules` it checks all.

    axe-core is a quarter of the cost of these tests, so it looks in `make nightly`, or `always`. A part costs less
    than a page: choose it where another test checks what is around it.
    """
    if not (EVERYTHING or always):
        return []
    if not await page.evaluate("'axe' in window"):
        await page.evaluate((files("axe_playwright_python") / "axe.min.js").read_text())
    # axe-core measures contrast, so animations must have ended.
    await page.evaluate(
        "Promise.all(document.getAnimations().filter((a) => a.effect.getTiming().iterations === 1)"
        ".map((a) => a.finished.catch(() => {})))"
    )
    # The passed rules stay in the page: their elements are most of the result.
    violations: list[str] = await page.evaluate(
        "async ([rules, part]) =>"
        " (await axe.run(part, {resultTypes: ['violations'], ...rules.length && {runOnly: rules}}))"
        ".violations.flatMap(({id, nodes}) => nodes.map((node) =>"
        " `${id}: ${node.html.slice(0, 200)} ${node.failureSummary ?? ''}`))",
        [rules, part],
    )
    return violations
