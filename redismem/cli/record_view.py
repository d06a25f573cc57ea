"""`redismem show record`: one record, without its values unless asked."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from redismem.cli.options import DEFAULT, On, flag, within
from redismem.cli.place import open_read_only
from redismem.cli.terminal import Stop, console, one_line, print_json
from redismem.inspection.figures import duration, plural, printable, size
from redismem.inspection.record_view import RecordView, look, readable

_VALUE_CHARS = 240


async def show(
    record: Annotated[str, Parameter(help="The id of the record.")],
    /,
    *,
    limit: Annotated[int, within(1, 10_000, "Show at most this many fields.")] = 50,
    values: Annotated[bool, flag("Print the values of the fields.")] = False,
    on: On = DEFAULT,
) -> int:
    """Show the records with an id, one for each tag: numbers, fields, sizes."""
    async with open_read_only(on.url, on.namespace) as (memory, place):
        views = await look(memory.store, record, limit)
        if not views:
            raise Stop(f"record {printable(record)}: no readable record of namespace {on.namespace} has this id")
        now_ms = await memory.server_time_ms()
    if on.as_json:
        print_json({"namespace": on.namespace, "records": [view.document(values=values) for view in views]})
    for view in () if on.as_json else views:
        _print(view, now_ms, values, f"namespace {on.namespace} on {place.name}")
    return 0


def _print(view: RecordView, now_ms: int, values: bool, where: str) -> None:
    out = console()
    expires = "never expires" if view.expires_ms is None else f"expires in {duration(view.expires_ms - now_ms)}"
    owner = "no owner" if view.owner is None else f"owner: {printable(view.owner)}"
    counts = f"{plural(view.fields_count, 'field')} · {plural(view.members_count, 'member')}"
    lines = [
        f"{printable(view.record_id)}  record in {where}",
        f"  {counts} · {expires} · {plural(view.writes_count, 'write')} remembered",
        f"  tag: {printable(view.tag)} · {owner}",
        f"  in logs: {view.log_id}",
        f"  in Redis: {printable(view.key)}",
    ]
    for name, value in view.fields:
        lines.append(f"  {one_line(readable(name), 120)}: {size(len(value))}")
        if values:
            lines.append(f"    {one_line(readable(value), _VALUE_CHARS)}")
    if (hidden := view.fields_count - len(view.fields)) > 0:
        lines.append(f"  {plural(hidden, 'field')} not shown: --limit {min(view.fields_count, 10_000)}")
    for line in lines:
        out.print(line, markup=False, highlight=False)
