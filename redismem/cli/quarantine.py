"""`redismem quarantine`: sessions that could not be read. What they were is still there, until its time runs out."""

from __future__ import annotations

import sys
from typing import Annotated, Any

from cyclopts import Parameter, validators

from redismem.cli.place import looking, opened, say_if_embedded
from redismem.cli.sessions import Full, Redact, confirmed
from redismem.cli.terminal import (
    AsJson,
    Namespace,
    Stop,
    Url,
    console,
    duration,
    one_line,
    plural,
    print_json,
    print_rows,
    printable,
    progress,
    spoken,
)
from redismem.errors import CorruptSession, RedismemError, SessionExists
from redismem.inspection import quarantine
from redismem.inspection.quarantine import QuarantinedSession, Search
from redismem.messages.values import readable
from redismem.store.store import Store

Session = Annotated[str, Parameter(help="The session's id.")]
At = Annotated[
    int | None,
    Parameter(
        help="When it was put there, in ms, if there are several of this name.", validator=validators.Number(gte=0)
    ),
]
Limit = Annotated[int, Parameter(validator=validators.Number(gte=1, lte=10_000), help="Sessions shown.")]
Keys = Annotated[
    int,
    Parameter(validator=validators.Number(gte=1), help="Keys of the Redis to look at: there is no index of these."),
]
Cursor = Annotated[int, Parameter(validator=validators.Number(gte=0), help="Where the last search ended; it says so.")]
Salvage = Annotated[
    bool,
    Parameter(
        negative=(),
        show_default=False,
        help="Restore what can be read of a session with faults. All of it stays in quarantine as well.",
    ),
]
Swap = Annotated[
    bool,
    Parameter(
        negative=(), show_default=False, help="If a session of this name lives, put that one into quarantine instead."
    ),
]
Yes = Annotated[bool, Parameter(name=("--yes", "-y"), negative=(), show_default=False, help="Do not ask.")]
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
    """List the sessions in quarantine, the first put there first.

    Looks through all keys of the Redis, a thousand at a time. `log` is what the logs call a session: look there for
    what was wrong, or `show` it.
    """
    async with looking(url, namespace) as (memory, place):
        with progress("keys looked at") as on_step:
            found = await quarantine.list_quarantined(
                memory.store, limit, cursor=cursor, looked_at_limit=keys, on_step=on_step
            )
        now_ms = await memory.server_time_ms()
    if as_json:
        rows = [each.document() for each in found.sessions]
        print_json({"store": place.name, "namespace": namespace, "sessions": rows, "cursor": found.cursor})
        return 0
    if found.sessions:
        _print(found, now_ms)
    print(f"{plural(len(found.sessions), 'session')} in quarantine in namespace {namespace} on {place.name}")
    if found.cursor is not None:
        print(f"there may be more: --cursor {found.cursor}")
    return 0


def _print(found: Search, now_ms: int) -> None:
    rows = [
        [
            printable(each.session_id),
            each.log_id,
            f"{duration(now_ms - each.put_ms)} ago",
            f"{each.put_ms}",
            _sizes(each),
            _end(each, now_ms),
        ]
        for each in found.sessions
    ]
    print_rows(("session", "log", "put there", "--at", "holds", ""), rows)


def _sizes(each: QuarantinedSession) -> str:
    words = {"messages": "message", "state": "field", "originals": "original"}
    return ", ".join(
        f"{key.name} is a {key.type}" if key.entry_count < 0 else plural(key.entry_count, words[key.name])
        for key in each.keys
    )


def _end(each: QuarantinedSession, now_ms: int) -> str:
    ends = [key.expires_ms for key in each.keys if key.expires_ms >= 0]
    return f"expires in {duration(min(ends) - now_ms)}" if ends else "never expires"


