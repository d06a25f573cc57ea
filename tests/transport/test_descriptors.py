"""A process that has used up its file descriptors says so, and does not blame Redis."""

from __future__ import annotations

import errno
import socket
import subprocess
import sys

import pytest
from support.redis_server import RedisServer

from redismem.transport.base import reason_of

PROGRAM = """
import asyncio, os, resource, sys
import redis, redis.asyncio
import redismem, redismem.blocking
from redismem import Settings

url, namespace = sys.argv[1:]
MESSAGE = {"role": "user", "content": "hello"}
CLIENTS = {redismem: redis.asyncio.Redis, redismem.blocking: redis.Redis}


def use_up():
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    try:
        while True:
            os.open(os.devnull, os.O_RDONLY)
    except OSError:
        pass


async def say_failure(memory):
    append = memory.session("s").append
    try:
        await (asyncio.to_thread(append, MESSAGE) if isinstance(memory, redismem.blocking.Memory) else append(MESSAGE))
    except redismem.StoreUnavailable as failure:
        if failure.reason == "TimeoutError":  # the machine was just busy
            return await say_failure(memory)
        print(failure.reason, failure.text, flush=True)


async def main():
    async with redismem.Memory.connect(url, namespace=namespace) as before:
        await before.session("s").append(MESSAGE)  # reads the scripts
    memories = []
    for library, client in CLIENTS.items():
        for given in ({"url": url}, {"client": client.from_url(url)}):
            memories.append(library.Memory.connect(namespace=namespace, settings=Settings(deadline_s=0.1), **given))
    use_up()
    for memory in memories:
        await say_failure(memory)
    os._exit(0)  # nothing can be closed properly any more


asyncio.run(main())
"""


def test_used_up_descriptors_are_named(redis_server: RedisServer, namespace: str) -> None:
    words = [sys.executable, "-c", PROGRAM, redis_server.url, namespace]
    ran = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)
    lines = ran.stdout.splitlines()
    assert len(lines) == 4, "lane and client, asyncio and blocking: " + ran.stderr
    for line in lines:
        assert line.startswith("EMFILE "), line
        assert "this process has no file descriptor left" in line


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (OSError(errno.EMFILE, "Too many open files"), "EMFILE"),
        (OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address"), "EADDRNOTAVAIL"),
        (OSError("Multiple exceptions"), "OSError"),
        (OSError(errno.ECONNREFUSED, "Connection refused"), "ConnectionRefusedError"),
        (socket.gaierror(-2, "Name or service not known"), "gaierror"),
        (EOFError(), "EOFError"),
    ],
)
def test_a_failure_of_the_system_has_its_word_as_the_reason(failure: Exception, reason: str) -> None:
    assert reason_of(failure) == reason
