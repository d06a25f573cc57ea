"""`redismem list`, `show` and `remove`: they show everything, and only `remove` changes anything."""

import asyncio
import json
import re
from typing import Any

import pytest
import redis
from support.checks import user
from support.clock import Clock
from support.redis_server import RedisServer
from support.writers import Echo

import redismem.blocking
from redismem import Memory, Policy, Settings, Summary
from redismem.protocol.ids import session_hash
from redismem.workers.summaries import Worker

SECRET = "the text of a message"


@pytest.fixture
def memory(redis_server: RedisServer, namespace: str) -> Any:
    with redismem.blocking.Memory.connect(redis_server.url, namespace=namespace) as memory:
        yield memory


@pytest.fixture
def raw(redis_server: Any) -> Any:
    with redis.Redis.from_url(redis_server.url) as raw:
        yield raw


@pytest.fixture
def talk(memory: Any) -> Any:
    """Create a session with pinned, pending and recent messages and with state."""
    session = memory.session("talk")
    session.append(
        {"role": "system", "content": SECRET}, *({"role": "user", "content": f"{SECRET} {n}"} for n in range(10))
    )
    call = {"id": "c", "type": "function", "function": {"name": "find", "arguments": '{"a": 1}'}}
    session.append(
        {"role": "assistant", "content": None, "tool_calls": [call]},
        merge={"email": "hidden@example.com"},
        waiting="order_id",
        last_result={"hidden": 1},
    )
    return session


def test_an_embedded_store_is_empty_and_says_so(command: Any) -> None:
    ran = command("list", "--json")
    assert (ran.code, ran.document["sessions"]) == (0, [])
    assert "embedded" in ran.err
    for words in (["show", "talk"], ["remove", "talk"]):
        ran = command(*words)
        assert (ran.code, ran.out) == (1, "")
        assert "there is no such session" in ran.err.splitlines()[-1]


def test_sessions_are_listed_page_by_page_last_active_first(
    command: Any, memory: Any, redis_options: Any, raw: Any
) -> None:
    clock = Clock(int(raw.time()[0]) * 1000 - 60_000)
    memory.store.clock = clock
    for number in range(25):
        clock.now_ms += 1
        memory.session(f"s-{number:02}").append({"role": "user", "content": SECRET})
    memory.store.clock = None
    found: list[dict[str, Any]] = []
    cursor = None
    while not found or cursor:
        more = ("--cursor", cursor) if cursor else ()
        page = command("list", "--json", "--limit", 10, *more, *redis_options).document
        found += page["sessions"]
        cursor = page["cursor"]
        assert page["count"] == 25
    assert [row["session_id"] for row in found] == [f"s-{number:02}" for number in reversed(range(25))]
    assert {row["total_messages"] for row in found} == {1}


def test_sessions_for_people(command: Any, talk: Any, memory: Any, redis_options: Any, raw: Any) -> None:
    memory.session("empty").merge({"a": 1})
    raw.delete(memory.store.keys.session("empty").state)
    broken = memory.session("broken")
    broken.append({"role": "user", "content": "x"})
    raw.hset(memory.store.keys.session("broken").state, "counters", "many")
    ran = command("list", *redis_options)
    assert (ran.code, ran.err) == (0, "")
    lines = {line.split()[0]: line for line in ran.out.splitlines()}
    assert "overdue, order_id" in lines["talk"]
    assert lines["empty"].rstrip().endswith("gone")
    assert lines["broken"].rstrip().endswith("unreadable")
    assert SECRET not in ran.out
    assert "hidden" not in ran.out
    rows = {row["session_id"]: row["state"] for row in command("list", "--json", *redis_options).document["sessions"]}
    assert rows == {"talk": "live", "empty": "gone", "broken": "unreadable"}


