"""`redismem quarantine`: sessions and records that could not be read; their data stays until it expires."""

from __future__ import annotations

import sys
from typing import Annotated

from cyclopts import Parameter, validators

from redismem.cli import quarantine_records
from redismem.cli.options import Full, Redact
from redismem.cli.parts_view import parts_document, show_parts
from redismem.cli.place import open_read_only, open_used
from redismem.cli.quarantine_table import describe_end, describe_sizes, print_table
from redismem.cli.sessions import confirm
from redismem.cli.streams import complain
from redismem.cli.terminal import (
    AsJson,
    Namespace,
    Stop,
    Url,
    Yes,
    console,
    print_json,
    progress,
)
from redismem.errors import CorruptSession, RedismemError, SessionExists
from redismem.inspection import quarantine, record_quarantine
from redismem.inspection.figures import duration, plural, printable
from redismem.inspection.quarantine import QuarantinedSession
from redismem.inspection.record_quarantine import QuarantinedRecord
from redismem.store.store import Store

Session = Annotated[str, Parameter(help="The id of the session, or with `--record` of the record.")]
Record = Annotated[bool, Parameter(negative=(), show_default=False, help="The id is that of a record.")]
At = Annotated[
    int | None,
    Parameter(
        help="Time of quarantine in ms, to select one of several with this id.",
        validator=validators.Number(gte=0),
    ),
]
Limit = Annotated[int, Parameter(validator=validators.Number(gte=1, lte=10_000), help="Sessions and records to show.")]
Keys = Annotated[
    int,
    Parameter(validator=validators.Number(gte=1), help="Redis keys to scan in one run, at most."),
]
Cursor = Annotated[
    int, Parameter(validator=validators.Number(gte=0), help="Continue from here: the last search prints its cursor.")
]
Salvage = Annotated[
    bool,
    Parameter(
        negative=(),
        show_default=False,
        help="Restore the readable part of a faulty session; the whole stays in quarantine. Of a record, the part that "
        "cannot be read stays.",
    ),
]
Swap = Annotated[
    bool,
    Parameter(negative=(), show_default=False, help="If a live one has this id, put that one into quarantine."),
]
SHOWN_CHARS = 240


async def list_quarantined(
    *,
    limit: Limit = 100,
    keys: Keys = quarantine.LOOKED_AT_LIMIT,
    cursor: Cursor = 0,
    url: Url = None,
    namespace: Namespace = "default",
    as_json: AsJson = False,
) -> int:
    """List the sessions and records in quarantine, oldest first.

    Scans all keys of the Redis, a thousand at a time. `log` is the hash of the id in the logs: search there for the
    fault, or use `show`.
    """
    async with open_read_only(url, namespace) as (memory, place):
        with progress("keys scanned") as on_step:
            found = await quarantine.list_quarantined(
                memory.store, limit, cursor=cursor, looked_at_limit=keys, on_step=on_step
            )
        now_ms = await memory.server_time_ms()
    if as_json:
        rows = [each.document() for each in found.sessions]
        records = [each.document() for each in found.records]
        told = {"store": place.name, "namespace": namespace, "sessions": rows, "records": records}
        print_json({**told, "cursor": found.cursor})
        return 0
    if found.sessions:
        print_table("session", [(each.session_id, each) for each in found.sessions], now_ms)
    if found.records:
        print_table("record", [(each.record_id, each) for each in found.records], now_ms)
    counted = [plural(len(found.sessions), "session"), plural(len(found.records), "record")]
    counted = counted if found.records else counted[:1]
    print(f"{' and '.join(counted)} in quarantine in namespace {namespace} on {place.name}")
    if found.cursor is not None:
        print(f"scan incomplete, continue with --cursor {found.cursor}")
    return 0


async def _find(store: Store, session_id: str, put_ms: int | None) -> QuarantinedSession:
    try:
        return await quarantine.find(store, session_id, put_ms)
    except ValueError as several:
        if isinstance(several, RedismemError):
            raise
        raise Stop(f"{several} with --at", 2) from None


