"""Two Redis users: the application's user runs only our scripts; the deploy user loads them and reads nothing."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.asyncio
from protocol.test_acl import TURNS
from support.checks import catch_unavailable, until, user

import redismem.blocking
from redismem import Memory, Settings, StoreUnavailable
from redismem.cli import main
from redismem.inspection.loading import load_scripts, scripts_count
from redismem.protocol import permissions, scripts
from redismem.protocol.keys import Keys

PAGE = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
(_, TWO_USERS) = PAGE.split("### Two users")
(APP, DEPLOY) = re.findall(r"^ACL SETUSER .*", TWO_USERS, re.MULTILINE)
SETTINGS = Settings(threshold=3, recent_limit=1, keep_originals=True)


@pytest.fixture
def admin(redis_server: Any) -> Iterator[Any]:
    with redis.Redis(port=redis_server.port) as admin:
        for line in (APP, DEPLOY):
            admin.execute_command(*line.split())
        admin.script_flush()
        yield admin
        admin.execute_command("ACL", "DELUSER", "shop-app", "redismem-deploy")
        for key in admin.scan_iter("rm:{shop*"):
            admin.delete(key)


@pytest.fixture
def app_url(redis_server: Any, admin: Any) -> str:
    return str(redis_server.url).replace("redis://", "redis://shop-app:PASSWORD@")


@pytest.fixture
def deploy_url(redis_server: Any, admin: Any) -> str:
    return str(redis_server.url).replace("redis://", "redis://redismem-deploy:ANOTHER@")


def test_the_printed_acl_lines_are_the_documented_ones() -> None:
    start = "ACL SETUSER shop-app on >PASSWORD resetchannels resetkeys -@all "
    assert start + permissions.acl("shop", loads=False) == APP
    assert f"+{'script|load'}" not in APP.split()
    assert f"ACL SETUSER redismem-deploy on >ANOTHER resetchannels resetkeys -@all {permissions.deploy_acl()}" == DEPLOY


def test_an_application_works_with_the_loaded_scripts(
    app_url: str, deploy_url: str, admin: Any, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["repair", "scripts", "--url", deploy_url]) == 0
    assert f"{scripts_count()} loaded now" in capsys.readouterr().out
    assert main(["repair", "scripts", "--url", deploy_url]) == 0
    assert "0 loaded now" in capsys.readouterr().out
    assert main(["repair", "scripts", "--json", "--url", deploy_url]) == 0
    assert json.loads(capsys.readouterr().out)["loaded_count"] == 0
    admin.execute_command("ACL", "LOG", "RESET")
    with redismem.blocking.Memory.connect(app_url, namespace="shop", settings=SETTINGS) as memory:
        session = memory.session("a")
        session.append(*map(user, range(5)))
        for name, value in {"threshold": "3", "recent_limit": "1"}.items():
            monkeypatch.setenv(f"REDISMEM_{name.upper()}", value)
        assert main(["worker", "--once", "--url", app_url, "--namespace", "shop"]) == 0
        for turn, _ in TURNS:
            turn(session)
    assert [entry for entry in admin.execute_command("ACL", "LOG") if "shop-app" in str(entry)] == []
    assert main(["doctor", "--deep", "--url", app_url, "--namespace", "shop"]) == 0


OTHERS = Keys("shop2", 64).session("b")
MINE = Keys("shop", 64).session("a")
SCRIPT = scripts.load("read_originals").sha
ATTEMPTS: dict[str, tuple[Any, ...]] = {
    "a script of its own": ("EVAL", "return 1", 0),
    "one that only reads": ("EVAL_RO", "return 1", 0),
    "loading one": ("SCRIPT", "LOAD", "return 1"),
    "forgetting ours": ("SCRIPT", "FLUSH"),
    "asking for scripts": ("SCRIPT", "EXISTS", "0" * 40),
    "loading a function": ("FUNCTION", "LOAD", "#!lua name=x\nredis.register_function('x', function() return 1 end)"),
    "calling a function": ("FCALL", "x", 0),
    "dumping functions": ("FUNCTION", "DUMP"),
    "flushing all": ("FLUSHALL",),
    "flushing a database": ("FLUSHDB",),
    "scanning": ("SCAN", 0),
    "listing keys": ("KEYS", "*"),
    "any key": ("RANDOMKEY",),
    "counting keys": ("DBSIZE",),
    "reading another namespace": ("HGETALL", OTHERS.state),
    "reading its messages": ("LRANGE", OTHERS.messages, 0, -1),
    "writing into it": ("RPUSH", OTHERS.messages, "x"),
    "renaming a key into it": ("RENAME", MINE.state, OTHERS.state),
    "our script on its keys": ("EVALSHA", SCRIPT, 2, OTHERS.messages, OTHERS.state, 0, -1),
    "our script on keys of both": ("EVALSHA", SCRIPT, 2, MINE.messages, OTHERS.state, 0, -1),
    "copying a key away": ("COPY", MINE.state, "x"),
    "dumping a key": ("DUMP", MINE.state),
    "moving a key away": ("MIGRATE", "127.0.0.1", 1, MINE.state, 0, 1),
    "the configuration": ("CONFIG", "GET", "*"),
    "setting it": ("CONFIG", "SET", "dir", "/tmp"),
    "the users": ("ACL", "LIST"),
    "more rights": ("ACL", "SETUSER", "shop-app", "+@all"),
    "listening to others": ("MONITOR",),
    "the clients": ("CLIENT", "LIST"),
    "ending one": ("CLIENT", "KILL", "TYPE", "normal"),
    "the slow log": ("SLOWLOG", "GET"),
    "a replica of its own": ("REPLICAOF", "127.0.0.1", 1),
    "ending the server": ("SHUTDOWN", "NOSAVE"),
    "debugging": ("DEBUG", "SLEEP", 0),
    "a module": ("MODULE", "LOAD", "/tmp/x.so"),
    "telling others": ("PUBLISH", "x", "y"),
}


@pytest.fixture
def leaked(redis_server: Any, admin: Any) -> Iterator[Any]:
    """Return a connection with the application's password, beside data of another namespace."""
    for name in scripts.names():
        admin.script_load(scripts.load(name).source.decode())
    with redismem.blocking.Memory.connect(redis_server.url, namespace="shop2") as memory:
        memory.session("b").append(user("theirs"))
    with redis.Redis(port=redis_server.port, username="shop-app", password="PASSWORD") as client:
        yield client


