"""`redismem show --record`: one record, without its values unless asked."""

from __future__ import annotations

from redismem.cli.terminal import Stop, console, one_line, print_json
from redismem.inspection.figures import duration, plural, printable, size
from redismem.inspection.record_view import RecordView, look, readable
from redismem.store.store import Store

_VALUE_CHARS = 240


async def show(
    store: Store, record_id: str, limit: int, where: tuple[str, str], *, values: bool, as_json: bool
) -> None:
    """Print the records with an id, one for each tag; `where` is namespace and store. Raises Stop if there is none."""
    views = await look(store, record_id, limit)
    if not views:
        raise Stop(f"record {printable(record_id)}: no readable record of this namespace has this id")
    namespace, place = where
    if as_json:
        print_json({"namespace": namespace, "records": [view.document(values=values) for view in views]})
        return
    now_ms = await store.server_time_ms()
    for view in views:
        _print(view, now_ms, values, f"namespace {namespace} on {place}")


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
