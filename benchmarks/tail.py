"""Measure the server's CPU time of `tail(n)`, against one bare LRANGE of n elements, and of a rewrite.

Commands are packed in advance and sent over plain sockets, with one call in flight on each of 64 connections. All
sessions have 200 messages of 160 bytes, and so have the bare lists. A rewrite replaces the last message by another: it
reads the whole window and runs its script. The bare side replaces the last element by LTRIM and RPUSH. A ratio compares
two sides in the same round.
"""

from __future__ import annotations

import os
import random
import statistics
from collections.abc import Callable
from typing import Any

from benchmarks.append_cost import TEXT, Sockets, pack
from benchmarks.measuring import Server, chosen_server, surroundings, table
from benchmarks.running import load, options, pin_cores, run, show_results, verdict
from redismem import Memory, Settings
from redismem.messages.encoding import encode_message
from redismem.protocol.session import edits, ending
from redismem.protocol.session.calls import SessionCalls
from redismem.protocol.session.edits import window

WINDOW_COUNT = 200
COUNTS = (1, 20, 100)
SESSIONS_COUNT, QUICK_SESSIONS_COUNT = 256, 64
MESSAGE = {"role": "user", "content": TEXT}
MOST_RATIO, MORE_US = 1.5, 6.0
"""A tail may cost this many times a bare LRANGE, and so much more."""

Make = Callable[[], list[bytes]]


class Sides:
    """Sessions and bare lists of equal contents, and the packed calls on them."""

    def __init__(self, memory: Memory, server: Server, name: str, count: int) -> None:
        self._memory, self._server = memory, server
        keys, settings = memory.store.keys, Settings(url=server.url)
        self._calls = [SessionCalls(keys.session(f"session-{number}"), settings) for number in range(count)]
        self._lists = [f"{name}:bare:{number}".encode() for number in range(count)]
        # As long as a message that redismem stores, with its nine bytes of stamp.
        self._element = encode_message(MESSAGE)[0] + bytes(9)

    async def prepare(self) -> None:
        for calls, key in zip(self._calls, self._lists, strict=True):
            await self._memory.session(calls.keys.session_id).append(*[MESSAGE] * WINDOW_COUNT)
            self._server.client.rpush(key, *[self._element] * WINDOW_COUNT)
            await self._memory.session(calls.keys.session_id).rewrite(WINDOW_COUNT, [MESSAGE])  # the script is known

    async def views(self) -> list[edits.View]:
        views = [await self._memory.store.run(window(calls)) for calls in self._calls]
        return [view for view in views if view is not None]

    def tail(self, n: int) -> list[bytes]:
        return [pack(("MULTI",), *calls.read(n).commands, ("EXEC",)) for calls in self._calls]

    def bare_tail(self, n: int) -> list[bytes]:
        return [pack(("LRANGE", key, -n, -1)) for key in self._lists]

    def windows(self) -> list[bytes]:
        return [pack(("MULTI",), *edits.window(calls).commands, ("EXEC",)) for calls in self._calls]

    def rewrites(self, views: list[edits.View]) -> list[bytes]:
        packed = []
        for calls, view in zip(self._calls, views, strict=True):
            new = ending.encode(calls, [MESSAGE], None)
            call = edits.edit(calls, view, ending.rewrite(view, view.context.last_seq, new), bool)
            packed.append(pack(*call.commands))
        return packed

    def bare_rewrites(self) -> list[bytes]:
        return [pack(("LTRIM", key, 0, -2), ("RPUSH", key, self._element)) for key in self._lists]


def _cost(server: Server, sockets: Sockets, calls: list[bytes], replies_count: int) -> float:
    """Return the µs of the server's CPU for one call."""
    earlier, before = server.cpu_s(), server.cpu_s()
    sockets.one_write_a_call(calls, replies_count)
    used_s = server.cpu_s() - before - (before - earlier)  # INFO costs CPU, too
    return used_s / len(calls) * 1e6


async def measure(server: Server, name: str, rounds: int, count: int) -> dict[str, Any]:
    """Return the µs of each side in each round."""
    sockets = Sockets(server.url)
    async with Memory.connect(server.url, namespace=name) as memory:
        sides = Sides(memory, server, name, count)
        await sides.prepare()
        rows: dict[str, list[float]] = {}
        for number in range(rounds + 1):
            views = await sides.views()
            made = [(f"bare LRANGE {n}", sides.bare_tail(n), 1) for n in COUNTS]
            made += [(f"tail {n}", sides.tail(n), 2 + 2) for n in COUNTS]
            made += [("bare LTRIM + RPUSH", sides.bare_rewrites(), 2), ("read of the window", sides.windows(), 2 + 2)]
            made += [("script of the rewrite", sides.rewrites(views), 1)]
            for label, calls, replies_count in random.sample(made, len(made)):
                used_us = _cost(server, sockets, calls, replies_count)
                rows.setdefault(label, []).extend([used_us] if number else [])  # the first round warms up
    sockets.close()
    return {"sessions": count, "rows": rows}


def report(result: dict[str, Any]) -> str:
    medians = {label: statistics.median(costs) for label, costs in result["rows"].items()}
    rows = [[label, f"{used_us:.1f}"] for label, used_us in sorted(medians.items())]
    lines = [table(("one call", "server CPU µs"), rows), ""]
    for n in COUNTS:
        ours_us, bare_us = medians[f"tail {n}"], medians[f"bare LRANGE {n}"]
        allowed_us = MOST_RATIO * bare_us + MORE_US
        label = f"tail {n} / bare LRANGE {n}: x {ours_us / bare_us:.2f}; server CPU"
        lines.append(verdict(label, ours_us, allowed_us, at_most=True, unit="µs"))
    whole_us = medians["read of the window"] + medians["script of the rewrite"]
    lines.append(f"rewrite / bare LTRIM + RPUSH: x {whole_us / medians['bare LTRIM + RPUSH']:.2f}")
    return "\n".join(lines)


def main() -> None:
    asked = options("benchmarks.tail", __doc__ or "", rounds=15).parse_args()
    name = f"bench-{os.getpid()}"
    with chosen_server(name) as server:
        around = surroundings(server, "benchmarks.tail") | {"cores": pin_cores(server), "load": load()}
        rounds, count = (2, QUICK_SESSIONS_COUNT) if asked.quick else (asked.rounds, SESSIONS_COUNT)
        result = run(measure(server, name, rounds, count))
    show_results(around, result, report(result), asked.json)


if __name__ == "__main__":
    main()
