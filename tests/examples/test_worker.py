"""The worker process: it summarises, moves evicted chats into its database, and stops at SIGTERM."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from support.commands import wait_for_exit, wait_for_line
from support.example_processes import Places, start_example
from support.writers import chat_message

from examples import worker
from redismem import Memory


def rows(database: Path) -> list[Any]:
    with closing(sqlite3.connect(database)) as connection:
        return list(connection.execute("SELECT session_id, owner, messages FROM chats"))


async def test_it_summarises_and_archives_and_stops(places: Places, tmp_path: Path, monkeypatch: Any) -> None:
    database = tmp_path / "chats.db"
    with start_example("worker.py", places, CHAT_DATABASE=str(database), REDISMEM_MAX_SESSIONS="1") as running:
        wait_for_line(running.stdout, "working")
        async with Memory.connect(places.redis_url, namespace=places.namespace) as memory:
            session = memory.session("anna", owner="person-1")
            messages = [chat_message(seq) for seq in range(1, 13)]
            await session.append(*messages)
            wait_for_line(running.stdout, "summary of ")
            assert (await session.read()).summaries
            await memory.session("ben").append(chat_message(1))
            wait_for_line(running.stdout, "eviction of ")
            assert not await session.exists()
            ((session_id, owner, stored),) = rows(database)
            assert (session_id, owner, json.loads(stored)) == ("anna", "person-1", messages)

            running.terminate()
            assert wait_for_exit(running).code == 0
            monkeypatch.setattr(worker, "DATABASE", database)
            await worker.forget(memory, "person-1")
            assert rows(database) == []
