"""Pydantic AI: `ConversationStore` keeps conversations with their branches and forks in Redis."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Self

from redismem import InvalidMessage, Memory, OwnerMismatch, RecordConflict
from redismem.adapters.sessions import Closes, Opened, decode_in_slices, join_id, read_or_begin, split_id
from redismem.record import Change, Head, Record, RecordPage, Retention
from redismem.record.pages import all_listed
from redismem.settings.extras import from_extra

with from_extra("pydantic-ai", __name__):
    from pydantic import TypeAdapter
    from pydantic_ai import conversation_store as theirs
    from pydantic_ai.conversation_store import ConversationConflict, ConversationEntry, ConversationRecord

_RECORD, _REVISION, _ENTRY = b"record", b"revision", b"entry:"
"""The fields of a conversation: its record, the revision to compare with, and an entry per message."""
_PAGE_COUNT = 500
_EPOCH, _LAST_US = datetime(1970, 1, 1, tzinfo=UTC), 2**53 - 1
_RECORDS = TypeAdapter(ConversationRecord)
_ENTRIES = TypeAdapter(ConversationEntry)


class EntryId(str):
    """The id of an entry, which also knows its conversation, so that reading the entry needs no search.

    It equals the plain string. Copies keep the conversation; JSON does not.
    """

    conversation_id: str

    def __new__(cls, text: str, conversation_id: str) -> Self:
        """Make the id of an entry of a conversation."""
        self = super().__new__(cls, text)
        self.conversation_id = conversation_id
        return self

    def __reduce__(self) -> tuple[type[EntryId], tuple[str, str]]:
        return EntryId, (str(self), self.conversation_id)


class ConversationStore(Closes, theirs.ConversationStore):
    """A conversation store for Pydantic AI, in place of `InMemoryConversationStore`.

    >>> store = ConversationStore("redis://127.0.0.1:6379/0")
    >>> conversation = await store.load("user-42") or Conversation(conversation_id="user-42")
    >>> await store.save(await agent.run(prompt, conversation=conversation))

    A save stores its messages and the new revision in one step, or raises ConversationConflict and stores nothing. It
    is made once, even if a reply is lost. A conversation contains its whole history: a fork gets a copy, so deleting
    one conversation removes all of it and nothing of another one.

    Every method may raise StoreUnavailable, and InvalidSessionId if a conversation id is empty.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        memory: Memory | None = None,
        redis_client: Any = None,
        key_prefix: str = "pydantic_ai",
        ttl: float | None = None,
        keep_last: int | None = None,
        max_age: float | None = None,
    ) -> None:
        """Make a store. It connects on first use.

        Args:
            url: The URL of Redis. `None` means `REDISMEM_URL`.
            memory: A memory to use instead of a URL. The caller closes it.
            redis_client: A redis.asyncio client to use instead of a URL. The caller closes it.
            key_prefix: The conversation `42` is the record `<key_prefix>:42` of redismem.
            ttl: The seconds after the last save after which Redis removes a conversation. `None` keeps it.
            keep_last: The conversations of a scope that workers keep, those that were saved last, 1 to 1,000. `None`
                keeps all.
            max_age: The seconds after its last save after which workers remove a conversation. `None` means never.

        Raises:
            InvalidRecord: `ttl`, `keep_last` or `max_age` is out of range.
            InvalidSessionId: `key_prefix` is not a string.
            InvalidSettings: URL, memory or client is invalid, or more than one of them is given.
        """
        self._retention = Retention("pydantic-ai", keep_last, max_age)
        self._opened = Opened(url, memory, redis_client)
        self._prefix, self._ttl_s = key_prefix, ttl
        try:
            self._open("x")  # refuses prefix and ttl at the start of the program, not in its first turn
        except BaseException:
            self._opened.close()
            raise

    async def read_record(self, conversation_id: str) -> ConversationRecord | None:
        """Return the record of a conversation, `None` if there is no such conversation."""
        stored = self._open(conversation_id)
        [value] = await read_or_begin(stored, partial(stored.get, _RECORD))
        return None if value is None else _decode_record(value)

    async def read_records(self, *, scope: str | None = None, limit: int | None = None) -> Sequence[ConversationRecord]:
        """Return the records of all conversations or those of one scope, last saved first.

        With a limit, an index of the last saves names them. Without it, each conversation of the scope is read.

        Args:
            scope: The scope; `None` means all conversations of this store.
            limit: The most records to return; `None` means all.

        Raises:
            InvalidSessionId: The scope is empty or longer than 256 bytes.
        """
        records: list[ConversationRecord] = []
        if limit is not None and 0 < limit <= _PAGE_COUNT:
            page = await self._opened.memory.records(self._beginning, limit, owner=scope, newest=True, fields=[_RECORD])
            records = self._records(page, scope)
        if (
            limit is None or limit < 0 or len(records) < limit
        ):  # all that there are: also those that no save has put into the index
            records = [record async for page in self._pages(scope, _RECORD) for record in self._records(page, scope)]
        records.sort(key=lambda record: record.updated_at, reverse=True)
        return records[:limit]

    def _records(self, page: RecordPage, scope: str | None) -> list[ConversationRecord]:
        decoded = [(entry.id, _decode_record(entry.values[0])) for entry in page.records if entry.values[0] is not None]
        return [each for id, each in decoded if self._has(each, id) and scope in (None, each.scope)]

    async def write_record(
        self,
        record: ConversationRecord,
        *,
        new_entries: Sequence[ConversationEntry] = (),
        expected_revision: str | None,
    ) -> None:
        """Store a record with its new entries in one step. A new conversation also gets a copy of the history it forks.

        Raises:
            ConversationConflict: The stored revision is another one, or an entry before the new ones is missing.
            InvalidMessage: A message cannot be written as JSON.
            InvalidSessionId: The scope is empty or longer than 256 bytes.
            TooLarge: One save has more than 64 MiB, or more than about 20,000 messages.
        """
        fields = {_field(entry.id): _encode_entry(entry) for entry in new_entries}
        parent_id = new_entries[0].parent_id if new_entries else record.head_id
        if expected_revision is None and parent_id is not None:
            fields = await self._copy_history(record, parent_id) | fields
        earlier = {_field(id) for id in (parent_id, record.head_id) if id is not None} - fields.keys()
        change = Change(
            equals={} if expected_revision is None else {_REVISION: expected_revision.encode()},
            absent=[_REVISION] if expected_revision is None else [],
            present=earlier,
            sets={**fields, _RECORD: _RECORDS.dump_json(record), _REVISION: record.revision.encode()},
            updated_us=_microseconds(record.updated_at),
        )
        stored = self._open(record.conversation_id, record.scope)
        try:
            await stored.write(self._retention.add_to(change))
        except OwnerMismatch:  # the conversation is there already, in another scope
            if expected_revision is not None:
                raise
            raise ConversationConflict(record.conversation_id) from None
        except RecordConflict:
            if not new_entries or await stored.get(_field(new_entries[-1].id)) == [None]:
                raise ConversationConflict(record.conversation_id) from None
            # Its reply was lost, and others saved before the next attempt: no other save has entries with these ids.

    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        """Delete a conversation with all its entries. Its forks have copies of their own, and stay.

        Raises:
            ConversationConflict: The stored revision is another one, or there is no such conversation.
        """
        try:
            await self._open(conversation_id).clear(equals={_REVISION: expected_revision.encode()})
        except RecordConflict:
            raise ConversationConflict(conversation_id) from None

    async def read_entry(self, entry_id: str) -> ConversationEntry:
        """Return an entry.

        An id from a record or an entry that this store returned knows its conversation. For any other string, the store
        asks each of its conversations.

        Raises:
            LookupError: There is no such entry.
        """
        conversation_id = await self._conversation_of(entry_id)
        [value] = await self._open(conversation_id).get(_field(entry_id))
        if value is None:
            raise LookupError("no such entry")
        return _decode_entry(conversation_id, value)

    async def read_history(self, head_id: str | None, *, limit: int | None = None) -> list[ConversationEntry]:
        """Return the entries up to `head_id`, oldest first, or the last `limit` of them, in one round trip per 2,000.

        Raises:
            LookupError: An entry is missing, because the conversation was deleted meanwhile.
        """
        if head_id is None or limit == 0:
            return []
        conversation_id = await self._conversation_of(head_id)
        heads = await _read_heads(self._open(conversation_id), head_id, limit)
        decode = partial(map, partial(_decode_entry, conversation_id))
        return await decode_in_slices([value for _, value in reversed(heads)], lambda values: list(decode(values)))

    async def _copy_history(self, record: ConversationRecord, entry_id: str) -> dict[bytes, bytes]:
        """Return the stored entries up to one of another conversation, as they are: decoded, they might change."""
        try:
            source = await self._conversation_of(entry_id, record.forked_from)
            return dict(await _read_heads(self._open(source), entry_id, None))
        except LookupError:
            raise ConversationConflict(record.conversation_id) from None

    async def _conversation_of(self, entry_id: str, likely: str | None = None) -> str:
        if isinstance(entry_id, EntryId):
            return entry_id.conversation_id
        if likely is not None and (await self._open(likely).get(_field(entry_id)))[0] is not None:
            return likely
        async for page in self._pages(None, _RECORD, _field(entry_id)):
            for entry in page.records:
                value, found = entry.values
                if found is not None and value is not None:
                    conversation = _decode_record(value)
                    if self._has(conversation, entry.id):
                        return conversation.conversation_id
        raise LookupError("no such entry")

    def _pages(self, scope: str | None, *fields: bytes) -> AsyncIterator[RecordPage]:
        records = self._opened.memory.records
        return all_listed(partial(records, self._beginning, _PAGE_COUNT, owner=scope, fields=fields))

    @property
    def _beginning(self) -> str:
        return f"{self._prefix}:" if self._prefix else ""

    def _has(self, record: ConversationRecord, record_id: str) -> bool:
        """True if a conversation is of this store, and not of one with a longer prefix."""
        return split_id(self._prefix, record_id) == record.conversation_id

    def _open(self, conversation_id: str, scope: str | None = None) -> Record:
        record_id = join_id(self._prefix, conversation_id)
        return self._opened.memory.record(record_id, owner=scope, ttl_s=self._ttl_s)


