"""Remove all sessions of a person, print the proof that none is left, and what was not searched."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated

from cyclopts import Parameter

from redismem.cli.options import DEFAULT, On, Target, Yes
from redismem.cli.place import open_used
from redismem.cli.streams import complain
from redismem.cli.terminal import Stop, ask, print_json, progress
from redismem.errors import ForgetIncomplete, ForgottenSessions
from redismem.inspection.figures import plural, printable
from redismem.memory.erasure import Wanted, count_records, count_sessions
from redismem.memory.memory import Memory


async def remove_owner(
    owner: Annotated[str, Parameter(help="The owner with whom the sessions and records were begun.")],
    /,
    *,
    yes: Yes = False,
    on: On = DEFAULT,
) -> int:
    """Remove all sessions and records of a person, by owner.

    Removes their messages, summaries, state, queue entries and copies in quarantine, and what an owner or a session
    leads to in projects. Then it scans all keys, and prints the time at which it found no session, record or copy, and
    what it did not search. Asks for confirmation first; without a terminal it needs `--yes`. If it is interrupted, the
    same command removes the rest.
    """
    return await _remove(Wanted(owner, None), yes, on)


async def remove_prefix(
    prefix: Annotated[str, Parameter(help="The beginning of the ids. End it with your separator, as in `user-4:`.")],
    /,
    *,
    yes: Yes = False,
    on: On = DEFAULT,
) -> int:
    """Remove all sessions and records of a person, by the beginning of their ids; else as `remove owner`."""
    return await _remove(Wanted(None, prefix), yes, on)


async def _remove(wanted: Wanted, yes: bool, on: Target) -> int:
    owner, prefix = wanted.owner, wanted.prefix
    async with open_used(on.url, on.namespace) as (memory, place):
        named = f"owner {printable(owner)}" if owner is not None else f"prefix {printable(prefix or '')}"
        where = f"with {named} in namespace {on.namespace} on {place.name}"
        if not yes:
            count = await count_sessions(memory.store, wanted)
            records = await count_records(memory.store, wanted)
            if not count and not records:
                raise Stop(
                    f"there is no session or record {where}; with --yes it also looks in quarantine and projects"
                )
            ask(f"Forget {plural(count, 'session')}{_and_records(records)} {where}?", yes=yes)
        forgotten, failure = await _forget(memory, wanted)
    if on.as_json:
        print_json({"namespace": on.namespace, "owner": owner, "prefix": prefix, **asdict(forgotten), "error": failure})
    else:
        _print(forgotten, where)
    if not (failure or forgotten.session_count or forgotten.quarantined_count or forgotten.record_count):
        complain(f"there was no session {where}: check the spelling, capitals too, unless you have forgotten it before")
    if failure is not None:
        complain(f"not complete: {failure}; the same command removes the rest")
    return 0 if failure is None else 1


def _and_records(count: int) -> str:
    return f" and {plural(count, 'record')}" if count else ""


async def _forget(memory: Memory, wanted: Wanted) -> tuple[ForgottenSessions, str | None]:
    """Return what was removed, and the reason if it is not complete."""
    with progress("sessions forgotten") as show:
        try:
            return await memory.forget(
                owner=wanted.owner, prefix=wanted.prefix, on_progress=lambda forgotten: show(forgotten.session_count)
            ), None
        except ForgetIncomplete as incomplete:
            return incomplete.forgotten, incomplete.text


def _print(forgotten: ForgottenSessions, where: str) -> None:
    in_quarantine = f", and {forgotten.quarantined_count:,} in quarantine," if forgotten.quarantined_count else ""
    records = _and_records(forgotten.record_count)
    print(f"forgot {plural(forgotten.session_count, 'session')}{in_quarantine}{records} {where}")
    if forgotten.proven_ms is not None:
        moment = datetime.fromtimestamp(forgotten.proven_ms / 1000, UTC)
        found_none = "found no session, record or copy in quarantine"
        print(f"proof: a scan of all keys that ended at {moment:%Y-%m-%d %H:%M:%S} UTC {found_none}")
    if forgotten.unattributed_count:
        count = forgotten.unattributed_count
        print(f"{plural(count, 'unreadable session')}: nobody can tell the owner; see `redismem list quarantine`")
    if forgotten.item_count:
        print(f"erased {plural(forgotten.item_count, 'item')} of projects")
    if forgotten.rate_count:
        print(f"removed {plural(forgotten.rate_count, 'rate limit')}")
    for item in forgotten.left_items:
        print(f"left: {printable(item)} tells of the person: erase it with the method `erase` of its kind")
    for what in forgotten.not_searched:
        print(f"not searched: {what}")
