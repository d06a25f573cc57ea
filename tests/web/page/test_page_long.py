"""Long texts on the page: whatever they repeat, the browser's work is linear, and the reader asks for the rest."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import pytest
from playwright.async_api import BrowserContext, expect
from support.browser import faults_of, open_page

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
