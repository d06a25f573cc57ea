"""`redismem list records` and `show record`: the conversations of frameworks, and the numbers of any record."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from cyclopts import Parameter

from redismem.cli.options import DEFAULT, Full, On, Redact, flag, within
from redismem.cli.place import open_read_only
from redismem.cli.terminal import Stop, console, one_line, print_json, print_rows
from redismem.errors import CorruptSession, InvalidSessionId
from redismem.inspection.figures import duration, plural, printable, size
from redismem.inspection.record_view import RecordView, has_copy, look, readable
from redismem.inspection.records import count_records
from redismem.memory.memory import Memory
from redismem.record.transcripts.listing import KINDS, ids_of
from redismem.record.transcripts.transcript import Kind, Transcript, TranscriptPage

_VALUE_CHARS = 240


async def list_records(
    *,
    kind: Annotated[Kind | None, Parameter(help="Only the conversations of this framework.")] = None,
    owner: Annotated[str | None, Parameter(help="Only those of this owner, with their titles.")] = None,
    limit: Annotated[int, within(1, 1_000, "Conversations per page.")] = 20,
    cursor: Annotated[str | None, Parameter(help="Continue from here: the last page prints its cursor.")] = None,
    on: On = DEFAULT,
) -> int:
    """List the conversations that frameworks keep in records, by id.

    Prints numbers only, no text; with `--owner` also titles and the beginning of each last message. A page looks at
    5,000 records at most, so it may be short. `note` says why a record cannot be read.
    """
    async with open_read_only(on.url, on.namespace) as (memory, place):
        try:
            page = await memory.transcripts.list(kind=kind, owner=owner, limit=limit, cursor=cursor)
        except (InvalidSessionId, ValueError) as refused:
            raise Stop(str(refused), 2) from None
        count, now_ms = await count_records(memory.store), await memory.server_time_ms()
    if on.as_json:
        rows = [_row(each, with_texts=owner is not None) for each in page.transcripts]
        print_json({"namespace": on.namespace, "count": count, "records": rows, "cursor": page.cursor})
        return 0
    _print_rows(page, now_ms, with_texts=owner is not None)
    shown = plural(len(page.transcripts), "conversation")
    print(f"{shown} shown; {plural(count, 'record')} in namespace {on.namespace} on {place.name}")
    if page.cursor:
        print(f"more: --cursor {page.cursor}")
    return 0


def _row(transcript: Transcript, *, with_texts: bool) -> dict[str, Any]:
    row = asdict(transcript)
    for name in ("messages", "is_whole", *(() if with_texts else ("title", "last_role", "last_text"))):
        del row[name]
    return row


def _print_rows(page: TranscriptPage, now_ms: int, *, with_texts: bool) -> None:
    rows = []
    for each in page.transcripts:
        count = "" if each.messages_count is None else f"{each.messages_count:,}"
        updated = "" if each.updated_ms is None else f"{duration(now_ms - each.updated_ms)} ago"
        texts = [one_line(text or "", 40) for text in (each.title, each.last_text)] if with_texts else []
        owner, note = printable(each.owner or ""), (each.fault or "").partition(":")[0]
        rows.append([printable(each.name), each.kind or "?", *texts, owner, count, updated, note])
    if rows:
        texts = ["title", "last message"] if with_texts else []
        print_rows(("name", "kind", *texts, "owner", "messages", "updated", "note"), rows)


async def show(
    record: Annotated[str, Parameter(help="The id of the record, or a framework's name for it: a thread, a session.")],
    id: Annotated[str | None, Parameter(help="The name, if the framework is given before it.")] = None,
    /,
    *,
    limit: Annotated[int, within(1, 10_000, "Show at most this many messages, and fields.")] = 50,
    fields: Annotated[bool, flag("Also print the fields of a conversation.")] = False,
    values: Annotated[bool, flag("Print the values of the fields.")] = False,
    full: Full = False,
    redact: Redact = False,
    on: On = DEFAULT,
) -> int:
    """Show a record: the messages of a framework's conversation; numbers, fields, sizes.

    `redismem show record langgraph order-7` names the framework too: claude-agent-sdk, google-adk, langgraph,
    pydantic-ai or strands.
    """
    kind, name = _parse(record, id)
    async with open_read_only(on.url, on.namespace) as (memory, place):
        transcript, fault = await _read(memory, kind, name, limit)
        views = await look(memory.store, name if transcript is None else transcript.id, limit)
        views = views if kind is None or transcript is not None else []
        if not views and fault is None:
            ids = ids_of(kind, name)
            what = "readable record" if kind is None else f"conversation of {kind}"
            copy = "; a copy is in quarantine: redismem list quarantine" if await has_copy(memory.store, ids) else ""
            raise Stop(f"record {printable(name)}: no {what} of namespace {on.namespace} has this id{copy}")
        now_ms = await memory.server_time_ms()
    if on.as_json:
        shown = [view.document(values=values and not redact) for view in views]
        document = None if transcript is None else _document(transcript, redact=redact)
        print_json({"namespace": on.namespace, "records": shown, "conversation": document, "fault": fault})
        return 0 if fault is None else 1
    with_fields = fields or values or transcript is None
    for view in views:
        _print(view, now_ms, with_fields, values and not redact, f"namespace {on.namespace} on {place.name}")
    if transcript is not None:
        _print_transcript(transcript, full=full, redact=redact)
    if fault is not None:
        print(f"record {printable(name)}: {fault}")
    return 0 if fault is None else 1


def _parse(record: str, id: str | None) -> tuple[Kind | None, str]:
    if id is None:
        return None, record
    if record not in KINDS:
        hint = f"for a namespace write --namespace {printable(id)}"
        raise Stop(f"show record takes an id, or one of {', '.join(KINDS)} and an id; {hint}", 2)
    return record, id


async def _read(memory: Memory, kind: Kind | None, name: str, limit: int) -> tuple[Transcript | None, str | None]:
    try:
        return await memory.transcripts.read(kind, name, limit=limit), None
    except CorruptSession as corrupt:
        return None, corrupt.text


def _document(transcript: Transcript, *, redact: bool) -> dict[str, Any]:
    row = _row(transcript, with_texts=not redact)
    messages = [
        {"seq": each.seq, "time_ms": each.time_ms or None, **({"role": each.role} if redact else each.to_openai())}
        for each in transcript.messages
    ]
    return {**row, "is_whole": transcript.is_whole, "messages": messages}


def _print_transcript(transcript: Transcript, *, full: bool, redact: bool) -> None:
    from redismem.cli.session_view import show_messages

    name = printable(transcript.name)
    count = "" if transcript.messages_count is None else f" · {plural(transcript.messages_count, 'message')}"
    out = console()
    out.print(f"  {transcript.kind}: {name}{count}", markup=False)
    if transcript.fault is not None:
        out.print(f"  {transcript.fault}", markup=False)
    show_messages(out, "messages", transcript.messages, full, redact)
    if not transcript.is_whole and transcript.messages:
        print(f"earlier messages not shown: --limit {transcript.messages_count or 10_000}")


def _print(view: RecordView, now_ms: int, with_fields: bool, values: bool, where: str) -> None:
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
    for name, value in view.fields if with_fields else ():
        lines.append(f"  {one_line(readable(name), 120)}: {size(len(value))}")
        if values:
            lines.append(f"    {one_line(readable(value), _VALUE_CHARS)}")
    if with_fields and (hidden := view.fields_count - len(view.fields)) > 0:
        lines.append(f"  {plural(hidden, 'field')} not shown: --limit {min(view.fields_count, 10_000)}")
    for line in lines:
        out.print(line, markup=False, highlight=False)
