"""The project view: the board with mouse and keys, chains, mentions, and the past."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, Locator, Page, Route, expect
from support.browser import PHONE, faults_of, hold_request, open_context, open_page, save_screenshot, violations
from support.forked_service import run_service
from support.page_figures import cut_off
from support.redis_server import RedisServer

from redismem import Memory, Settings
from redismem.project.project import Project

pytestmark = pytest.mark.asyncio(loop_scope="session")
expect.set_options(timeout=60_000)
RECORD_ANNOUNCEMENTS = (
    "window.told = []; new MutationObserver(() => told.push(announcer.textContent))"
    ".observe(announcer, {childList: true, characterData: true, subtree: true})"
)


@pytest.fixture(scope="module")
def url(server_options: list[Any]) -> Iterator[str]:
    """A service whose chat has a project."""
    with run_service("--no-workers", "--project", "apollo", *server_options) as address:
        yield address


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def apollo(server_options: list[Any], redis_server: RedisServer) -> AsyncIterator[Project]:
    """A project with three weeks of changes up to now."""
    settings = Settings(deadline_s=60, reply_timeout_s=20)
    async with Memory.connect(redis_server.url, namespace=server_options[3], settings=settings) as memory:
        project = memory.project("apollo")
        await three_weeks(project)
        yield project


async def three_weeks(apollo: Project) -> None:
    begin = datetime.now(UTC) - timedelta(days=21)

    def day(number: float) -> datetime:
        return begin + timedelta(days=number)

    old = await apollo.decisions.create(
        "Use Postgres", rationale="Everybody knows it.", tags=["db"], status="accepted", at=day(0)
    )
    for title, why, when in (
        ("Use Redis", "One round trip a turn.", 9),
        ("Use Redis Cluster", "One node is full in spring.", 16),
    ):
        fields: Any = {"title": title, "rationale": why, "reason": "too slow", "tags": ["db"]}
        old = await apollo.decisions.supersede(old.id, at=day(when), **fields)
    await apollo.decisions.create("Answer in the customer's language", status="accepted", at=day(4))
    await apollo.decisions.create("Keep transcripts for 30 days", description="Lawyers have a word.", at=day(18))
    ada = await apollo.entities.create(
        "Ada Okafor", "person", "Leads the move.", properties={"card": "4111", "desk": 12}, at=day(0)
    )
    await apollo.entities.add_mention(ada.id, "moves the data over Easter", "planning", at=day(6))
    await apollo.entities.add_mention(ada.id, "is away until Monday", "standup", at=day(17))
    redis = await apollo.entities.create("Redis", "technology", "Where sessions live.", at=day(1))
    await apollo.entities.link(ada.id, "knows", redis.id, at=day(2))
    move = await apollo.tasks.create("Move the data", priority="high", assignee="Ada", at=day(5), due_date=day(20))
    await apollo.decisions.link_task(old.id, move.id)
    await apollo.tasks.start(move.id, at=day(10))
    await apollo.tasks.block(move.id, "a review", at=day(12))
    for title, priority, status in (
        ("Write the runbook", "medium", "backlog"),
        ("Name an owner for backups", "critical", "backlog"),
        ("Load test with last year's traffic", "high", "planned"),
        ("Translate the notices", "low", "in_progress"),
        ("Try two replicas", "medium", "in_progress"),
    ):
        details: Any = {"priority": priority, "status": status, "assignee": "Jun" if status == "in_progress" else None}
        await apollo.tasks.create(title, at=day(11), **details)
    done = await apollo.tasks.create("Choose a provider", status="in_progress", at=day(3), due_date=day(7))
    await apollo.tasks.complete(done.id, at=day(8))


DROP_IMMEDIATE_TIMERS = """() => {
  const later = window.setTimeout;
  window.setTimeout = (done, ms, ...more) => (ms === 0 ? 0 : later(done, ms, ...more));
}"""
"""Drops timers of 0 ms, as if the page were too busy to run them."""


def card(page: Page, title: str) -> Locator:
    return page.locator(".task", has_text=title)


def column(page: Page, status: str) -> Locator:
    return page.locator(f".column[data-status={status}]")


async def drag(page: Page, title: str, status: str) -> None:
    """Drag a card to a column with the mouse."""
    task, place = await card(page, title).bounding_box(), await column(page, status).bounding_box()
    assert task
    assert place
    await page.mouse.move(task["x"] + task["width"] / 2, task["y"] + 12)
    await page.mouse.down()
    await page.mouse.move(place["x"] + place["width"] / 2, place["y"] + 80, steps=4)
    await page.mouse.up()


async def view_of(context: BrowserContext, url: str, part: str = "tasks") -> Page:
    page = await open_page(context, f"{url}/#/p/apollo/{part}")
    await expect(page.locator(".task, .row").first).to_be_visible()
    await page.evaluate(RECORD_ANNOUNCEMENTS)
    return page


async def wait_for_announcement(page: Page, text: str) -> None:
    """Wait until this text was announced to screen readers."""
    await page.wait_for_function("(text) => told.some((each) => each.includes(text))", arg=text)


async def test_a_task_is_dragged_to_other_columns(context: BrowserContext, url: str, apollo: Project) -> None:
    page = await open_page(context, url)
    # Follow the link from the chat to its project.
    await page.locator("#chat-project-link").click()
    await expect(page.get_by_role("heading", name="apollo")).to_be_visible()
    await expect(page.locator(".task")).to_have_count(7)
    await expect(column(page, "blocked").locator(".task")).to_contain_text("Waits for a review")
    await expect(card(page, "Move the data").locator(".task-due.overdue")).to_have_text(re.compile("^overdue: "))
    await expect(card(page, "Choose a provider").locator(".task-due")).to_have_text(re.compile("^due "))
    await expect(page.locator(".overdue")).to_have_count(1)
    await save_screenshot(page, "project-tasks")
    await drag(page, "Write the runbook", "planned")
    await expect(column(page, "planned").locator(".task", has_text="Write the runbook")).to_be_visible()
    await expect(page.locator(".going")).to_have_count(0)
    (planned,) = await apollo.tasks.list(text="runbook")
    assert planned.status == "planned"
    # The column Blocked asks for a reason; cancelling leaves the task in its place.
    await drag(page, "Write the runbook", "blocked")
    await page.get_by_role("button", name="Put it back").click()
    await expect(column(page, "planned").locator(".task", has_text="Write the runbook")).to_be_visible()
    await drag(page, "Write the runbook", "blocked")
    await page.get_by_label("Waits for", exact=True).fill("the owner")
    await page.keyboard.press("Enter")
    await expect(column(page, "blocked").locator(".task", has_text="Waits for the owner")).to_be_visible()
    await expect(page.locator(".going")).to_have_count(0)
    # A refused move names both statuses.
    await drag(page, "Write the runbook", "completed")
    await expect(page.locator("#project-fault")).to_contain_text(
        "is blocked. A task cannot go from blocked to completed"
    )
    await expect(column(page, "blocked").locator(".task", has_text="Write the runbook")).to_be_visible()
    blocked = await apollo.tasks.get(planned.id)
    assert (blocked.status, blocked.blocked_by, blocked.version) == ("blocked", ("the owner",), 3)
    assert faults_of(page) == []


async def test_a_late_answer_for_the_view_before_is_dropped(context: BrowserContext, url: str, apollo: Project) -> None:
    page = await view_of(context, url, "decisions")
    asked, released = await hold_request(page, "**/board?*")
    await page.get_by_role("link", name="Tasks").click()
    await asked.wait()
    await page.get_by_role("link", name="Decisions").click()
    await expect(page.locator("#rows > li").first).to_be_visible()
    # Whatever is drawn wrongly is drawn anew by the next poll, so every drawing is recorded.
    await page.evaluate(
        "window.drawn = ''; new MutationObserver(() => { drawn += rows.textContent })"
        ".observe(rows, {childList: true, characterData: true, subtree: true})"
    )
    async with page.expect_event("requestfinished", lambda request: "/board?" in request.url):
        released.set()
    await page.evaluate("fetch('/v1/projects').then((answer) => answer.json())")
    assert "Choose a provider" not in await page.evaluate("drawn")
    await expect(page.locator("#board")).to_be_hidden()


async def test_a_click_by_keyboard_after_a_drag_is_not_swallowed(
    context: BrowserContext, url: str, apollo: Project
) -> None:
    """A busy page handles the key before it has cleaned up the drag. The board does not change."""
    page = await view_of(context, url)
    await expect(page.locator(".task")).to_have_count(7)
    await page.evaluate(DROP_IMMEDIATE_TIMERS)
    await drag(page, "Name an owner for backups", "blocked")
    await page.get_by_role("button", name="Put it back").press("Enter")
    await expect(page.locator("#ask")).to_be_hidden()
    await expect(column(page, "backlog").locator(".task", has_text="Name an owner for backups")).to_be_visible()


async def test_arrow_keys_move_a_task_and_announce_it(context: BrowserContext, url: str, apollo: Project) -> None:
    page = await view_of(context, url)
    task = card(page, "Translate the notices")
    await task.focus()
    await page.keyboard.press("ArrowLeft")
    await wait_for_announcement(page, "is over the column Planned. Press Enter to drop it, Escape to put it back.")
    await expect(column(page, "planned").locator(".held")).to_have_count(1)
    await page.keyboard.press("Escape")
    await wait_for_announcement(page, "“Translate the notices” is back in the column In progress.")
    await expect(task).to_be_focused()
    await page.keyboard.press("ArrowUp")
    await expect(card(page, "Try two replicas")).to_be_focused()
    await page.keyboard.press("ArrowRight")
    await page.keyboard.press("ArrowRight")
    await expect(column(page, "completed").locator(".held")).to_have_count(1)
    await page.keyboard.press("Enter")
    await wait_for_announcement(page, "“Try two replicas” is now in the column Completed.")
    await expect(card(page, "Try two replicas")).to_be_focused()
    # Cancelling asks for a reason, which the task's history shows.
    await task.focus()
    for _ in range(3):
        await page.keyboard.press("ArrowRight")
    await page.keyboard.press("Enter")
    await expect(page.get_by_label("Reason")).to_be_focused()
    await page.keyboard.type("the notices are gone")
    await page.keyboard.press("Enter")
    await wait_for_announcement(page, "“Translate the notices” is now in the column Cancelled.")
    await page.keyboard.press("Enter")
    await expect(page.locator("#item h2")).to_be_focused()
    await expect(page.locator("#item")).to_contain_text("the notices are gone")
    (cancelled,) = await apollo.tasks.list(status="cancelled")
    assert (cancelled.title, cancelled.history[-1].reason) == ("Translate the notices", "the notices are gone")
    await page.keyboard.press("Escape")
    await expect(task).to_be_focused()
    assert faults_of(page) == []


async def test_a_conflicting_move_is_refused_and_shows_the_present_state(
    context: BrowserContext, url: str, apollo: Project
) -> None:
    page = await view_of(context, url)
    (task,) = await apollo.tasks.list(text="load test")

    async def overtaken(route: Route) -> None:
        await apollo.tasks.start(task.id)
        await route.continue_()

    await page.route("**/status", overtaken)
    await card(page, "Load test").click()
    await page.get_by_role("group", name="Move to").get_by_role("button", name="Backlog").click()
    fault = "Another user has changed “Load test with last year's traffic” meanwhile. It is now"
    await expect(page.locator("#project-fault")).to_contain_text(fault)
    await expect(column(page, "in_progress").locator(".task", has_text="Load test")).to_be_visible()
    await save_screenshot(page, "project-conflict")
    assert (await apollo.tasks.get(task.id)).version == 2
    assert faults_of(page) == []


async def check_axis(page: Page) -> None:
    """Check that the axis of time has round moments, and that the pointer shows the one below it."""
    assert len(await page.locator("#moment-ticks span").all_inner_texts()) >= 2
    await page.locator("#moment").hover()
    await expect(page.locator("#moment-tip")).to_have_text(re.compile(r"\d\d:\d\d$"))
    await page.mouse.move(0, 0)
    await expect(page.locator("#moment-tip")).to_be_hidden()


async def check_widths(page: Page) -> None:
    """Check that the board shows namespace and all columns at each width, and that nothing is cut off."""
    await expect(page.locator(".task").first).to_be_visible()
    for width in (390, 768, 1_024, 1_440):
        await page.set_viewport_size({"width": width, "height": 1_600})
        await expect(page.locator("#identity")).to_be_visible()
        assert await cut_off(page) == [], width
        assert await page.locator(".column h2:visible").count() == 6
        below = await page.locator("#board").evaluate("(board) => innerHeight - board.getBoundingClientRect().bottom")
        assert width > 390 or below < 1, "a phone's board scrolls up to the window's edge"


async def test_the_slider_shows_the_project_at_a_moment(context: BrowserContext, url: str, apollo: Project) -> None:
    page = await view_of(context, url, "decisions")
    heads = page.locator("#rows > li > .row strong")
    # Items written within one millisecond have no order.
    now = ["Answer in the customer's language", "Keep transcripts for 30 days", "Use Redis Cluster"]
    assert sorted(await heads.all_inner_texts()) == now
    assert await page.locator(".chain strong").all_inner_texts() == ["Use Redis", "Use Postgres"]
    await page.get_by_role("link", name="Use Redis", exact=False).filter(has_text="superseded").first.click()
    await expect(page.locator(".item-chain li")).to_have_text(
        [re.compile("^Use Postgres"), re.compile("^Use Redissup"), re.compile("^Use Redis Cluster")]
    )
    await save_screenshot(page, "project-decisions")
    assert await violations(page) == []
    await check_axis(page)
    await page.get_by_label("As of").fill("333")
    await expect(page.locator("#timeline-word")).to_have_text("This is the past: you can read it but not change it.")
    await expect(heads).to_have_count(2)
    assert sorted(await heads.all_inner_texts()) == ["Answer in the customer's language", "Use Postgres"]
    await expect(page.locator("#item")).to_contain_text("This item does not exist, or did not exist at that time.")
    await wait_for_announcement(page, "The past cannot be changed.")
    await page.get_by_role("link", name="Tasks").click()
    await expect(column(page, "backlog").locator(".task")).to_have_text([re.compile("Move the data")])
    await page.reload()
    await expect(column(page, "backlog").locator(".task")).to_have_text([re.compile("Move the data")])
    await page.evaluate(RECORD_ANNOUNCEMENTS)
    await save_screenshot(page, "project-past")
    await drag(page, "Move the data", "planned")
    await card(page, "Move the data").focus()
    await page.keyboard.press("ArrowRight")
    await wait_for_announcement(page, "The past cannot be changed. Press Escape to return to the present.")
    assert await page.locator(".held, .going, .ghost").count() == 0
    await page.keyboard.press("Escape")
    await expect(page.locator("#moment-word")).to_have_text("now")
    await expect(column(page, "blocked").locator(".task", has_text="Move the data")).to_be_visible()
    assert "at=" not in page.url
    assert [task.status for task in await apollo.tasks.list(text="move")] == ["blocked"]
    await page.goto(f"{url}/#/p")
    await page.locator("#project-list").get_by_role("link", name="apollo").click()
    await check_widths(page)
    assert faults_of(page) == []


@pytest.mark.nightly
async def test_the_project_view_is_accessible_on_a_phone_and_in_the_dark(
    browser: Browser, url: str, apollo: Project
) -> None:
    context = await open_context(browser, viewport=PHONE, has_touch=True, is_mobile=True, color_scheme="dark")
    page = await view_of(context, url, "entities")
    await expect(page.locator(".row", has_text="Ada")).to_contain_text("2 mentions")
    await save_screenshot(page, "project-phone-entities")
    await page.locator(".row", has_text="Ada").tap()
    item = page.locator("#item")
    await expect(item).to_contain_text("is away until Mondayin standup")
    # Properties named like sensitive params are hidden.
    await expect(item.locator(".item-properties")).to_have_text("cardhiddendesk12")
    assert "4111" not in await page.content()
    await save_screenshot(page, "project-phone-entity")
    assert await violations(page, part="#item") == []
    await page.get_by_role("link", name="Close").tap()
    await page.get_by_role("link", name="Tasks").tap()
    await expect(page.locator(".task").first).to_be_visible()
    await save_screenshot(page, "project-phone-tasks")
    assert await page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    assert await violations(page) == []
    await page.locator("#moment").fill("700")
    await expect(page.locator("#to-now")).to_be_visible()
    await expect(column(page, "blocked").locator(".task")).to_have_count(1)
    await save_screenshot(page, "project-phone-past")
    assert await violations(page, "color-contrast") == []
    await page.set_viewport_size({"width": 1280, "height": 800})
    await save_screenshot(page, "project-dark")
    await page.emulate_media(color_scheme="light")
    assert await violations(page, "color-contrast") == []
    assert faults_of(page) == []
    await context.close()
