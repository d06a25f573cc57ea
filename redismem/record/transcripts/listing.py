"""List and read the conversations of frameworks, whichever framework wrote them. Never writes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, get_args

from redismem.concurrency.offload import LARGE_BYTES, run_apart
from redismem.concurrency.together import run_all
from redismem.errors import CorruptSession, InvalidRecord, OwnerMismatch, TooLarge, UnsupportedFormat
from redismem.messages.message import Message
from redismem.protocol.birth import encode_id
from redismem.protocol.owners import owner_mismatch
from redismem.protocol.record.keys import record_keys
from redismem.protocol.record.listing import RecordEntry, cursor_after, field_sizes
from redismem.record.listing import list_records
from redismem.record.record import Record
from redismem.record.transcripts import claude_agent_sdk, google_adk, langgraph, pydantic_ai, strands
from redismem.record.transcripts.messages import to_messages
from redismem.record.transcripts.transcript import (
    DAMAGED,
    Kind,
    Reading,
    Transcript,
    TranscriptPage,
    Wanted,
)
from redismem.store.store import Store
from redismem.text.beginnings import last_of, title_of

MOST_COUNT = 1_000
_PAGE_COUNT = 250
_PAGES_COUNT = 20
"""A page of transcripts looks at this number of pages of records: most may be no conversations."""
_SIZES_COUNT = 128
_TOGETHER_COUNT = 8
_LIST_BYTES = 1 << 20
"""The largest field that a list reads for a title."""
_PAGE_BYTES = 16 << 20
"""The bytes of messages after which a page reads no more of them."""
_SAME_ID_COUNT = 16


class _Reader(NamedTuple):
    """The reader of one framework: the field that marks its records, the default prefix of their ids, and functions."""

    mark: bytes
    prefix: str
    name_of: Callable[[str], str | None]
    ids_of: Callable[[str], list[str]]
    read: Callable[[Record, Wanted], Awaitable[Reading | None]]


_MODULES: tuple[tuple[Kind, Any], ...] = (
    ("claude-agent-sdk", claude_agent_sdk),
    ("google-adk", google_adk),
    ("langgraph", langgraph),
    ("pydantic-ai", pydantic_ai),
    ("strands", strands),
)
_READERS: Mapping[Kind, _Reader] = {
    kind: _Reader(its.MARK, its.PREFIX, its.name_of, its.ids_of, its.read) for kind, its in _MODULES
}


class _Listed(NamedTuple):
    """A record of the list; without its entry it is damaged."""

    id: str
    kind: Kind | None
    entry: RecordEntry | None


KINDS: tuple[Kind, ...] = get_args(Kind)


async def list_transcripts(
    store: Store, kind: Kind | None, owner: str | None, limit: int, cursor: str | None
) -> TranscriptPage:
    """Return a page of the conversations of frameworks, by the ids of their records; of one kind, or of one owner.

    Raises:
        ValueError: The limit, the kind or the cursor is invalid.
        InvalidSessionId: The owner is invalid.
        StoreUnavailable: Redis does not answer before the deadline.
    """
    if type(limit) is not int or not 1 <= limit <= MOST_COUNT:
        raise ValueError(f"limit is an integer, from 1 to {MOST_COUNT:,}")
    _check_kind(kind)
    rows = list[Transcript]()
    for _ in range(_PAGES_COUNT):
        page = await list_records(store, "", _PAGE_COUNT, cursor, owner)
        kinds = await _kinds_of(store, page.records)
        found = [_Listed(entry.id, its, entry) for entry, its in zip(page.records, kinds, strict=True) if its]
        found += [_Listed(record_id, _likely_kind(record_id), None) for record_id in page.unreadable]
        wanted = sorted((each for each in found if kind in (None, each.kind)), key=lambda each: encode_id(each.id))
        room = limit - len(rows)
        rows += await _describe(store, wanted[:room], owner)
        cursor = page.cursor
        if len(wanted) > room:
            last = wanted[room - 1]
            cursor = cursor_after(store.keys, last.id, None if last.entry is None else last.entry.tag)
        if cursor is None or len(wanted) >= room:
            break
    return TranscriptPage(rows, cursor)


async def read_transcript(
    store: Store, kind: Kind | None, transcript_id: str, owner: str | None, limit: int | None
) -> Transcript | None:
    """Return a conversation with its messages; `None` if this framework, or with `None` any, has none of this id.

    The id is that of the record, or the framework's own, which the default prefix of its adapter then precedes.

    Raises:
        ValueError: The kind is unknown, or the limit is not positive.
        OwnerMismatch: The record has another owner than the one named, or none.
        CorruptSession: The record is damaged.
        StoreUnavailable: Redis does not answer before the deadline.
    """
    _check_kind(kind)
    if limit is not None and (type(limit) is not int or limit < 1):
        raise ValueError("limit is a positive integer, or None")
    for record_id in ids_of(kind, transcript_id):
        page = await list_records(store, record_id, _SAME_ID_COUNT, None)
        if record_id in page.unreadable:
            raise owner_mismatch(None) if owner is not None else CorruptSession("the record cannot be read", record_id)
        entries = [entry for entry in page.records if entry.id == record_id]
        for entry, its in zip(entries, await _kinds_of(store, entries), strict=True):
            if its is None or kind not in (None, its):
                continue
            read, _ = await _read(store, entry, its, owner, limit)
            if read is not None:
                return read
    return None


def ids_of(kind: Kind | None, name: str) -> list[str]:
    """Return the ids that a record of this name may have: the name itself, and with the prefixes of the adapters."""
    readers = [reader for its, reader in _READERS.items() if kind in (None, its)]
    return [*dict.fromkeys([name, *(record_id for reader in readers for record_id in reader.ids_of(name))])]


def _check_kind(kind: Kind | None) -> None:
    if kind is not None and kind not in KINDS:
        raise ValueError(f"a kind is one of {', '.join(KINDS)}")


async def _kinds_of(store: Store, entries: Sequence[RecordEntry]) -> list[Kind | None]:
    """Return the framework that wrote each record, by the field that marks it and the form of its id."""
    likely = [[kind for kind, reader in _READERS.items() if reader.name_of(entry.id)] for entry in entries]
    wanted = [
        (entry, [_READERS[kind].mark for kind in kinds]) for entry, kinds in zip(entries, likely, strict=True) if kinds
    ]
    sizes = list[dict[bytes, int]]()
    for at in range(0, len(wanted), _SIZES_COUNT):
        some: list[dict[bytes, int]] = await store.run(field_sizes(store.keys, wanted[at : at + _SIZES_COUNT]))
        sizes += some
    marks = iter(sizes)
    return [_kind_of(kinds, next(marks)) if kinds else None for kinds in likely]


def _kind_of(likely: Sequence[Kind], fields: Mapping[bytes, int]) -> Kind | None:
    return next((kind for kind in likely if _READERS[kind].mark in fields), None)


def _likely_kind(record_id: str) -> Kind | None:
    return next((kind for kind, reader in _READERS.items() if record_id.startswith(reader.prefix)), None)


def _damaged(record_id: str) -> Transcript:
    kind = _likely_kind(record_id)
    name = None if kind is None else _READERS[kind].name_of(record_id)
    return Transcript(kind, record_id, name or record_id, fault=DAMAGED, is_whole=False)


async def _describe(store: Store, listed: Sequence[_Listed], owner: str | None) -> list[Transcript]:
    """Return the conversations in these records, without those that have ended or changed hands meanwhile."""
    rows, size = list[Transcript](), 0
    for at in range(0, len(listed), _TOGETHER_COUNT):
        most_bytes = _LIST_BYTES if size < _PAGE_BYTES else 0
        works = [_glance(store, each, owner, most_bytes) for each in listed[at : at + _TOGETHER_COUNT]]
        found = await run_all(works, blocks=store.transport.blocks)
        rows += [row for row, _ in found if row is not None]
        size += sum(read for _, read in found)
    return rows


async def _glance(store: Store, listed: _Listed, owner: str | None, most_bytes: int) -> tuple[Transcript | None, int]:
    """Return a row of the list, `None` for none, and the bytes that were read for it."""
    record_id, kind, entry = listed
    try:
        if entry is not None and kind is not None:
            return await _read(store, entry, kind, owner, None, most_bytes)
    except OwnerMismatch:
        return None, 0
    except CorruptSession:
        pass
    return (_damaged(record_id) if owner is None else None), 0


async def _read(
    store: Store, entry: RecordEntry, kind: Kind, owner: str | None, limit: int | None, most_bytes: int | None = None
) -> tuple[Transcript | None, int]:
    """Read one conversation, and say how many bytes. For a list `most_bytes` limits them.

    Raises OwnerMismatch, CorruptSession.
    """
    reader = _READERS[kind]
    record = Record(store, record_keys(store.keys, entry.id, entry.tag, owner=owner))

    async def sizes(fields: Sequence[bytes]) -> dict[bytes, int]:
        found: list[dict[bytes, int]] = await store.run(field_sizes(store.keys, [(entry, fields)]))
        return found[0]

    async def decode(work: Callable[[], Any], size: int) -> Any:
        try:
            return await run_apart(store.transport, work, is_much=size > LARGE_BYTES)
        except (TypeError, LookupError, AttributeError):  # JSON of another shape than the framework writes
            raise ValueError("a value has another shape") from None

    row = partial(Transcript, kind, entry.id, reader.name_of(entry.id) or entry.id, entry.owner)
    try:
        reading = await reader.read(record, Wanted(sizes, decode, store.run, limit, most_bytes))
        if reading is None:
            return None, 0
        messages: list[Message] = await decode(partial(to_messages, reading.messages), reading.size)
        first: list[Message] = await decode(partial(to_messages, reading.first), 0)
    except (ValueError, InvalidRecord, TooLarge, UnsupportedFormat):
        return row(fault=DAMAGED, is_whole=False), 0
    role, text = last_of(messages)
    found = row(
        title=title_of([*first, *messages] if reading.is_whole or first else []),
        messages_count=reading.count,
        created_ms=reading.created_ms,
        updated_ms=reading.updated_ms,
        last_role=role,
        last_text=text,
        fault=reading.fault,
        messages=() if most_bytes is not None else tuple(messages),
        is_whole=reading.is_whole,
    )
    return found, reading.size
