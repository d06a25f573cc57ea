"""`redismem serve` as a process: it prints its address, and stops without losing a turn."""

from __future__ import annotations

import re
import resource
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.commands import read_until, start_command, wait_for_exit, wait_for_line
from support.forks import start_fresh
from support.provider_server import ProviderServer
from support.stores import workers_of
from support.waiting import wait_until

import redismem.blocking
from redismem import Settings
from redismem.cli import serve
from redismem.cli.place import stop_for
from redismem.web.access import new_key
from redismem.web.metrics.prometheus import Meters


def address(running: Any) -> str:
    """Return the address that the server prints."""
    line = wait_for_line(running.stdout, "listens on")
    assert "open it in a browser for the page" in line
    found = re.search(r"http://\S+", line)
    assert found
    return found[0]


@pytest.fixture
def few_files() -> Iterator[int]:
    """Lower the limit of open files, which a child process inherits, and yield its hard limit."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    hard = before[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (400 if hard == resource.RLIM_INFINITY else min(hard, 400), hard))
    yield hard
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_it_serves_until_a_signal(redis_options: Any, redis_server: Any, namespace: str, few_files: int) -> None:
    """It raises the limit of open files: at the limit it accepts no connection, so one client could deny it to all."""
    with (
        start_fresh("redismem", "serve", "--port", "0", *redis_options) as running,
        httpx.Client(base_url=address(running), trust_env=False, timeout=60) as client,
    ):
        posted = client.post("/v1/sessions/s/messages", json={"role": "user", "content": "canary-text"})
        assert posted.status_code == 201
        most = 65_536 if few_files == resource.RLIM_INFINITY else min(few_files, 65_536)
        assert resource.prlimit(running.pid, resource.RLIMIT_NOFILE) == (most, few_files)
        running.send_signal(signal.SIGHUP)
        logged = "".join(read_until(running.stderr, "SIGHUP changes nothing"))
        running.send_signal(signal.SIGINT)  # other tests send SIGTERM
        ran = wait_for_exit(running)
    assert (ran.code, "has stopped" in ran.out) == (0, True)
    assert "no keys: every user of this machine has full access" in logged
    assert f"no worker runs for {namespace}: " in logged
    assert "canary-text" not in ran.out + logged + ran.err
    with redismem.blocking.Memory.connect(redis_server.url, namespace=namespace) as memory:
        assert memory.session("s").read().total_messages == 1


@pytest.fixture
def ticking(redis_server: Any, namespace: str) -> Iterator[redismem.blocking.Memory]:
    """A memory whose workers have begun to poll."""
    connect, settings = redismem.blocking.Memory.connect, Settings(tick_s=60)
    with connect(redis_server.url, namespace=namespace, settings=settings, workers=True) as memory:
        wait_until(lambda: memory.health().holds, "it polls")
        yield memory


def test_every_answered_turn_is_stored_after_a_stop(redis_options: Any, ticking: redismem.blocking.Memory) -> None:
    """A server that is stopped during turns still answers the turns it has accepted.

    It advises no worker, as another process has workers.
    """
    answered = 0
    with start_command("serve", "--port", "0", *redis_options) as running:
        with httpx.Client(base_url=address(running), trust_env=False, timeout=60) as client:
            for number in range(10_000):
                if number == 20:
                    running.send_signal(signal.SIGTERM)
                try:
                    answer = client.post("/v1/sessions/s/messages", json={"role": "user", "content": str(number)})
                except httpx.TransportError:
                    break
                if answer.status_code != 201:
                    assert answer.json()["code"] == "stopping"
                    break
                answered += 1
        ran = wait_for_exit(running)
    assert (ran.code, "no worker" in ran.err) == (0, False)
    assert answered >= 20
    assert ticking.session("s").read().total_messages == answered


async def test_the_workers_of_a_server_have_its_time_to_stop() -> None:
    async with serve._connector("memory://", Settings(), Meters(), 3)("shop") as memory:
        assert workers_of(memory)._stop_s == 3


def test_an_embedded_store_is_summarised_by_the_server_itself_and_settings_reach_its_chat() -> None:
    with ProviderServer() as provider:
        environment = {
            "REDISMEM_MODEL_PROVIDER": "openai",
            "REDISMEM_MODEL": "m",
            "REDISMEM_MODEL_BASE_URL": provider.base_url,
            "REDISMEM_MODEL_ALLOW_HTTP": "true",
            "REDISMEM_CHAT_ALTERNATE": "true",
            "REDISMEM_TICK_S": "0.05",
        }
        with start_command("serve", "--port", "0", **environment) as running:
            with httpx.Client(base_url=address(running), trust_env=False, timeout=60) as client:
                client.post("/v1/sessions/s/messages", json=[{"role": "user", "content": "hello"}])
                assert client.post("/api/chat", json={"session_id": "s", "message": "anyone?"}).status_code == 200
                messages = [{"role": "user", "content": f"{number}"} for number in range(12)]
                assert client.post("/v1/sessions/long/messages", json=messages).status_code == 201
                wait_until(lambda: client.get("/v1/sessions/long/context").json()["summaries"], "it is summarised")
            running.send_signal(signal.SIGTERM)
            assert wait_for_exit(running).code == 0
        (_, turn) = provider.bodies[0]["messages"]
    assert turn == {"role": "user", "content": "hello\n\nanyone?"}


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "shop.example"])
def test_without_keys_it_listens_on_loopback_alone(command: Any, host: str) -> None:
    ran = command("serve", "--host", host)
    assert ran.code == 2
    assert "without keys a server listens only on loopback" in ran.error_line


def test_an_impossible_start_is_one_line(command: Any, tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("# nothing\n")
    (tmp_path / "wrong").write_text("shop-app shop read nonsense\n")
    said = {
        ("--url", "nonsense://x"): "the Redis URL must begin with one of redis://",
        ("--url", ""): "the Redis URL is empty",
        ("--keys-file", tmp_path / "none"): "cannot read",
        ("--keys-file", tmp_path / "empty"): "contains no key",
        ("--keys-file", tmp_path / "wrong"): "line 1",
        ("--keys-file", tmp_path / "empty", "--keys", "x"): "not both",
        ("--keys-file", ""): "REDISMEM_SERVER_KEYS_FILE or --keys-file is empty",
        ("--keys", ""): "REDISMEM_SERVER_KEYS or --keys contains no key",
        ("--keys", "a b read 00"): "line 1",
        ("--slots", tmp_path / "none", "--url", "memory://"): "cannot read",
        ("--slots", tmp_path / "wrong", "--url", "memory://"): "the slots cannot be read",
    }
    for words, text in said.items():
        ran = command("serve", "--port", "0", *words)
        assert ran.code == 2
        assert text in ran.err.splitlines()[-1]
        assert "nonsense" not in ran.err


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("REDISMEM_URL", "the Redis URL is empty"),
        ("REDISMEM_SERVER_KEYS", "REDISMEM_SERVER_KEYS or --keys contains no key"),
        ("REDISMEM_SERVER_KEYS_FILE", "REDISMEM_SERVER_KEYS_FILE or --keys-file is empty"),
    ],
)
def test_an_empty_variable_is_refused(command: Any, monkeypatch: pytest.MonkeyPatch, name: str, text: str) -> None:
    """A missing secret must not make it serve without keys, or from an embedded store."""
    monkeypatch.setenv(name, "")
    with socket.create_server(("127.0.0.1", 0)) as taken:  # a server that starts anyway would end here
        ran = command("serve", "--port", taken.getsockname()[1])
    assert (ran.code, text in ran.err.splitlines()[-1]) == (2, True)


@pytest.mark.parametrize("value", [" ;", "# none"])
def test_invalid_keys_are_refused(command: Any, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("REDISMEM_SERVER_KEYS", value)
    ran = command("serve", "--host", "0.0.0.0")
    assert (ran.code, "REDISMEM_SERVER_KEYS or --keys contains no key" in ran.error_line) == (2, True)


@pytest.mark.parametrize("namespace", ["other", "default", "shop"])
def test_a_namespace_option_that_no_key_names_is_reported_as_ignored(command: Any, namespace: str) -> None:
    _, line = new_key("app", "shop", ["read"])
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ran = command("serve", "--keys", line, "--namespace", namespace, "--url", "memory://", "--port", port)
    assert ("--namespace other is ignored" in ran.err) is (namespace == "other")
    assert "cannot listen at" in ran.err.splitlines()[-1]


def test_recall_over_the_conversations_of_an_owner_needs_a_key_of_one(command: Any) -> None:
    key = command("key", "app", "--namespace", "shop", "--owner", "ann & bob")
    secret, line = key.out.split("\n", 1)
    assert secret.startswith("rmk_")
    assert line.strip().endswith(" owner=ann%20%26%20bob")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        words = ("--recall-scope", "owner", "--url", "memory://", "--port", taken.getsockname()[1])
        for keys in ((), ("--keys", line.strip().rpartition(" ")[0])):
            ran = command("serve", *keys, *words)
            assert (ran.code, "needs a key of one owner" in ran.error_line) == (2, True)
        ran = command("serve", "--keys", line.strip(), *words)
    assert "cannot listen at" in ran.err.splitlines()[-1]


@pytest.mark.parametrize(
    ("origin", "is_one"),
    [
        ("https://shop.example", True),
        ("http://localhost:5173", True),
        ("https://[::1]:8443", True),
        ("shop.example", False),
        ("https://shop.example/", False),
        ("https://Shop.example", False),
        ("https://shop.example:443", False),
        ("https://*", False),
        ("null", False),
    ],
)
def test_an_origin_must_have_the_form_that_browsers_send(command: Any, origin: str, is_one: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ran = command("serve", "--cors-origin", origin, "--url", "memory://", "--port", port)
    assert ran.code == 2
    assert ("--cors-origin takes http:// or https://" in ran.error_line) is not is_one


async def test_the_error_of_a_stopped_command_mentions_no_later_calls() -> None:
    memory = redismem.Memory.connect("redis://127.0.0.1:1/0")
    error = memory.store.availability.away_error(memory.store.availability.breaker, None)
    await memory.aclose()
    assert "calls are refused until it does" in str(error)
    assert str(stop_for("place", error)) == "place: Redis at 127.0.0.1:1 has not answered for 0.0 s: "


def test_a_port_in_use_is_one_line(command: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ran = command("serve", "--port", str(taken.getsockname()[1]), "--url", "memory://")
    assert ran.code == 2
    assert "cannot listen at" in ran.err.splitlines()[-1]


def test_keys_follow_their_file_and_a_hangup(redis_options: Any, namespace: str, tmp_path: Path) -> None:
    """SIGHUP once ended the server, and a removed key stayed valid until a restart."""
    keys = {name: new_key(name, f"{namespace}-{name}", ("read", "write")) for name in ("shop", "bank", "club")}
    file = tmp_path / "keys"

    def write(*names: str) -> None:
        (tmp_path / "new").write_text("\n".join(keys[name][1] for name in names))
        (tmp_path / "new").replace(file)

    def status(name: str) -> int:
        return client.get("/v1/about", headers={"Authorization": f"Bearer {keys[name][0]}"}).status_code

    write("shop", "bank")
    with (
        start_command("serve", "--port", "0", "--keys-file", str(file), *redis_options[:2]) as running,
        httpx.Client(base_url=address(running), trust_env=False, timeout=60) as client,
    ):
        assert [status(name) for name in keys] == [200, 200, 401]
        with client.stream(
            "GET", "/v1/sessions/s/events", headers={"Authorization": f"Bearer {keys['shop'][0]}"}
        ) as answer:
            write("bank")
            assert "the key is no longer valid" in answer.read().decode()
        assert [status(name) for name in keys] == [401, 200, 401]
        write("club")
        running.send_signal(signal.SIGHUP)
        wait_until(lambda: status("club") == 200, "the new key is valid")
        assert [status(name) for name in keys] == [401, 401, 200]
        running.send_signal(signal.SIGTERM)
        ran = wait_for_exit(running)
    assert ran.code == 0
    assert "the keys have changed: 1 are valid; new: none; no longer valid: shop" in ran.err
    assert all(key not in ran.err for key, _ in keys.values())


def test_a_key_is_printed_once_with_its_line(command: Any) -> None:
    ran = command("key", "shop-app", "--namespace", "shop", "--scope", "read", "--scope", "admin")
    key, line = ran.out.splitlines()
    name, namespace, scopes, hashed = line.split()
    assert (name, namespace, scopes, len(hashed)) == ("shop-app", "shop", "read,admin", 64)
    assert key.startswith("rmk_")
    assert key not in line


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("a b",), "the name of a key has up to 64 ASCII letters, digits, '.', '_' and '-', and no blanks"),
        (("a", "--namespace", "b c"), "the namespace of a key has up to 64 ASCII letters"),
        (("a", "--scope", "readd"), "a scope is read, write or admin"),
        (("a", "--scope", "read,admin"), "a scope is read, write or admin"),
    ],
)
def test_a_refused_key_says_why(command: Any, arguments: Any, said: str) -> None:
    ran = command("key", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert "line" not in ran.err
