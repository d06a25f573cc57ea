"""What long conversations take in Redis when all of each is kept: originals, signatures, window, summaries and state.

Conversations of 300 messages and more: made up here, and those of a file of transcripts, one behind the other, if you
name one (a JSON object a line, with `messages`). Each is told in turns while a worker summarises it. The figures are
`MEMORY USAGE` of its keys by its raw text, which is its messages as compact JSON, as in `benchmarks.memory`; what
the window, the messages that are left there, is of it stands beside that. The last column is by the texts alone.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.measuring import Server, chosen_server, surroundings, table
from benchmarks.memory import raw_bytes
from benchmarks.running import options, over_lane, run, show_results, verdict
from redismem import Settings
from redismem.messages import Message
from redismem.recall import texts_of
from redismem.workers.strategies import from_settings
from redismem.workers.summaries import Worker

LENGTH_COUNT, QUICK_LENGTH_COUNT = 480, 320
MOST = 0.6
_SETTINGS = Settings(shards=1)
_NAMES = ("Ada", "Grace", "Linus", "Edsger", "Barbara", "Ken", "Radia", "Tim")
_PLACES = ("Lisbon", "Osaka", "Leeds", "Tula", "Quito", "Accra", "Oslo", "Hanoi")
_SAID = (
    "I spoke to {name} about the order {number}, and it is to be sent to {place} by the end of the month.",
    "Could you look up whether {number} has left {place} yet? {name} has been asking since Monday.",
    "{name} moved to {place} last year and would rather be called in the afternoon, after the school run.",
    "The invoice over {number} euros was paid from the account in {place}, so please close the reminder.",
    "Understood. I have noted that {name} prefers a window seat, and that the hotel in {place} costs {number} a night.",
    "That is fine. We had rain all week in {place}, the dog chewed up a shoe, and {name} has a cold again.",
)


def made_up(length_count: int) -> list[dict[str, Any]]:
    chosen = random.Random(7)
    return [
        {
            "role": ("user", "assistant")[place % 2],
            "content": chosen.choice(_SAID).format(
                name=chosen.choice(_NAMES), place=chosen.choice(_PLACES), number=chosen.randrange(100, 99_999)
            )
            + " "
            + " ".join(chosen.choices("".join(_SAID).split(), k=12)),
        }
        for place in range(length_count)
    ]


def transcripts(path: Path, length_count: int) -> Iterator[list[dict[str, Any]]]:
    """The conversations of the file one behind the other, as one customer's, without the system's prompts."""
    chained: list[dict[str, Any]] = []
    with path.open() as file:
        for line in file:
            chained += [message for message in json.loads(line)["messages"] if message["role"] != "system"]
            if len(chained) >= length_count:
                yield chained
                chained = []


async def _told(server: Server, namespace: str, name: str, messages: list[dict[str, Any]]) -> dict[str, float]:
    strategy = from_settings(_SETTINGS)
    assert strategy is not None
    async with over_lane(server.url, namespace, _SETTINGS) as memory:
        session, worker = memory.session(name), Worker(memory.store, strategy)
        for at in range(0, len(messages), 8):
            await session.append(*messages[at : at + 8])
            await worker.drain()
        assert len(await session.messages(include_originals=True)) == len(messages)
        keys = memory.store.keys.session(name)
    sizes = {key: int(server.client.memory_usage(getattr(keys, key), samples=0) or 0) for key in _KEYS}
    text_bytes = sum(len(text.encode()) for each in messages for text in texts_of(Message.from_openai(each)))
    size = raw_bytes(messages)
    shares = {key: found / size for key, found in sizes.items()}
    whole = sum(sizes.values())
    return {"count": len(messages), "raw_bytes": size, "to_texts": whole / text_bytes, "all": whole / size, **shares}


_KEYS = ("originals", "messages", "state")


async def measure(server: Server, namespace: str, file: Path | None, quick: bool) -> dict[str, dict[str, float]]:
    length_count = QUICK_LENGTH_COUNT if quick else LENGTH_COUNT
    told = {"made up": made_up(length_count)}
    if file is not None:
        told |= {f"{file.stem} {number}": each for number, each in enumerate(transcripts(file, length_count), 1)}
    return {name: await _told(server, namespace, name, messages) for name, messages in told.items()}


def main() -> None:
    parser = options("benchmarks.originals", __doc__ or "", rounds=1)
    parser.add_argument("file", nargs="?", type=Path, help="transcripts: a JSON object a line, with `messages`")
    chosen = parser.parse_args()
    name = f"bench-{os.getpid()}"
    with chosen_server(name) as server:
        found = run(measure(server, name, chosen.file, chosen.quick))
        heads = ("conversation", "messages", "raw bytes", "all", *_KEYS, "all to texts")
        rows = [
            [name, f"{each['count']:.0f}", f"{each['raw_bytes']:.0f}"]
            + [f"x {each[key]:.2f}" for key in ("all", *_KEYS, "to_texts")]
            for name, each in found.items()
        ]
        worst = max(each["all"] for each in found.values())
        report = table(heads, rows) + "\n\n" + verdict("bytes in Redis to the raw text", worst, MOST, at_most=True)
        show_results(surroundings(server, "benchmarks.originals"), {"conversations": found}, report, chosen.json)


if __name__ == "__main__":
    main()
