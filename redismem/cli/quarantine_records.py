"""The part of `redismem quarantine` about records: a record's copy is shown, restored and dropped by its id."""

from __future__ import annotations

from redismem.cli.quarantine_table import describe_end, describe_sizes
from redismem.cli.terminal import Stop, console, print_json
from redismem.errors import CorruptSession, SessionExists, SessionNotFound
from redismem.inspection import record_quarantine
from redismem.inspection.figures import duration, printable
from redismem.inspection.record_quarantine import QuarantinedRecord
from redismem.store.store import Store


async def find(store: Store, record_id: str, put_ms: int | None) -> QuarantinedRecord:
    """Return the record in quarantine. Raises Stop, also if there are several."""
    try:
        return await record_quarantine.find(store, record_id, put_ms)
    except SessionNotFound as missing:
        raise Stop(f"record {printable(record_id)}: {missing.text}") from None
    except ValueError as several:
        raise Stop(f"{several} with --at", 2) from None


async def show(store: Store, found: QuarantinedRecord, namespace: str, as_json: bool, where: str) -> None:
    """Print the numbers and faults of a record in quarantine, and no value."""
    now_ms = await store.server_time_ms()
    if as_json:
        print_json({"namespace": namespace, **found.document()})
        return
    out = console()
    out.print(f"{printable(found.record_id)}  record in quarantine in {where}", markup=False)
    since = f"quarantined {duration(now_ms - found.put_ms)} ago"
    out.print(f"  {since} · {describe_sizes(found)} · {describe_end(found, now_ms)}", markup=False)
    owner = "no owner known" if found.owner is None else f"owner: {printable(found.owner)}"
    out.print(f"  tag: {printable(found.tag)} · {owner}", markup=False)
    for fault in found.faults:
        out.print(f"  fault: {fault}", style="yellow", markup=False)


async def restore(store: Store, found: QuarantinedRecord, *, salvage: bool, swap: bool) -> None:
    """Restore a record from quarantine. Raises Stop if it is refused."""
    name = printable(found.record_id)
    try:
        await record_quarantine.restore(store, found, salvage=salvage, swap=swap)
    except SessionExists as conflict:
        raise Stop(f"record {name}: {conflict.text}; --swap puts the live record into quarantine") from None
    except CorruptSession as faulty:
        raise Stop(f"record {name}: {faulty.text}; --salvage restores what is readable") from None
    except SessionNotFound as missing:
        raise Stop(f"record {name}: {missing.text}") from None


def report(done: str, found: QuarantinedRecord, namespace: str, store_name: str, as_json: bool) -> None:
    """Print what was done with a record."""
    if as_json:
        print_json({"namespace": namespace, "record_id": found.record_id, "put_ms": found.put_ms, done: True})
    else:
        print(f"{done} record {printable(found.record_id)} in namespace {namespace} on {store_name}")
