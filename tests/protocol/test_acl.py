"""The ACL of docs/operations.md: enough for pods, workers and operators of a namespace, and for nothing else."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from support.provider_server import ProviderServer

from redismem import NotAllowed, Policy, Settings
from redismem.blocking import memory as blocking
from redismem.cli import main
from redismem.protocol import permissions, scripts
from redismem.record import Change, Head, Related

PAGE = Path(__file__).parents[2] / "docs" / "operations.md"
LINE, *_ = re.findall(r"^ACL SETUSER shop-app .*", PAGE.read_text(), re.MULTILINE)
SETTINGS = {"threshold": "3", "recent_limit": "1", "keep_originals": "1", "max_attempts": "1"}
MODEL = {
    "model_provider": "openai",
    "model": "none",
    "model_allow_http": "1",
    "extractive_after_s": "0",
}


@pytest.fixture
def admin(redis_server: Any) -> Iterator[Any]:
    with redis.Redis(port=redis_server.port) as admin:
        admin.execute_command(*LINE.split())
        yield admin
        admin.execute_command("ACL", "DELUSER", "shop-app")
        for key in admin.scan_iter("rm:{shop*"):
            admin.delete(key)


@pytest.fixture
def url(redis_server: Any, admin: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the server's URL for the documented user; set it, and small limits, in the environment."""
    url = str(redis_server.url).replace("redis://", "redis://shop-app:PASSWORD@")
    for name, value in {"url": url, **SETTINGS}.items():
        monkeypatch.setenv(f"REDISMEM_{name.upper()}", value)
    return url


def code(*words: str) -> int:
    return main([*words, "--namespace", "shop"])


def user(number: int) -> dict[str, Any]:
    return {"role": "user", "content": str(number)}


def test_the_documented_acl_is_the_doctors_and_has_every_command_of_the_scripts() -> None:
    found = [re.findall(rb"call\(\s*'([A-Z]+)'", scripts.load(name).source) for name in scripts.names()]
    called = {word.decode().lower() for words in found for word in words}
    assert called <= set(permissions.COMMANDS)
    assert len(called) > 20
    assert f"ACL SETUSER shop-app on >PASSWORD resetchannels resetkeys -@all {permissions.acl('shop')}" == LINE


TURNS: list[tuple[Callable[[blocking.Session], Any], Callable[[Any], bool]]] = [
    (lambda session: session.read(), lambda context: len(context.summaries) == 1),
    (lambda session: session.messages(include_originals=True), lambda messages: len(messages) == 5),
    (lambda session: session.tail(4), lambda messages: len(messages) == 4),
    (lambda session: session.recall("message 1"), lambda messages: len(messages) <= 3),
    (lambda session: session.touch(), lambda touched: touched is True),
    (lambda session: session.set_policy(Policy(exempt=True)), lambda was_set: was_set is True),
    (lambda session: session.append(user(5), expect=5), lambda receipt: receipt.last_seq == 6),
    (lambda session: session.append_and_read(user(6), expect=6), lambda context: context.last_seq == 7),
    (lambda session: session.update(plan=["a"]), lambda nothing: nothing is None),
    (lambda session: session.state(), lambda state: state.plan == ["a"]),
    (lambda session: session.set_title("a"), lambda nothing: nothing is None),
    (lambda session: session.title(), lambda title: title == "a"),
    (lambda session: session.append(user(7), pin=True), lambda receipt: receipt.last_seq == 8),
    (lambda session: session.replace(8, user(8)), lambda message: message.pinned),
    (lambda session: session.unpin(8), lambda message: not message.pinned),
    (lambda session: session.pop(1), lambda popped: popped[0].seq == 8),
    (lambda session: session.undo(), lambda popped: popped[0].seq == 7),
    (lambda session: session.append(user(9)), lambda receipt: receipt.last_seq == 11),
    (lambda session: session.rewrite(11, [user(10)]), lambda receipt: receipt.last_seq == 12),
    (lambda session: session.forget(1, 3), lambda forgotten: (forgotten.seqs, forgotten.dropped) == ((1, 3), ())),
    (lambda session: session.append(user(11), user(12)), lambda receipt: receipt.last_seq == 14),
    (lambda session: session.archive(1), lambda archived: len(archived) == 1),
    (lambda session: session.prune(1), lambda dropped: dropped > 0),
    (lambda session: session.info(), lambda info: info.window_count == 1),
    (lambda session: session.telemetry(), lambda numbers: numbers["waiting_for_param"] == "size"),
    (lambda session: session.exists(), lambda exists: exists is True),
    (lambda session: session.set_aside(), lambda is_aside: is_aside is False),
    (lambda session: session.stop(turn="t1"), lambda was_running: was_running is False),
    (lambda session: session.turn_of("t1"), lambda known: known is None),
    (lambda session: session.clear(missing_ok=False), lambda cleared: cleared is True),
]
"""Operations in this order, after five messages and a summary, each with a check of its result."""


