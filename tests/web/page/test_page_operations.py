"""The page in each state, healthy and sick, at four widths, light and dark: every figure equals the doctor's.

A run looks at each state once, and at each width and both colours at least once; `make nightly` at all of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Iterator
from itertools import product
from typing import Any, Literal

import pytest
import redis
from playwright.async_api import Browser, Page, ViewportSize, expect
from support.browser import faults_of, hold_request, open_context, open_page, save_screenshot, say, violations
from support.checks import until
from support.forked_service import run_service
from support.page_figures import cut_off, figures_for, figures_of, without_times
from support.page_states import BRIEF_SETTINGS, LONG_COUNT, MANY_COUNT, OPTIONS, REASON, SETTINGS, SICK, STATES, talk
from support.redis_server import REDIS_8, RedisServer, binary_of
from support.selection import EVERYTHING
from support.stores import LONG_DEADLINES

from redismem import Memory
from redismem.inspection.doctor import examine
from redismem.web.access import new_key

pytestmark = pytest.mark.asyncio(loop_scope="session")
expect.set_options(timeout=60_000)
Scheme = Literal["light", "dark"]
WIDTHS = (390, 768, 1_024, 1_440)
SCHEMES: tuple[Scheme, ...] = ("light", "dark")
WRONG = {
    "healthy": {},
    "empty": {},
    "many": {},
    "long": {},
    "worker-dead": {"ticks": "warn"},
    "dead-letters": {"dead": "warn"},
    "model-failing": {"providers": "fail"},
    "quarantine": {"quarantine": "warn"},
    "redis-down": {"connection": "fail"},
}
"""The findings of each state that are not ok. A busy machine adds those of `BUSY`."""
LIKE_OTHERS = {"empty", "many", "long"}
"""States without a finding, like the healthy one. Other tests of the page read long lists and conversations."""
BUSY = {"latency", "clock", "summaries"}


def looks_at(state: str) -> list[tuple[int, Scheme]]:
    """Return the widths and colours at which this run looks at a state."""
    every = list(product(WIDTHS, SCHEMES))
    return every if EVERYTHING else [every[3 * list(WRONG).index(state) % len(every)]]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A server in which the doctor finds nothing, with a namespace for each state."""
    server = RedisServer(tmp_path_factory.mktemp("states"), aof=True, options=OPTIONS)
    server.binary = binary_of(REDIS_8)
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def keys() -> dict[str, tuple[str, str]]:
    """A key of each state's namespace, and its line in the list of keys."""
    return {state: new_key(state, state, ["read", "write", "admin"]) for state in STATES}


@pytest.fixture(scope="module")
def url(server: RedisServer, keys: dict[str, tuple[str, str]]) -> Iterator[str]:
    """A service of all these namespaces, without workers, so that a state stays."""
    lines = ";".join(line for _, line in keys.values())
    limits = {"REDISMEM_DEADLINE_S": "1", "REDISMEM_MAX_SESSIONS": f"{SETTINGS.max_sessions}"}
    with run_service("--no-workers", "--url", server.url, "--keys", lines, **limits) as address:
        yield address


@contextlib.asynccontextmanager
async def opened(browser: Browser, url: str, key: str) -> AsyncIterator[tuple[Page, asyncio.Event]]:
    """Open a page with a key, on which only *Check again* asks the doctor, until the event is set.

    So what the page shows has one document that it must equal.
    """
    context = await open_context(browser)
    await context.add_init_script(f"sessionStorage.setItem('redismem.key', '{key}')")
    _, released = await hold_request(context, "**/v1/doctor", times=None)
    page = await open_page(context, url)
    await page.get_by_role("link", name="Operations").click()
    yield page, released
    released.set()
    await context.close()


async def check_again(page: Page) -> dict[str, Any]:
    """Check again, wait until the page shows exactly what the answer says, and return the answer."""
    button = page.get_by_role("button", name="Check again")
    async with page.expect_response("**/v1/doctor?again=true") as asked:
        await button.click()
    document: dict[str, Any] = await (await asked.value).json()
    await expect(button).to_be_enabled()
    await page.locator("#tiles li").first.wait_for()
    drawn: dict[str, Any] = {}

    async def is_drawn() -> bool:
        drawn.update(await figures_of(page))
        return drawn == figures_for(document)

    try:
        await until(is_drawn)
    except TimeoutError:
        assert drawn == figures_for(document)
    return document


async def check_doctor(document: dict[str, Any], server: RedisServer, namespace: str, *, is_down: bool) -> None:
    """Check that the doctor of Python says the same of the namespace, in the same words."""
    patience = {"deadline_s": 1, "reply_timeout_s": 0.5} if is_down else {}
    settings = LONG_DEADLINES.model_copy(update={"max_sessions": SETTINGS.max_sessions, **patience})
    memory = Memory.connect(server.url, namespace=namespace, settings=settings)
    findings = await examine(memory.store, embedded=False)
    await memory.aclose()
    told = {row["name"]: row for row in document["findings"]}
    assert told.keys() == {finding.name for finding in findings}
    for finding in findings:
        row = told[finding.name]
        if finding.name not in BUSY and not is_down:
            assert (row["verdict"], row["advice"]) == (finding.verdict, finding.advice), finding.name
            assert without_times(row["seen"]) == without_times(finding.text)
            assert row["name"] not in ("dead", "quarantine", "room") or re.findall(
                r"[\d,]+ (?:session|record)", row["seen"]
            ) == re.findall(r"[\d,]+ (?:session|record)", finding.text)


