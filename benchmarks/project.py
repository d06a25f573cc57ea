"""Measure queries of a project, at full size and at a hundredth of it, against one JSON file per store.

Full size is 10,000 decisions, 50,000 tasks and 20,000 entities. Every narrow query finds the same 10 items at both
sizes. The files are read and written whole, as project assistants do. Redis is private, without persistence.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from benchmarks.measuring import Server, own_server, surroundings, table
from benchmarks.project_items import BEGIN_MS, FILLED, FULL, HALF, IDS, fill, made
from redismem import Memory, Settings
from redismem.project.items.fields import as_datetime
from redismem.project.project import Project
from redismem.protocol import scripts

Query = Callable[[Project], Awaitable[Any]]
NARROW: dict[str, Query] = {
    "get by id": lambda apollo: apollo.tasks.get(IDS["tasks"]),
    "decisions, one tag": lambda apollo: apollo.decisions.list(tags=["rare"]),
    "tasks, one assignee": lambda apollo: apollo.tasks.list(assignee="Ada"),
    "tasks, a word": lambda apollo: apollo.tasks.list(text="needle"),
    "tasks, a beginning of a word": lambda apollo: apollo.tasks.list(text="needl"),
    "tasks, due in an hour": lambda apollo: apollo.tasks.list(due_before=as_datetime(BEGIN_MS + 11)),
    "tasks, 4 fields, one of them rare": lambda apollo: apollo.tasks.list(
        status=["planned", "backlog", "in_progress", "blocked"], assignee="Ada", tags=["common"], text="needle"
    ),
    "entities, a type and a rare tag": lambda apollo: apollo.entities.list(type="person", tags=["rare"]),
    "the first 10 open tasks": lambda apollo: apollo.tasks.list(limit=10),
    "10 most mentioned": lambda apollo: apollo.entities.most_mentioned(limit=10),
}
WIDE: dict[str, Query] = {
    "two words that half have, a page of 100": lambda apollo: apollo.tasks.list(text="even three", limit=100),
    "two words that exclude each other": lambda apollo: apollo.tasks.list(text="even odd", limit=100),
    "all as of then, 100 of them; 10 changed since": lambda apollo: apollo.decisions.list(at=FILLED, limit=100),
    "valid then, 100 of them; 10 changed since": lambda apollo: apollo.decisions.valid_at(FILLED, limit=100),
    "all as of when half was there, 100 of them": lambda apollo: apollo.decisions.list(at=HALF["at"], limit=100),
    "the same, and what a tenth of all was changed since": lambda apollo: apollo.entities.list(at=FILLED, limit=100),
}
CHANGED = "one task changed"


async def timed(ask: Query, apollo: Project, rounds: int) -> tuple[float, int]:
    """Return the median milliseconds of a query, and the number of items it finds."""
    took = []
    found: Any = None
    for _ in range(rounds):
        begun = time.perf_counter()
        found = await ask(apollo)
        took.append((time.perf_counter() - begun) * 1000)
    return median(took), len(found) if hasattr(found, "__len__") else 1


class Files:
    """The obvious alternative: one JSON file per store, read whole for each query and written whole for each change."""

    def __init__(self, folder: Path, divisor: int) -> None:
        self._folder = folder
        for store, count in FULL.items():
            entries = [{"id": str(number)} | item for number, item in enumerate(made(store, count // divisor))]
            (folder / f"{store}.json").write_text(json.dumps(entries, indent=2))

    def read(self) -> list[dict[str, Any]]:
        entries = json.loads((self._folder / "tasks.json").read_text())
        return [entry for entry in entries if entry["assignee"] == "Ada"]

    def change(self) -> None:
        path = self._folder / "tasks.json"
        entries = json.loads(path.read_text())
        entries[0]["title"] = "changed"
        new = path.with_suffix(".new")
        new.write_text(json.dumps(entries, indent=2))
        new.replace(path)

    def timed(self, act: Callable[[], Any], rounds: int) -> float:
        took = []
        for _ in range(rounds):
            begun = time.perf_counter()
            act()
            took.append((time.perf_counter() - begun) * 1000)
        return median(took)


async def change_one(apollo: Project) -> Any:
    return await apollo.tasks.update(IDS["tasks"], title="changed")


class Import(NamedTuple):
    """The figures of an import of all decisions into an empty project."""

    item_count: int
    seconds: float
    longest_wait_ms: float
    """The longest wait of a constant reader for a context."""
    script_ms: tuple[float, float]
    """The ms of the scripts of its pieces: the median, and the longest with all interruptions."""


async def imported(server: Server, apollo: Project, other: Project, reader: Project) -> Import:
    files = {"decisions.json": (await apollo.export_files())["decisions.json"]}
    waited_ms: list[float] = []
    is_over = asyncio.Event()

    async def read() -> None:
        # The query in flight at the end of the import is waited for, too.
        while not is_over.is_set():
            begun = time.perf_counter()
            await reader.context()
            waited_ms.append((time.perf_counter() - begun) * 1000)

    server.client.slowlog_reset()
    reading = asyncio.create_task(read())
    begun = time.perf_counter()
    did = await other.import_files(files)
    seconds = time.perf_counter() - begun
    is_over.set()
    await reading
    piece = b"EVALSHA " + scripts.load("piece").sha
    log = server.client.slowlog_get(100_000)
    took_ms = [entry["duration"] / 1000 for entry in log if entry["command"].startswith(piece)]
    return Import(did.added, seconds, max(waited_ms), (median(took_ms), max(took_ms)))


class Side(NamedTuple):
    """The figures at one size."""

    took_ms: dict[str, tuple[float, int]]
    files_ms: tuple[float, float]
    item_bytes: float
    slowest_ms: dict[str, float]
    """The 95th percentile of each query's scripts, in ms, since a busy machine interrupts some of them."""
    imported: Import


