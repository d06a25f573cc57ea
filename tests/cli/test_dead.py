"""Dead sessions: they are listed, retried or taken off the list, never lost."""

import re
from typing import Any

import pytest
import redis
from support.provider_server import ProviderServer

import redismem.blocking
from redismem.protocol.ids import session_hash

SECRET = "the text of a message"
COUNT = 3


@pytest.fixture
def memory(redis_server: Any, namespace: str) -> Any:
    with redismem.blocking.Memory.connect(redis_server.url, namespace=namespace) as memory:
        yield memory


@pytest.fixture
def dead(command: Any, memory: Any, redis_options: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Create dead sessions: their model refuses for good, and the extractive summariser is off."""
    for number in range(COUNT):
        memory.session(f"s-{number}").append(*({"role": "user", "content": f"{SECRET} {n}"} for n in range(12)))
    with ProviderServer() as server, monkeypatch.context() as patch:
        server.mode = "400"
        patch.setenv("REDISMEM_EXTRACTIVE_AFTER_S", "0")
        patch.setenv("REDISMEM_MODEL_PROVIDER", "openai")
        patch.setenv("REDISMEM_MODEL", "some-model")
        patch.setenv("REDISMEM_MODEL_API_KEY", "canary-key")
        patch.setenv("REDISMEM_MODEL_BASE_URL", server.base_url)
        patch.setenv("REDISMEM_MODEL_ALLOW_HTTP", "true")
        ran = command("worker", "--once", "--json", *redis_options)
    assert (ran.code, ran.document["good"]) == (1, False)
    assert ran.document["outcomes"] == {"dead": COUNT}
    assert ran.document["left"]["queues"]["dead"]["count"] == COUNT
    assert SECRET not in ran.err
    assert "canary" not in ran.err
    return [f"s-{number}" for number in range(COUNT)]


def test_the_list_shows_session_ids_and_their_names_in_logs(command: Any, dead: Any, redis_options: Any) -> None:
    ran = command("list", "dead", *redis_options)
    assert (ran.code, ran.err) == (0, "")
    assert max(map(len, ran.out.splitlines())) <= 80
    for session_id in dead:
        assert re.search(rf"^{session_id} +{session_hash(session_id)} .* ago +1 +12 +in 2\d h", ran.out, re.MULTILINE)
    assert f"{COUNT} dead sessions" in ran.out
    assert ran.out.count("openai answered 400") == 1, "one heading per reason"
    assert f"{COUNT} sessions: openai answered 400 context_length_exceeded\n" in ran.out
    assert SECRET not in ran.out
    assert "canary" not in ran.out
    found = command("list", "dead", "--json", *redis_options).document
    assert (found["count"], {row["session_id"] for row in found["sessions"]}) == (COUNT, set(dead))
    assert {row["queued"] for row in found["sessions"]} == {"dead"}
    for row in found["sessions"]:
        assert (row["failure"], row["attempts"]) == ("openai answered 400 context_length_exceeded", 1)
        assert row["failing_since_ms"] == row["failed_ms"] == row["died_ms"]
    one = command("list", "dead", "--json", "--limit", 1, *redis_options).document
    assert (one["count"], len(one["sessions"])) == (COUNT, 1)


def test_a_retried_session_is_summarised_by_the_next_worker(
    command: Any, dead: Any, memory: Any, redis_options: Any
) -> None:
    ran = command("repair", "dead", "s-1", "--json", *redis_options)
    assert (ran.code, ran.document["retried"], ran.document["not_dead"]) == (0, ["s-1"], [])
    assert memory.session("s-1").info().queued == "overdue"
    assert memory.session("s-0").info().queued == "dead"
    assert command("worker", "--once", *redis_options).code == 0
    assert [(each.first_seq, each.last_seq) for each in memory.session("s-1").read().summaries] == [(1, 6)]
    assert len(memory.session("s-0").read().messages) == 12


def test_retry_all_requeues_every_dead_session(command: Any, dead: Any, memory: Any, redis_options: Any) -> None:
    ran = command("repair", "dead", *redis_options)
    assert (ran.code, ran.err) == (0, "")
    assert f"{COUNT} sessions overdue again" in ran.out
    ran = command("worker", "--once", "--json", *redis_options)
    assert (ran.code, ran.document["summaries_count"]) == (0, COUNT)
    assert command("doctor", "--deep", *redis_options).code == 0


def test_drop_leaves_the_messages_until_the_next_one(command: Any, dead: Any, memory: Any, redis_options: Any) -> None:
    ran = command("remove", "dead", "s-0", "s-2", "--yes", *redis_options)
    assert (ran.code, ran.err) == (0, "")
    assert "2 sessions off the list" in ran.out
    assert command("doctor", "--deep", *redis_options).code == 0
    session = memory.session("s-0")
    assert (session.info().queued, len(session.messages())) == (None, 12)
    session.append({"role": "user", "content": "again"})
    assert session.info().queued == "overdue"
    assert command("remove", "dead", "--yes", "--json", *redis_options).document["dropped"] == ["s-1"]
    assert command("list", "dead", "--json", *redis_options).document["count"] == 0


def test_a_session_that_is_not_on_the_list_is_named(command: Any, dead: Any, redis_options: Any) -> None:
    ran = command("repair", "dead", "s-0", "unknown", *redis_options)
    assert ran.code == 1
    assert "1 session overdue again" in ran.out
    assert ran.err == "redismem: session unknown is not dead\n"


def test_no_dead_sessions_is_a_success(command: Any, used_options: Any) -> None:
    assert command("repair", "dead", *used_options).code == 0
    assert "0 dead sessions" in command("list", "dead", *used_options).out


@pytest.fixture
def raw(redis_server: Any) -> Any:
    with redis.Redis(port=redis_server.port) as raw:
        yield raw


@pytest.mark.parametrize("words", [("repair", "dead"), ("remove", "dead", "--yes")], ids=" ".join)
@pytest.mark.parametrize("named", [True, False])
def test_a_session_of_another_layout_stops_no_other(
    command: Any, memory: Any, dead: Any, redis_options: Any, raw: Any, words: Any, named: bool
) -> None:
    raw.hset(memory.store.keys.session("s-1").state, "counters", "v2 1 12 9 5 6")
    ran = command(*words, *(dead if named else []), *redis_options)
    assert ran.code == 1
    assert ran.out.startswith("2 sessions ")
    assert "session s-1 has another layout and was left unchanged" in ran.err
    ran = command(*words, "--json", *redis_options)
    assert (ran.code, ran.document["other_layout"]) == (1, ["s-1"])
