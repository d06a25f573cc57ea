"""The blocking memory: it has all methods of the async one, and each of them works."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator
from typing import Any

import fakeredis
import pytest
import redis

import redismem
from redismem import InvalidMessage, InvalidSettings, SessionNotFound, Settings, StoreUnavailable
from redismem.blocking import memory as blocking
from redismem.record import Change, Head
from redismem.transport.redis_py.client import RedisPy

RENAMED = {"aclose": "close", "__aenter__": "__enter__", "__aexit__": "__exit__"}
# What only the own parts and the workers of Memory use.
INTERNAL = {"run", "server_time_ms", "appended", "keys", "settings"}
# Workers live in an event loop.
ASYNC_ONLY: dict[str, set[str]] = {}


def surface(kind: type) -> dict[str, Any]:
    every = {name: value for each in reversed(kind.__mro__[:-1]) for name, value in vars(each).items()}
    own = {name: value for name, value in every.items() if not name.startswith("_") or name in RENAMED}
    own |= {name: every[name] for name in ("__enter__", "__exit__") if name in every}
    return {RENAMED.get(name, name): value for name, value in own.items() if name not in INTERNAL}


@pytest.mark.parametrize("name", ["Memory", "Session"])
def test_the_names_are_the_same(name: str) -> None:
    assert set(surface(getattr(blocking, name))) == set(surface(getattr(redismem, name)))


def plain(value: Any) -> Callable[..., Any]:
    function = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
    assert callable(function)
    return function


@pytest.mark.parametrize("kind", ["Memory", "Session"])
def test_parameters_defaults_and_explanations_are_the_same(kind: str) -> None:
    mine, other = surface(getattr(blocking, kind)), surface(getattr(redismem, kind))
    for name in mine:
        theirs = [
            each
            for each in inspect.signature(plain(other[name])).parameters.values()
            if each.name not in ASYNC_ONLY.get(name, ())
        ]
        ours = list(inspect.signature(plain(mine[name])).parameters.values())
        assert [(each.name, each.kind, each.default) for each in ours] == [
            (each.name, each.kind, each.default) for each in theirs
        ], name
        if name not in ("connect", "__enter__", "__exit__"):
            assert plain(mine[name]).__doc__ == plain(other[name]).__doc__
        assert type(mine[name]) is type(other[name])


@pytest.fixture(params=["real", "embedded"])
def memory(request: pytest.FixtureRequest, namespace: str) -> Iterator[blocking.Memory]:
    client: Any
    if request.param == "real":
        client = redis.Redis(port=request.getfixturevalue("redis_server").port)
    else:
        client = fakeredis.FakeRedis(server=fakeredis.FakeServer())
    with client, blocking.Memory.connect(client=client, namespace=namespace) as memory:
        yield memory


def converse(memory: blocking.Memory, session: blocking.Session) -> Iterator[str]:
    """Write and read messages, and return the names of the methods used."""
    assert session.id == "user-42"
    assert memory.project("apollo").name == "apollo"
    yield from ("session", "id", "project")
    assert memory.ping() is True
    assert len(memory.new_session_id()) == 36
    yield from ("ping", "new_session_id")
    assert session.exists() is False
    assert session.clear() is False
    assert session.read().messages == []
    with pytest.raises(SessionNotFound):
        session.messages()
    context = session.append_and_read({"role": "user", "content": "one"}, id="a", merge={"x": 1}, waiting="size")
    assert (len(context.messages), context.state.params, context.state.waiting_for_param) == (1, {"x": 1}, "size")
    assert session.append({"role": "user", "content": "one"}, id="a").duplicate
    assert session.append({"role": "assistant", "content": "two"}, expect=1).last_seq == 2
    with pytest.raises(InvalidMessage, match="message 2"):
        session.check({"role": "user", "content": "one"}, {"role": "user", "content": object()})
    yield from ("append_and_read", "append", "exists", "check")
    assert [message.content for message in session.messages()] == ["one", "two"]
    assert [message.content for message in session.read(limit=1).messages] == ["two"]
    assert len(session.tail(1)) == 1
    assert session.touch() is True
    assert session.set_aside() is False
    assert session.set_policy(redismem.Policy(exempt=True)) is True
    yield from ("messages", "read", "tail", "touch", "set_aside", "set_policy")


def use_records(memory: blocking.Memory) -> Iterator[str]:
    """Write and read records, and return the names of the methods used."""
    record, other = memory.record("thread", ttl_s=60), memory.record("other", tag="thread")
    assert (record.id, other.tag, repr(record)[:17]) == ("thread", "thread", "<blocking Record ")
    assert record.write(Change(sets={b"a": Head().encode()}, adds=[b"a"]), (other, Change(sets={b"b": b"1"}))) is True
    assert (record.exists(), other.get(b"b"), record.touch()) == (True, [b"1"], True)
    newest = record.newest()
    assert newest is not None
    assert (newest.member, len(record.page().found), len(record.walk(b"a").heads)) == (b"a", 1, 1)
    assert (record.drop(b"a"), record.clear(), other.clear()) == (1, True, True)
    assert memory.records().records == []
    assert memory.transcripts.list().transcripts == []
    assert memory.transcripts.read("strands", "x") is None
    yield from ("record", "records", "transcripts")


def change_state(session: blocking.Session) -> Iterator[str]:
    """Change and read the state, and return the names of the methods used."""
    session.merge({"y": [2.0]})
    session.set_waiting(None)
    session.set_last_intent("buy")
    session.set_last_result({"ok": True})
    session.set_plan(["a", "b"])
    session.set_title("a title")
    session.update(merge={"x": redismem.UNSET})
    yield from ("merge", "set_waiting", "set_last_intent", "set_last_result", "set_plan", "set_title", "update")
    assert (session.params(), session.waiting(), session.last_intent()) == ({"y": [2.0]}, None, "buy")
    assert (session.last_result(), session.plan(), session.state().plan) == ({"ok": True}, ["a", "b"], ["a", "b"])
    assert session.title() == "a title"
    yield from ("params", "waiting", "last_intent", "last_result", "plan", "title", "state")


def look_and_end(memory: blocking.Memory, session: blocking.Session) -> Iterator[str]:
    """Count, list, prune, clear and close, and return the names of the methods used."""
    assert session.info().total_messages == 2
    assert session.telemetry() == {"history_count": 2, "params_keys": ["y"], "waiting_for_param": None}
    assert memory.count() == 1
    assert (memory.health().state, memory.health().fallback) == ("closed", False)
    yield "health"
    assert [entry.session_id for entry in memory.sessions().sessions] == ["user-42"]
    assert memory.take("caller", 0.01) == 0
    assert memory.take("caller", 0.01) > 0
    assert (memory.queues().session_count, memory.queues().ticked_ms) == (0, None), "the only session is exempt"
    yield from ("info", "telemetry", "count", "sessions", "take", "queues")
    session.append({"role": "user", "content": "pinned"}, pin=True)
    assert session.replace(1, {"role": "user", "content": "better"}).seq == 1
    assert [session.unpin(3).seq, session.pop()[0].seq, len(session.undo())] == [3, 3, 2]
    session.append({"role": "user"}, {"role": "user"})
    assert session.rewrite(6, [{"role": "user"}] * 3).last_seq == 10
    assert session.forget(9).seqs == (9,)
    yield from ("replace", "unpin", "pop", "undo", "rewrite", "forget")
    assert session.recall("pinned") == []
    yield "recall"
    assert [each.seq for each in session.archive(1)] == [8]
    yield "archive"
    assert session.prune(0) == 1
    assert session.clear(missing_ok=False) is True
    assert memory.count() == 0
    yield from ("prune", "clear")
    memory.close()
    yield "close"


def test_every_method_works(memory: blocking.Memory) -> None:
    session = memory.session("user-42")
    used = {*converse(memory, session), *change_state(session), *use_records(memory), *look_and_end(memory, session)}
    everything = set(surface(blocking.Memory)) | set(surface(blocking.Session))
    turns = {"turn", "follow", "stop", "turn_of"}  # they need a URL: tests/live/test_places.py
    assert used == everything - turns - {"connect", "__enter__", "__exit__"}


def test_it_puts_a_broken_session_into_quarantine_too(memory: blocking.Memory) -> None:
    session = memory.session("s")
    session.append({"role": "user", "content": "old"})
    transport = memory._twin.store.transport
    assert isinstance(transport, RedisPy)
    transport._client.set(session._twin._calls.keys.state, "x")
    assert session.append({"role": "user", "content": "current"}).created
    assert [message.content for message in session.read().messages] == ["current"]


def test_it_works_from_many_threads_at_once(memory: blocking.Memory) -> None:
    def talk(number: int) -> None:
        for turn in range(10):
            memory.session("shared").append({"role": "user", "content": f"{number}.{turn}"})

    threads = [threading.Thread(target=talk, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    said = [message.content for message in memory.session("shared").messages()]
    assert sorted(said) == sorted(f"{number}.{turn}" for number in range(8) for turn in range(10))
    for number in range(8):
        mine = [content for content in said if content.startswith(f"{number}.")]
        assert mine == [f"{number}.{turn}" for turn in range(10)]


def test_without_a_url_it_is_the_embedded_store() -> None:
    with blocking.Memory.connect() as memory:
        assert memory.session("s").append({"role": "user"}).created
    with blocking.Memory.connect() as memory:
        assert not memory.session("s").exists()


def test_a_url_is_a_real_redis(redis_server: Any, namespace: str) -> None:
    with blocking.Memory.connect(redis_server.url, namespace=namespace) as memory:
        assert memory.session("s").append({"role": "user"}).created
    with blocking.Memory.connect(redis_server.url, namespace=namespace) as memory:
        assert memory.session("s").exists()


def test_a_redis_that_is_not_there_is_said_in_time() -> None:
    settings = Settings(deadline_s=0.05, reply_timeout_s=0.05)
    with pytest.raises(StoreUnavailable):
        blocking.Memory.connect("redis://127.0.0.1:1/0", settings=settings).ping()


def test_an_embedded_client_that_decodes_is_refused() -> None:
    with fakeredis.FakeRedis(decode_responses=True) as client, pytest.raises(InvalidSettings, match="decode_responses"):
        blocking.Memory.connect(client=client)


async def test_it_works_inside_a_running_event_loop(memory: blocking.Memory) -> None:
    assert memory.session("s").append({"role": "user"}).last_seq == 1
