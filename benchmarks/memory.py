"""Measure the memory of conversations in Redis against their raw text, on a private redis-server.

Raw text is the messages as compact JSON in UTF-8, without brackets and commas between messages; the contents alone are
counted too. Every message is a separate append, so that sessions remember the maximum of appends. `used_memory` grows
by everything: keys, TTLs, indexes, and fragmentation inside the allocator's size classes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.measuring import Server, own_server, surroundings, table
from redismem import Memory, Settings

TRANSCRIPTS = Path(__file__).resolve().parents[2] / "shared" / "data" / "airline.jsonl"
MOST_RATIO = 1.5
CONCURRENCY = 16
KINDS = ("messages", "state", "indexes")

Conversation = tuple[str, list[dict[str, Any]]]


def conversations(file: Path) -> list[Conversation]:
    with file.open(encoding="utf-8") as lines:
        return [(entry["session_id"], entry["messages"]) for entry in map(json.loads, lines)]


def synthetic(count: int = 100) -> Iterator[Conversation]:
    """Generate conversations, equal in every run, as a substitute for missing transcripts."""
    words = random.Random(7)
    for number in range(count):
        sizes = [words.choice((20, 60, 160, 600, 2000)) for _ in range(words.randrange(6, 40))]
        roles = ("user", "assistant")
        yield (
            f"synthetic-{number}",
            [{"role": roles[at % 2], "content": _text(words, size)} for at, size in enumerate(sizes)],
        )


def _text(words: random.Random, size: int) -> str:
    letters = "eeeettaaooiinnsshhrrddlu     "
    return "".join(words.choices(letters, k=size))


def raw_bytes(messages: list[dict[str, Any]]) -> int:
    return sum(len(json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode()) for message in messages)


def contents_bytes(messages: list[dict[str, Any]]) -> int:
    return sum(len(message["content"].encode()) for message in messages if isinstance(message.get("content"), str))


async def _store(server: Server, namespace: str, stored: list[Conversation]) -> None:
    async def one(memory: Memory, lane: int) -> None:
        for session_id, messages in stored[lane::CONCURRENCY]:
            session = memory.session(session_id)
            for message in messages:
                await session.append(message)

    settings = Settings(max_connections=CONCURRENCY)
    async with Memory.connect(server.url, namespace=namespace, settings=settings) as memory:
        await asyncio.gather(*(one(memory, lane) for lane in range(CONCURRENCY)))


async def measure(server: Server, stored: list[Conversation]) -> dict[str, Any]:
    # The server allocates scripts and a latency histogram per command once, tens of kilobytes each.
    await _store(server, "warm", [("warm", [{"role": "user", "content": "x"}] * 20)])
    before = server.used_bytes()
    await _store(server, "weighed", stored)
    grown = server.used_bytes() - before
    kinds = dict.fromkeys(KINDS, 0)
    for key in server.keys("weighed"):
        kind = key.split(b":")[3].decode() if key.count(b":") > 3 else "indexes"
        kinds[kind] += server.keys_bytes([key])
    every = [message for _, messages in stored for message in messages]
    raw = raw_bytes(every)
    return {
        "sessions": len(stored),
        "messages": len(every),
        "raw_bytes": raw,
        "contents_bytes": contents_bytes(every),
        "used_memory_bytes": grown,
        "keys_bytes": kinds,
        "ratio": grown / raw,
        "bytes_per_message": grown / len(every),
        "overhead_bytes_a_session": (grown - kinds["messages"]) / len(stored),
    }


def report(result: dict[str, Any]) -> str:
    raw, contents = result["raw_bytes"], result["contents_bytes"]
    sizes = {"used_memory, all of it": result["used_memory_bytes"]}
    sizes |= {f"MEMORY USAGE of {kind}": size for kind, size in result["keys_bytes"].items()}
    rows = [[what, f"{size:,}", f"x {size / raw:.3f}", f"x {size / contents:.3f}"] for what, size in sizes.items()]
    return "\n".join(
        (
            f"{result['sessions']} sessions, {result['messages']:,} messages, {raw:,} bytes of raw text, "
            f"{contents:,} bytes of contents\n",
            table(("", "bytes", "to raw text", "to contents"), rows),
            f"\n{result['bytes_per_message']:.0f} bytes per message, all included (raw text: "
            f"{raw / result['messages']:.0f}); beside its messages a session takes "
            f"{result['overhead_bytes_a_session']:.0f} bytes",
            f"used_memory to raw text: x {result['ratio']:.3f}; limit: at most x {MOST_RATIO}",
        )
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory", description=__doc__)
    parser.add_argument("--file", type=Path, help='JSON lines of {"session_id", "messages"}')
    parser.add_argument("--quick", action="store_true", help="the first 10 conversations only")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args()
    file = options.file or TRANSCRIPTS
    if file.exists():
        stored, source = conversations(file), file.name
    elif options.file is not None:
        parser.error(f"there is no file {file}")
    else:
        stored, source = list(synthetic()), f"synthetic conversations ({file.name} is not here)"
    with own_server() as server:
        around = surroundings(server, "benchmarks.memory") | {"texts": source}
        result = asyncio.run(measure(server, stored[:10] if options.quick else stored))
    if options.json:
        print(json.dumps({"surroundings": around, **result}, indent=2))
        return
    print("\n".join(f"{what:9} {text}" for what, text in around.items()), "", sep="\n")
    print(report(result))


if __name__ == "__main__":
    main()
