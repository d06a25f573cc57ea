"""`redismem list dictionaries` and `remove dictionary`: the compression dictionaries of a namespace."""

from __future__ import annotations

from typing import Annotated

from redismem.cli.options import DEFAULT, On, Yes, within
from redismem.cli.place import open_read_only, open_used
from redismem.cli.terminal import Stop, ask, print_json, print_rows, progress
from redismem.inspection import dictionaries
from redismem.inspection.dictionaries import DictionaryEntry, DropOutcome
from redismem.inspection.figures import duration

Number = Annotated[int, within(1, 255, "The number from `redismem list dictionaries`.")]
_REFUSALS = {
    DropOutcome.MISSING: "there is no dictionary {} in namespace {}",
    DropOutcome.NAMED: "dictionary {} is in use in namespace {}: blocks of originals need it. Workers drop it after "
    "their sessions were cleared or have expired",
    DropOutcome.QUARANTINED: "dictionary {} is in use in namespace {}: blocks in quarantine need it. Drop them with "
    "`redismem remove quarantine ID`, or wait until they expire",
    DropOutcome.RETIRED: "dictionary {} in namespace {} is retired, not dropped yet: no block needs it, and new blocks "
    "stop using it within a minute. Drop it an hour after it was retired",
}


async def list_dictionaries(*, on: On = DEFAULT) -> int:
    """List the compression dictionaries, oldest first.

    New blocks use the `current` one. A `retired` one was needed by no block at the last search; workers search once a
    day, and drop it if a later search finds no block either.
    """
    async with open_read_only(on.url, on.namespace) as (memory, place):
        now_ms = await memory.server_time_ms()
        entries = await dictionaries.list_dictionaries(memory.store, now_ms)
    if on.as_json:
        rows = [entry.document() for entry in entries]
        print_json({"store": place.name, "namespace": on.namespace, "dictionaries": rows})
        return 0
    print_rows(("number", "trained", "bytes", "state"), [_row(entry, now_ms) for entry in entries])
    count = "1 dictionary" if len(entries) == 1 else f"{len(entries)} dictionaries"
    print(f"{count} in namespace {on.namespace} on {place.name}")
    return 0


def _row(entry: DictionaryEntry, now_ms: int) -> list[str]:
    trained = "" if entry.created_ms is None else f"{duration(now_ms - entry.created_ms)} ago"
    size = "" if entry.size_bytes is None else f"{entry.size_bytes:,}"
    since = "" if entry.unused_since_ms is None else f" {duration(now_ms - entry.unused_since_ms)} ago"
    return [str(entry.version), trained, size, f"{entry.state}{since}"]


async def remove(number: Number, /, *, yes: Yes = False, on: On = DEFAULT) -> int:
    """Drop a dictionary that no block needs.

    The first call retires it, so that new blocks do not use it; a call an hour later drops it. Looks at the blocks of
    all sessions, and scans all keys of the Redis for blocks in quarantine. Exit code 1: nothing was dropped.
    """
    async with open_used(on.url, on.namespace) as (memory, place):
        ask(f"Drop dictionary {number} of namespace {on.namespace}?", yes=yes)
        with progress("keys scanned") as on_step:
            outcome = await dictionaries.drop(memory.store, number, await memory.server_time_ms(), on_step)
    if on.as_json:
        print_json({"namespace": on.namespace, "dictionary": number, "outcome": outcome})
        return 0 if outcome is DropOutcome.DROPPED else 1
    if outcome is not DropOutcome.DROPPED:
        raise Stop(_REFUSALS[outcome].format(number, on.namespace))
    print(f"dropped dictionary {number} in namespace {on.namespace} on {place.name}")
    return 0