async def _found(store: Store, session_id: str, put_ms: int | None) -> QuarantinedSession:
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
    at: At = None,
    full: Full = False,
    redact: Redact = False,
    url: Url = None,
    namespace: Namespace = "default",
    as_json: AsJson = False,
) -> int:
    """Show a session in quarantine: what is wrong with it, and what of it can be read.

    It prints the texts of the conversation, since you ask for them; values of the state never.
    """
    async with looking(url, namespace) as (memory, place):
        found = await _found(memory.store, session, at)
        read = await quarantine.read(memory.store, found)
        now_ms = await memory.server_time_ms()
    if as_json:
        print_json({"store": place.name, "namespace": namespace, **found.document(), **_document(read, redact)})
        return 0
    out = console()
    out.print(f"{printable(found.session_id)}  in quarantine in {namespace} on {place.name}", markup=False)
    out.print(
        f"  put there {duration(now_ms - found.put_ms)} ago · {_sizes(found)} · {_end(found, now_ms)}", markup=False
    )
    for fault in dict.fromkeys(read.faults):
        out.print(f"  fault: {fault}", style="yellow", markup=False)
    for summary in read.summaries:
        text = "(redacted)" if redact else _short(summary.text, full)
        out.print(f"  summary of {summary.first_seq} to {summary.last_seq}: {text}", markup=False)
    for message in read.messages:
        text = f"(redacted, {message.tokens} tokens)" if redact else _short(spoken(message.to_openai()), full)
        out.print(f"  {message.seq} {one_line(str(message.role), 12)}: {text}", markup=False)
    return 0


def _short(text: str, full: bool) -> str:
    return printable(text) if full or len(text) <= SHOWN_CHARS else one_line(text, SHOWN_CHARS)


def _document(read: quarantine.Restoration, redact: bool) -> dict[str, Any]:
    messages = [
        {"seq": each.seq, "tokens": each.tokens, "role": readable(each.role)}
        | ({} if redact else {"message": readable(each.to_openai())})
        for each in read.messages
    ]
    summaries = [
        {"first_seq": each.first_seq, "last_seq": each.last_seq} | ({} if redact else {"text": each.text})
        for each in read.summaries
    ]
    faults = list(dict.fromkeys(read.faults))
    return {"faults": faults, "epoch": read.epoch, "summaries": summaries, "messages": messages}


async def restore(
    session: Session,
    /,
    *,
    at: At = None,
    salvage: Salvage = False,
    swap: Swap = False,
    url: Url = None,
    namespace: Namespace = "default",
    as_json: AsJson = False,
) -> int:
    """Bring a session back from quarantine, all or nothing.

    It is refused if the session has faults, unless `--salvage`; and if one of its name lives, unless `--swap`. Then
    nothing has changed, and the exit code is 1.
    """
    async with opened(url, namespace) as (memory, place):
        say_if_embedded(place)
        found = await _found(memory.store, session, at)
        try:
            back = await quarantine.restore(memory.store, found, salvage=salvage, swap=swap)
        except SessionExists as lives:
            raise Stop(f"{lives}; --swap puts the one that lives into quarantine instead") from None
        except CorruptSession as faulty:
            if salvage:
                raise
            raise Stop(f"{faulty}; --salvage restores what can be read") from None
    if as_json:
        counts = {"messages": len(back.messages), "left_out": len(back.left_out), "summaries": len(back.summaries)}
        where = {"namespace": namespace, "session_id": session, "put_ms": found.put_ms}
        print_json({**where, **counts, "faults": list(dict.fromkeys(back.faults))})
    else:
        stays = "; what was in quarantine stays there" if back.faults else ""
        print(f"restored {printable(session)} in namespace {namespace} on {place.name}:")
        print(f"{plural(len(back.messages), 'message')}, {len(back.summaries)} summaries{stays}")
    return 0


async def drop(
    session: Session,
    /,
    *,
    at: At = None,
    yes: Yes = False,
    url: Url = None,
    namespace: Namespace = "default",
    as_json: AsJson = False,
) -> int:
    """Remove a session from quarantine for good.

    Asks first on a terminal, unless `--yes` is given.
    """
    async with opened(url, namespace) as (memory, place):
        say_if_embedded(place)
        found = await _found(memory.store, session, at)
        question = f"Drop {printable(session)}, put there at {found.put_ms}, from quarantine in {namespace}?"
        if not yes and sys.stdin.isatty() and not confirmed(question):
            raise Stop("nothing was dropped")
        dropped = await quarantine.drop(memory.store, found)
    if as_json:
        print_json({"namespace": namespace, "session_id": session, "put_ms": found.put_ms, "dropped": dropped > 0})
    else:
        print(f"dropped {printable(session)} from quarantine in namespace {namespace} on {place.name}")
    return 0
