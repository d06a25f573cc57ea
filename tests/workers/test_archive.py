"""Archives: each session in one line of JSON, complete, and read again exactly."""

from __future__ import annotations

import json
import logging
import math
import os
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.json_values import is_identical, texts, values
from support.json_values import messages as payloads

from redismem import Memory, Message, Policy
from redismem.cli.session_view import document
from redismem.context.context import Context
from redismem.context.info import SessionInfo
from redismem.context.results import State, Summary
from redismem.errors import InvalidSettings
from redismem.workers.archive import JsonlArchive, read_archive, validate_on_evict

counts = st.integers(0, 2**53)
besides = st.none() | st.fixed_dictionaries(
    {}, optional={"metadata": st.dictionaries(texts, values, max_size=3), "timestamp_us": st.integers(), "id": texts}
)
stored = st.lists(st.tuples(payloads, besides, counts, counts), max_size=4)
states = st.builds(State, st.dictionaries(texts, values, max_size=3), st.none() | texts, values, values, values)
summaries = st.builds(
    Summary, texts, texts, counts, counts, counts, counts, texts, counts, counts, st.lists(texts, max_size=3).map(tuple)
)


def context_of(rows: list[Any], state: State, made: list[Summary]) -> Context:
    messages = [
        Message.restored(payload, beside or None, seq, tokens, stored_ms, "1-a")
        for seq, (payload, beside, tokens, stored_ms) in enumerate(rows, 5)
    ]
    return Context("s", made, messages, state, len(rows) + 4, 5, len(rows) + 4, "1-a", 6, "v")


def whole(context: Context) -> list[Any]:
    return [
        context.state.params,
        [context.state.waiting_for_param, context.state.last_intent, context.state.last_result, context.state.plan],
        [
            [each.to_openai(), each.beside, each.seq, each.tokens, each.stored_ms, each.epoch]
            for each in context.messages
        ],
    ]


async def write_and_read(path: Path, *contexts: Context) -> list[Context]:
    archive = JsonlArchive(path)
    for context in contexts:
        await archive(context.session_id, context)
    return list(read_archive(path))


def refuse(name: str) -> None:
    raise AssertionError(f"{name} is no JSON")


@given(rows=stored, state=states, made=st.lists(summaries, max_size=2))
@example(rows=[({"a": "\ud83d\ude00", "b": "\ud800"}, {"id": "\udfff"}, 1, 1)], state=State(), made=[])
@example(rows=[({"n": 10**400, "f": [1e16, -0.0, 1, True]}, None, 1, 1)], state=State(), made=[])
@example(rows=[({"n": math.inf}, None, 1, 1)], state=State(plan=[-math.inf]), made=[])
async def test_what_was_written_is_read(rows: list[Any], state: State, made: list[Summary]) -> None:
    context = context_of(rows, state, made)
    with TemporaryDirectory() as folder:
        (found,) = await write_and_read(Path(folder) / "a.jsonl", context)
        (line,) = (Path(folder) / "a.jsonl").read_bytes().splitlines()
    assert found == context
    assert is_identical(whole(found), whole(context))
    assert found.summaries == context.summaries
    plain = json.loads(line.decode("utf-8"), parse_constant=refuse)
    assert len(plain["messages"]) == len(plain["stored"]) == len(rows)


async def test_a_session_out_of_the_store(direct_memory: Memory, tmp_path: Path) -> None:
    session = direct_memory.session("s")
    at = datetime(2026, 3, 1, tzinfo=UTC)
    await session.append(Message("user", "hi", metadata={"who": "é"}, timestamp=at, id="m-1"), merge={"a": 1})
    context = await session.read()
    first, second = await write_and_read(tmp_path / "a.jsonl", context, context)
    assert first == second == context
    (message,) = first.messages
    assert (message.metadata, message.timestamp, message.id) == ({"who": "é"}, at, "m-1")
    assert message.stored_ms == context.messages[0].stored_ms > 0
    await session.replace(1, {"role": "user", "content": "ho"})
    await session.append(Message.opaque({"kind": "event"}))
    marked = await session.read()
    (again,) = await write_and_read(tmp_path / "b.jsonl", marked)
    assert again == marked
    copy = direct_memory.session("copy")
    await copy.append(*first.messages, merge=first.state.params)
    back = (await copy.read()).messages[0]
    assert (back.to_openai(), back.beside) == (message.to_openai(), message.beside)


async def test_a_line_that_was_never_finished_spoils_no_other(tmp_path: Path, caplog: Any) -> None:
    path = tmp_path / "a.jsonl"
    context = context_of([({"role": "user", "content": "CANARY"}, None, 1, 1)], State(), [])
    await write_and_read(path, context)
    path.write_bytes(path.read_bytes()[:-20])
    with caplog.at_level(logging.WARNING):
        assert await write_and_read(path, context) == [context]
    assert "line 1 of the archive was never finished" in caplog.text
    assert "CANARY" not in caplog.text


@pytest.mark.parametrize(
    "line",
    [
        "a,b,c",
        '  "messages": [',
        "\x01\x02",
        "[]",
        "5",
        "null",
        '{"session_id": "s", "messages": []}',
        '{"exact": "AAAA"}',
    ],
)
def test_a_line_of_something_else_is_refused(tmp_path: Path, line: str) -> None:
    (tmp_path / "a.jsonl").write_text(f"\n{line}\n")
    with pytest.raises(ValueError, match="line 2 is no line of an archive"):
        list(read_archive(tmp_path / "a.jsonl"))


