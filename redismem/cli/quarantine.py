"""Sessions and records that could not be read: list, show, restore, remove. Their data stays until it expires."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from cyclopts import Parameter

from redismem.cli.options import DEFAULT, Full, On, Redact, Yes, flag, within
from redismem.cli.parts_view import parts_document, show_parts
from redismem.cli.place import open_read_only, open_used
from redismem.cli.streams import complain
from redismem.cli.terminal import Stop, ask, console, print_json, print_rows, progress
from redismem.errors import CorruptSession, RedismemError, SessionExists, SessionNotFound
from redismem.inspection import quarantine
from redismem.inspection.figures import duration, plural, printable
from redismem.inspection.quarantine import Quarantined
from redismem.store.store import Store

Session = Annotated[str, Parameter(help="The id of the session, or with `--record` of the record.")]
Record = Annotated[bool, flag("The id is that of a record.")]
At = Annotated[int | None, within(0, None, "Time of quarantine in ms, to select one of several with this id.")]
Limit = Annotated[int, within(1, 10_000, "Sessions and records to show.")]
Keys = Annotated[int, within(1, None, "Redis keys to scan in one run, at most.")]
Cursor = Annotated[int, within(0, None, "Continue from here: the last search prints its cursor.")]
_SALVAGE_HELP = (
    "Restore the readable part of a faulty session; the whole stays in quarantine. Of a record, the part that "
    "cannot be read stays."
)
Salvage = Annotated[bool, flag(_SALVAGE_HELP)]
Swap = Annotated[bool, flag("If a live one has this id, put that one into quarantine.")]
_WORDS = {"messages": "message", "state": "field", "originals": "original", "record": "field", "order": "member"}


async def list_quarantined(
    *, limit: Limit = 100, keys: Keys = quarantine.LOOKED_AT_LIMIT, cursor: Cursor = 0, on: On = DEFAULT
) -> int:
    """List the sessions and records in quarantine, oldest first.

    Scans all keys of the Redis, a thousand at a time. `log` is the hash of the id in the logs: search there for the
    fault, or use `redismem show quarantine ID`.
    """
    async with open_read_only(on.url, on.namespace) as (memory, place):
        with progress("keys scanned") as on_step:
            found = await quarantine.list_quarantined(
                memory.store, limit, cursor=cursor, looked_at_limit=keys, on_step=on_step
            )
        now_ms = await memory.server_time_ms()
    if on.as_json:
        sessions, records = ([each.document() for each in part] for part in (found.sessions, found.records))
        told = {"store": place.name, "namespace": on.namespace, "sessions": sessions, "records": records}
        print_json({**told, "cursor": found.cursor})
        return 0
    _print_table(found.found, now_ms)
    counted = plural(len(found.sessions), "session")
    counted += f" and {plural(len(found.records), 'record')}" if found.records else ""
    print(f"{counted} in quarantine in namespace {on.namespace} on {place.name}")
    if found.cursor is not None:
        print(f"scan incomplete, continue with --cursor {found.cursor}")
    return 0


def _print_table(found: Sequence[Quarantined], now_ms: int) -> None:
    rows = [
        [printable(each.name), each.kind, each.log_id, age, f"{each.put_ms}", sizes, end]
        for each in found
        for age, sizes, end in [_describe(each, now_ms)]
    ]
    print_rows(("id", "", "log", "since", "--at", "holds", ""), rows)


def _describe(each: Quarantined, now_ms: int) -> tuple[str, str, str]:
    """Return the age of a copy, the content of its keys, and when the first of them expires."""
    sizes = ", ".join(
        plural(key.entry_count, _WORDS[key.name]) if key.is_sound else f"{key.name} is a {key.type}"
        for key in sorted(each.keys, key=lambda key: list(_WORDS).index(key.name))
    )
    ends = [key.expires_ms for key in each.keys if key.expires_ms >= 0]
    end = f"expires in {duration(min(ends) - now_ms)}" if ends else "never expires"
    return f"{duration(now_ms - each.put_ms)} ago", sizes, end


async def _find(store: Store, name: str, at: int | None, record: bool) -> Quarantined:
    try:
        return await quarantine.find(store, name, at, is_record=record)
    except SessionNotFound as missing:
        raise Stop(f"{_prefix(name, record)}{missing}") from None
    except ValueError as several:
        if isinstance(several, RedismemError):
            raise
        raise Stop(f"{several} with --at", 2) from None


def _prefix(name: str, record: bool) -> str:
    """Return the beginning of an error, which names a record: an error about a session has its id."""
    return f"record {printable(name)}: " if record else ""


async def show(
    session: Session,
    /,
    *,
    record: Record = False,
    at: At = None,
    full: Full = False,
    redact: Redact = False,
    on: On = DEFAULT,
) -> int:
    """Show a session or record in quarantine: its faults and its readable content.

    Prints the conversation's text, but never the values of its state, and no value of a record.
    """
    async with open_read_only(on.url, on.namespace) as (memory, place):
        found = await _find(memory.store, session, at, record)
        read = await quarantine.read(memory.store, found)
        now_ms = await memory.server_time_ms()
    if on.as_json:
        parts = {} if record else parts_document(read, redact)
        print_json({"store": place.name, "namespace": on.namespace, **found.document(), **parts})
        return 0
    out, kind = console(), "record in quarantine" if record else "in quarantine"
    out.print(f"{printable(found.name)}  {kind} in {on.namespace} on {place.name}", markup=False)
    out.print(f"  quarantined {' · '.join(_describe(found, now_ms))}", markup=False)
    if record:
        owner = "no owner known" if found.owner is None else f"owner: {printable(found.owner)}"
        out.print(f"  tag: {printable(found.tag)} · {owner}", markup=False)
    show_parts(out, read, full, redact)
    return 0


async def repair(
    session: Session,
    /,
    *,
    record: Record = False,
    at: At = None,
    salvage: Salvage = False,
    swap: Swap = False,
    on: On = DEFAULT,
) -> int:
    """Restore a session or record from quarantine, all or nothing.

    Refused if it has faults, unless `--salvage` is given, and if a live one has its id, unless `--swap` is given. A
    refusal changes nothing. Exit code 1: nothing was restored.
    """
    async with open_used(on.url, on.namespace) as (memory, place):
        found = await _find(memory.store, session, at, record)
        try:
            back = await quarantine.restore(memory.store, found, salvage=salvage, swap=swap)
        except SessionExists as conflict:
            hint = f"--swap puts the live {found.kind} into quarantine"
            raise Stop(f"{_prefix(session, record)}{conflict}; {hint}") from None
        except CorruptSession as faulty:
            raise Stop(f"{_prefix(session, record)}{faulty}; --salvage restores the readable part") from None
        except SessionNotFound as missing:
            raise Stop(f"{_prefix(session, record)}{missing}") from None
    told = {"namespace": on.namespace, f"{found.kind}_id": session, "put_ms": found.put_ms}
    counts = {"messages": len(back.messages), "left_out": back.left_out_count, "summaries": len(back.summaries)}
    if on.as_json:
        print_json(told | ({"restored": True} if record else {**counts, "faults": list(dict.fromkeys(back.faults))}))
    else:
        what, colon = ("record ", "") if record else ("", ":")
        print(f"restored {what}{printable(session)} in namespace {on.namespace} on {place.name}{colon}")
    if not on.as_json and not record:
        stays = "; the original stays in quarantine" if back.faults else ""
        print(f"{plural(len(back.messages), 'message')}, {len(back.summaries)} summaries{stays}")
    if back.has_lost_owner:
        complain("its owner is unknown: `redismem remove owner ID` will not find it, only `redismem remove ID`")
    return 0


async def remove(
    session: Session, /, *, record: Record = False, at: At = None, yes: Yes = False, on: On = DEFAULT
) -> int:
    """Delete a session or record from quarantine.

    Asks for confirmation first; without a terminal it needs `--yes`.
    """
    async with open_used(on.url, on.namespace) as (memory, place):
        found = await _find(memory.store, session, at, record)
        ask(f"Drop {printable(session)} of {found.put_ms} from quarantine in {on.namespace}?", yes=yes)
        dropped = await quarantine.drop(memory.store, found)
    if on.as_json:
        told = {"namespace": on.namespace, f"{found.kind}_id": session, "put_ms": found.put_ms}
        print_json({**told, "dropped": dropped})
    else:
        what, where = f"{'record ' * record}{printable(session)}", f"namespace {on.namespace} on {place.name}"
        print(f"dropped {what} from quarantine in {where}")
    return 0
