"""`redismem list namespaces`: list the tenants of a Redis."""

from __future__ import annotations

from redismem.cli.options import AsJson, Url
from redismem.cli.place import open_unchecked, warn_if_embedded
from redismem.cli.quarantine import Cursor, Keys
from redismem.cli.terminal import print_json, print_rows, progress
from redismem.inspection import namespaces
from redismem.inspection.figures import plural, printable


async def list_namespaces(
    *, keys: Keys = namespaces.LOOKED_AT_LIMIT, cursor: Cursor = 0, url: Url = None, as_json: AsJson = False
) -> int:
    """List the namespaces of a Redis with their numbers of shards, sessions and records.

    Scans all keys of the Redis, a thousand at a time. The numbers include expired sessions and records that are not
    swept yet.
    """
    async with open_unchecked(url) as (memory, place):
        warn_if_embedded(place)
        with progress("keys scanned") as on_step:
            found = await namespaces.list_namespaces(memory.store, cursor=cursor, looked_at_limit=keys, on_step=on_step)
    if as_json:
        rows = [each.document() for each in found.entries]
        print_json({"store": place.name, "namespaces": rows, "cursor": found.cursor})
        return 0
    lines = []
    for each in found.entries:
        counts = ("" if number is None else f"{number:,}" for number in (each.shards, each.sessions, each.records))
        lines.append([printable(each.namespace), *counts, each.error])
    print_rows(("namespace", "shards", "sessions", "records", ""), lines)
    print(f"{plural(len(found.entries), 'namespace')} on {place.name}")
    if found.cursor is not None:
        print(f"scan incomplete, continue with --cursor {found.cursor}")
    return 0
