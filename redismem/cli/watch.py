"""`redismem watch`: poll the queues and show how they change."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

from redismem.cli.options import EveryS, flag, within
from redismem.cli.place import ChosenStore, open_read_only
from redismem.cli.queues import table_of
from redismem.cli.stopping import stop_signals, wait_for
from redismem.cli.terminal import Namespace, Url, console
from redismem.context.info import QUEUES
from redismem.inspection.checkup import Checkup
from redismem.store.depths import Depths, depths_of

if TYPE_CHECKING:
    from rich.console import Group
    from rich.live import Live

Count = Annotated[int | None, within(1, None, "Stop after this many polls. [default: until Ctrl-C]")]
JsonLines = Annotated[bool, flag("Print one JSON document per poll, each on one line.", "--json")]


async def watch(
    *,
    count: Count = None,
    every_s: EveryS = 1,
    url: Url = None,
    namespace: Namespace = "default",
    as_json: JsonLines = False,
) -> int:
    """Watch the queues: refreshes in place on a terminal, prints one line per poll when piped.

    Rates are changes per second since the last poll. `given` counts new sessions plus claims by workers, over all pods
    and workers. `doctor` names the findings of `redismem doctor` that are not ok, without its slow questions. Ctrl-C
    ends it, with exit code 0.
    """
    with stop_signals() as stopping:
        async with open_read_only(url, namespace) as (memory, place):
            live = None if as_json or not sys.stdout.isatty() else _start_live()
            polls_count, before = 0, None
            checkup = Checkup(memory.store, embedded=place.embedded)
            start_s = time.monotonic()
            try:
                while True:
                    depths, wrong = await depths_of(memory.store), (await checkup.quick()).wrong()
                    _show(live, place, namespace, depths, rates(depths, before), wrong, as_json=as_json)
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
    live: Live | None,
    place: ChosenStore,
    namespace: str,
    depths: Depths,
    rates: dict[str, float],
    wrong: Mapping[str, str],
    *,
    as_json: bool,
) -> None:
    line = _line(depths, rates, wrong)
    if live is not None:
        live.update(_render(place, namespace, depths, rates, wrong), refresh=True)
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


def _render(
    place: ChosenStore, namespace: str, depths: Depths, rates: dict[str, float], wrong: Mapping[str, str]
) -> Group:
    from rich.console import Group
    from rich.text import Text

    changing = " · ".join(f"{name} {rate:+,.1f}" for name, rate in rates.items() if round(rate, 1) and name != "given")
    given = f"{rates.get('given', 0):,.1f} new sessions and claims per second"
    return Group(
        Text.assemble((f"namespace {namespace}", "bold"), f" on {place.name}  {_time(depths, 'seconds')}"),
        table_of(depths, wrong),
        Text(f"  per second: {changing or 'no change'}", "dim"),
        Text(f"  {given}   (Ctrl-C ends)", "dim"),
    )
