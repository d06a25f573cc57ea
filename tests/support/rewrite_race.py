"""Processes that write, rewrite, clear, summarise and read one session, each with a memory of its own.

`python -m support.rewrite_race ROLE URL NAMESPACE LEDGER` starts one.
Every append and every rewrite has two messages, so each pair begins at an odd seq. A rewrite never removes the first
pair, so a history that begins later has lost messages. Each process adds a line of JSON to its ledger for each
acknowledged write or read and for each fault that it has seen. It ends once its standard input ends.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from redismem import Memory, Message, Session, Settings, TooLarge
from redismem.errors import NotInWindow, SessionNotFound
from redismem.workers.summaries import Worker
from support.writers import Echo

SETTINGS = Settings(
    shards=1,
    threshold=12,
    recent_limit=6,
    keep_originals=True,
    summaries_limit=100,
    max_summary_bytes=1024 * 1024,
    max_backoff_s=0.1,
    lease_s=2,
    deadline_s=60,
    reply_timeout_s=20,
)
SESSION = "shared"
WHOLE_COUNT = 1_000_000
Ledger = Callable[[Any], None]


def pair(name: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": f"{name} a"}, {"role": "assistant", "content": f"{name} b"}]


def find_fault(messages: Sequence[Message], is_whole: bool) -> str:
    """Return the fault of a history; "" for a sound one. A part may begin with the second message of a pair."""
    seqs = [message.seq for message in messages]
    if seqs != sorted(set(seqs)) or len({message.epoch for message in messages}) > 1:
        return f"out of order, or of two lives: {seqs}"
    if is_whole and seqs[:2] not in ([], [1, 2]):
        return f"the beginning is gone: {seqs[:4]}"
    texts = {message.seq: str(message.content) for message in messages}
    for seq, text in texts.items():
        other = seq + 1 if seq % 2 else seq - 1
        if texts.get(other, "")[:-1] != text[:-1] and seq != seqs[0]:
            return f"half of {text!r} at {seq} of {seqs[0]} to {seqs[-1]}"
    return ""


async def write(session: Session, ledger: Ledger) -> None:
    """Append pairs. Each has an id of its own."""
    name = f"{random.getrandbits(48):x}"
    receipt = await session.append(*pair(name), id=name)
    ledger(["append", receipt.epoch, receipt.first_seq, receipt.last_seq, name])
    await asyncio.sleep(0.01)


async def rewrite(session: Session, ledger: Ledger) -> None:
    """Replace a few of the newest pairs, or many of them, by one."""
    newest = await session.tail(1)
    back = random.choice([2, 2, 4, 10, 60])
    from_seq = max(3, (newest[0].seq if newest else 1) + 1 - back)
    name = f"{random.getrandbits(48):x}"
    try:
        receipt = await session.rewrite(from_seq, pair(name), id=name)
        ledger(["rewrite", receipt.epoch, receipt.first_seq, receipt.last_seq, name, from_seq])
    except (SessionNotFound, NotInWindow, TooLarge):
        pass  # cleared meanwhile, so that there is no such seq; or too much would come back
    await asyncio.sleep(0.02)


async def clear(session: Session, ledger: Ledger) -> None:
    """Clear the session every second or so."""
    await asyncio.sleep(random.uniform(0.5, 1.5))
    ledger(["clear", await session.clear()])


async def read(session: Session, ledger: Ledger) -> None:
    """Read a part and the whole, and note faults."""
    for count in (random.randint(2, 30), WHOLE_COUNT):
        messages = await session.tail(count)
        fault = find_fault(messages, count == WHOLE_COUNT)
        ledger(["fault", fault] if fault else ["read", len(messages)])


ROLES: dict[str, Callable[[Session, Ledger], Awaitable[None]]] = {
    "writer": write,
    "rewriter": rewrite,
    "clearer": clear,
    "reader": read,
}


async def play(role: str, url: str, namespace: str, path: str) -> None:
    """Repeat the work of the role until standard input ends."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin, stop.set)
    with open(path, "w", buffering=1, encoding="ascii") as file:  # noqa: ASYNC230 (before any work)
        async with Memory.connect(url, namespace=namespace, settings=SETTINGS) as memory:
            worker, session = Worker(memory.store, Echo()), memory.session(SESSION)
            while not stop.is_set():
                if role == "worker":
                    await worker.drain()
                    await asyncio.sleep(0.01)
                else:
                    await ROLES[role](session, lambda line: print(json.dumps(line), file=file))


if __name__ == "__main__":
    asyncio.run(play(*sys.argv[1:]))
