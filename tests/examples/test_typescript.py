"""The TypeScript client is generated from a server's document, and the page and the bot on it do what they say."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import re
import shutil
import subprocess
import threading
from collections.abc import AsyncIterator, Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.async_api import Page, async_playwright, expect
from support.browser import PATIENCE_MS, launch_browser, open_context, violations
from support.commands import wait_for_line
from support.example_processes import EXAMPLES, ROOT, Places
from support.node_clients import install_packages
from support.redis_server import free_port
from support.service_process import ServiceProcess, start_services

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(600)]
SOURCE = EXAMPLES / "typescript"
ANSWER = "Your parcel is on its way."


class Files(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None: ...


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the example, beside its packages."""
    files = [
        path for path in SOURCE.iterdir() if path.suffix in (".ts", ".json", ".html") and ".d" not in path.suffixes
    ]
    for path in files:
        shutil.copy(path, tmp_path)
    (tmp_path / "node_modules").symlink_to(install_packages(SOURCE) / "node_modules")
    return tmp_path


@pytest.fixture
def page_url(folder: Path) -> Iterator[str]:
    """The address of the page."""
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Files, directory=folder)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
async def servers(places: Places, page_url: str) -> AsyncIterator[list[ServiceProcess]]:
    """Two servers on one Redis."""
    redis, options = places.redis_server, ("--cors-origin", page_url)
    async with start_services(redis, places.namespace, places.provider, 15, 2, *options) as servers:
        yield servers


def run(folder: Path, *words: str, **environment: str) -> None:
    environ = os.environ | environment
    done = subprocess.run(words, cwd=folder, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def build(folder: Path, server: ServiceProcess) -> None:
    """Generate the client, check the types, and bundle page and bot, by the commands of the package."""
    run(folder, "npm", "run", "client", REDISMEM_OPENAPI=f"{server.url}/openapi.json")
    generated = (folder / "client.d.ts").read_text()
    json = r"Json: string \| number \| boolean \| null \| unknown\[\] \| \{\s+\[key: string\]: unknown;"
    fitting = rf"/\*.*?\*/|{json}|\[name: string\]: unknown"  # comments, any JSON value, further headers
    untyped = re.sub(fitting, "", generated, flags=re.DOTALL)
    assert "unknown" not in untyped
    (example,) = re.findall(r"^```ts\n(.*?)^```", (ROOT / "docs" / "http.md").read_text(), re.MULTILINE | re.DOTALL)
    (folder / "example.ts").write_text(f"declare const key: string;\n{example}")
    run(folder, "npm", "run", "check")
    commands = (SOURCE / "package.json").read_text()
    for name, options in (("chat", "--servedir"), ("bot", "--log-level")):
        (words,) = re.findall(rf"esbuild ({name}\.ts .*?) {options}", commands)
        run(folder, "node_modules/.bin/esbuild", *words.split())


def test_the_page_is_short() -> None:
    assert len((SOURCE / "chat.ts").read_text().splitlines()) <= 60


def test_installing_its_packages_leaves_no_untracked_file() -> None:
    ignored = (ROOT / ".gitignore").read_text().splitlines()
    assert {f"/examples/typescript/{name}" for name in ("node_modules/", "package-lock.json")} <= {*ignored}


async def test_the_page_streams_goes_on_after_a_reload_on_another_server_and_stops(
    places: Places, folder: Path, page_url: str, servers: list[ServiceProcess]
) -> None:
    build(folder, servers[0])
    async with async_playwright() as playwright, contextlib.AsyncExitStack() as stack:
        browser = await launch_browser(playwright)
        stack.push_async_callback(browser.close)
        page = await (await open_context(browser)).new_page()
        expect.set_options(timeout=PATIENCE_MS)
        await page.goto(f"{page_url}/?server={servers[0].url}")
        await say(page, "Where is my parcel?")
        await expect(page.locator(".assistant")).to_have_text(ANSWER)
        assert await violations(page) == []

        places.provider.modes.append("hang")  # after two pieces
        await say(page, "And the other one?")
        await expect(page.locator(".assistant").last).to_have_text("Your parcel ")
        await page.goto(f"{page_url}/?server={servers[1].url}")
        texts = ["Where is my parcel?", ANSWER, "And the other one?", "Your parcel "]
        await expect(page.locator("#thread p")).to_have_text(texts)
        servers[1].process.terminate()  # the stream breaks; the answer is of the other server
        await page.goto(f"{page_url}/?server={servers[0].url}")
        await expect(page.locator("#thread p")).to_have_text(texts)
        await page.get_by_role("button", name="Stop").click()
        await expect(page.get_by_role("button", name="Stop")).to_be_hidden()
        texts[-1] = "Your parcel (stopped)"
        await expect(page.locator("#thread p")).to_have_text(texts)
        await page.reload()
        await expect(page.locator("#thread p")).to_have_text(texts)
        assert await page.get_by_role("button", name="Stop").is_hidden()
        await page.set_viewport_size({"width": 390, "height": 844})
        assert await page.locator("main").evaluate("(main) => main.getBoundingClientRect().left") >= 16
    assert len(places.provider.asked) == 2


async def say(page: Page, text: str) -> None:
    """Send a message with a double click."""
    await page.get_by_label("Your message").fill(text)
    await page.get_by_role("button", name="Send").dblclick()
    await expect(page.locator(".user", has_text=text)).to_have_count(1)


async def test_the_bot_keeps_decisions_and_tasks_and_the_model_knows_them(
    places: Places, folder: Path, servers: list[ServiceProcess]
) -> None:
    build(folder, servers[0])
    await asyncio.to_thread(check_bot, places, folder, servers[1])


def check_bot(places: Places, folder: Path, server: ServiceProcess) -> None:
    environment = os.environ | {"REDISMEM_SERVER": server.url, "PORT": str(free_port())}
    pipes: Any = {"stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(["node", "build/bot.js"], cwd=folder, env=environment, **pipes) as bot:
        try:
            (url,) = re.findall(r"http://\S+", wait_for_line(bot.stdout, "listens"))
            talk(url, places)
        finally:
            bot.kill()


def talk(url: str, places: Places) -> None:
    def say(number: int, text: str) -> str:
        said = {"id": f"m-{number}", "channel": "team", "user": "ada", "text": text}
        answers = [httpx.post(url, json=said, trust_env=False, timeout=60).json()["text"] for _ in range(2)]
        assert answers[0] == answers[1]  # the platform posts it again
        return str(answers[0])

    assert say(1, "/board") == "The board is empty."
    assert say(2, "/decide Ship parts by express because a machine without its tank makes no coffee") == (
        "Decided: Ship parts by express"
    )
    assert say(3, "/task Order 200 tanks") == "Noted for ada: Order 200 tanks"
    assert say(4, "/task Write the repair guide") == "Noted for ada: Write the repair guide"
    assert say(5, "/done tanks") == "Done: Order 200 tanks"
    assert say(6, "/done windows") == "There is no task about windows."
    assert say(7, "/board") == "in_progress: Write the repair guide\ncompleted: Order 200 tanks"
    assert say(8, "How do we ship parts?") == ANSWER
    assert len(places.provider.asked) == 1
    asked = str(places.provider.bodies[0]["messages"])
    assert "makes no coffee" in asked
    assert "Write the repair guide" in asked
