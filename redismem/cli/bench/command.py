"""`redismem bench`: measure turns on the user's Redis, compare them with redis-py by hand, and size a deployment."""

from __future__ import annotations

import contextlib
import os
import platform
import secrets
import statistics
import sys
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import version
from typing import Annotated, Any

from redismem.cli.bench.measuring import SESSION_TURNS, Bench, Measured, Side
from redismem.cli.bench.offering import Open
from redismem.cli.bench.sizing import CORE_SHARE, MASTER_GB, Sizing, size
from redismem.cli.options import AsJson, Url, within
from redismem.cli.place import address_of, open_memory, warn_if_embedded
from redismem.cli.terminal import Stop, console, print_json, print_rows
from redismem.events import Event, Op
from redismem.settings.settings import Settings
from redismem.transport.connect import EMBEDDED
from redismem.transport.redis_py.by_hand import ByHand

Seconds = Annotated[float, within(0.1, 600, "Seconds of each of the eight measurements.")]
Concurrency = Annotated[int, within(1, 4_096, "Turns at a time, as fast as they can.")]
MessageBytes = Annotated[int, within(1, 1_000_000, "Size of each message.")]
TurnsPerS = Annotated[float, within(0.001, 10_000_000, "The load to size for: turns per second at the peak.")]
Sessions = Annotated[int, within(1, 1_000_000_000, "The load to size for: live sessions.")]
# After a kill, what was written expires.
_KEPT_S = 600
_PERCENTILES = (0.5, 0.99, 0.999)


async def bench(
    *,
    seconds: Seconds = 3,
    concurrency: Concurrency = 64,
    message_bytes: MessageBytes = 160,
    turns_per_s: TurnsPerS = 500,
    sessions: Sessions = 100_000,
    url: Url = None,
    as_json: AsJson = False,
) -> int:
    """Measure turns on your Redis, beside redis-py by hand.

    A turn appends a question and reads the window, then appends an answer; a session has eight turns. One process
    first makes turns as fast as it can, in turn with the same work by hand: two MULTI pipelines of RPUSH, LTRIM,
    EXPIRE, HINCRBY and LRANGE. Then turns become due at random moments, at half and at four fifths of that speed, and
    each is timed from the moment at which it was due, so a stall shows in all turns that it delays. At last the
    figures size a deployment.

    Client CPU includes the load generator. Redis' CPU is that of the whole server: run it while nothing else uses it.
    The settings are those of the environment. All is written to a namespace of its own and removed at the end.

    The sizing is for the library in your own processes, 70 % of a core each and 25 GB per master. It leaves out
    summaries, originals, replicas and HTTP.

    Exit code 1: turns failed.
    """
    settings = Settings()
    address = address_of(url, settings)
    namespace = f"bench-{secrets.token_hex(6)}"
    counts: Counter[str] = Counter()

    def count(event: Event) -> None:
        counts[event.op] += event.sent_count

    by_hand, missing = _by_hand(address, namespace, concurrency)
    async with open_memory(url, namespace, count, idle_timeout_s=_KEPT_S, strategy="none") as (memory, place):
        warn_if_embedded(place)
        run = Bench(memory, lambda: counts[Op.APPEND_AND_READ] + counts[Op.APPEND], by_hand, concurrency, message_bytes)
        try:
            with _steps() as advance:
                measured = await run.run(seconds, advance)
        except OSError as error:
            raise Stop(f"redis-py by hand: {error}", 3) from None
    figures = _figures(measured) | {"sizing": _sizing(measured, turns_per_s, sessions)}
    around = {
        "redis": place.name,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "versions": f"redismem {version('redismem')}, Python {platform.python_version()}, redis-py {version('redis')}",
        "turns": f"2 messages of {message_bytes:,} bytes, {concurrency} turns at a time, {2 * SESSION_TURNS} messages "
        "per session",
    }
    if as_json:
        print_json(around | figures | {"not_compared": missing})
    else:
        _print(around, figures, missing)
    return 1 if any(each.failures for each in measured.offered) else 0


def _by_hand(address: str, namespace: str, callers: int) -> tuple[ByHand | None, str | None]:
    """Return the other side, or the reason why there is none."""
    if address.lower() == EMBEDDED:
        return None, "the embedded store has no server"
    if address.partition("://")[0] not in ("redis", "rediss", "unix", "valkey", "valkeys"):
        return None, "the comparison is for a single Redis"
    try:
        return ByHand(address, namespace, callers, _KEPT_S), None
    except (ValueError, TypeError) as error:
        return None, f"redis-py does not accept the URL: {type(error).__name__}"


