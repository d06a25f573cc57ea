"""Accessibility: keyboard, phone, dark and light colours, screen readers; and access keys."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import Browser, BrowserContext, Page, expect
from support.browser import (
    PHONE,
    append_until_summarized,
    faults_of,
    open_context,
    open_page,
    park_page,
    save_screenshot,
    say,
    violations,
)
from support.forked_service import run_service
from support.selection import EVERYTHING

from redismem.web.access import new_key

pytestmark = pytest.mark.asyncio(loop_scope="session")
expect.set_options(timeout=60_000)


async def focused_name(page: Page) -> str:
    """Return the accessible name of the focused element."""
    return str(
        await page.evaluate(
            "(() => { const it = document.activeElement;"
            " return it.getAttribute('aria-label') || it.labels?.[0]?.innerText || it.innerText || it.id; })()"
        )
    )


async def tab_to(page: Page, name: str, key: str = "Tab") -> None:
    """Press the key until this element has the focus. Checks that each focus is visible."""
    seen = []
    for _ in range(40):
        await page.keyboard.press(key)
        seen.append(await focused_name(page))
        outline = "getComputedStyle(document.activeElement).outlineStyle + ' ' + document.activeElement.id"
        assert await page.evaluate(outline) not in ("none ",), seen[-1]
        if seen[-1].startswith(name):
            return
    raise AssertionError(f"{name} is not among {seen}")


async def test_the_keyboard_alone_is_enough(context: BrowserContext, url: str) -> None:
    page = await open_page(context, url)
    await page.keyboard.press("Tab")
    assert await focused_name(page) == "Skip to the message field"
    await page.keyboard.press("Enter")
    assert await focused_name(page) == "Message"
    await page.keyboard.type("Written with keys alone")
    await page.keyboard.press("Shift+Enter")
    await page.keyboard.type("on two lines")
    await page.keyboard.press("Enter")
    await expect(page.locator(".entry.stored")).to_have_count(2)
    assert await page.locator(".mine .text").inner_text() == "Written with keys alone\non two lines"
    assert await focused_name(page) == "Message"
    await tab_to(page, "Clear…", "Shift+Tab")
    await page.keyboard.press("Enter")
    assert await focused_name(page) == "Keep it"
    # The dialog keeps the focus and returns it afterwards.
    await page.keyboard.press("Escape")
    assert await focused_name(page) == "Clear…"
    await page.keyboard.press("Enter")
    await tab_to(page, "Clear it")
    await page.keyboard.press("Enter")
    await expect(page.locator("#welcome")).to_be_visible()
    assert await focused_name(page) == "Message"
    await expect(page.locator(".conversation[aria-current]")).to_have_count(0)  # a late redraw would move the focus
    await tab_to(page, "New", "Shift+Tab")
    await page.keyboard.press("Space")
    await expect(page.locator("#message")).to_be_focused()
    await tab_to(page, "Operations", "Shift+Tab")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", name="Operations")).to_be_visible()
    assert faults_of(page) == []


async def check_light_and_dark(page: Page, name: str, part: str = "html") -> None:
    """Check all axe rules in light, and, in `make nightly` or with the chat, the rules about colours in dark."""
    await page.emulate_media(color_scheme="light")
    await save_screenshot(page, f"{name}-light")
    assert await violations(page, part=part, always=True) == []
    if EVERYTHING or name == "chat":
        await page.emulate_media(color_scheme="dark")
        await save_screenshot(page, f"{name}-dark")
        assert await violations(page, "color-contrast", "link-in-text-block", always=True) == []


async def test_axe_finds_nothing(context: BrowserContext, url: str) -> None:
    page = await open_page(context, url)
    await check_light_and_dark(page, "new")
    await append_until_summarized(page)
    await say(page, "I want to pay")
    await expect(page.locator("#waiting")).to_be_visible()
    await check_light_and_dark(page, "chat")
    await page.get_by_role("button", name="Clear…").click()
    await check_light_and_dark(page, "clear", "dialog[open]")
    await page.keyboard.press("Escape")
    await page.get_by_role("link", name="Operations").click()
    await expect(page.locator(".tile")).to_have_count(6)
    await expect(page.locator("#passed-part")).to_be_visible()
    await check_light_and_dark(page, "operations")
    assert faults_of(page) == []


async def test_the_chosen_colours_survive_a_reload(context: BrowserContext, url: str) -> None:
    page = await open_page(context, url)
    ground = "getComputedStyle(document.body).backgroundColor"
    light = await page.evaluate(ground)
    await page.get_by_role("button", name="Colours: system").click()
    assert await page.evaluate(ground) == light
    await page.get_by_role("button", name="Colours: light").click()
    dark = await page.evaluate(ground)
    assert dark != light
    await page.reload()
    assert await page.evaluate(ground) == dark
    await page.get_by_role("button", name="Colours: dark").click()
    assert await page.evaluate(ground) == light


async def test_a_phone_shows_one_panel_at_a_time(browser: Browser, url: str) -> None:
    context = await open_context(browser, viewport=PHONE, has_touch=True, is_mobile=True)
    page = await open_page(context, url)
    await append_until_summarized(page)
    for tab, pane in (("Memory", "given"), ("Conversations", "conversations"), ("Chat", "chat")):
        await page.get_by_role("navigation", name="Panels").get_by_role("button", name=tab).click()
        for name in ("given", "conversations", "chat"):
            shown = expect(page.locator(f".pane[data-name={name}]"))
            await (shown.to_be_visible() if name == pane else shown.to_be_hidden())
        assert await page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
        await save_screenshot(page, f"phone-{pane}")
        assert await violations(page) == []
    await say(page, "w" * 200)
    assert await page.locator("#thread-scroll").evaluate("(node) => node.scrollWidth - node.clientWidth") <= 0
    await page.get_by_role("navigation", name="Panels").get_by_role("button", name="Conversations").click()
    await page.locator(".conversation").first.click()
    await expect(page.locator(".pane.chat")).to_be_visible()
    await page.get_by_role("link", name="Operations").click()
    await expect(page.locator(".tile")).to_have_count(6)
    assert await page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    await save_screenshot(page, "phone-operations")
    assert (
        await violations(page, *([] if EVERYTHING else ["target-size", "scrollable-region-focusable"]), always=True)
        == []
    )
    assert faults_of(page) == []
    await context.close()


KEYS = {"all": (("read", "write", "admin"), None), "reader": (("read",), None), "ann": (("read", "write"), "ann")}


async def check_keys_of_less(page: Page, keys: dict[str, str]) -> None:
    """Check what the page shows to a key that reads only, and to a key of one owner."""
    field = page.get_by_label("Key", exact=True)
    await page.get_by_role("button", name="Sign out").click()
    await field.fill(keys["reader"])
    await field.press("Enter")
    await expect(page.locator(".entry.stored")).to_have_count(2)
    await expect(page.locator("#composer-word")).to_have_text("Your key can only read here.")
    await expect(page.locator("#message")).to_be_disabled()
    await page.get_by_role("link", name="Operations").click()
    await expect(page.locator("#operations-word")).to_contain_text("needs the scope admin")
    await page.get_by_role("link", name="redismem, a new conversation").click()
    await page.get_by_role("button", name="Sign out").click()
    await field.fill(keys["ann"])
    await field.press("Enter")
    await expect(page.locator("#conversations-word")).to_contain_text("No conversations yet.")
    await expect(page.get_by_label("Owner", exact=True)).to_be_hidden()
    await say(page, "Mine alone")
    await expect(page.locator(".conversation-title")).to_have_text("Mine alone")
    await expect(page.locator("#chat-owner")).to_have_text("ann")


async def test_the_page_asks_for_a_key_and_keeps_it_in_the_tab(context: BrowserContext, tmp_path: Path) -> None:
    made = {name: new_key(name, "shop", scopes, owner) for name, (scopes, owner) in KEYS.items()}
    keys = {name: key for name, (key, _) in made.items()}
    (tmp_path / "keys").write_text("\n".join(line for _, line in made.values()))
    with run_service("--url", "memory://", "--keys-file", tmp_path / "keys") as own_url:
        page = await context.new_page()
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        await page.goto(f"{own_url}/#/s/kept")
        field = page.get_by_label("Key", exact=True)
        await expect(field).to_be_focused()
        assert await violations(page) == []
        await field.fill("rmk_wrong")
        await field.press("Enter")
        await expect(page.locator("#key-word")).to_have_text("This server does not know this key.")
        await save_screenshot(page, "key")
        await field.fill(keys["all"])
        await field.press("Enter")
        await expect(page.locator("#health")).to_contain_text("Connected")
        await expect(page.locator("#identity")).to_contain_text("shop")
        await expect(page.get_by_label("Owner", exact=True)).to_be_visible()
        await say(page, "With a key")
        await page.reload()
        await expect(page.locator(".entry.stored")).to_have_count(2)
        assert await page.evaluate("localStorage.length + document.cookie.length") == 0
        await check_keys_of_less(page, keys)
        assert not any(key in address for key in keys.values() for address in [*asked, page.url])
        await park_page(page)