@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_a_leaked_password_is_useless_outside_its_namespace(leaked: Any, admin: Any, attempt: str) -> None:
    # The server refuses some commands before it checks the user.
    with pytest.raises(redis.exceptions.ResponseError, match=r"[nN]o permissions to|command not allowed"):
        leaked.execute_command(*ATTEMPTS[attempt])
    assert admin.llen(OTHERS.messages) == 1
    assert admin.exists(OTHERS.state)


def test_the_application_runs_no_unloaded_script(leaked: Any) -> None:
    with pytest.raises(redis.exceptions.NoScriptError):
        leaked.evalsha("0" * 40, 0)


def test_the_deploy_user_sees_and_runs_nothing(admin: Any, redis_server: Any) -> None:
    with redis.Redis(port=redis_server.port, username="redismem-deploy", password="ANOTHER") as client:
        assert client.script_load("return 1")
        for words in (
            ("EVALSHA", client.script_load("return 1"), 0),
            ("EVAL", "return 1", 0),
            ("GET", "x"),
            ("KEYS", "*"),
        ):
            with pytest.raises(redis.exceptions.NoPermissionError):
                client.execute_command(*words)


@asynccontextmanager
async def open_memory(make: str, url: str, settings: Settings) -> Any:
    if make == "lane":
        async with Memory.connect(url, namespace="shop", settings=settings) as memory:
            yield memory
    elif make == "redis-py":
        async with (
            redis.asyncio.Redis.from_url(url) as client,
            Memory.connect(client=client, namespace="shop", settings=settings) as memory,
        ):
            yield memory
    elif make == "blocking lane":
        with redismem.blocking.Memory.connect(url, namespace="shop", settings=settings) as blocking:
            yield blocking._twin
    else:
        with (
            redis.Redis.from_url(url) as theirs,
            redismem.blocking.Memory.connect(client=theirs, namespace="shop", settings=settings) as blocking,
        ):
            yield blocking._twin


async def refuse(memory: Memory, options: Any) -> StoreUnavailable:
    return await catch_unavailable(memory.session("a").append(user(1), **options))


@pytest.mark.parametrize("make", ["lane", "redis-py", "blocking lane", "blocking redis-py"])
async def test_without_loaded_scripts_the_error_names_the_remedy(app_url: str, make: str) -> None:
    async with open_memory(make, app_url, Settings(deadline_s=0.2, reply_timeout_s=0.2)) as memory:
        for options in ({}, {"confirm": 1}):
            # On a machine that halts, the deadline may pass before a refusal has arrived: then the call is made again.
            refused = await refuse(memory, options)
            while refused.reason in ("TimeoutError", "StalledConnection"):
                refused = await refuse(memory, options)
            assert (refused.reason, "redismem repair scripts" in str(refused)) == ("NOSCRIPT", True)
        assert not await memory.session("a").exists()


async def test_a_call_waits_until_the_scripts_are_loaded(app_url: str, deploy_url: str, admin: Any) -> None:
    async with (
        Memory.connect(app_url, namespace="shop", settings=Settings(deadline_s=60)) as memory,
        contextlib.aclosing(Memory.connect(deploy_url)) as deploying,
    ):
        admin.execute_command("ACL", "LOG", "RESET")
        appending = asyncio.create_task(memory.session("a").append(user(1)))

        async def refused() -> bool:
            return bool(admin.execute_command("ACL", "LOG"))

        await until(refused)
        assert await load_scripts(deploying.store) == scripts_count()
        assert (await appending).last_seq == 1
        assert await load_scripts(deploying.store) == 0


def test_deploy_with_watch_reloads_lost_scripts(app_url: str, deploy_url: str, admin: Any) -> None:
    words = [sys.executable, "-m", "redismem", "repair", "scripts", "--watch", "--every-s", "0.05", "--url", deploy_url]
    watching = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    try:
        settings = Settings(deadline_s=60)
        with redismem.blocking.Memory.connect(app_url, namespace="shop", settings=settings) as memory:
            for number in range(3):
                memory.session("a").append(user(number))
                admin.script_flush()
            assert len(memory.session("a").messages()) == 3
    finally:
        os.kill(watching.pid, signal.SIGTERM)
        _, told = watching.communicate(timeout=300)
    assert watching.returncode == 0
    assert "scripts loaded on redis://" in told
    assert "ANOTHER" not in told


def test_the_doctor_reports_missing_scripts(app_url: str, deploy_url: str, capsys: Any, monkeypatch: Any) -> None:
    words = ["doctor", "--url", app_url, "--namespace", "shop"]
    printed = ""
    with monkeypatch.context() as patch:
        patch.setenv("REDISMEM_DEADLINE_S", "0.2")
        while "this user may not load them" not in printed:  # a machine that halts may hide it behind a timeout
            assert main(words) == 1
            printed = " ".join(capsys.readouterr().out.split())
    assert main(["repair", "scripts", "--url", deploy_url]) == 0
    assert main(words) == 0
    assert "this user may not load scripts" in " ".join(capsys.readouterr().out.split())