async def measure(server: Server, divisor: int, rounds: int) -> Side:
    before = server.used_bytes()
    settings = Settings(deadline_s=60, reply_timeout_s=30)
    server.client.slowlog_reset()
    async with Memory.connect(server.url, namespace=f"bench-{divisor}", settings=settings) as memory:
        apollo = memory.project("apollo")
        total = await fill(apollo, divisor)
        server.client.slowlog_reset()
        asked: dict[str, Query] = {**NARROW, "context with a term": context, **WIDE, CHANGED: change_one}
        took = {what: await timed(ask, apollo, rounds) for what, ask in asked.items()}
        item_bytes = (server.used_bytes() - before) / total
        server.client.config_set("slowlog-log-slower-than", 0)
        server.client.config_set("slowlog-max-len", 100_000)
        slowest_ms = {}
        for what, ask in asked.items():
            server.client.slowlog_reset()
            for _ in range(5):
                await ask(apollo)
            slowest_ms[what] = quantile_ms(server)
        async with Memory.connect(server.url, namespace=f"bench-{divisor}", settings=settings) as other:
            did = await imported(server, apollo, memory.project("other"), other.project("other"))
    with tempfile.TemporaryDirectory() as folder:
        files = Files(Path(folder), divisor)
        files_ms = files.timed(files.read, max(3, rounds // 10)), files.timed(files.change, max(3, rounds // 10))
    return Side(took, files_ms, item_bytes, slowest_ms, did)


async def context(apollo: Project) -> Any:
    return await apollo.context(["needle", "person", "entity"])


def quantile_ms(server: Server) -> float:
    """Return the 95th percentile of the scripts since the log was emptied, by the server's own measure."""
    log = server.client.slowlog_get(100_000)
    took_ms = sorted(entry["duration"] / 1000 for entry in log if entry["command"].startswith(b"EVALSHA"))
    return took_ms[len(took_ms) * 95 // 100] if took_ms else 0.0


def report(small: Side, large: Side) -> None:
    rows = []
    for what, (large_ms, found) in large.took_ms.items():
        small_ms, small_found = small.took_ms[what]
        rows.append([what, found, small_found, f"{small_ms:.2f}", f"{large_ms:.2f}", f"x {large_ms / small_ms:.2f}"])
    print(table(["asked", "found", "of a hundredth", "ms, a hundredth", "ms, full size", "growth"], rows))
    print()
    rows = []
    for what, at, name in (("tasks of one person", 0, "tasks, one assignee"), (CHANGED, 1, CHANGED)):
        for size, side in (("a hundredth", small), ("full size", large)):
            mine = side.took_ms[name][0]
            rows.append([what, size, f"{mine:.2f}", f"{side.files_ms[at]:.2f}", f"x {side.files_ms[at] / mine:.1f}"])
    print(table(["", "size", "redismem ms", "JSON file ms", "redismem is faster by"], rows))
    print()
    print(f"bytes per item: {small.item_bytes:,.0f} at a hundredth, {large.item_bytes:,.0f} at full size")
    for size, side in (("a hundredth", small), ("full size", large)):
        what = max(side.slowest_ms, key=lambda each: side.slowest_ms[each])
        did = side.imported
        print(f"{size}: of 100 scripts 95 take at most {side.slowest_ms[what]:.1f} ms ({what})")
        print(
            f"{size}: an import of {did.item_count:,} decisions takes {did.seconds:.1f} s; its pieces take "
            f"{did.script_ms[0]:.1f} ms (the median), {did.script_ms[1]:.1f} ms (the longest); "
            f"whoever reads meanwhile waits {did.longest_wait_ms:.0f} ms at most"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40, help="times that each question is asked")
    parser.add_argument("--quick", action="store_true", help="a thirtieth and a hundredth instead, few rounds")
    options = parser.parse_args()
    rounds = 5 if options.quick else options.rounds
    with own_server() as server:
        for name, value in surroundings(server, "benchmarks.project").items():
            print(f"{name:<9} {value}")
        print()
        small = asyncio.run(measure(server, 100, rounds))
        large = asyncio.run(measure(server, 30 if options.quick else 1, rounds))
        report(small, large)


if __name__ == "__main__":
    main()
