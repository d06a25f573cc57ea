"""Measure the memory of whole long conversations in Redis: originals, signatures, window, summaries and state.

The conversations have 300 messages or more. Some are random words, some are the friends' chat of
`benchmarks.remembering`, and some come from a file of transcripts, if given (a JSON object per line, with `messages`).
A worker summarises them during their turns. The figures are `MEMORY USAGE` of all that a conversation has in Redis, its
entries in indexes too, divided by its raw text: its messages as compact JSON, as in `benchmarks.memory`. The bytes of
blocks, signatures and summary are those of their values; the rest is all else, such as names of fields and what the
allocator rounds up. The last column divides by the texts alone. Each conversation has an owner of its own.

Each conversation is played twice: in a new namespace, and in a namespace with dictionaries trained on other
conversations of the same kind. The first dictionary is trained as soon as the conversations suffice; a day later a
second one on all of them replaces it, if it is better by a tenth. Each takes at most 64 KiB per namespace, which is not
counted here.

With `--against FOLDER`, the code in another checkout stores the same conversations first, and both figures are shown.
For example: git worktree add /tmp/before 26942b19, then python -m benchmarks.originals --against /tmp/before
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.measuring import Server, chosen_server, surroundings, table
from benchmarks.memory import TRANSCRIPTS, raw_bytes
from benchmarks.remembered.friends import friends
from benchmarks.running import options, run, show_results, verdict
from redismem import Memory, Session, Settings
from redismem.messages.message import Message
from redismem.originals.dictionaries import SETTLED_MS
from redismem.originals.fields import searchable_texts
from redismem.protocol.keys import SessionKeys
from redismem.protocol.layout import SUMMARY
from redismem.workers.dictionaries import RETRAIN_MS
from redismem.workers.strategies import from_settings
from redismem.workers.summaries import Worker

LENGTH_COUNT, QUICK_LENGTH_COUNT = 480, 320
MOST, MOST_WITH_DICTIONARY = 0.6, 0.4
Told = list[dict[str, Any]]
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


def made_up(length_count: int, seed: int = 7) -> list[dict[str, Any]]:
    chosen = random.Random(seed)
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


def transcripts(path: Path) -> list[list[dict[str, Any]]]:
    """Return the conversations of the file without system prompts."""
    with path.open() as file:
        every = [json.loads(line)["messages"] for line in file]
    return [[message for message in messages if message["role"] != "system"] for messages in every]


def chained(each: Sequence[list[dict[str, Any]]], length_count: int) -> Iterator[tuple[range, list[dict[str, Any]]]]:
    """Join conversations into one, and return it with their names."""
    told: list[dict[str, Any]] = []
    begin = 0
    for at, messages in enumerate(each):
        told += messages
        if len(told) >= length_count:
            yield range(begin, at + 1), told
            begin, told = at + 1, []


async def _told(server: Server, namespace: str, messages: Told, others: Sequence[Told] = ()) -> dict[str, float]:
    """Return the figures of one conversation, after training a dictionary on `others`."""
    strategy = from_settings(_SETTINGS)
    assert strategy is not None
    late_ms = 0

    def clock() -> int:
        return int(time.time() * 1_000) + late_ms

    async with Memory.connect(server.url, namespace=namespace, settings=_SETTINGS, clock=clock) as memory:
        worker = Worker(memory.store, strategy)
        for number, told in enumerate(others, 1):
            late_ms = RETRAIN_MS if number == len(others) else 0
            await _tell(memory.session(f"other {number}", owner=f"person {number}"), worker, told)
        late_ms += 2 * SETTLED_MS
        session = memory.session("s")
        await _tell(session, worker, messages)
        assert len(await session.messages(include_originals=True)) == len(messages)
        keys = memory.store.keys.session("s")
        has_dictionary = bool(memory.store.dictionaries)
    sizes = _sizes(server, keys, namespace)
    text_bytes = sum(len(text.encode()) for each in messages for text in searchable_texts(Message.from_openai(each)))
    size = raw_bytes(messages)
    shares = {key: found / size for key, found in sizes.items()}
    whole = sum(sizes.values())
    figures = {"to_texts": whole / text_bytes, "all": whole / size, **shares}
    return {"count": len(messages), "raw_bytes": size, "has_dictionary": has_dictionary, **figures}


async def _tell(session: Session, worker: Worker, messages: Told) -> None:
    for at in range(0, len(messages), 8):
        await session.append(*messages[at : at + 8])
        await worker.drain()


_PARTS = ("blocks", "signatures", "summary", "window", "rest")


def _sizes(server: Server, keys: SessionKeys, namespace: str) -> dict[str, int]:
    """Return the bytes of each part of a conversation, and of the rest."""
    client = server.client
    originals: Mapping[Any, Any] = client.hgetall(keys.originals)
    state: Mapping[Any, Any] = client.hgetall(keys.state)
    signatures = sum(len(value) for name, value in originals.items() if name[:1] == b"s")
    indexes = [key for key in server.keys(f"{{{namespace}:") if client.type(key) == b"zset"]
    sizes = {
        "blocks": sum(map(len, originals.values())) - signatures,
        "signatures": signatures,
        "summary": sum(len(value) for name, value in state.items() if name.startswith(SUMMARY)),
        "window": server.keys_bytes([keys.messages]),
    }
    whole = server.keys_bytes([keys.originals, keys.state]) + sizes["window"]
    whole += sum(server.keys_bytes([key]) // client.zcard(key) for key in indexes)
    return sizes | {"rest": whole - sum(sizes.values())}


def _payloads(length_count: int, seed: int) -> Told:
    return [turn.payload for turn in friends("en", length_count, seed=seed).turns]


async def measure(server: Server, namespace: str, file: Path | None, quick: bool) -> dict[str, dict[str, float]]:
    length_count = QUICK_LENGTH_COUNT if quick else LENGTH_COUNT
    others: Sequence[Told] = [made_up(60, seed) for seed in range(100, 130 if quick else 140)]
    told: dict[str, tuple[Told, Sequence[Told]]] = {"made up": (made_up(length_count), others)}
    friendly = [_payloads(120, seed) for seed in range(100, 125 if quick else 140)]
    told["friends"] = _payloads(length_count, 1), friendly
    told["friends, briefly"] = _payloads(240, 2), friendly
    if file is not None:
        every: Sequence[Told] = transcripts(file)
        for number, (places, messages) in enumerate(chained(every, length_count), 1):
            rest: Sequence[Told] = [each for place, each in enumerate(every) if place not in places]
            told[f"{file.stem} {number}"] = messages, rest
    found: dict[str, dict[str, float]] = {}
    for at, (name, (messages, rest)) in enumerate(told.items()):
        found[name] = await _told(server, f"{namespace}-{at}", messages)
        found[f"{name}, dictionary"] = await _told(server, f"{namespace}-{at}d", messages, rest)
        assert found[f"{name}, dictionary"]["has_dictionary"], "the others were too few to train on"
    return found


def _measure_against(folder: Path, chosen: Namespace) -> dict[str, dict[str, float]]:
    """Return the figures of the code in another checkout, from a process of its own."""
    with tempfile.TemporaryDirectory() as own:
        found = Path(own) / "found.json"
        command = [sys.executable, __file__, str(chosen.file), "--json", str(found), *["--quick"] * chosen.quick]
        # A safe path: without it, `benchmarks/http.py` would take the place of the `http` of Python.
        path = {"PYTHONPATH": str(folder.resolve()), "PYTHONSAFEPATH": "1"}
        subprocess.run(command, check=True, env=os.environ | path, stdout=subprocess.DEVNULL)
        figures: dict[str, dict[str, float]] = json.loads(found.read_text())["conversations"]
        return figures


def main() -> None:
    parser = options("benchmarks.originals", __doc__ or "", rounds=1)
    parser.add_argument("file", nargs="?", type=Path, default=TRANSCRIPTS, help="transcripts, skipped without the file")
    parser.add_argument("--against", type=Path, metavar="FOLDER", help="a checkout of other code to measure before")
    chosen = parser.parse_args()
    before = {} if chosen.against is None else _measure_against(chosen.against, chosen)
    name = f"bench-{os.getpid()}"
    with chosen_server(name) as server:
        found = run(measure(server, name, chosen.file if chosen.file.exists() else None, chosen.quick))
        heads = ("conversation", "messages", "raw bytes", "all", *_PARTS, "all to texts")
        rows = [
            [f"{name}{when}", f"{each['count']:.0f}", f"{each['raw_bytes']:.0f}"]
            + [f"x {each[key]:.3f}" for key in ("all", *_PARTS, "to_texts")]
            for name in found
            for when, each in ((", before", before.get(name)), ("", found[name]))
            if each is not None
        ]
        report = table(heads, rows) + "\n"
        for name, most, has_one in (("without", MOST, False), ("with", MOST_WITH_DICTIONARY, True)):
            for what, figure in (("the raw text", "all"), ("the bare texts", "to_texts")):
                worst = max(each[figure] for each in found.values() if each["has_dictionary"] == has_one)
                label = f"bytes in Redis to {what}, {name} a dictionary"
                report += "\n" + verdict(label, worst, most, at_most=True)
        show_results(surroundings(server, "benchmarks.originals"), {"conversations": found}, report, chosen.json)


if __name__ == "__main__":
    main()
