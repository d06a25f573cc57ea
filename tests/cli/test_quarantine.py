"""`list`, `show`, `repair` and `remove quarantine`, and `list namespaces`, as operators use them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from support.quarantined import quarantine_of

import redismem.blocking

ID = "018f3c1e-7b1a-7c3d-9e4f-0123456789ab"


@pytest.fixture
def memory(redis_server: Any, namespace: str) -> Iterator[redismem.blocking.Memory]:
    with redismem.blocking.Memory.connect(redis_server.url, namespace=namespace) as memory:
        yield memory


@pytest.fixture
def quarantined(memory: redismem.blocking.Memory, redis_server: Any) -> Iterator[redismem.blocking.Session]:
    """Put an unreadable session with a canary into quarantine, and return its live successor."""
    session = memory.session(ID)
    session.append({"role": "user", "content": "CANARY"}, {"role": "assistant", "content": "b"}, merge={"p": "CANARY"})
    with redis.Redis.from_url(redis_server.url) as raw:
        raw.hdel(memory.store.keys.session(ID).state, "counters")
        session.append({"role": "user", "content": "afresh"})
        yield session
        for key in raw.scan_iter(f"rm:{{{memory.store.keys.namespace}:*"):
            raw.delete(key)


def test_a_list_describes_sessions_without_their_text(command: Any, redis_options: list[str], quarantined: Any) -> None:
    ran = command("list", "quarantine", *redis_options)
    assert ran.code == 0
    assert re.search(r"2 messages, \d fields? · expires in", " ".join(ran.out.split()))
    assert "1 session in quarantine" in ran.out
    told = command("list", "quarantine", "--json", *redis_options).document
    assert [(each["session_id"], len(each["keys"])) for each in told["sessions"]] == [(ID, 2)]
    assert told["cursor"] is None
    assert "CANARY" not in ran.out + str(told)


@pytest.mark.parametrize("columns", [80, 40])
def test_an_id_stays_on_one_line(
    command: Any, redis_options: list[str], quarantined: Any, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    for verb, *words in (["list"], ["show", ID], ["repair", ID, "--salvage", "--swap"], ["remove", ID, "--at", "5"]):
        ran = command(verb, "quarantine", *words, *redis_options)
        assert any(ID in line for line in (ran.out + ran.err).splitlines()), words
    assert any(ID in line for line in command("list", *redis_options).out.splitlines())


def test_texts_are_shown_on_request(command: Any, redis_options: list[str], quarantined: Any) -> None:
    shown = command("show", "quarantine", ID, *redis_options)
    assert (shown.code, shown.out.count("CANARY")) == (0, 1), "the message, and no value of the state"
    assert "fault: the counters cannot be read" in shown.out
    for words in (["--redact"], ["--redact", "--json"]):
        assert "CANARY" not in command("show", "quarantine", ID, *words, *redis_options).out
    told = command("show", "quarantine", ID, "--json", *redis_options).document
    assert told["messages"][0]["message"] == {"role": "user", "content": "CANARY"}
    assert told["faults"] == ["the counters cannot be read"]


def test_restoring_asks_for_what_it_needs(command: Any, redis_options: list[str], quarantined: Any) -> None:
    for words, said in (([], "--salvage"), (["--salvage"], "--swap")):
        ran = command("repair", "quarantine", ID, *words, *redis_options)
        assert (ran.code, ran.out) == (1, "")
        assert said in ran.error_line
        assert quarantined.info().total_messages == 1
    ran = command("repair", "quarantine", ID, "--salvage", "--swap", "--json", *redis_options)
    assert (ran.code, ran.document["messages"], ran.document["left_out"]) == (0, 2, 0)
    assert [message.content for message in quarantined.read().messages] == ["CANARY", "b"]
    assert quarantined.params() == {"p": "CANARY"}
    assert command("doctor", "--deep", *redis_options).code == 0
    ran = command("remove", "quarantine", ID, "--yes", *redis_options)
    assert (ran.code, "--at" in ran.error_line) == (2, True), "there are two by now"
    for each in command("list", "quarantine", "--json", *redis_options).document["sessions"]:
        removal = ("remove", "quarantine", ID, "--at", each["put_ms"], *redis_options)
        assert "confirm with --yes" in command(*removal).error_line
        assert command(*removal, "--yes").code == 0
    ran = command("show", "quarantine", ID, *redis_options)
    assert (ran.code, ran.out) == (1, "")
    assert "in quarantine" in ran.error_line


def test_restoring_warns_of_a_lost_owner(
    command: Any, redis_options: list[str], memory: Any, redis_server: Any
) -> None:
    with redis.Redis(port=redis_server.port) as raw:
        for session_id, damage, is_lost in (
            ("counters", lambda state: raw.hset(state, "counters", "junk"), False),
            ("owner", lambda state: raw.hset(state, mapping={"counters": "junk", "owner": "junk"}), True),
            ("state", lambda state: raw.set(state, "junk"), True),
        ):
            session = memory.session(session_id)
            memory.session(session_id, owner="ann").append({"role": "user", "content": "here"})
            damage(memory.store.keys.session(session_id).state)
            assert session.set_aside()
            ran = command("repair", "quarantine", session_id, "--salvage", *redis_options)
            assert (ran.code, "its owner is unknown" in ran.err) == (0, is_lost), session_id
            assert session.info().owner == (None if is_lost else "ann")


def test_a_lone_block_of_originals_suggests_no_swap(
    command: Any, redis_options: list[str], memory: Any, redis_server: Any
) -> None:
    session = memory.session("a")
    session.append({"role": "user", "content": "here"})
    with redis.Redis(port=redis_server.port) as raw:
        raw.hset(quarantine_of(memory.store.keys.session("a")) + b":1700000000000:originals", "0", b"junk")
    for words in ([], ["--salvage"], ["--salvage", "--swap"]):
        ran = command("repair", "quarantine", "a", *words, *redis_options)
        assert (ran.code, ran.out) == (1, "")
        assert "nothing would come back" in ran.error_line
        assert "--" not in ran.error_line
    assert [message.content for message in session.read().messages] == ["here"]


def test_the_doctor_reports_quarantined_sessions(
    command: Any, redis_options: list[str], memory: Any, quarantined: Any
) -> None:
    def line(*words: str) -> Any:
        found = command("doctor", "--json", *words).document["findings"]
        return next(each for each in found if each["name"] == "quarantine")

    assert line(*redis_options)["verdict"] == "warn"
    assert ID in line(*redis_options)["seen"]
    assert "redismem list quarantine" in line(*redis_options)["advice"]
    assert line(*redis_options[:2], "--namespace", "none-of-it")["verdict"] == "ok"
    assert line()["verdict"] == "ok", "the embedded store"


def test_namespaces(command: Any, redis_options: list[str], namespace: str, quarantined: Any) -> None:
    ran = command("list", "namespaces", *redis_options[:2])
    assert ran.code == 0
    assert re.search(rf"^{namespace} +64 +1 +0 *$", ran.out, re.MULTILINE)
    told = command("list", "namespaces", "--json", *redis_options[:2]).document
    assert {"namespace": namespace, "shards": 64, "layout": 1, "sessions": 1, "records": 0, "error": ""} in told[
        "namespaces"
    ]
    assert command("list", "namespaces").code == 0


def test_a_namespace_cannot_control_the_terminal(
    command: Any, redis_options: list[str], redis_server: Any, namespace: str
) -> None:
    planted = f"rm:{{{namespace}\x1b[31m\u202e}}:namespace"
    with redis.Redis.from_url(redis_server.url) as raw:
        raw.hset(planted, mapping={"layout": 1, "shards": 64})
        ran = command("list", "namespaces", *redis_options[:2])
        raw.delete(planted)
    assert namespace in ran.out
    assert not {"\x1b", "\u202e"} & set(ran.out)


def test_an_id_cannot_control_the_terminal(
    command: Any, redis_options: list[str], memory: redismem.blocking.Memory
) -> None:
    memory.session("a\u202eb").append({"role": "user", "content": "x"})
    ran = command("show", "a\u202eb", *redis_options)
    assert (ran.code, "\u202e" in ran.out) == (0, False)


def test_a_search_says_that_there_may_be_more(command: Any, used_options: list[str], redis_server: Any) -> None:
    with redis.Redis.from_url(redis_server.url) as raw:
        raw.mset({f"filler:{number}": "x" for number in range(5_000)})
        for words in (["list", "quarantine", *used_options], ["list", "namespaces", *used_options[:2]]):
            ran = command(*words, "--keys", "1000")
            assert re.search(r"scan incomplete, continue with --cursor \d+", ran.out), words
        raw.delete(*(f"filler:{number}" for number in range(5_000)))


def test_a_user_without_scan_gets_a_clear_error(command: Any, used_options: list[str], redis_server: Any) -> None:
    with redis.Redis.from_url(redis_server.url) as raw:
        raw.execute_command("ACL", "SETUSER", "blind", "on", ">pw", "~*", "+@all", "-scan")
        url = str(redis_server.url).replace("redis://", "redis://blind:pw@")
        for words in (["list", "quarantine", *used_options[2:]], ["list", "namespaces"]):
            ran = command(*words, "--url", url)
            assert (ran.code, "SCAN" in ran.error_line) == (3, True)
        found = command("doctor", "--json", "--url", url, *used_options[2:]).document["findings"]
        assert next(each["verdict"] for each in found if each["name"] == "quarantine") == "warn"
        raw.execute_command("ACL", "DELUSER", "blind")
