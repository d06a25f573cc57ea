"""The disk of Redis is full: a real one of a few MB, which only root can mount. No acknowledged append is lost."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest
import redis.asyncio
from support.checks import check_silent, contents, insist, silent_logs, until, user  # noqa: F401 (an autouse fixture)
from support.http_service import serve_memory
from support.redis_server import RedisServer

from redismem import Memory, Settings, StoreUnavailable
from redismem.inspection.check import check
from redismem.inspection.doctor import examine

SETTINGS = Settings(deadline_s=60, reply_timeout_s=20, strategy="none")
SHORT = Settings(deadline_s=0.5, strategy="none")
TEXT = "x" * 20_000


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mounting = ["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", str(folder)]
    if subprocess.run(mounting, capture_output=True, check=False).returncode:
        pytest.skip("only root may mount a small disk")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


async def until_refused(server: RedisServer, memory: Memory, acked: list[str]) -> list[StoreUnavailable]:
    """Append until Redis refuses, and return the errors of the message that it refused."""
    errors: list[StoreUnavailable] = []
    while len(acked) < 1_000:
        try:
            await memory.session("s").append(user(f"{len(acked)} {TEXT}"), id=str(len(acked)))
        except StoreUnavailable as error:
            check_silent(error)
            errors.append(error)
            if error.reason == "MISCONF" or not server.is_up():
                return errors
        else:
            errors.clear()
            acked.append(user(f"{len(acked)} {TEXT}")["content"])
    raise AssertionError("the disk took everything")


@asynccontextmanager
async def fill_disk(
    disk: Path, fsync: str, settings: Settings
) -> AsyncIterator[tuple[RedisServer, Memory, list[str], list[StoreUnavailable]]]:
    """A server whose log has no room, a memory, the stored messages of its session "s", and the errors of the next."""
    server = RedisServer(disk.parent, aof=True, options=("--dir", str(disk), "--appendfsync", fsync)).start()
    acked: list[str] = []
    try:
        async with aclosing(Memory.connect(server.url, settings=settings)) as memory:
            errors = await until_refused(server, memory, acked)
            assert len(acked) > 100
            yield server, memory, acked, errors
    finally:
        server.stop()


def make_room(disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True)


async def is_whole(memory: Memory, expected: list[str]) -> bool:
    assert [violation async for violation in check(memory.store)] == []
    return await contents(memory.session("s")) == expected


async def test_everysec_refuses_writes_and_serves_reads_until_there_is_room(disk: Path) -> None:
    async with fill_disk(disk, "everysec", SETTINGS) as (server, memory, acked, errors):
        assert (errors[-1].reason, errors[-1].may_be_done) == ("MISCONF", False)
        assert await is_whole(memory, acked)
        async with serve_memory(memory) as http:
            answer = await http.ask("POST", "/v1/sessions/s/messages", json=user("refused"))
            assert (answer.status_code, answer.json()["reason"]) == (503, "MISCONF")
            assert answer.headers["retry-after"] == "1"
            assert (await http.ask("GET", "/v1/sessions/s")).status_code == 200
            ready = (await http.ask("GET", "/readyz")).json()
            assert (ready["readable"], ready["writable"]) == (True, False)
        found = {each.name: each for each in await examine(memory.store, embedded=False)}
        assert (found["persistence"].verdict, "cannot save (MISCONF)" in found["persistence"].advice) == ("fail", True)
        make_room(disk)
        last = user("after")

        async def is_taken() -> bool:
            try:
                return bool(await memory.session("s").append(last, id="after"))
            except StoreUnavailable:
                return False

        async def is_written() -> bool:
            """Wait for the sync: Redis acknowledges an append before a slow disk has it, and would lose it if
            killed."""
            async with redis.asyncio.Redis(port=server.port) as raw:
                return bool((await raw.info("persistence"))["aof_buffer_length"] == 0)

        await until(is_taken)
        await until(is_written)
        server.kill()
        await asyncio.to_thread(server.start)
        assert await is_whole(memory, [*acked, last["content"]])


async def test_always_ends_the_server_and_loses_nothing(disk: Path) -> None:
    """Redis exits rather than acknowledge an unwritten append. The operator makes room and restarts it."""
    async with fill_disk(disk, "always", SHORT) as (server, memory, acked, errors):
        assert any(error.may_be_done for error in errors)
        assert not server.is_up()
        make_room(disk)
        await asyncio.to_thread(server.start)
        last = user(f"{len(acked)} {TEXT}")
        await insist(lambda: memory.session("s").append(last, id=str(len(acked))))  # it has to find the server first
        async with Memory.connect(server.url, settings=SETTINGS) as patient:
            assert await is_whole(patient, [*acked, last["content"]])
