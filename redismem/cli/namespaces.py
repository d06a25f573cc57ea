"""`redismem namespaces`: list the tenants of a Redis."""

from __future__ import annotations

from redismem.cli.place import connect, stop_for, warn_if_embedded
from redismem.cli.quarantine import Cursor, Keys
from redismem.cli.terminal import AsJson, Url, console, print_json, progress
from redismem.errors import NotAllowed, StoreUnavailable
from redismem.inspection.figures import plural, printable
from redismem.inspection.quarantine import LOOKED_AT_LIMIT, Namespaces, list_namespaces


async def namespaces(
    *, keys: Keys = LOOKED_AT_LIMIT, cursor: Cursor = 0, url: Url = None, as_json: AsJson = False
) -> int:
    """List the namespaces of a Redis with their numbers of shards, sessions and records.

    Scans all keys of the Redis, a thousand at a time. The numbers include expired sessions and records that are not
    swept yet.
    """
    memory, place = connect(url, "default")
    warn_if_embedded(place)
    try:
        with progress("keys scanned") as on_step:
            found = await list_namespaces(memory.store, cursor=cursor, looked_at_limit=keys, on_step=on_step)
    except (StoreUnavailable, NotAllowed) as error:
        raise stop_for(place.name, error) from None
    finally:
        await memory.aclose()
    if as_json:
        rows = [each.document() for each in found.entries]
        print_json({"store": place.name, "namespaces": rows, "cursor": found.cursor})
        return 0
    _print(found)
    print(f"{plural(len(found.entries), 'namespace')} on {place.name}")
    if found.cursor is not None:
        print(f"scan incomplete, continue with --cursor {found.cursor}")
    return 0


def _print(found: Namespaces) -> None:
    from rich.table import Table
    from rich.text import Text

    if not found.entries:
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("namespace", overflow="fold", min_width=20)
    for heading in ("shards", "sessions", "records"):
        table.add_column(heading, justify="right", no_wrap=True)
    for each in found.entries:
        figures = ("" if number is None else f"{number:,}" for number in (each.shards, each.sessions, each.records))
        table.add_row(Text(printable(each.namespace)), *figures)
        if each.error:
            table.add_row(Text(f"  {each.error}", "yellow"))
    console().print(table)
