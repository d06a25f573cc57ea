"""`redismem status`: the queues with their depths and waiting times, once or again and again. Read-only."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

from redismem.cli.depths import wait_of
from redismem.cli.options import DEFAULT, EveryS, On, flag, within
from redismem.cli.place import open_read_only
from redismem.cli.stopping import stop_signals, wait_for
from redismem.cli.terminal import Stop, console, grid, print_json, print_rows
from redismem.context.info import QUEUES, Depth
from redismem.inspection.checkup import Checkup
from redismem.inspection.figures import duration, plural
from redismem.store.depths import Depths, depths_of
from redismem.store.store import Store

if TYPE_CHECKING:
    from rich.console import Group
    from rich.live import Live
    from rich.table import Table

Shards = Annotated[bool, flag("Also show each shard.", "--shards")]
Watch = Annotated[bool, flag("Poll until Ctrl-C: refreshes in place on a terminal, else prints one line per poll.")]
Count = Annotated[int | None, within(1, None, "With --watch: stop after this many polls.")]
_STYLES = {"dead": "bold red", "overdue": "yellow", "fail": "bold red", "warn": "bold yellow"}


async def status(
    *, watch: Watch = False, count: Count = None, every_s: EveryS = None, by_shard: Shards = False, on: On = DEFAULT
) -> int:
    """Show the queues: what waits, and for how long; `--watch`.

    overdue: waiting for a summary. leased: claimed by a worker until the lease expires. dead: no summary after
    `REDISMEM_MAX_ATTEMPTS` attempts; see `redismem list dead`. evictions: chosen for eviction. sessions: the
    sessions that count for the limit, without exempt ones, and the limit. records: what frameworks keep, see
    `redismem list records`. doctor: the findings of `redismem doctor` that are not ok, without its slow questions.

    With `--watch`, rates are changes per second since the last poll. `given` counts new sessions plus claims by
    workers, over all pods and workers. `--json` then prints one document per poll, each on one line.
    """
    if not watch and (count is not None or every_s is not None):
        raise Stop("--count and --every-s need --watch", 2)
    if watch and by_shard:
        raise Stop("--shards shows the shards once: leave out --watch", 2)
    async with open_read_only(on.url, on.namespace) as (memory, place):
        checkup = Checkup(memory.store, embedded=place.embedded)
        where = f"namespace {on.namespace} on {place.name}"
        if watch:
            return await _watch(memory.store, checkup, where, count, every_s or 1, on.as_json)
        depths, wrong = await depths_of(memory.store), (await checkup.quick()).wrong()
    if on.as_json:
        document = depths.document(by_shard=by_shard) | {"doctor": wrong}
        print_json({"store": place.name, "namespace": on.namespace, **document})
        return 0
    out = console()
    out.print(where, markup=False)
    out.print(_table(depths, wrong))
    if by_shard:
        _print_shards(depths)
    return 0


def _table(depths: Depths, wrong: Mapping[str, str]) -> Table:
    """Return a table with the name, depth and first waiting time of each queue.

    `wrong` has the verdicts of the doctor's findings that are not ok, worst first.
    """
    from rich.text import Text

    rows = list[tuple[str, Text, str]]()
    for queue in QUEUES:
        depth = depths.total(queue)
        style = _STYLES.get(queue, "") if depth.count else ""
        rows.append((f"  {queue}", Text(f"{depth.count:,}", style), wait_of(queue, depth, depths.now_ms)))
    is_over = depths.over > 0
    limit = f"of {depths.max_sessions:,}" + (f": {depths.over:,} over the limit" if is_over else "")
    rows.append(("  sessions", Text(f"{depths.sessions_count:,}", "bold yellow" if is_over else ""), limit))
    if depths.records_count:
        rows.append(("  records", Text(f"{depths.records_count:,}"), "of frameworks: redismem list records"))
    worst = next(iter(wrong.values()), "ok")
    rows.append(("  doctor", Text(worst, _STYLES.get(worst, "")), ", ".join(wrong)))
    if depths.degraded:
        rows.append(("  nodes", Text("away", "bold red"), "the sessions of a node that does not answer are missing"))
    return grid(rows, numbers=True)


def _print_shards(depths: Depths) -> None:
    rows = []
    for number, shard in enumerate(depths.shards):
        if any(each.count for each in shard.values()):
            row = [f"{number:02d}", f"{shard['active'].count:,}"]
            for queue in ("overdue", "leased"):
                row += [_count_cell(shard[queue]), _age(shard[queue], depths.now_ms)]
            rows.append([*row, _count_cell(shard["dead"]), _count_cell(shard["evictions"])])
    print_rows(("shard", "sessions", "overdue", "oldest", "leased", "expires", "dead", "evictions"), rows)
    print(f"{plural(len(depths.shards) - len(rows), 'shard')} of {len(depths.shards)} empty")


def _count_cell(depth: Depth) -> str:
    return f"{depth.count:,}" if depth.count else "·"


def _age(depth: Depth, now_ms: int) -> str:
    if depth.first_ms is None:
        return ""
    return f"{'in ' if depth.first_ms > now_ms else ''}{duration(depth.first_ms - now_ms)}"


async def _watch(store: Store, checkup: Checkup, where: str, count: int | None, every_s: float, as_json: bool) -> int:
    with stop_signals() as stopping:
        live = None if as_json or not sys.stdout.isatty() else _start_live()
        polls_count, before = 0, None
        start_s = time.monotonic()
        try:
            while True:
                depths, wrong = await depths_of(store), (await checkup.quick()).wrong()
                _show(live, where, as_json, depths, rates(depths, before), wrong)
                polls_count, before = polls_count + 1, depths
                # Measured from the start, so that slow polls do not add up.
                wait_s = max(0.0, start_s + polls_count * every_s - time.monotonic())
                if polls_count == count or await wait_for(stopping, wait_s):
                    return 0
        finally:
            if live is not None:
                live.stop()


def rates(now: Depths, before: Depths | None) -> dict[str, float]:
    """Return the changes per second of queue depths, sessions and fences; empty at the first poll."""
    if before is None or now.now_ms <= before.now_ms:
        return {}
    seconds = (now.now_ms - before.now_ms) / 1000
    changes = {queue: now.total(queue).count - before.total(queue).count for queue in QUEUES}
    changes |= {"sessions": now.sessions_count - before.sessions_count, "given": now.fences - before.fences}
    return {name: change / seconds for name, change in changes.items()}


def _start_live() -> Live:
    from rich.live import Live

    live = Live(console=console(), auto_refresh=False)
    live.start()
    return live


def _show(
    live: Live | None, where: str, as_json: bool, depths: Depths, rates: dict[str, float], wrong: Mapping[str, str]
) -> None:
    line = _line(depths, rates, wrong)
    if live is not None:
        live.update(_render(where, depths, rates, wrong), refresh=True)
    elif as_json:
        print(json.dumps(line), flush=True)
    else:
        print(" ".join(f"{name}={value}" for name, value in line.items()), flush=True)


def _line(depths: Depths, rates: dict[str, float], wrong: Mapping[str, str]) -> dict[str, Any]:
    first_ms = depths.total("overdue").first_ms
    waits_s = 0.0 if first_ms is None else max(0, depths.now_ms - first_ms) / 1000
    return {
        "time": _time(depths, "milliseconds"),
        "sessions": depths.sessions_count,
        "over": max(0, depths.over),
        **{queue: depths.total(queue).count for queue in QUEUES},
        "oldest_wait_s": round(waits_s, 3),
        "doctor": ",".join(f"{name}:{verdict}" for name, verdict in wrong.items()) or "ok",
        **{f"{name}_per_s": round(rate, 2) for name, rate in rates.items() if name in ("overdue", "given")},
    }


def _time(depths: Depths, timespec: str) -> str:
    return datetime.fromtimestamp(depths.now_ms / 1000, UTC).isoformat(timespec=timespec).replace("+00:00", "Z")


def _render(where: str, depths: Depths, rates: dict[str, float], wrong: Mapping[str, str]) -> Group:
    from rich.console import Group
    from rich.text import Text

    changing = " · ".join(f"{name} {rate:+,.1f}" for name, rate in rates.items() if round(rate, 1) and name != "given")
    given = f"{rates.get('given', 0):,.1f} new sessions and claims per second"
    return Group(
        Text.assemble((where, "bold"), f"  {_time(depths, 'seconds')}"),
        _table(depths, wrong),
        Text(f"  per second: {changing or 'no change'}", "dim"),
        Text(f"  {given}   (Ctrl-C ends)", "dim"),
    )