@contextlib.contextmanager
def _steps() -> Iterator[Any]:
    """Show each step on one line of stderr, and erase it at the end. In a pipe, print a line per step."""
    is_terminal = sys.stderr.isatty()

    def advance(step: str) -> None:
        print(f"\r\x1b[K{step}" if is_terminal else step, end="" if is_terminal else "\n", file=sys.stderr, flush=True)

    try:
        yield advance
    finally:
        if is_terminal:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _median(values: list[float]) -> float | None:
    return round(statistics.median(values), 1) if values else None


def _side(side: Side) -> dict[str, float | None]:
    return {
        "turns_per_s": _median(side.turns_per_s),
        "client_us": _median(side.client_us),
        "server_us": _median(side.server_us),
    }


def _open(offered: Open) -> dict[str, Any]:
    ordered = sorted(offered.took_ms)
    cuts = [round(ordered[int(share * (len(ordered) - 1))], 2) if ordered else None for share in _PERCENTILES]
    names = [f"p{share * 100:g}_ms" for share in _PERCENTILES]
    return {
        "offered_per_s": round(offered.offered_per_s, 1),
        **dict(zip(names, cuts, strict=True)),
        "failures": dict(offered.failures),
    }


def _figures(measured: Measured) -> dict[str, Any]:
    """Return the figures as JSON values; `None` stands for a figure that could not be measured."""
    pairs = zip(measured.ours.turns_per_s, measured.by_hand.turns_per_s, strict=False)
    ratios = [ours / by_hand for ours, by_hand in pairs]
    return {
        "redismem": _side(measured.ours) | {"round_trips": round(measured.trips_per_turn, 3)},
        "by_hand": _side(measured.by_hand) | {"round_trips": 2} if ratios else None,
        "ratio": round(statistics.median(ratios), 2) if ratios else None,
        "open_loop": [_open(each) for each in measured.offered],
        "session_bytes": None if measured.session_bytes is None else round(measured.session_bytes),
    }


def _sizing(measured: Measured, turns_per_s: float, sessions: int) -> dict[str, Any]:
    sized: Sizing = size(
        turns_per_s,
        sessions,
        statistics.median(measured.ours.client_us),
        _median(measured.ours.server_us),
        measured.session_bytes,
    )
    return {
        "turns_per_s": sized.turns_per_s,
        "sessions": sized.sessions,
        "processes": sized.processes,
        "redis_cores": None if sized.redis_cores is None else round(sized.redis_cores, 3),
        "data_gb": None if sized.data_gb is None else round(sized.data_gb, 2),
        "masters": sized.masters,
    }


def _print(around: dict[str, str], figures: dict[str, Any], missing: str | None) -> None:
    out = console()
    for name, text in around.items():
        out.print(f"{name:9} {text}", markup=False)
    out.print("\nOne process, as fast as it can", style="bold")
    sides = [("redismem", figures["redismem"])]
    if figures["by_hand"]:
        sides.append(("redis-py by hand", figures["by_hand"]))
    forms = [("turns_per_s", ",.0f", ""), ("client_us", ".0f", " µs"), ("server_us", ".0f", " µs")]
    forms.append(("round_trips", ".2f", ""))
    rows = [[name, *(_cell(side[key], form, unit) for key, form, unit in forms)] for name, side in sides]
    print_rows(("", "turns/s", "client CPU per turn", "Redis' CPU", "round trips"), rows)
    if figures["ratio"] is not None:
        out.print(f"× {figures['ratio']:.2f} of the turns per second by hand", markup=False)
    if missing is not None:
        out.print(f"not compared with redis-py by hand: {missing}", markup=False)
    out.print("\nTurns that are due at random moments, each timed from then", style="bold")
    names = [f"p{share * 100:g}" for share in _PERCENTILES]
    print_rows(("turns/s", *names, "failed"), [_open_cells(row, names) for row in figures["open_loop"]])
    sizing = figures["sizing"]
    out.print(f"\nFor {sizing['turns_per_s']:,g} turns per second in {sizing['sessions']:,} sessions", style="bold")
    cells = (
        _cell(sizing["redis_cores"], ".2f"),
        _cell(sizing["data_gb"], ".2f", " GB"),
        _cell(sizing["masters"], ",d"),
    )
    row = [f"{sizing['processes']:,}", *cells, _cell(figures["session_bytes"], ",d")]
    print_rows(("processes", "Redis' cores", "memory", "masters", "bytes per session"), [row])
    out.print(f"{CORE_SHARE:.0%} of a core per process and master, {MASTER_GB} GB per master")


def _open_cells(row: dict[str, Any], names: list[str]) -> list[str]:
    failures = ", ".join(f"{count:,} {error}" for error, count in row["failures"].items())
    cells = (_cell(row[f"{name}_ms"], ".1f", " ms") for name in names)
    return [_cell(row["offered_per_s"], ",.0f"), *cells, failures or "0"]


def _cell(value: float | None, form: str, unit: str = "") -> str:
    return "—" if value is None else f"{value:{form}}{unit}"
