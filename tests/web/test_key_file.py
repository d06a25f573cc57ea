"""The file of keys: a change counts without a restart, and a file that cannot be used changes nothing."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.checks import until
from support.http_service import PATIENT, RunningService, open_stream, run_service

from redismem import Memory
from redismem.errors import StoreUnavailable
from redismem.web.access import Access, new_key
from redismem.web.key_file import KeyFile
from redismem.web.service import Memories, Service

EVENTS = "/v1/sessions/s/events"
ABOUT = "/v1/about"


class Followed:
    """A service with two keys in a file."""

    def __init__(self, store: Any, namespace: str, path: Path) -> None:
        self.store = store
        self.namespace = namespace
        self.path = path
        self.headers: dict[str, dict[str, str]] = {}
        self.lines: dict[str, str] = {}
        self.failures_count = 0
        """The number of next attempts to open a memory that fail."""
        self.http: RunningService
        self.file: KeyFile
        for name in ("shop-1", "shop-2"):
            self.add(name, namespace)
        self.write()

    def add(self, name: str, namespace: str) -> None:
        key, self.lines[name] = new_key(name, namespace, ("read", "write"))
        self.headers[name] = {"Authorization": f"Bearer {key}"}

    def write(self, *names: str) -> None:
        self.path.write_text("# keys\n" + "\n".join(self.lines[name] for name in names or self.lines))

    async def look(self) -> None:
        """Poll twice, as a change counts once it is found twice."""
        for _ in range(2):
            await self.file.look()

    async def status(self, name: str) -> int:
        return (await self.http.ask("GET", ABOUT, headers=self.headers[name])).status_code


@pytest.fixture
async def followed(store: Any, namespace: str, tmp_path: Path) -> AsyncIterator[Followed]:
    found = Followed(store, namespace, tmp_path / "keys")
    async with contextlib.AsyncExitStack() as stack:
        client = await stack.enter_async_context(store.client())
        connect = partial(Memory.connect, client=client)
        memories = Memories(lambda name: connect(namespace=name))
        stack.push_async_callback(memories.aclose)
        await memories.open(namespace)
        service = Service(memories, Access.of(found.path.read_text()), PATIENT)

        async def open_memory(name: str) -> None:
            if found.failures_count:
                found.failures_count -= 1
                raise StoreUnavailable("away", None)
            await memories.open(name)

        found.file = KeyFile(service, found.path, open_memory)
        found.http = await stack.enter_async_context(run_service(service))
        yield found


async def test_a_removed_key_is_refused_and_loses_its_streams(followed: Followed) -> None:
    async with open_stream(followed.http.client, "GET", EVENTS, headers=followed.headers["shop-1"]) as events:
        await anext(events)
        followed.write("shop-2")
        await followed.look()
        assert [each.document async for each in events][-1] == {"reason": "the key is no longer valid"}
    assert [await followed.status(name) for name in ("shop-1", "shop-2")] == [401, 200]


async def test_a_key_is_rotated_without_a_restart(followed: Followed) -> None:
    followed.add("shop-1-new", followed.namespace)
    followed.write()
    await followed.look()
    assert [await followed.status(name) for name in ("shop-1", "shop-1-new")] == [200, 200]
    followed.write("shop-1-new", "shop-2")
    await followed.look()
    assert [await followed.status(name) for name in ("shop-1", "shop-1-new")] == [401, 200]


async def test_a_half_written_file_removes_no_key(followed: Followed) -> None:
    followed.write("shop-1")
    await followed.file.look()
    assert await followed.status("shop-2") == 200
    followed.write()
    await followed.look()
    followed.write("shop-1")
    await followed.file.look()
    assert await followed.status("shop-2") == 200


async def test_on_request_the_file_counts_at_once(followed: Followed, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "redismem")
    followed.write("shop-1")
    await followed.file.look(is_asked=True)
    assert await followed.status("shop-2") == 401
    await followed.file.look(is_asked=True)
    assert [record.getMessage() for record in caplog.records if getattr(record, "op", "") == "keys"] == [
        "the keys have changed: 1 are valid; new: none; no longer valid: shop-2",
        "the file of keys has not changed",
    ]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "No such file or directory"),
        (b"", "it contains no key"),
        (b"# none\n", "it contains no key"),
        (b"\xff", "it is not UTF-8"),
        (b"shop-1 shop read canary", "line 1 of the keys"),
    ],
)
async def test_a_file_that_cannot_be_used_changes_nothing_and_is_reported_once(
    followed: Followed, caplog: pytest.LogCaptureFixture, content: bytes | None, reason: str
) -> None:
    """Above all, an empty file does not open the service to everybody."""
    if content is None:
        followed.path.unlink()
    else:
        followed.path.write_bytes(content)
    for _ in range(3):
        await followed.file.look()
    (record,) = [record for record in caplog.records if getattr(record, "op", "") == "keys"]
    assert record.levelname == "ERROR"
    assert reason in record.getMessage()
    assert "canary" not in record.getMessage()
    assert [await followed.status(name) for name in followed.headers] == [200, 200]
    assert (await followed.http.ask("GET", ABOUT)).status_code == 401
    followed.write("shop-1")
    await followed.look()
    assert await followed.status("shop-2") == 401


async def test_a_new_namespace_is_opened_as_soon_as_redis_answers(
    followed: Followed, caplog: pytest.LogCaptureFixture
) -> None:
    """Meanwhile the keys of other namespaces work, and removed ones do not."""
    followed.failures_count = 2
    followed.add("bank-1", f"{followed.namespace}-bank")
    followed.write("shop-1", "bank-1")
    await followed.look()
    answer = await followed.http.ask("GET", ABOUT, headers=followed.headers["bank-1"])
    assert (answer.status_code, answer.json()["code"]) == (503, "store_unavailable")
    assert [await followed.status(name) for name in ("shop-1", "shop-2")] == [200, 401]

    async def is_open() -> bool:
        await followed.file.look()
        return await followed.status("bank-1") == 200

    await until(is_open)
    failures = [record for record in caplog.records if record.levelname == "ERROR"]
    assert [record.error for record in failures] == ["StoreUnavailable"]  # type: ignore[attr-defined]
    body = {"role": "user", "content": "hello"}
    path = "/v1/sessions/s/messages"
    posted = await followed.http.ask("POST", path, json=body, headers=followed.headers["bank-1"])
    assert posted.status_code == 201
    assert (await followed.http.ask("GET", path, headers=followed.headers["shop-1"])).status_code == 404
