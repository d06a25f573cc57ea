"""`redismem bench`: measure turns on the user's Redis, compare them with redis-py by hand, and size a deployment."""

from __future__ import annotations

import contextlib
import os
import platform
import secrets
import statistics
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from redismem.cli.bench.measuring import Bench, Measured, Side
from redismem.cli.bench.offering import Open
from redismem.cli.bench.sizing import CORE_SHARE, MASTER_GB, Costs, Load, size
from redismem.cli.bench.talks import Talk, made_up, most_bytes, talks_of, weigh
from redismem.cli.options import AsJson, Url, within
from redismem.cli.place import ChosenStore, address_of, open_unchecked, warn_if_embedded
from redismem.cli.room import check_room
from redismem.cli.terminal import Stop, check_file, console, print_json, print_rows
from redismem.cli.transcripts import sample
from redismem.events import Event, Op
from redismem.settings.settings import Settings
from redismem.transport.connect import EMBEDDED
from redismem.transport.redis_py.by_hand import ByHand

File = Annotated[Path, Parameter(help='Your conversations, one per line: `{"messages": [{…}, …]}`.')]
Seconds = Annotated[float, within(0.1, 600, "Seconds of each of the eight measurements.")]
Concurrency = Annotated[int, within(1, 4_096, "Turns at a time, as fast as they can.")]
MessageBytes = Annotated[int, within(1, 1_000_000, "Size of each made-up message.")]
TurnsPerS = Annotated[float, within(0.001, 10_000_000, "The load to size for: turns per second at the peak.")]
Sessions = Annotated[int, within(1, 1_000_000_000, "The load to size for: live sessions.")]
SessionMessages = Annotated[int, within(1, 1_000_000, "The load to size for: messages that a session has had.")]
# After a kill, what was written expires.
_KEPT_S = 600
_SAMPLE_COUNT = 200
_PERCENTILES = (0.5, 0.99, 0.999)


async def bench(
    file: File | None = None,
    /,
    *,
    seconds: Seconds = 3,
    concurrency: Concurrency = 64,
    message_bytes: MessageBytes = 160,
    turns_per_s: TurnsPerS = 500,
    sessions: Sessions = 100_000,
    session_messages: SessionMessages = 30,
    url: Url = None,
    as_json: AsJson = False,
) -> int:
    """Measure turns on your Redis, beside redis-py by hand.

    A turn appends a question and reads the window, then appends an answer; a session has eight turns. With FILE, the
    messages are those of up to 200 of your conversations, in sessions of at most 20 messages. One process
    first makes turns as fast as it can, in turn with the same work by hand: two MULTI pipelines of RPUSH, LTRIM,
    EXPIRE, HINCRBY and LRANGE. Then turns become due at random moments, at half of that speed, and at four fifths of
    what the process can do when turns come one by one. Each is timed from the moment at which it was due, so a stall
    shows in all turns that it delays. At last the figures size a deployment.

    Client CPU includes the load generator, and `core` is what this process got of one. If latencies are high and it is
    not, something else used the machine. Redis' CPU is that of the whole server: run it while nothing else uses it.
    The settings are those of the environment. All is written to a namespace of its own and removed at the end, and
    takes at most half of the memory that Redis has left. After a kill, it expires within ten minutes.

    The sizing is for the library in your own processes, 70 % of a core each and 25 GB per master, with the strategy of
    your settings. What a bench does not measure is assumed: a summary takes 5.4 ms of a worker and 86 µs of Redis, and
    a summarised message is kept at 0.44 of its text. Replicas and HTTP come on top.

    Exit code 1: turns failed.
    """
    talks, source = await _talks(file, message_bytes)
    advice = "Lower --concurrency" + ("" if file else " or --message-bytes")
    measured, place, missing = await _measure(url, talks, seconds, concurrency, advice)
    load = Load(turns_per_s, sessions, session_messages)
    figures = _figures(measured, talks) | {"sizing": _sizing(measured, load, talks, Settings())}
    around = {
        "redis": place.name,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "versions": f"redismem {version('redismem')}, Python {platform.python_version()}, redis-py {version('redis')}",
        "turns": f"{source}, {concurrency} turns at a time",
    }
    if as_json:
        print_json(around | figures | {"not_compared": missing})
    else:
        _print(around, figures, missing)
    return 1 if any(each.failures for each in measured.offered) else 0


async def _measure(
    url: str | None, talks: Sequence[Talk], seconds: float, callers: int, advice: str
) -> tuple[Measured, ChosenStore, str | None]:
    """Return the figures, their place, and the reason if nothing was compared with redis-py by hand."""
    namespace = f"bench-{secrets.token_hex(6)}"
    counts: Counter[str] = Counter()

    def count(event: Event) -> None:
        counts[event.op] += event.sent_count

    def sent() -> int:
        return counts[Op.APPEND_AND_READ] + counts[Op.APPEND]

    by_hand, missing = _by_hand(address_of(url, Settings()), namespace, callers)
    async with open_unchecked(url, namespace, count, idle_timeout_s=_KEPT_S, strategy="none") as (memory, place):
        warn_if_embedded(place)
        await memory.store.agreement.look()  # connects, without recording the namespace
        room_bytes = await check_room(memory.store, place.name, 2 * callers * most_bytes(talks), advice)
        async with memory:
            run = Bench(memory, sent, by_hand, callers, talks, room_bytes, _KEPT_S)
            try:
                with _steps() as advance:
                    return await run.run(seconds, advance), place, missing
            except OSError as error:
                raise Stop(f"redis-py by hand: {error}", 3) from None


