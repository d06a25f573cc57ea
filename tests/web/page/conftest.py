"""One browser and one service for most tests of the page."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, async_playwright
from playwright.async_api import Error as PlaywrightError
from support.browser import chromium, launch_browser, open_context, park_page
from support.forked_service import run_service
from support.provider_server import ProviderServer
from support.redis_server import RedisServer

SLOTS = """
[[intents]]
name = "payment"
words = ["pay"]

[[intents.slots]]
name = "size"
prompt = "Which size?"
choices = ["Small", "Large"]

[[intents.slots]]
name = "card"
prompt = "Which card?"
pattern = '\\d{8}'
example = "12345678"
sensitive = true
"""


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    chromium()
    async with async_playwright() as playwright:
        browser = await launch_browser(playwright)
        yield browser
        await browser.close()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def warm_context(browser: Browser) -> AsyncIterator[BrowserContext]:
    context = await open_context(browser)
    yield context
    await context.close()


@pytest_asyncio.fixture(loop_scope="session")
async def context(warm_context: BrowserContext) -> AsyncIterator[BrowserContext]:
    """A browser without stored data, permissions and routes of earlier tests. A page of them is used again."""
    yield warm_context
    await warm_context.unroute_all()
    await warm_context.clear_permissions()
    for page in warm_context.pages[1:]:
        await page.close()
    for page in warm_context.pages:
        try:
            await park_page(page)
        except PlaywrightError:  # a test that failed left something else than the page
            await page.close()


@pytest.fixture(scope="module")
def server_options(redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """The options of a server on the real Redis, with a namespace for each test file."""
    folder = tmp_path_factory.mktemp("page")
    slots: Path = folder / "slots.toml"
    slots.write_text(SLOTS)
    return ["--url", redis_server.url, "--namespace", folder.name, "--slots", slots]


@pytest.fixture(scope="module")
def url(server_options: list[Any]) -> Iterator[str]:
    """The address of a service without a model, with workers."""
    with run_service("--workers", *server_options) as address:
        yield address


@pytest.fixture(scope="module")
def model() -> Iterator[ProviderServer]:
    with ProviderServer() as running:
        yield running


@pytest.fixture
def healthy_model(model: ProviderServer) -> ProviderServer:
    """The provider of the model, set to answer."""
    model.mode = "ok"
    return model


@pytest.fixture(scope="module")
def environment(model: ProviderServer) -> dict[str, str]:
    """The settings of a service whose chat asks the provider."""
    return {
        "REDISMEM_MODEL_PROVIDER": "openai",
        "REDISMEM_MODEL": "some-model",
        "REDISMEM_MODEL_BASE_URL": model.base_url,
        "REDISMEM_MODEL_ALLOW_HTTP": "true",
        "REDISMEM_DEADLINE_S": "3",
        "REDISMEM_REPLY_TIMEOUT_S": "1",
    }
