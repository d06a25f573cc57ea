"""Other people's conversations: read-only at first, with tool calls, pictures and Markdown, whatever users send."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Any

import pytest
from playwright.async_api import BrowserContext, Locator, Page, expect
from support.browser import NARROW, faults_of, open_page, save_screenshot, say, violations
from support.page_modules import module

pytestmark = pytest.mark.asyncio(loop_scope="session")
expect.set_options(timeout=60_000)

CALL = '{"order_id": 12345678901234567890, "to": "K\\u00f6ln", "items": [], "by": {"express": true}}'
INDENTED = """{
  "order_id": 12345678901234567890,
  "to": "Köln",
  "items": [],
  "by": {
    "express": true
  }
}"""
ANSWER = """# Heading
Some **bold _and italic_** `code`, order_id and <img src=x onerror=alert(1)>.

- one
  - [nested](https://evil.example/?q=1)
- [bad](javascript:alert(1)) and [worse](data:text/html,x)

1. first

> quoted

```
a < b
```
| Parcel | Weight | |
|:--|--:|:-:|
| **p-1** | 3 kg | `a` \\| b <b>x</b> |
| p-2 | 12 kg
| p-3 | 4 kg | last | left out |

**unclosed `tick"""
HOSTILE = (
    "*a " * 200_000,
    "`" * 300_001 + "a",
    "[a](" * 100_000,
    "> " * 200_000,
    "- a\n" * 100_000,
    "**_~~" * 100_000,
    "# " + " " * 300_000 + "\u2028x",
    "|" * 50 + "\n" + "|-" * 50 + "\n" + "|\n" * 200_000,
    "|a\n|-\n" * 100_000,
)

ODD: list[Any] = [
    None,
    True,
    5,
    "",
    "x",
    [],
    [[]],
    {},
    {"url": 5},
    [None, 5, "a", {"text": 5}, {"kind": "text", "text": 5}],
]
FIELDS = ["role", "type", "content", "parts", "tool_calls", "name", "output", "refusal", "arguments", "tool_call_id"]
PART_FIELDS = [
    "type",
    "text",
    "image_url",
    "source",
    "inlineData",
    "functionCall",
    "functionResponse",
    "input",
    "content",
]
ODD_MESSAGES: list[dict[str, Any]] = [{field: odd} for field in FIELDS for odd in ODD]
ODD_MESSAGES += [{"role": role, "content": odd, "tool_calls": odd} for role in ("user", "tool") for odd in ODD]
ODD_MESSAGES += [
    {"content": [{"type": kind, field: odd}]}
    for kind in ("image", "tool_use", "tool_result", 5)
    for field in PART_FIELDS
    for odd in ODD
]