async def _talks(file: Path | None, message_bytes: int) -> tuple[list[Talk], str]:
    """Return what the sessions say, and its description."""
    if file is None:
        talk = made_up(message_bytes)
        return [talk], f"2 messages of {message_bytes:,} bytes, {weigh(talk)[0]} messages per session"
    check_file(file)
    found, count = await sample(file, _SAMPLE_COUNT, talks_of)
    talks = [talk for each in found for talk in each]
    messages, text_bytes = (sum(each) for each in zip(*map(weigh, talks), strict=True))
    means = f"{messages / sum(map(len, talks)):.1f} messages of {text_bytes / messages:,.0f} bytes on average"
    return talks, f"{len(found):,} conversations of {count:,}: {means}"


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
        "core": round(offered.core_share(), 2),
        "failures": dict(offered.failures),
    }


def _figures(measured: Measured, talks: Sequence[Talk]) -> dict[str, Any]:
    """Return the figures as JSON values; `None` stands for a figure that could not be measured."""
    parts = statistics.fmean(bool(request) + bool(reply) for talk in talks for request, reply in talk)
    pairs = zip(measured.ours.turns_per_s, measured.by_hand.turns_per_s, strict=False)
    ratios = [ours / by_hand for ours, by_hand in pairs]
    return {
        "redismem": _side(measured.ours) | {"round_trips": round(measured.trips_per_turn, 3)},
        "by_hand": _side(measured.by_hand) | {"round_trips": round(parts, 3)} if ratios else None,
        "ratio": round(statistics.median(ratios), 2) if ratios else None,
        "open_loop": [_open(each) for each in measured.offered],
        "session_bytes": None if measured.session_bytes is None else round(measured.session_bytes),
    }


def _sizing(measured: Measured, load: Load, talks: Sequence[Talk], settings: Settings) -> dict[str, Any]:
    weights = [weigh(talk) for talk in talks]
    messages, text_bytes = (sum(each) for each in zip(*weights, strict=True))
    stored = measured.session_bytes
    costs = Costs(
        client_us=statistics.median(measured.ours.client_us),
        server_us=_median(measured.ours.server_us),
        turn_messages=messages / sum(map(len, talks)),
        message_bytes=None if stored is None else stored * len(talks) / messages,
        raw_bytes=text_bytes / messages,
    )
    sized = size(load, costs, settings)
    return {
        **asdict(load),
        "strategy": settings.strategy,
        "processes": sized.processes,
        "workers": sized.workers,
        "redis_cores": None if sized.redis_cores is None else round(sized.redis_cores, 3),
        "session_bytes": None if sized.session_bytes is None else round(sized.session_bytes),
        "data_gb": None if sized.data_gb is None else round(sized.data_gb, 2),
        "masters": sized.masters,
    }


def _print(around: dict[str, str], figures: dict[str, Any], missing: str | None) -> None:
    out = console()
    for name, text in around.items():
        out.print(f"{name:9} {text}", markup=False, soft_wrap=True)
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
    print_rows(("turns/s", *names, "core", "failed"), [_open_cells(row, names) for row in figures["open_loop"]])
    _print_sizing(figures["sizing"])


def _print_sizing(sizing: dict[str, Any]) -> None:
    load = f"{sizing['turns_per_s']:,g} turns per second in {sizing['sessions']:,} sessions"
    console().print(f"\nFor {load} of {sizing['session_messages']:,} messages", style="bold")
    row = [
        f"{sizing['processes']:,}",
        f"{sizing['workers']:,}",
        _cell(sizing["redis_cores"], ".2f"),
        _cell(sizing["session_bytes"], ",d"),
        _cell(sizing["data_gb"], ",.2f", " GB"),
        _cell(sizing["masters"], ",d"),
    ]
    print_rows(("processes", "workers", "Redis' cores", "bytes per session", "memory", "masters"), [row])
    console().print(
        f"strategy {sizing['strategy']}; {CORE_SHARE:.0%} of a core per process and master, {MASTER_GB} GB per master",
        soft_wrap=True,
    )


def _open_cells(row: dict[str, Any], names: list[str]) -> list[str]:
    failures = ", ".join(f"{count:,} {error}" for error, count in row["failures"].items())
    cells = (_cell(row[f"{name}_ms"], ".1f", " ms") for name in names)
    return [_cell(row["offered_per_s"], ",.0f"), *cells, f"{row['core']:.0%}", failures or "0"]


def _cell(value: float | None, form: str, unit: str = "") -> str:
    return "—" if value is None else f"{value:{form}}{unit}"
