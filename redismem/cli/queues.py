"""`redismem queues`: show the queues with their depths and waiting times. Read-only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

from redismem.cli.depths import wait_of
from redismem.cli.options import DEFAULT, On, flag
from redismem.cli.place import open_read_only
from redismem.cli.terminal import console, print_json, print_rows
from redismem.context.info import QUEUES, Depth
from redismem.inspection.checkup import Checkup
from redismem.inspection.figures import duration, plural
from redismem.store.depths import Depths, depths_of

if TYPE_CHECKING:
    from rich.table import Table

Shards = Annotated[bool, flag("Also show each shard.", "--shards")]
STYLES = {"dead": "bold red", "overdue": "yellow"}


async def queues(*, by_shard: Shards = False, on: On = DEFAULT) -> int:
    """Show the queues: how many sessions wait, and for how long.

    overdue: waiting for a summary. leased: claimed by a worker until the lease expires. dead: no summary after
    `REDISMEM_MAX_ATTEMPTS` attempts; see `redismem dead`. evictions: chosen for eviction. sessions: the
    sessions that count for the limit, without exempt ones, and the limit. doctor: the worst verdict of `redismem
    doctor`, without its slow questions.
    """
    async with open_read_only(on.url, on.namespace) as (memory, place):
        depths = await depths_of(memory.store)
        wrong = (await Checkup(memory.store, embedded=place.embedded).quick()).wrong()
    if on.as_json:
        document = depths.document(by_shard=by_shard) | {"doctor": wrong}
        print_json({"store": place.name, "namespace": on.namespace, **document})
        return 0
    out = console()
    out.print(f"namespace {on.namespace} on {place.name}", markup=False)
    out.print(table_of(depths, wrong))
    if by_shard:
        _print_shards(depths)
    return 0


def table_of(depths: Depths, wrong: Mapping[str, str]) -> Table:
    """Return a table with the name, depth and first waiting time of each queue.

    `wrong` has the verdicts of the doctor's findings that are not ok, worst first.
    """
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True, min_width=9)
    table.add_column(style="dim", overflow="fold")
    for queue in QUEUES:
        depth = depths.total(queue)
        style = STYLES.get(queue, "") if depth.count else ""
        table.add_row(f"  {queue}", Text(f"{depth.count:,}", style), wait_of(queue, depth, depths.now_ms))
    limit = f"of {depths.max_sessions:,}"
    if depths.over > 0:
        limit += f": {depths.over:,} over the limit"
    table.add_row("  sessions", Text(f"{depths.sessions_count:,}", "bold yellow" if depths.over > 0 else ""), limit)
    worst = next(iter(wrong.values()), "ok")
    style = {"fail": "bold red", "warn": "bold yellow"}.get(worst, "")
    table.add_row("  doctor", Text(worst, style), ", ".join(wrong))
    if depths.degraded:
        table.add_row("  nodes", Text("away", "bold red"), "the sessions of a node that does not answer are missing")
    return table


def _print_shards(depths: Depths) -> None:
    rows = []
    for number, shard in enumerate(depths.shards):
        if any(each.count for each in shard.values()):
            row = [f"{number:02d}", f"{shard['active'].count:,}"]
            for queue in ("overdue", "leased"):
                row += [_count_cell(shard[queue]), _age(shard[queue], depths.now_ms)]
            rows.append([*row, _count_cell(shard["dead"]), _count_cell(shard["evictions"])])
    if rows:
        print_rows(("shard", "sessions", "overdue", "oldest", "leased", "expires", "dead", "evictions"), rows)
    print(f"{plural(len(depths.shards) - len(rows), 'shard')} of {len(depths.shards)} empty")


def _count_cell(depth: Depth) -> str:
    return f"{depth.count:,}" if depth.count else "·"


def _age(depth: Depth, now_ms: int) -> str:
    if depth.first_ms is None:
        return ""
    return f"{'in ' if depth.first_ms > now_ms else ''}{duration(depth.first_ms - now_ms)}"