async def check_width(page: Page, state: str, width: int, scheme: Scheme) -> None:
    """Check that the operations view can be read at a width: namespace, title, all columns; nothing is cut off."""
    await page.set_viewport_size(ViewportSize(width=width, height=2_600))
    await page.emulate_media(color_scheme=scheme)
    for place in ("#identity", "#operations-view h1", "#operations-namespace", *(f"th:nth-child({n})" for n in "1234")):
        await expect(page.locator(place).first).to_be_visible()
    await expect(page.locator("#operations-namespace")).to_have_text(re.compile("Namespace "))
    assert await cut_off(page) == []
    await save_screenshot(page, f"state-{state}-{width}-{scheme}")
    assert await violations(page) == []


async def check_chat(page: Page, url: str, state: str, width: int) -> None:
    """Check what list and panel say of the conversation that the state is about."""
    said = {
        "dead-letters": f"Dead, its summary failed for good: {REASON}",
        "quarantine": "A damaged copy is in quarantine",
    }
    said["model-failing"] = "Summaries fail: openai answered 503 overloaded"
    await page.goto(f"{url}/#/s/{SICK.replace('/', '%2F')}")
    row = page.locator(".conversation", has_text=SICK)
    await expect(row.locator(".conversation-failing")).to_have_text(said.get(state, ""))
    await expect(page.locator(".entry.stored").last).to_be_visible()
    sick = page.locator("#sick")
    if state in said:
        await expect(sick).to_contain_text(
            {"dead-letters": "Dead: its summary failed for good", "quarantine": "A copy is in quarantine"}.get(
                state, "Its summary fails"
            )
        )
    else:
        await expect(sick.locator("li")).to_have_count(0)
    if state == "dead-letters":
        await expect(sick).to_contain_text("The provider refuses the request: openai answered 400")
        await expect(sick).to_contain_text("Choose a model that takes longer requests")
        await expect(page.locator("#pending-word")).to_contain_text("because their summary failed for good")
    assert await page.evaluate("document.documentElement.scrollWidth") == width
    await save_screenshot(page, f"state-{state}-chat-{width}")
    assert await violations(page) == []


async def use_healthy(page: Page, url: str, server: RedisServer) -> None:
    """A turn is on the plots, its values under the pointer and by the keys; the badge follows a fault by itself."""
    await say(page, "A turn to be counted")
    await page.get_by_role("link", name="Operations").click()
    await expect(page.locator(".tile", has_text="p99")).to_contain_text(" ms")
    await expect(page.locator(".plot-card")).to_have_count(3)
    card = page.locator(".plot-card", has_text="Time of a turn in the memory")
    await expect(card.locator(".plot-line-1")).to_have_attribute("d", re.compile(r"^M"))
    assert await card.locator(".plot-unit").inner_text() == "ms"
    assert (await card.locator(".plot-values span").all_inner_texts())[0] == "0"
    assert (await card.locator(".plot-times span").all_inner_texts())[-2:] == ["−15 s", "now"]
    plot, tip = card.get_by_role("slider"), card.locator(".plot-tip")
    await plot.hover()
    await expect(tip).to_have_text(re.compile(r"^\d\d:\d\d:\d\d: p50 .*, p99 "))
    await page.mouse.move(0, 0)
    await expect(tip).to_be_hidden()
    await plot.press("End")
    last = int(await plot.get_attribute("aria-valuenow") or 0)
    await plot.press("ArrowLeft")
    await expect(plot).to_have_attribute("aria-valuetext", re.compile(r"^\d\d:\d\d:\d\d: p50 "))
    assert int(await plot.get_attribute("aria-valuenow") or 0) <= max(0, last)
    await expect(tip).to_be_visible()
    with redis.Redis.from_url(server.url) as raw:
        raw.config_set("maxmemory-policy", "allkeys-lru")
        badge = page.locator("#badges [data-key=fail] b")
        await expect(badge).to_have_text("1")
        await page.get_by_role("link", name="Chat").click()
        await expect(badge).to_be_visible()
        raw.config_set("maxmemory-policy", "noeviction")
        await page.get_by_role("link", name="Operations").click()
        await expect(page.locator("#badges")).to_be_hidden()