async def show(
    session: Session,
    /,
    *,
    record: Record = False,
    at: At = None,
    full: Full = False,
    redact: Redact = False,
    url: Url = None,
    namespace: Namespace = "default",
    as_json: AsJson = False,
) -> int:
    """Show a session or record in quarantine: its faults and its readable content.

    Prints the conversation's text, but never the values of its state, and no value of a record.
    """
    async with open_read_only(url, namespace) as (memory, place):
        if record:
            copy = await quarantine_records.find(memory.store, session, at)
            await quarantine_records.show(memory.store, copy, namespace, as_json, f"{namespace} on {place.name}")
            return 0
        found = await _find(memory.store, session, at)
        read = await quarantine.read(memory.store, found)
        now_ms = await memory.server_time_ms()
    if as_json:
        print_json({"store": place.name, "namespace": namespace, **found.document(), **parts_document(read, redact)})
        return 0
    out = console()
    out.print(f"{printable(found.session_id)}  in quarantine in {namespace} on {place.name}", markup=False)
    since = f"quarantined {duration(now_ms - found.put_ms)} ago"
    out.print(f"  {since} · {describe_sizes(found)} · {describe_end(found, now_ms)}", markup=False)
    show_parts(out, read, full, redact)
    return 0


async def restore(
    session: Session,
    /,
    *,
    record: Record = False,
    at: At = None,
    salvage: Salvage = False,
    swap: Swap = False,
    url: Url = None,
    namespace: Namespace = "default",
    as_json: AsJson = False,
) -> int:
    """Restore a session or record from quarantine, all or nothing.

    Refused if it has faults, unless `--salvage` is given, and if a live one has its id, unless `--swap` is given. A
    refusal changes nothing; the exit code is then 1.
    """
    async with open_used(url, namespace) as (memory, place):
        if record:
            copy = await quarantine_records.find(memory.store, session, at)
            await quarantine_records.restore(memory.store, copy, salvage=salvage, swap=swap)
            quarantine_records.report("restored", copy, namespace, place.name, as_json)
            return 0
        found = await _find(memory.store, session, at)
        try:
            back = await quarantine.restore(memory.store, found, salvage=salvage, swap=swap)
        except SessionExists as conflict:
            raise Stop(f"{conflict}; --swap puts the live session into quarantine") from None
        except CorruptSession as faulty:
            if salvage:
                raise
            raise Stop(f"{faulty}; --salvage restores the readable part") from None
    if as_json:
        counts = {"messages": len(back.messages), "left_out": len(back.left_out), "summaries": len(back.summaries)}
        where = {"namespace": namespace, "session_id": session, "put_ms": found.put_ms}
        print_json({**where, **counts, "faults": list(dict.fromkeys(back.faults))})
    else:
        stays = "; the original stays in quarantine" if back.faults else ""
        print(f"restored {printable(session)} in namespace {namespace} on {place.name}:")
        print(f"{plural(len(back.messages), 'message')}, {len(back.summaries)} summaries{stays}")
    if back.has_lost_owner:
        complain("its owner is unknown: forget --owner will not find it, only clear, or forget --prefix")
    return 0


async def drop(
    session: Session,
    /,
    *,
    record: Record = False,
    at: At = None,
    yes: Yes = False,
    url: Url = None,
    namespace: Namespace = "default",
    as_json: AsJson = False,
) -> int:
    """Delete a session or record from quarantine.

    On a terminal it asks for confirmation first, unless `--yes` is given.
    """
    async with open_used(url, namespace) as (memory, place):
        found = await (quarantine_records.find if record else _find)(memory.store, session, at)
        question = f"Drop {printable(session)} of {found.put_ms} from quarantine in {namespace}?"
        if not yes and sys.stdin.isatty() and not confirm(question):
            raise Stop("cancelled; nothing was dropped")
        if isinstance(found, QuarantinedRecord):
            await record_quarantine.drop(memory.store, found)
            quarantine_records.report("dropped", found, namespace, place.name, as_json)
            return 0
        dropped = await quarantine.drop(memory.store, found)
    if as_json:
        print_json({"namespace": namespace, "session_id": session, "put_ms": found.put_ms, "dropped": dropped > 0})
    else:
        print(f"dropped {printable(session)} from quarantine in namespace {namespace} on {place.name}")
    return 0
