"""Unusual session ids work in keys, pages, queues, archives and on the command line."""

from __future__ import annotations

import enum
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import example, given
from support.clock import Clock
from support.conversations import user_message
from support.json_values import session_ids
from support.stores import Store

from redismem import Settings
from redismem.cli import main
from redismem.inspection.check import check
from redismem.protocol.keys import Keys
from redismem.workers.archive import JsonlArchive
from redismem.workers.eviction import Eviction
from redismem.workers.strategies import Trim
from redismem.workers.summaries import Worker

_numbers = itertools.count()


@given(session_id=session_ids)
@example("{a}")
@example("a:5:messages")
@example("*")
@example("auth0|123")
async def test_a_session_of_any_name_lives_and_goes(
    store: Store, namespace: str, clock: Clock, tmp_path: Path, session_id: str
) -> None:
    file = tmp_path / f"archive-{next(_numbers)}.jsonl"
    settings = Settings(shards=2, max_sessions=1, threshold=2, recent_limit=1)
    async with store.memory(f"{namespace}-{next(_numbers)}", settings) as memory:
        session = memory.session(session_id)
        for number in range(3):
            context = await session.append_and_read(user_message(number), id=str(number))
        assert (context.session_id, context.total_messages) == (session_id, 3)
        first = await memory.sessions(limit=1)
        assert [entry.session_id for entry in first.sessions] == [session_id]
        assert await Worker(memory.store, Trim()).drain() == 1
        assert [violation async for violation in check(memory.store)] == []
        await memory.session("another").append(user_message(0))
        one, other = await memory.sessions(limit=1), await memory.sessions(limit=2)
        rest = await memory.sessions(limit=1, cursor=one.cursor)
        assert [*one.sessions, *rest.sessions] == list(other.sessions)
        await clock.run_at(clock.now_ms + 5_000, memory.session("another").append(user_message(1)))
        assert await Eviction(memory.store, JsonlArchive(file)).enforce() == 1
        assert json.loads(file.read_text())["session_id"] == session_id
        assert not await session.exists()


def test_the_command_line_takes_and_shows_any_name(
    redis_server: Any, namespace: str, capsys: Any, monkeypatch: Any
) -> None:
    from redismem.blocking.memory import Memory  # the command line runs an event loop of its own

    shown: Callable[[], str] = lambda: capsys.readouterr().out  # noqa: E731
    here = ["--url", redis_server.url, "--namespace", namespace]
    monkeypatch.setenv("COLUMNS", "120")
    for session_id in ("auth0|123", "user+tag@x.com", "日本", "a b", "[bold]x", "turn \u202eround"):
        with Memory.connect(redis_server.url, namespace=namespace) as memory:
            memory.session(session_id).append(user_message(0))
        assert main(["show", session_id, "--json", *here]) == 0
        assert json.loads(shown())["session_id"] == session_id
        assert main(["list", *here]) == 0
        assert session_id.replace("\u202e", "\\u202e") in shown()
        assert main(["remove", session_id, "--yes", *here]) == 0
        assert "\u202e" not in shown()


class Tenant(str, enum.Enum):  # noqa: UP042 (it is what people have)
    ALICE = "alice"


async def test_a_member_of_a_str_enum_is_its_text(store: Store, namespace: str) -> None:
    """The order of first use does not matter, and namespaces behave like session ids."""
    async with store.memory(namespace) as memory:
        await memory.session(Tenant.ALICE).append(user_message(1))
        assert (await memory.session("alice").read()).total_messages == 1
        assert [entry.session_id for entry in (await memory.sessions()).sessions] == ["alice"]
        assert memory.session(Tenant.ALICE).id == "alice"
        assert type(memory.session(Tenant.ALICE).id) is str
    assert Keys(Tenant.ALICE, 4).record == Keys("alice", 4).record
