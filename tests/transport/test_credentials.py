"""Users and passwords that change: on one node, a cluster and behind sentinels, for asyncio and blocking callers.

The passwords contain the canary, so that each test also checks that no error and no log line has them.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.callers import open_caller
from support.checks import (  # noqa: F401 (an autouse fixture)
    CANARY,
    catch_unavailable,
    check_silent,
    silent_logs,
    until_unavailable,
    user,
)
from support.redis_server import RedisServer, free_port

import redismem.blocking
from redismem import InvalidSettings, Memory, Settings
from redismem.cli import main
from redismem.protocol.server_errors import ConnectionLost
from redismem.transport import credentials as module
from redismem.transport.credentials import Login

OLD, NEW = f"old {CANARY}", f"new {CANARY}"
SETTINGS = Settings(shards=16, deadline_s=60, reply_timeout_s=20)
HASTY = Settings(shards=16, deadline_s=0.1, reply_timeout_s=0.1)
KINDS = ("asyncio", "blocking")
PLACES = ("redis_server", "cluster_servers", "sentinel_servers")


class Users:
    """A user on each node, whose name is that of the test's namespace."""

    def __init__(self, nodes: Sequence[RedisServer], name: str) -> None:
        self.nodes = nodes
        self.name = name

    def set_password(self, password: str) -> None:
        for node in self.nodes:
            node.say("ACL", "SETUSER", self.name, "on", "resetpass", f">{password}", "~*", "&*", "+@all")

    def disconnect(self) -> int:
        """Close the connections of this user, as a server does once a token has expired. Return their number."""
        return sum(int(node.say("CLIENT", "KILL", "USER", self.name)) for node in self.nodes)


class Vault:
    """A function that returns the current login, and counts its calls."""

    def __init__(self, login: Any) -> None:
        self.logins = [login]
        self.count = 0

    def __call__(self) -> Login:
        self.count += 1
        login: Any = self.logins.pop(0) if len(self.logins) > 1 else self.logins[0]
        if isinstance(login, BaseException):
            raise login
        return login

    async def later(self) -> Login:
        await asyncio.sleep(0)
        return self()


@pytest.fixture
def url(request: pytest.FixtureRequest, place: str) -> str:
    servers: Any = request.getfixturevalue(place)
    return str(servers.url)


@pytest.fixture
def users(request: pytest.FixtureRequest, place: str, namespace: str) -> Iterator[Users]:
    servers: Any = request.getfixturevalue(place)
    users = Users(getattr(servers, "nodes", [servers]), namespace)
    users.set_password(OLD)
    yield users
    for node in users.nodes:
        node.say("ACL", "DELUSER", namespace)


def open_with(kind: str, url: str, namespace: str, settings: Settings = SETTINGS, **more: Any) -> Any:
    return open_caller(kind, url, namespace, settings, **more)


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", PLACES)
async def test_a_rotated_password_is_used_at_once(
    kind: str, is_async: bool, url: str, users: Users, namespace: str
) -> None:
    vault = Vault((namespace, OLD))
    asked: Callable[[], Any] = vault.later if is_async else vault
    async with open_with(kind, url, namespace, credentials=asked) as caller:
        await caller.append("user-42", "a")
        users.set_password(NEW)
        vault.logins = [(namespace, NEW)]
        before = vault.count
        assert users.disconnect() > 0
        await caller.append("user-42", "b", id="b")
        assert vault.count > before
        assert await caller.texts("user-42") == ["a", "b"]
        assert CANARY not in repr(caller.memory) + repr(vars(caller.store.transport))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", PLACES)
async def test_a_login_that_changed_meanwhile_is_asked_for_once_more(
    kind: str, url: str, users: Users, namespace: str
) -> None:
    vault = Vault((namespace, OLD))
    async with open_with(kind, url, namespace, credentials=vault) as caller:
        await caller.append("user-42", "a")
        before = vault.count
        vault.logins = [(namespace, f"wrong {CANARY}"), (namespace, OLD)]
        users.disconnect()
        await caller.append("user-42", "b", id="b")
        assert vault.count >= before + 2