def png(width: int, height: int) -> str:
    """Return a PNG as base64. A large one is small as a file."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = zlib.compress(bytes((width + 1) * min(height, 100)))
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows)).decode()


def picture(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


MESSAGES: list[dict[str, Any]] = [
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "Not **bold**: <b>x</b>"},
            picture(f"data:image/png;base64,{png(60, 40)}"),
            picture(f"data:image/png;base64,{png(60_000, 60_000)}"),
            picture("data:image/svg+xml;base64,PHN2Zz4="),
            picture("data:image/png;base64,%%%"),
            picture("https://example.com/a.png"),
            picture("javascript:alert(1)"),
        ],
    },
    {
        "role": "assistant",
        "content": ANSWER,
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "ship", "arguments": CALL}},
            {"id": "c2", "type": "function", "function": {"name": "ship", "arguments": "[" * 10_000 + "]" * 10_000}},
        ],
    },
    {"role": "tool", "tool_call_id": "c1", "content": '{"ok": true}'},
    {"role": "tool", "tool_call_id": "c2", "content": "too deep"},
    {"role": "assistant", "content": [{"type": "tool_use", "id": "c3", "name": "find", "input": {"q": "tank"}}]},
    {
        "role": "user",
        "content": [
            {
                "type": "tool_result",
                "tool_use_id": "c3",
                "is_error": True,
                "content": [{"type": "text", "text": "none"}],
            }
        ],
    },
    {"role": "assistant", "content": "x" * 30_000},
]


async def append(context: BrowserContext, at: str, messages: list[dict[str, Any]]) -> None:
    assert (await context.request.post(f"{at}/messages", data=messages)).ok


async def test_a_conversation_is_read_until_its_reader_asks_to_write(context: BrowserContext, url: str) -> None:
    await append(context, f"{url}/v1/sessions/theirs", [{"role": "user", "content": "Hello?"}])
    page = await open_page(context, url, "theirs")
    await expect(page.locator(".mine .who")).to_have_text("User")
    assert await page.title() == "theirs · redismem"
    await expect(page.locator("#message")).to_be_hidden()
    await expect(page.get_by_role("button", name="Clear…")).to_be_disabled()
    await page.keyboard.press("Tab")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("button", name="Write as this user")).to_be_focused()
    assert await violations(page, part=".pane.chat") == []
    await page.keyboard.press("Enter")
    await expect(page.locator("#message")).to_be_focused()
    await say(page, "Is anybody there?")
    await expect(page.locator(".entry.stored")).to_have_count(3)
    await page.reload()
    await expect(page.locator("#message")).to_be_visible()
    await expect(page.get_by_role("button", name="Clear…")).to_be_enabled()
    other = await open_page(context, url, "theirs")
    await expect(other.locator("#message")).to_be_hidden()
    assert faults_of(page) == []


async def check_pictures(entry: Locator) -> None:
    await expect(entry.locator(".text")).to_have_text("Not **bold**: <b>x</b>")
    picture = entry.locator("img")
    await expect(picture).to_have_count(1)
    await picture.scroll_into_view_if_needed()
    await expect(picture).to_have_js_property("naturalWidth", 60)
    assert await entry.locator(".word").all_inner_texts() == [
        "A picture: 60000 × 60000 pixels, too large to show.",
        "A picture: of a kind that is not shown.",
        "A picture: of a kind that is not shown.",
        "A picture at example.com (opening it shows your address there).",
        "A picture: its address is not shown.",
    ]


async def check_markdown(answer: Locator) -> None:
    assert await answer.locator("strong").all_inner_texts() == ["bold and italic", "p-1"]
    await expect(answer).to_contain_text("order_id and <img src=x onerror=alert(1)>.")
    await expect(answer).to_contain_text("**unclosed `tick")
    await expect(answer.locator("pre")).to_have_text("a < b")
    await expect(answer.locator("li")).to_have_count(4)
    await expect(answer.locator("li").nth(1)).to_have_text("nested (evil.example)")
    rows = await answer.locator("tr").evaluate_all(
        "(rows) => rows.map((row) => [...row.cells].map((cell) => cell.innerText))"
    )
    assert rows == [
        ["Parcel", "Weight", ""],
        ["p-1", "3 kg", "a | b <b>x</b>"],
        ["p-2", "12 kg", ""],
        ["p-3", "4 kg", "last"],
    ]
    sides = "(cells) => cells.map((cell) => getComputedStyle(cell).textAlign)"
    assert await answer.locator("tr").nth(1).locator("td").evaluate_all(sides) == ["left", "right", "center"]


async def unfold(folds: Locator) -> list[str]:
    """Open the folds with the keyboard, check what they hold, and return it."""
    assert await folds.locator("summary code").all_inner_texts() == ["ship", "ship", "ship", "ship", "find", "find"]
    assert await folds.locator("pre").count() == 0
    await expect(folds.locator(".fold-brief").first).to_contain_text('"to": "Köln"')
    for fold in await folds.locator("summary").all():
        await fold.press("Enter")
    await expect(folds.locator("pre")).to_have_count(6)
    texts = await folds.locator("pre").all_inner_texts()
    assert texts == [
        INDENTED,
        "[" * 10_000 + "]" * 10_000,
        '{\n  "ok": true\n}',
        "too deep",
        '{\n  "q": "tank"\n}',
        "none",
    ]
    await expect(folds.last).to_contain_text("Error of")
    return texts


async def check_plot(page: Page) -> None:
    """Check that the labels of a narrow plot fit and name their times, and that a single sample is a dot of its own."""
    await page.evaluate(module("plot", "dom", "ticks", "words"))
    drawn = await page.evaluate(
        "() => { const at = document.body.appendChild(document.createElement('div')); at.style.width = '340px';"
        " const draw = makePlot(at, 'T', { unit: 's', format: String }); const found = [];"
        " for (const s of [120, 300]) { draw([{ name: 'a', points: [[s, 1], [90, null], [60, 2], [30, 1]].map("
        "   ([age, value]) => ({ ms: 1e12 - age * 1000, value })) }], '', 1e12);"
        "   const pick = (name) => at.querySelector(name).getAttribute('d').match(/M/g).length;"
        "   found.push([[...at.querySelectorAll('.plot-times span')].map((node) => node.textContent),"
        "     ['.plot-line', '.plot-dot', '.plot-area'].map(pick)]); } at.remove(); return found; }"
    )
    assert drawn == [
        [["−2 min", "−90 s", "−1 min", "−30 s", "now"], [2, 1, 2]],
        [["", "−4 min", "", "−2 min", "", "now"], [2, 1, 2]],
    ]


async def test_tool_calls_pictures_and_markdown_are_shown_and_become_no_markup(
    context: BrowserContext, url: str
) -> None:
    await append(context, f"{url}/v1/sessions/rich", MESSAGES)
    page = await open_page(context, url, "rich")
    entries = page.locator(".entry.stored")
    await expect(entries).to_have_count(len(MESSAGES))
    await check_pictures(entries.nth(0))
    await check_markdown(entries.nth(1).locator(".md"))
    hrefs = await page.locator("#thread a").evaluate_all("(links) => links.map((link) => link.protocol)")
    assert hrefs == ["https:", "https:"]
    assert await page.locator("#thread :is(script, iframe, b)").count() == 0
    folds = page.locator("#thread details")
    texts = await unfold(folds)
    await save_screenshot(page, "rich")
    # axe measures contrast only of what is in view.
    await folds.first.scroll_into_view_if_needed()
    assert await violations(page, part="#thread") == []
    await page.get_by_role("button", name="Show more of 30,000 characters").click()
    await expect(entries.nth(6).locator(".text")).to_have_text(["x" * 20_000, "x" * 10_000])
    # A redraw keeps the opened parts open; a change to a message closes them.
    await append(context, f"{url}/v1/sessions/rich", [{"role": "user", "content": "more"}])
    await expect(entries).to_have_count(len(MESSAGES) + 1)
    assert await folds.locator("pre").all_inner_texts() == texts
    # Quadratic work on these would take minutes.
    await page.evaluate(module("markdown", "dom", "tables"))
    counts = await page.evaluate(
        "(texts) => texts.map((text) => { const node = document.createElement('div'); node.append(...markdownOf(text));"
        " return [node.querySelectorAll('*').length, node.textContent.length > 0]; })",
        HOSTILE,
    )
    assert all(count <= 6_000 and has_text for count, has_text in counts), counts
    await check_plot(page)
    await page.evaluate(module("contents"))
    parts = await page.evaluate("(messages) => messages.flatMap(contentsOf)", ODD_MESSAGES)
    assert all(isinstance(part["text"], str) for part in parts if part["kind"] == "text")
    assert all(isinstance(part["name"], str) for part in parts if "value" in part)
    assert faults_of(page) == []


async def test_a_row_opens_its_message_and_the_panel_folds_away(context: BrowserContext, url: str) -> None:
    chat = [{"role": "user", "content": f"number {number}"} for number in range(250)]
    await append(context, f"{url}/v1/sessions/long", [{"role": "system", "content": "Be brief."}, *chat])
    page = await open_page(context, url, "long")
    await expect(page.locator(".entry.stored").first).to_be_visible()
    await page.locator("#pinned .line").press("Enter")
    await expect(page.locator(".entry[data-seq='1']")).to_be_focused()
    await expect(page.locator(".entry[data-seq='1']")).to_be_in_viewport()
    assert page.url.endswith("#/s/long?message=1")
    await page.goto(f"{url}/#/s/long?message=100")
    await expect(page.locator(".entry[data-seq='100']")).to_be_focused()
    await page.goto(f"{url}/#/s/long?message=9999")
    await expect(page.locator("#toast-text")).to_have_text("Message 9999 is not stored here (any more).")
    fold = page.get_by_role("button", name="Memory")
    await fold.press("Enter")
    await expect(page.locator(".pane.given")).to_be_hidden()
    await page.reload()
    await expect(page.locator(".pane.given")).to_be_hidden()
    await expect(fold).to_have_attribute("aria-expanded", "false")
    await fold.click()
    await expect(page.locator(".pane.given")).to_be_visible()
    assert faults_of(page) == []


async def check_no_sideways(page: Page, width: int = 320) -> None:
    """Check that nothing on the page scrolls sideways, but a table within its frame."""
    wide = "[...document.querySelectorAll('*')].filter((node) => node.scrollWidth > node.clientWidth + 1 &&"
    wide += " !node.matches('.md-table') &&"
    wide += " ['auto', 'scroll'].includes(getComputedStyle(node).overflowX)).map((node) => node.id || node.className)"
    assert await page.evaluate(f"[document.documentElement.scrollWidth, {wide}]") == [width, []], page.url


async def test_the_chat_fits_every_width(context: BrowserContext, url: str) -> None:
    at = f"{url}/v1/sessions/{'ticket-4711-of-a-customer-with-a-long-id'}"
    said = [{"role": "user", "content": "Where are they?"}, {"role": "assistant", "content": ANSWER + "w" * 200}]
    answer = await context.request.post(f"{at}/messages?owner=customer-17-of-the-shop-in-z%C3%BCrich", data=said)
    assert answer.ok
    page = await open_page(context, url, at.rpartition("/")[2])
    await page.get_by_role("button", name="Write as this user").click()
    await page.get_by_role("button", name="Find").click()
    await page.get_by_label("Find in all messages").fill("parcel")
    await expect(page.locator("#find-word")).to_have_text("1 of 1")
    cut = (
        "(nodes) => nodes.filter((node) => !node.matches('.unseen') && node.getBoundingClientRect().right > innerWidth)"
    )
    for width, height in ((390, 844), (768, 1024), (1024, 768), (1440, 900)):
        await page.set_viewport_size({"width": width, "height": height})
        for colours in ("light", "dark"):
            await page.emulate_media(color_scheme=colours)
            for name in ("#identity", "#chat-title", "#chat-owner", "#clear", "#find-day", "#find-close"):
                await expect(page.locator(name)).to_be_in_viewport(ratio=1)
            await check_no_sideways(page, width)
            assert await page.locator("header.top *, .pane.chat .pane-head *, #find *").evaluate_all(cut) == []
            await save_screenshot(page, f"chat-{width}-{colours}")
            assert await violations(page, part=".pane.chat") == []
    assert faults_of(page) == []


async def test_words_times_and_failing_summaries_are_searched_at_320_pixels(context: BrowserContext, url: str) -> None:
    await append(
        context, f"{url}/v1/sessions/kettles", [{"role": "user", "content": text} for text in ("Blue kettles!", "x")]
    )
    await append(context, f"{url}/v1/sessions/cups", [{"role": "user", "content": "A blue cup"}])
    page = await open_page(context, url, "cups", NARROW)
    await page.get_by_role("button", name="Conversations").click()
    rows = page.locator(".conversation")
    await page.get_by_label("Search in").select_option("in texts")
    await page.get_by_label("Search conversations by words in their messages").fill("blue kettle")
    await expect(rows).to_have_count(1)
    await expect(rows).to_contain_text("Blue kettles!")
    await expect(page.locator("#conversations-word")).to_have_text("1 conversation found.")
    await page.get_by_label("Last active").select_option("over a day ago")
    await expect(page.locator("#conversations-word")).to_have_text("No conversation matches.")
    await page.get_by_label("Last active").select_option("last hour")
    await expect(rows).to_have_count(1)
    await check_no_sideways(page)
    await save_screenshot(page, "search-320")
    assert await violations(page, part=".pane.conversations") == []
    await page.get_by_label("Search conversations by words").press("Enter")
    await expect(page.locator(".entry[data-seq='1']")).to_be_focused()
    assert page.url.endswith("#/s/kettles?message=1")
    await check_no_sideways(page)
    await page.get_by_role("button", name="Conversations").click()
    await page.get_by_label("failing").check()
    await expect(page.locator("#conversations-word")).to_have_text("No conversation matches.")
    await page.goto(f"{url}/#/operations")
    await expect(page.locator("#queues tr").first).to_be_visible()
    await check_no_sideways(page)
    assert faults_of(page) == []


async def test_where_there_is_no_project_the_page_creates_one(context: BrowserContext, url: str) -> None:
    page = await open_page(context, url, viewport=NARROW)
    await page.get_by_role("link", name="Projects").click()
    await expect(page.get_by_role("heading", name="No projects yet")).to_be_visible()
    await page.get_by_label("Name").fill("no blanks")
    await page.get_by_label("First task").fill("Find a name")
    await page.get_by_label("First task").press("Enter")
    assert await page.locator("#new-project-name").evaluate("(field) => field.validity.patternMismatch")
    await check_no_sideways(page)
    assert await violations(page) == []
    await page.get_by_label("Name").fill("apollo-2")
    await page.get_by_label("Name").press("Enter")
    await expect(page.locator(".column[data-status=backlog] .task")).to_contain_text("Find a name")
    assert page.url.endswith("#/p/apollo-2/tasks")
    await check_no_sideways(page)
    await save_screenshot(page, "board-320")
    assert await violations(page) == []
    assert faults_of(page) == []