async def test_a_link_that_another_user_planted_is_not_followed(tmp_path: Path, monkeypatch: Any) -> None:
    """A link of one's own is: /dev/stdout is one, and a path that an operator chose may be."""
    at, link = tmp_path / "a", tmp_path / "link"
    link.symlink_to(at)
    context = context_of([], State(), [])
    await write_and_read(link, context)
    assert at.stat().st_mode & 0o777 == 0o600
    if os.geteuid() == 0:
        os.chown(link, 12_345, -1, follow_symlinks=False)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(PermissionError, match="link of another user"):
        await JsonlArchive(link)("s", context)
    assert len(list(read_archive(at))) == 1


def test_show_as_json_is_complete_and_is_json() -> None:
    at = datetime(2026, 3, 1, tzinfo=UTC)
    rows = [({"n": math.nan}, Message("user", metadata={"m": [math.inf]}, timestamp=at, id="m-1").beside, 3, 9)]
    info = SessionInfo("s", "1-a", 5, 5, 1, 3, 0, (), None, 0, 1, None)
    shown = document(context_of(rows, State(), []), info, "n", "k", redact=False)
    (message,) = json.loads(json.dumps(shown, allow_nan=False))["recent"]
    assert message == {
        "seq": 5, "tokens": 3, "stored_ms": 9, "metadata": {"m": [None]}, "id": "m-1",
        "timestamp": "2026-03-01T00:00:00+00:00", "message": {"n": None},
    }  # fmt: skip
    hidden = document(context_of(rows, State(), []), info, "n", "k", redact=True)
    assert set(hidden["recent"][0]) == {"seq", "tokens", "stored_ms", "role"}


async def test_a_value_of_another_type_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    made = Summary("i", "t", 1, 4, 0, 60_000, "m", 9, 70_000, ("1-a:1",))
    beside = Message("user", metadata={"a": 1}, id="m", timestamp=datetime(2026, 3, 1, tzinfo=UTC)).beside
    context = context_of([({"role": "user"}, beside, 3, 9)], State({"a": 1}, "b"), [made])
    assert await write_and_read(path, context) == [context]
    good = json.loads(path.read_text())
    places: list[tuple[Any, ...]] = [(name,) for name in good]
    places += [("stored", 0, name) for name in good["stored"][0]]
    places += [("stored", 0, "beside", name) for name in good["stored"][0]["beside"]]
    places += [("summaries", 0, name) for name in good["summaries"][0]]
    places += [("messages", 0), ("state", "params"), ("state", "waiting_for_param")]
    for *way, last in places:
        wrongs: list[Any] = [1.5, [1], True]
        for wrong in wrongs:
            line = json.loads(json.dumps(good))
            inner = line
            for step in way:
                inner = inner[step]
            if isinstance(inner[last], list) and isinstance(wrong, list):
                wrong = {"x": 1}
            inner[last] = wrong
            path.write_text(json.dumps(good) + "\n" + json.dumps(line) + "\n")
            with pytest.raises(ValueError, match="line 2 is no line of an archive"):
                list(read_archive(path))


@pytest.mark.parametrize("policy", [None, Policy(), Policy(True, 900, True), Policy(False, 0.5, False)])
async def test_a_policy_is_read_as_it_was_written(tmp_path: Path, policy: Policy | None) -> None:
    path = tmp_path / "a.jsonl"
    context = context_of([({"role": "user"}, None, 3, 9)], State(), [])
    context.policy = policy
    (found,) = await write_and_read(path, context)
    assert (found, found.policy) == (context, policy)
    for wrong in ({}, {"keep_whole": True}, {"keep_whole": 1, "exempt": True, "idle_timeout_s": None}, {"more": 1}):
        path.write_text(json.dumps(json.loads(path.read_text().splitlines()[0]) | {"policy": wrong}) + "\n")
        with pytest.raises(ValueError, match="line 1 is no line of an archive"):
            list(read_archive(path))


@pytest.mark.parametrize("owner", [None, "ann", "Jörg ☃"])
async def test_an_owner_is_read_as_it_was_written(tmp_path: Path, owner: str | None) -> None:
    path = tmp_path / "a.jsonl"
    context = context_of([({"role": "user"}, None, 3, 9)], State(), [])
    context.owner = owner
    (found,) = await write_and_read(path, context)
    assert (found, found.owner) == (context, owner)
    path.write_text(json.dumps(json.loads(path.read_text().splitlines()[0]) | {"owner": 7}) + "\n")
    with pytest.raises(ValueError, match="line 1 is no line of an archive"):
        list(read_archive(path))


async def accept_transcript(session_id: str, context: Context, to: str = "") -> None:
    del session_id, context, to


async def alone(context: Context) -> None:
    del context


class Archives:
    """A method, and objects that can be called."""

    async def keep(self, session_id: str, context: Context) -> None:
        del session_id, context

    async def __call__(self, session_id: str, context: Context) -> None:
        del session_id, context


def test_what_can_be_handed_transcripts(tmp_path: Path) -> None:
    for one in (
        accept_transcript,
        partial(accept_transcript, to="x"),
        Archives().keep,
        Archives(),
        JsonlArchive(tmp_path / "a"),
    ):
        assert validate_on_evict(one) is one


def plain(session_id: str, context: Context) -> None:
    del session_id, context


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (plain, "is not async"),
        (print, "is not async"),
        ("x", "is of the type str"),
        (object(), "is of the type object"),
        (alone, "does not take these arguments: too many positional arguments"),
    ],
)
def test_what_cannot_is_refused_before_a_session_waits_for_it(given: Any, said: str) -> None:
    with pytest.raises(InvalidSettings, match=said):
        validate_on_evict(given)