async def use_dead(page: Page, url: str, server: RedisServer) -> None:
    """The chat of a dead session goes on with all its messages, and an operator retries it."""
    await page.set_viewport_size(ViewportSize(width=1_440, height=900))
    async with Memory.connect(server.url, namespace="dead-letters", settings=SETTINGS) as memory:
        await talk(memory, SICK, 6)
    await say(page, "and one more")
    await expect(page.locator(".theirs .notices").last).to_contain_text("Nothing is lost")
    await page.get_by_label("failing").check()
    await expect(page.locator(".conversation-failing")).to_have_text([re.compile("^Dead, .*400")] * 3)
    await page.get_by_role("link", name="Dead sessions in Operations").click()
    rows = page.locator("#dead li")
    await expect(rows.first).to_contain_text(f"{REASON}, after 1 attempt, ")
    await page.get_by_role("button", name="Retry dead/2").click()
    await expect(rows).to_have_count(2)
    await expect(page.locator("#queues tr[data-key=overdue] .number").first).to_have_text("1")
    await page.get_by_role("button", name="Retry all").click()
    await expect(page.locator("#dead-checks .seen")).to_have_text("no session is dead")
    await expect(page.locator("#queues tr[data-key=overdue] .number").first).to_have_text("3")
    await expect(page.locator("#badges")).to_be_hidden()


async def use_quarantine(page: Page, url: str, server: RedisServer) -> None:
    """A copy in quarantine is shown, restored in place of the live one, and dropped, each after a question."""
    await page.goto(f"{url}/#/operations")
    rows = page.locator("#quarantine > li")
    await expect(rows).to_have_count(2)
    row = rows.filter(has_text=SICK)
    await row.locator("summary").click()
    await expect(row.locator(".copy-parts")).to_contain_text("9 messages and 0 summaries can be read.")
    await expect(row.locator(".copy-text").first).to_have_text("Where is parcel 0?")
    assert await violations(page, part="#quarantine") == []
    dialog = page.locator("#confirm")
    await page.get_by_role("button", name=f"Restore… {SICK}").click()
    await expect(dialog).to_contain_text("9 messages and 0 summaries come back.")
    await expect(dialog).to_contain_text("A live session has this id: it goes into quarantine instead.")
    assert await violations(page, part="#confirm") == []
    await dialog.get_by_role("button", name="Leave it there").click()
    await page.get_by_role("button", name=f"Restore… {SICK}").click()
    await dialog.get_by_role("button", name="Restore it").click()
    await expect(dialog).to_be_hidden()
    await expect(row).to_contain_text("2 messages")
    for left in (1, 0):
        await rows.first.get_by_role("button", name="Drop").click()
        await expect(dialog).to_contain_text("This cannot be undone.")
        await dialog.get_by_role("button", name="Drop it").click()
        await expect(rows).to_have_count(left)
    await expect(page.locator("#quarantine-checks .seen")).to_have_text("no session or record in this namespace")
    await expect(page.locator("#badges")).to_be_hidden()
    await page.goto(f"{url}/#/s/{SICK.replace('/', '%2F')}")
    await expect(page.locator(".entry.stored")).to_have_count(9)
    await expect(page.locator("#sick li")).to_have_count(0)


USES = {"healthy": use_healthy, "dead-letters": use_dead, "quarantine": use_quarantine}
"""The actions of a person in a state, once the page has shown it."""


@pytest.mark.parametrize(
    "state", [pytest.param(state, marks=[pytest.mark.nightly] * (state in LIKE_OTHERS)) for state in WRONG]
)
async def test_page_states(
    browser: Browser, url: str, server: RedisServer, keys: dict[str, tuple[str, str]], state: str
) -> None:
    is_down = state == "redis-down"
    namespace = "healthy" if is_down else state
    if not is_down:
        settings = BRIEF_SETTINGS if state == "worker-dead" else SETTINGS
        async with Memory.connect(server.url, namespace=namespace, settings=settings) as memory:
            await STATES[state](memory)
    async with opened(browser, url, keys[namespace][0]) as (page, released):
        if is_down:
            await asyncio.to_thread(server.kill)
        try:
            await look_at(page, url, state, server)
            released.set()
            if state in USES:
                await USES[state](page, url, server)
            assert faults_of(page) == []
        finally:
            if is_down:
                await asyncio.to_thread(server.start)


async def look_at(page: Page, url: str, state: str, server: RedisServer) -> None:
    is_down = state == "redis-down"
    document: dict[str, Any] = {}
    wrong: dict[str, str] = {}

    async def is_sick() -> bool:
        document.update(await check_again(page))
        wrong.clear()
        rows = [row for row in document["findings"] if row["name"] not in BUSY]
        wrong.update({row["name"]: row["verdict"] for row in rows if row["verdict"] in ("warn", "fail")})
        return wrong == WRONG[state]

    try:
        await until(is_sick)
    except TimeoutError:
        assert wrong == WRONG[state]
    if not is_down:
        expected = {"many": MANY_COUNT, "empty": 0, "long": 1}.get(state, document["queues"]["sessions"])
        assert document["queues"]["sessions"] == expected
    await check_doctor(document, server, "healthy" if is_down else state, is_down=is_down)
    for width, scheme in looks_at(state):
        await check_width(page, state, width, scheme)
    if state == "worker-dead":
        assert document["ticked_ms"], "a worker has polled"
        await expect(page.locator("#processes-word")).to_be_hidden()  # the finding alone says when
    if state not in ("empty", "redis-down"):
        await check_chat(page, url, state, looks_at(state)[-1][0])
    if state == "long":
        await expect(page.locator(f".entry[data-seq='{LONG_COUNT}']")).to_be_visible()