@pytest.mark.parametrize("protocol", ["2", "3"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", PLACES[:1])
async def test_a_wrong_login_is_refused_until_it_is_right(
    kind: str, protocol: str, url: str, users: Users, namespace: str
) -> None:
    vault = Vault((namespace, f"wrong {CANARY}"))
    caller = await _unopened(kind, f"{url}?protocol={protocol}", namespace, SETTINGS, vault)
    error = await catch_unavailable(caller.ping())
    assert (error.reason, vault.count) == ("WRONGPASS", 2)
    vault.logins = [(namespace, OLD)]
    assert await caller.ping(), "nothing has to be restarted"
    assert vault.count == 3
    await caller.close()


async def _unopened(kind: str, url: str, namespace: str, settings: Settings, credentials: Any) -> Any:
    """Return a memory that is not connected, each call of which is awaited."""
    given: dict[str, Any] = {"namespace": namespace, "settings": settings, "credentials": credentials}
    if kind == "asyncio":
        memory: Any = Memory.connect(url, **given)
        memory.close = memory.aclose
        return memory

    class Awaited:
        def __init__(self) -> None:
            self._memory = redismem.blocking.Memory.connect(url, **given)

        def __getattr__(self, name: str) -> Any:
            return functools.partial(asyncio.to_thread, getattr(self._memory, name))

    return Awaited()


def _exit() -> Login:
    raise SystemExit(f"{CANARY}")


def _next_token() -> Login:
    tokens: list[Login] = []
    return next(token for token in tokens)


def _cancelled() -> Login:
    pending: concurrent.futures.Future[Login] = concurrent.futures.Future()
    pending.cancel()
    return pending.result()


@pytest.mark.parametrize(
    ("credentials", "said"),
    [
        (Vault(RuntimeError(f"no token, was {CANARY}")), "credentials() raised RuntimeError in test_credentials.py:"),
        (_exit, "credentials() raised SystemExit in test_credentials.py:"),
        (_next_token, "credentials() raised StopIteration in test_credentials.py:"),
        (_cancelled, "credentials() raised CancelledError in _base.py:"),
        (Vault(CANARY), "credentials() returned str, not a tuple of user or None and password"),
        (Vault((None, CANARY, "")), "credentials() returned tuple, not a tuple of user or None and password"),
        (Vault((None, CANARY.encode())), "credentials() returned NoneType and bytes, not a str or None as user"),
        (Vault((1, CANARY)), "credentials() returned int and str, not a str or None as user"),
        (Vault(("app", "")), "credentials() returned an empty password"),
        (Vault(("", CANARY)), "credentials() returned an empty user"),
        (Vault((None, CANARY * 2_000)), "credentials() returned a user or password of more than 16 KiB"),
        (Vault((None, f"{CANARY}\ud800")), "credentials() returned a user or password with half a surrogate pair"),
    ],
)
async def test_a_failure_is_named_without_the_secret(
    credentials: Any, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    asker = module.Asker(credentials)
    for _ in range(2):
        with pytest.raises(ConnectionLost) as lost:
            await asker.login()
        with pytest.raises(ConnectionLost) as blocked:
            await asyncio.to_thread(asker.login_blocking, monotonic() + 60)
        for error in (lost.value, blocked.value):
            assert (error.reason, error.sent) == (module.FAILED, False)
            assert said in error.text
            check_silent(error)
    assert said in caplog.text
    assert caplog.text.count("no user and password for Redis") == 1, "not for each attempt"


@pytest.mark.parametrize("kind", KINDS)
async def test_calls_without_a_login_say_why(kind: str, redis_server: RedisServer, namespace: str) -> None:
    """Also the calls that are refused while Redis counts as down."""
    memory = await _unopened(kind, redis_server.url, namespace, HASTY, Vault(RuntimeError(CANARY)))
    for call in (memory.ping, memory.count, memory.count):
        error = await until_unavailable(call, "credentials() raised RuntimeError in test_credentials.py:")
        assert error.reason == module.FAILED
    await memory.close()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_function_that_does_not_return_delays_no_other_work(
    kind: str, redis_server: RedisServer, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LONGEST_S", 0.05)
    released = threading.Event()

    def hang() -> Login:
        released.wait()
        return None, CANARY

    memory = await _unopened(kind, redis_server.url, namespace, HASTY, hang)
    error = await until_unavailable(memory.ping, "credentials() did not return in time")
    assert error.reason == module.FAILED
    released.set()
    await memory.close()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_server_that_is_down_costs_no_question(kind: str, namespace: str) -> None:
    """A token service would count, and limit, the attempts of every pod in an outage."""
    vault = Vault((None, OLD))
    memory = await _unopened(kind, f"redis://127.0.0.1:{free_port()}", namespace, HASTY, vault)
    await until_unavailable(memory.ping, "ConnectionRefusedError")
    assert vault.count == 0
    await memory.close()


@pytest.mark.parametrize("place", PLACES[:1])
async def test_a_failure_that_passes_is_retried_within_the_deadline(url: str, users: Users, namespace: str) -> None:
    vault = Vault(OSError(CANARY))
    vault.logins += [OSError(CANARY), (namespace, OLD)]
    async with Memory.connect(url, namespace=namespace, settings=SETTINGS, credentials=vault) as memory:
        assert await memory.ping()
    assert vault.count == 3


@pytest.mark.parametrize("place", PLACES[:1])
def test_the_workers_of_a_blocking_memory_ask_too(url: str, users: Users, namespace: str) -> None:
    vault = Vault((namespace, OLD))
    settings = SETTINGS.model_copy(update={"tick_s": 0.01})
    with redismem.blocking.Memory.connect(
        url, namespace=namespace, settings=settings, credentials=vault.later, workers=True
    ) as memory:
        memory.session("user-42").append(user("a"))
        assert vault.count >= 2, "the workers have connections of their own"


@pytest.mark.parametrize("url_user", ["", "{namespace}@"])
@pytest.mark.parametrize("place", PLACES[:1])
async def test_a_password_file_is_read_for_each_connection(
    url_user: str,
    url: str,
    users: Users,
    namespace: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = tmp_path / "password"
    file.write_text(f"{OLD}\n")
    monkeypatch.setenv("REDISMEM_PASSWORD_FILE", str(file))
    if url_user:
        url = url.replace("redis://", f"redis://{url_user.format(namespace=namespace)}")
    else:
        monkeypatch.setenv("REDISMEM_USERNAME", namespace)
    async with Memory.connect(url, namespace=namespace, workers=True) as memory:
        session = memory.session("user-42")
        await session.append(user("a"))
        file.write_text(f"{NEW}\r\n")
        users.set_password(NEW)
        assert users.disconnect() >= 1
        await session.append(user("b"))


@pytest.mark.parametrize("place", PLACES[:1])
def test_every_command_reads_the_password_file(
    url: str,
    users: Users,
    namespace: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "password"
    file.write_text(OLD)
    monkeypatch.setenv("REDISMEM_PASSWORD_FILE", str(file))
    monkeypatch.setenv("REDISMEM_USERNAME", namespace)
    with redismem.blocking.Memory.connect(url, namespace=namespace) as memory:
        memory.session("user-42").append(user("a"))
    for arguments in (["list"], ["doctor", "--deep"], ["status"], ["list", "namespaces"], ["repair", "scripts"]):
        options = [] if arguments[-1] in ("scripts", "namespaces") else ["--namespace", namespace]
        assert main([*arguments, "--url", url, *options]) == 0
    assert "user-42" in capsys.readouterr().out
    assert main(["list", "settings"]) == 0
    shown = capsys.readouterr().out
    assert "REDISMEM_PASSWORD_FILE = set" in shown
    assert str(file) not in shown


@given(password=st.text(st.characters(exclude_characters="\r\n", codec="utf-8"), min_size=1))
@example(password=" a\tb ")
def test_a_password_file_holds_any_password_on_one_line(tmp_path: Path, password: str) -> None:
    file = tmp_path / "password"
    settings = Settings(password_file=str(file), username="app")
    for end in ("", "\n", "\r\n"):
        file.write_bytes(f"{password}{end}".encode())
        if password.strip():
            asker = module.make_asker(None, settings)
            assert asker is not None
            assert asker.login_blocking(monotonic() + 60) == ("app", password)
        else:
            with pytest.raises(InvalidSettings, match="is empty"):
                module.make_asker(None, settings)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "REDISMEM_PASSWORD_FILE cannot be read, FileNotFoundError"),
        (b"", "the file of REDISMEM_PASSWORD_FILE is empty"),
        (b" \n", "the file of REDISMEM_PASSWORD_FILE is empty"),
        (b"\xff" + CANARY.encode(), "REDISMEM_PASSWORD_FILE cannot be read, UnicodeDecodeError"),
        (f"A={CANARY}\nB=1\n".encode(), "must hold one line, the password, and nothing else"),
        (CANARY.encode() * 2_000, "must hold one line, the password, and nothing else"),
    ],
)
@pytest.mark.parametrize("connect", [Memory.connect, redismem.blocking.Memory.connect])
def test_an_unusable_password_file_is_refused_at_once(
    connect: Callable[..., object], content: bytes | None, said: str, tmp_path: Path
) -> None:
    file = tmp_path / "password"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(InvalidSettings) as refused:
        connect("redis://127.0.0.1:1", settings=Settings(password_file=str(file)))
    assert said in str(refused.value)
    assert CANARY not in str(refused.value)


async def test_a_file_that_is_emptied_is_named(redis_server: RedisServer, namespace: str, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text(OLD)
    settings = HASTY.model_copy(update={"password_file": str(file), "username": namespace})
    async with contextlib.aclosing(Memory.connect(redis_server.url, namespace=namespace, settings=settings)) as memory:
        file.write_text("")
        error = await until_unavailable(memory.ping, "the file of REDISMEM_PASSWORD_FILE is empty")
        assert error.reason == module.FAILED


@pytest.mark.parametrize(
    ("url", "given", "said"),
    [
        ("redis://:url@h", {"credentials": Vault((None, OLD))}, "the Redis URL has a password, and credentials or"),
        ("redis+cluster://u:url@h", {"credentials": Vault((None, OLD))}, "the Redis URL has a password, and"),
        ("redis+sentinel://u:url@h/s", {"credentials": Vault((None, OLD))}, "the Redis URL has a password, and"),
        ("redis://h?password=url", {"settings": Settings(password_file=__file__)}, "must hold one line"),
        ("redis://h", {"credentials": (None, CANARY)}, "credentials must be a function, not one of the type tuple"),
        ("redis://h", {"settings": Settings(username="u")}, "REDISMEM_USERNAME needs REDISMEM_PASSWORD_FILE"),
        ("redis://h", {"settings": Settings(password_file="")}, "REDISMEM_PASSWORD_FILE is empty"),
        ("redis://h", {"settings": Settings(password_file="p", username="")}, "REDISMEM_USERNAME is empty"),
        ("redis://h", {"settings": Settings(password_file=CANARY)}, "it must be the path of a file, not the password"),
        ("memory://", {"credentials": Vault((None, OLD))}, "the embedded store has no users"),
        (None, {"credentials": Vault((None, OLD)), "client": object()}, "credentials are for a URL"),
    ],
)
@pytest.mark.parametrize("connect", [Memory.connect, redismem.blocking.Memory.connect])
def test_contradictions_are_refused(connect: Callable[..., object], url: str, given: Any, said: str) -> None:
    with pytest.raises(InvalidSettings) as refused:
        connect(url, **given)
    assert said in str(refused.value)
    assert CANARY not in str(refused.value)
