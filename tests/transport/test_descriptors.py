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

kind, url, namespace = sys.argv[1:]
settings = Settings(deadline_s=0.3)
clients = {"client": redis.asyncio.Redis.from_url(url), "blocking client": redis.Redis.from_url(url)}
given = {"client": clients[kind]} if kind in clients else {"url": url}


def use_up():
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    try:
        while True:
            os.open(os.devnull, os.O_RDONLY)
    except OSError:
        pass


def connect(library):
    return library.Memory.connect(namespace=namespace, settings=settings, **given)


def say(failure):
    print(failure.reason, failure.text, flush=True)


async def main():
    async with redismem.Memory.connect(url, namespace=namespace) as before:
        await before.session("s").append({"role": "user", "content": "reads the scripts"})
    memory = connect(redismem)
    use_up()
    try:
        await memory.session("s").append({"role": "user", "content": "hello"})
    except redismem.StoreUnavailable as failure:
        say(failure)


def blocking():
    with redismem.blocking.Memory.connect(url, namespace=namespace) as before:
        before.session("s").append({"role": "user", "content": "reads the scripts"})
    memory = connect(redismem.blocking)
    use_up()
    try:
        memory.session("s").append({"role": "user", "content": "hello"})
    except redismem.StoreUnavailable as failure:
        say(failure)


blocking() if kind.startswith("blocking") else asyncio.run(main())
os._exit(0)  # nothing can be closed properly any more
"""


@pytest.mark.parametrize("kind", ["lane", "client", "blocking", "blocking client"])
def test_used_up_descriptors_are_named(redis_server: RedisServer, namespace: str, kind: str) -> None:
    words = [sys.executable, "-c", PROGRAM, kind, redis_server.url, namespace]
    ran = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)
    assert ran.stdout.startswith("EMFILE "), ran.stdout + ran.stderr
    assert "this process has no file descriptor left" in ran.stdout


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