async def _read_heads(record: Record, entry_id: str, limit: int | None) -> list[tuple[bytes, bytes]]:
    """Return the stored entries up to one, newest first. Raise LookupError if one of them is missing."""
    heads = (await record.walk(_field(entry_id), limit=limit)).heads
    if not heads or (len(heads) != limit and Head.decode(heads[-1][1]).parent):
        raise LookupError("an entry is missing: the conversation was deleted meanwhile")
    return heads


def _microseconds(time: datetime) -> int:
    return min((time.astimezone(UTC) - _EPOCH) // timedelta(microseconds=1), _LAST_US)


def _field(entry_id: str) -> bytes:
    return _ENTRY + entry_id.encode()


def _encode_entry(entry: ConversationEntry) -> bytes:
    try:
        body = _ENTRIES.dump_json(entry)
    except ValueError:
        raise InvalidMessage("a message cannot be written as JSON, for instance because of a lone surrogate") from None
    return Head(b"" if entry.parent_id is None else _field(entry.parent_id), body=body).encode()


def _decode_entry(conversation_id: str, value: bytes) -> ConversationEntry:
    entry = _ENTRIES.validate_json(Head.decode(value).body)
    parent_id = None if entry.parent_id is None else EntryId(entry.parent_id, conversation_id)
    return replace(entry, id=EntryId(entry.id, conversation_id), parent_id=parent_id)


def _decode_record(value: bytes) -> ConversationRecord:
    record = _RECORDS.validate_json(value)
    ids: list[str] = [EntryId(id, record.conversation_id) for id in record.branches]
    head_id = None if record.head_id is None else EntryId(record.head_id, record.conversation_id)
    return replace(record, head_id=head_id, branches=ids)
