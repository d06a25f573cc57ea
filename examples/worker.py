"""A worker process: it writes summaries, and moves evicted chats into a database instead of losing them.

`redismem worker` does the same with a file as archive. A process of your own can use your database, as here SQLite.
Run any number of these, and the same `on_evict` wherever workers of the namespace run.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sqlite3
from contextlib import closing

from redismem import Context, Memory
from redismem.events import Event, Op

DATABASE = os.environ.get("CHAT_DATABASE", "chats.db")
SCHEMA = """
    CREATE TABLE IF NOT EXISTS chats (
        session_id TEXT, epoch TEXT, owner TEXT, messages TEXT, evicted_at TEXT DEFAULT CURRENT_TIMESTAMP,
        PRIMARY KEY (session_id, epoch)
    )
"""
# A transcript may come twice, and the last one is complete. The same id begins a new chat in a new epoch.
INSERT = "INSERT OR REPLACE INTO chats (session_id, epoch, owner, messages) VALUES (?, ?, ?, ?)"

log = logging.getLogger("worker")


async def archive(session_id: str, context: Context) -> None:
    """Store the transcript of a chat. If this raises, the chat stays in Redis and is evicted later."""
    messages = json.dumps([message.to_openai() for message in [*context.pinned, *context.messages]])
    await asyncio.to_thread(execute, INSERT, session_id, context.epoch, context.owner, messages)


def execute(statement: str, *values: str | None) -> None:
    with closing(sqlite3.connect(DATABASE, timeout=30)) as database, database:
        database.execute(statement, values)


def log_event(event: Event) -> None:
    """Log each summary and eviction. It runs on the event loop, so it must be quick."""
    if event.op in (Op.SUMMARY, Op.EVICTION):
        log.info("%s of %s: %s after %.0f ms", event.op, event.session, event.outcome, event.duration_ms)


async def forget(memory: Memory, owner: str) -> None:
    """Remove all chats of a person, from Redis and from the archive. First Redis: it is what feeds the archive."""
    await memory.forget(owner=owner)
    await asyncio.to_thread(execute, "DELETE FROM chats WHERE owner = ?", owner)


async def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    await asyncio.to_thread(execute, SCHEMA)
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with Memory.connect(workers=True, on_evict=archive, on_event=log_event, concurrency=64):
        log.info("working until SIGTERM")
        await stop.wait()
    log.info("stopped: work in progress was finished or given back")


if __name__ == "__main__":
    asyncio.run(main())