def test_turns_and_summaries_pass(url: str) -> None:
    with blocking.Memory.connect(namespace="shop") as memory:
        session = memory.session("a")
        for number in range(5):
            session.append_and_read(user(number), merge={"n": number}, waiting="size", id=str(number), expect=number)
        assert session.append(user(4), id="4").duplicate
        assert code("worker", "--once") == 0
        for number, (turn, expected) in enumerate(TURNS):
            given = turn(session)
            assert expected(given), f"turn {number}: {given}"
        session.append(user(7))
        assert (memory.count(), memory.sessions().sessions[0].session_id) == (1, "a")
        assert memory.sessions(owner="ann").sessions == []


def test_failures_evictions_and_inspection_pass(url: str, admin: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with blocking.Memory.connect(namespace="shop") as memory:
        for number in range(3):
            memory.session(f"s-{number}").append(*map(user, range(5)))
        with monkeypatch.context() as patch, ProviderServer() as provider:
            provider.mode = "400"
            for name, value in MODEL.items():
                patch.setenv(f"REDISMEM_{name.upper()}", value)
            with patch.context() as other:
                other.setenv("REDISMEM_MODEL_BASE_URL", "http://127.0.0.1:1")
                assert code("worker", "--once") == 1, "the model is not there"
                assert code("doctor") == 1, "and so its provider is paused"
            admin.delete(memory.store.keys.providers)
            patch.setenv("REDISMEM_MODEL_BASE_URL", provider.base_url)
            assert code("worker", "--once") == 1, "the model refuses, and nobody may write instead"
        for words in (
            "list dead",
            "repair dead",
            "status --shards",
            "list",
            "status --watch --count 1",
            "doctor --deep",
        ):
            assert code(*words.split()) == 0, words
        monkeypatch.setenv("REDISMEM_MAX_SESSIONS", "1")
        assert code("worker", "--once") == 0
        assert memory.count() == 1


def test_vectors_pass(url: str, admin: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with ProviderServer() as provider:
        words = {"embed": "openai:words", "embed_base_url": provider.base_url, "model_allow_http": "1"}
        for name, value in words.items():
            monkeypatch.setenv(f"REDISMEM_{name.upper()}", value)
        with blocking.Memory.connect(namespace="shop") as memory:
            memory.session("a").append(*map(user, range(5)))
            admin.execute_command("ACL", "LOG", "RESET")
            assert code("worker", "--once") == 0
            assert {field[:1] for field in admin.hkeys(memory.store.keys.session("a").originals)} >= {b"v"}
            assert memory.session("a").recall("1")
        refused = [str(entry) for entry in admin.execute_command("ACL", "LOG")]
    assert [entry for entry in refused if "shop-app" in entry and "client|setinfo" not in entry] == []


def test_projects_pass(url: str, tmp_path: Path) -> None:
    with blocking.Memory.connect(namespace="shop") as memory:
        apollo = memory.project("apollo")
        old, new = (apollo.decisions.create(title, tags=["db"]) for title in ("Use Postgres", "Use Redis"))
        apollo.decisions.accept(old.id)
        apollo.decisions.supersede(old.id, by=new.id)
        for number in range(3):
            apollo.tasks.create(f"task {number}", assignee="Ada")
        page = apollo.tasks.list(limit=2, assignee="Ada")
        assert len(apollo.tasks.list(limit=2, assignee="Ada", cursor=page.cursor)) == 1
        ada, double = apollo.entities.create("Ada", "person"), apollo.entities.create("A. L.", "person")
        apollo.entities.merge(ada.id, double.id)
        talk = apollo.conversations.start()
        apollo.conversations.add(talk.id, user(1))
        apollo.conversations.end(talk.id)
        assert len(apollo.context(["ada"]).entities) == 1
    folder = str(tmp_path)
    for words in ("tasks apollo --board", f"history apollo {new.id}", f"export apollo {folder}"):
        assert code("project", *words.split()) == 0, words
    assert code("list", "projects") == code("show", "project", "apollo") == 0
    assert code("project", "consolidate", "apollo", "--days", "0", "--yes") == 0
    assert code("project", "import", "other", folder) == 0
    assert code("doctor", "--deep") == 0


def test_records_pass(url: str) -> None:
    with blocking.Memory.connect(namespace="shop") as memory:
        record, other = memory.record("r", owner="ann", ttl_s=60), memory.record("other", tag="r")
        change = Change(absent=[b"x"], sets={b"m": Head().encode()}, sets_once={b"o": b"1"}, adds=[b"m", b"n"])
        assert record.write(change, (other, change)) is True
        assert other.write(Change(drops=[b"o"], removes=[b"n"])) is True
        assert (record.get(b"o", renew=True), record.exists(), record.touch()) == ([b"1"], True, True)
        newest = record.newest(b"m", named=True, related=Related(b"n", b":"), renew=True)
        assert newest is not None
        assert (newest.member, len(record.walk(b"m").heads), record.drop(b"n")) == (b"m", 1, 1)
        assert [entry.id for entry in memory.records().records] == ["other", "r"]
        assert [entry.id for entry in memory.records(owner="ann").records] == ["r"]
        record.write(Change(updated_us=1))
        assert [entry.id for entry in memory.records(owner="ann", newest=True).records] == ["r"]
        assert record.write(Change(sets={b"version": b"1", b"data": b"{}"}))
        assert memory.transcripts.list().transcripts == []
        assert code("worker", "--once") == code("doctor", "--deep") == 0
        assert (record.clear(), other.clear()) == (True, True)


def test_a_broken_session_is_put_into_quarantine(url: str, admin: Any) -> None:
    with blocking.Memory.connect(namespace="shop") as memory:
        memory.session("a").append(user(1))
        admin.hdel(memory.store.keys.session("a").state, "counters")
        assert memory.session("a").append(user(2)).created
    assert len(list(admin.scan_iter("rm:{shop:*}:quarantine:a:*:*"))) == 2
    assert code("list", "quarantine") == 3, "SCAN is for operators"
    admin.execute_command("ACL", "SETUSER", "shop-app", "+scan")
    for words in (["list"], ["show", "a"], ["repair", "a", "--salvage", "--swap"]):
        assert code(words[0], "quarantine", *words[1:]) == 0, words
    put_ms = max(int(key.split(b":")[-2]) for key in admin.scan_iter("rm:{shop:*}:quarantine:a:*:state"))
    assert code("remove", "quarantine", "a", "--at", str(put_ms), "--yes") == 0
    assert main(["list", "namespaces"]) == 0


def test_another_namespace_is_refused(url: str) -> None:
    for namespace in ("shop2", "sho", "SHOP"):
        memory = blocking.Memory.connect(namespace=namespace, settings=Settings())
        with pytest.raises(NotAllowed, match="keys"):
            memory.session("a").exists()
        memory.close()