def test_sessions_of_an_owner_have_their_titles(
    command: Any, memory: Any, talk: Any, redis_options: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.session("trip", owner="ann").append({"role": "user", "content": "A trip to Oslo\n" + "in May " * 20})
    memory.session("cake", owner="ann").append({"role": "user", "content": "x"}, title="A cake")
    memory.session("other", owner="bob").append({"role": "user", "content": SECRET}, title="hidden")
    ran = command("list", "--owner", "ann", *redis_options)
    assert (ran.code, ran.err) == (0, "")
    assert "A cake" in ran.out
    assert "last message A trip to Oslo" in ran.out
    assert "2 sessions shown of owner ann; of all owners: 4 live sessions" in ran.out
    assert "no session of owner nope; of" in command("list", "--owner", "nope", *redis_options).out
    monkeypatch.setenv("COLUMNS", "200")
    assert re.search(r"^session +title +last message ", command("list", "--owner", "ann", *redis_options).out)
    assert "hidden" not in ran.out
    assert not {"talk", "other"} & {line.split()[0] for line in ran.out.splitlines()}
    first = command("list", "--owner", "ann", "--limit", 1, "--json", *redis_options).document
    second = command("list", "--owner", "ann", "--json", "--cursor", first["cursor"], *redis_options).document
    rows = {row["session_id"]: row for row in (*first["sessions"], *second["sessions"])}
    assert set(rows) == {"cake", "trip"}
    assert (rows["cake"]["title"], rows["cake"]["last_role"], rows["cake"]["last_text"]) == ("A cake", "user", "x")
    assert rows["trip"]["title"].startswith("A trip to Oslo in May")
    assert "title" not in command("list", "--json", *redis_options).document["sessions"][0]
    assert command("list", "--owner", "", *redis_options).code == 2


def test_a_page_says_how_to_get_the_next(command: Any, memory: Any, redis_options: Any) -> None:
    for number in range(3):
        memory.session(f"s-{number}").append({"role": "user", "content": "x"})
    first = command("list", "--limit", 2, *redis_options)
    cursor = first.out.partition("more: --cursor ")[2].strip()
    second = command("list", "--limit", 2, "--cursor", cursor, *redis_options)
    assert "more:" not in second.out
    shown = {line.split()[0] for ran in (first, second) for line in ran.out.splitlines()}
    assert {"s-0", "s-1", "s-2"} <= shown


def test_show_for_people(command: Any, talk: Any, redis_options: Any) -> None:
    ran = command("show", "talk", *redis_options)
    assert (ran.code, ran.err) == (0, "")
    assert max(map(len, ran.out.splitlines())) <= 80
    for words in (
        "pinned: 1 to 1",
        "pending: 2 to 6",
        "recent: 7 to 12",
        f"{SECRET} 8",
        'find({"a": 1})',
        "waiting for: order_id",
        "email",
    ):
        assert words in ran.out
    assert "hidden" not in ran.out


def test_show_names_the_owner(command: Any, memory: Any, redis_options: Any) -> None:
    memory.session("kept", owner="ann").append(user(1))
    assert "owner: ann\n" in command("show", "kept", *redis_options).out
    assert command("show", "kept", "--json", *redis_options).document["owner"] == "ann"


def test_show_names_the_turn(command: Any, memory: Any, raw: Any, redis_options: Any) -> None:
    memory.session("kept").append(user(1))
    assert "turn:" not in command("show", "kept", *redis_options).out
    raw.hset(memory.store.keys.session("kept").state, "turn", "r 5-aabbccdd 00112233 00112233445566 1")
    assert "turn: running\n" in command("show", "kept", *redis_options).out
    assert command("show", "kept", "--json", *redis_options).document["turn"] == "running"


def test_show_names_the_policy(command: Any, memory: Any, redis_options: Any) -> None:
    memory.session("kept", policy=Policy(keep_whole=True, idle_timeout_s=600, exempt=True)).append(user(1))
    shown = "policy: kept whole · expires 10 min after its last use · exempt from the session limit"
    assert shown in " ".join(command("show", "kept", *redis_options).out.split())
    document = command("show", "kept", "--json", *redis_options).document
    assert document["policy"] == {"keep_whole": True, "idle_timeout_s": 600, "exempt": True, "zone": None}


def test_show_as_a_document(command: Any, memory: Any, talk: Any, redis_options: Any) -> None:
    document = command("show", "talk", "--json", *redis_options).document
    assert [row["seq"] for row in document["pinned"] + document["pending"]] == [1, 2, 3, 4, 5, 6]
    shown = [row["message"] for row in document["pinned"] + document["pending"] + document["recent"]]
    assert shown == [message.to_openai() for message in talk.messages()]
    assert document["state"] == {"params": ["email"], "set": ["last_result"]}
    assert (document["waiting_for_param"], document["queued"]) == ("order_id", "overdue")
    assert "hidden" not in json.dumps(document)
    assert document["hash"] == session_hash("talk")
    key = memory.store.keys.session("talk").state.decode()
    assert document["key"] == key
    shown = command("show", "talk", *redis_options).out
    assert f"in logs: {session_hash('talk')}" in shown
    assert f"in Redis: {key}" in shown
    (row,) = command("list", "--json", *redis_options).document["sessions"]
    assert (row["session_id"], row["hash"]) == ("talk", session_hash("talk"))
    newest = command("show", "talk", "--json", "--limit", 2, *redis_options).document
    assert [row["seq"] for row in newest["recent"]] == [11, 12]


def test_show_has_the_summaries_with_their_ranges(command: Any, talk: Any, redis_options: Any) -> None:
    assert command("worker", "--once", *redis_options).code == 0
    ran = command("show", "talk", *redis_options)
    assert max(map(len, ran.out.splitlines())) <= 80
    assert "summary: 2 to 6 ─" in ran.out
    assert re.search(r"of 5 messages, \d{4}-\d\d-\d\d \S+ to .*UTC · \d+ tokens · by extractive", ran.out)
    assert "pending" not in ran.out
    assert "recent: 7 to 12" in ran.out
    (summary,) = command("show", "talk", "--json", *redis_options).document["summaries"]
    assert (summary["first_seq"], summary["last_seq"]) == (2, 6)
    assert SECRET in summary["text"]


def test_a_session_whose_summaries_fail_says_so(
    command: Any, redis_options: Any, redis_server: Any, namespace: str
) -> None:
    async def fail() -> None:
        settings = Settings(extractive_after_s=0, max_attempts=9)
        strategy = Echo()
        strategy.failures += [ValueError(SECRET)] * 3
        async with Memory.connect(redis_server.url, namespace=namespace, settings=settings) as memory:
            clock = Clock(await memory.server_time_ms() - 36_000_000)
            memory.store.clock = clock
            messages = ({"role": "user", "content": SECRET} for _ in range(12))
            await memory.session("talk").append(*messages, waiting="order_id")
            while strategy.failures:
                await Worker(memory.store, strategy).attend("talk")
                clock.now_ms += 1_000

    asyncio.run(fail())
    ran = command("show", "talk", *redis_options)
    assert max(map(len, ran.out.splitlines())) <= 80
    assert "queue: overdue\n  failing for 10 h: 3 failed attempts, last: ValueError\n" in ran.out
    assert "overdue, failing for 10 h, order_id" in command("list", *redis_options).out
    assert command("worker", "--once", *redis_options).code == 0
    assert "fail" not in command("show", "talk", *redis_options).out + command("list", *redis_options).out


def test_redacted_output_shows_no_text_of_the_conversation(
    command: Any, talk: Any, memory: Any, raw: Any, redis_options: Any
) -> None:
    summary = Summary("m1", f"summary of {SECRET}", 0, 0, 0, 0, "model", 9, 0, ())
    raw.hset(memory.store.keys.session("talk").state, b"summary:m1", summary.encode())
    memory.session("talk").set_title(SECRET)
    for options in ([], ["--json"]):
        assert SECRET in command("show", "talk", *options, *redis_options).out
        ran = command("show", "talk", "--redact", *options, *redis_options)
        assert ran.code == 0
        assert SECRET not in ran.out
        assert "find" not in ran.out


def test_long_messages_are_cut_unless_full(command: Any, memory: Any, redis_options: Any) -> None:
    memory.session("long").append({"role": "user", "content": "word " * 200 + "end"})
    assert "(+763 characters)" in " ".join(command("show", "long", *redis_options).out.split())
    assert "end" in command("show", "long", "--full", *redis_options).out


def test_a_message_cannot_control_the_terminal_or_the_markup(command: Any, memory: Any, redis_options: Any) -> None:
    text = "a\x1b[2Jb\x9b1mc\rd [bold]e[/bold] [/] \u202ef \ud800 :smile:"
    memory.session("odd").append({"role": "user", "name": "a\x1b[0m", "content": text})
    ran = command("show", "odd", *redis_options)
    assert ran.code == 0
    assert not set("\x1b\x9b\r\u202e") & set(ran.out)
    assert r"a\x1b[2Jb\x9b1mc\rd [bold]e[/bold] [/] \u202ef \ud800 :smile:" in " ".join(ran.out.split())
    assert command("show", "odd", "--json", *redis_options).document["recent"][0]["message"]["content"] == text


def test_reading_an_unreadable_session_changes_nothing(
    command: Any, memory: Any, raw: Any, redis_options: Any, namespace: str
) -> None:
    memory.session("broken").append({"role": "user", "content": "x"})
    raw.rpush(memory.store.keys.session("broken").messages, b"garbage")
    before = {key: raw.dump(key) for key in raw.scan_iter(match=f"rm:{{{namespace}*", count=1000)}
    ran = command("show", "broken", *redis_options)
    assert ran.code == 1
    assert "fault: 1 of 2 messages cannot be read" in ran.out
    assert "1 user: x" in ran.out
    document = json.loads(command("show", "broken", "--json", "--redact", *redis_options).out)
    assert (document["session_id"], [each["role"] for each in document["messages"]]) == ("broken", ["user"])
    assert command("list", *redis_options).code == 0
    assert command("doctor", "--deep", *redis_options).code == 1
    command("search", "x", "--session", "broken", *redis_options)
    assert {key: raw.dump(key) for key in raw.scan_iter(match=f"rm:{{{namespace}*", count=1000)} == before


def test_clear(command: Any, talk: Any, memory: Any, redis_options: Any) -> None:
    memory.session("other").append({"role": "user", "content": "stays"})
    ran = command("remove", "talk", "--yes", "--json", *redis_options)
    assert (ran.code, ran.document["removed"]) == (0, True)
    assert not talk.exists()
    assert memory.session("other").exists()
    again = command("remove", "talk", "--yes", *redis_options)
    assert again.code == 1
    assert "no such session" in again.error_line


@pytest.mark.parametrize(
    ("answer", "code", "there"), [("n\n", 1, True), ("\n", 1, True), ("", 1, True), ("y\n", 0, False)]
)
def test_clear_asks_on_a_terminal(
    command: Any, keyboard: Any, talk: Any, redis_options: Any, answer: Any, code: Any, there: Any
) -> None:
    keyboard(answer)
    ran = command("remove", "talk", *redis_options)
    assert ran.code == code
    assert "Remove session talk in " in ran.err
    assert talk.exists() == there


def test_the_list_says_how_much_room_is_left(command: Any, memory: Any, redis_options: Any, monkeypatch: Any) -> None:
    memory.session("a").append({"role": "user", "content": "x"})
    monkeypatch.setenv("REDISMEM_MAX_SESSIONS", "3")
    assert "1 live session in" in (shown := command("list", *redis_options).out)
    assert "room for 2 more, the limit is 3" in shown
    assert command("list", "--json", *redis_options).document["room"] == 2


def test_a_long_window_is_shown_from_its_newest_messages(command: Any, redis_options: Any) -> None:
    with redismem.blocking.Memory.connect(redis_options[1], namespace=redis_options[3]) as memory:
        memory.session("long").append(*({"role": "user", "content": f"text {n}."} for n in range(1, 121)))
    shown = command("show", "long", *redis_options).out
    assert ("text 71." in shown, "text 70." in shown) == (True, False)
    assert "70 earlier messages not shown: --limit 120" in shown
    whole = command("show", "long", "--limit", "120", *redis_options).out
    assert ("text 1." in whole, "not shown" in whole) == (True, False)
    document = command("show", "long", "--json", *redis_options).document
    assert len(document["pending"]) + len(document["recent"]) == 120
