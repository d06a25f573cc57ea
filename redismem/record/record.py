"""The handle of one record, for asyncio. `blocking` runs these coroutines without an event loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TypeVar

from redismem.errors import CorruptSession, InvalidRecord, TooLarge
from redismem.protocol.call import Call
from redismem.protocol.ids import session_hash
from redismem.protocol.quarantine import drop_copy
from redismem.protocol.record import calls, reads
from redismem.protocol.record.calls import WriteOutcome
from redismem.protocol.record.changes import Change
from redismem.protocol.record.keys import RecordKeys, record_keys
from redismem.protocol.record.quarantine import of_record
from redismem.protocol.record.reads import Found, Page, ReadOptions, Related, Trace, Walk, Walker
from redismem.record.quarantine import put_into_quarantine
from redismem.store.store import Store

T = TypeVar("T")
_NO_FIELDS: Mapping[bytes, bytes] = MappingProxyType({})
LONGEST_WALK_COUNT = 100_000


class Record:
    """The handle of one record: fields with values, and members in lexicographic order. All of them are bytes.

    A handle keeps no state and costs no I/O. Every method calls Redis, and may raise StoreUnavailable, also with the
    fallback: a record is never answered or accepted while Redis is away. UnsupportedFormat means that another release
    wrote the record. If a record cannot be read, every read raises CorruptSession and leaves it as it is. The next
    method that writes moves it into quarantine, logs an error, and finds no record. `set_aside()` does only that.
    """

    __slots__ = ("_keys", "_store")

    def __init__(self, store: Store, keys: RecordKeys) -> None:
        """Use `Memory.record` instead of this constructor."""
        self._store = store
        self._keys = keys

    def __repr__(self) -> str:
        return f"<Record {session_hash(self.id)} of namespace {self._store.keys.namespace!r}>"

    @property
    def id(self) -> str:
        """The record's id, unchanged."""
        return self._keys.id

    @property
    def tag(self) -> str:
        """The tag: records of one tag can be written together."""
        return self._keys.tag

    async def exists(self) -> bool:
        """Return True if the record exists: it was written, and neither cleared nor has it expired."""
        return await self._run(calls.exists(self._keys))

    async def get(self, *fields: bytes, renew: bool = False) -> list[bytes | None]:
        """Return the values of fields, `None` for a missing one, in one step.

        Args:
            fields: The names of the fields.
            renew: True also renews the expiry, if the handle has a time to live.

        Raises:
            InvalidRecord: A field is not 1 to 4,096 bytes.
        """
        return await self._run(calls.get(self._keys, fields, self._store.clock, renew=renew))

    async def write(self, change: Change, *others: tuple[Record, Change]) -> bool:
        """Make a change, if all its conditions hold, and create the record if it is missing.

        Also sets the expiry anew: the time to live of the handle from now on, or no expiry without one. A write with
        conditions is made once, even if a lost reply lets redismem send it again.

        Args:
            change: The change of this record.
            others: Further records of the same tag, each with its change: all changes are made, or none.

        Returns:
            True if this attempt made the change; False if an earlier one had, whose reply was lost.

        Raises:
            RecordConflict: A condition does not hold. It names the record and the field.
            InvalidRecord: A name or value is invalid, or the records do not have one tag.
            TooLarge: More than 20,000 names, or 64 MiB.
            WrongShards: Redis was emptied, and another process has begun the namespace with other shards. The record
                was created, but the other processes do not see it.
        """
        changes = [(self._keys, change), *((record.keys, its_change) for record, its_change in others)]
        call = calls.write(changes, self._store.clock, self._store.sender)
        outcome = await self._run(call, [keys for keys, _ in changes])
        if outcome is WriteOutcome.CREATED:
            await self._store.agreement.agree_again()
        return outcome is not WriteOutcome.DUPLICATE

    async def newest(
        self,
        prefix: bytes = b"",
        *,
        before: bytes | None = None,
        member: bytes | None = None,
        named: bool = False,
        related: Related | None = None,
        renew: bool = False,
    ) -> Found | None:
        """Return the greatest member that begins with a prefix, with its value, in one round trip.

        A related range of more than 10,000 members takes further round trips.

        Args:
            prefix: The beginning of the member.
            before: Only members less than this one.
            member: Exactly this member, instead of the greatest. It begins with `prefix`.
            named: True also reads the fields that the value names, which then is a `Head`.
            related: The range to read too.
            renew: True also renews the expiry, if the handle has a time to live.

        Raises:
            InvalidRecord: A prefix, member or range is invalid.
        """
        bounds = reads.bounds_of(prefix, before=before)
        if member is not None:
            bounds = reads.exactly(member)
            if before is not None or not member.startswith(prefix):
                raise InvalidRecord("member begins with prefix, and excludes before")
        options = ReadOptions(prefix, 1, reverse=True, named=named, related=related, renew=renew)
        page = await self._run(reads.page(self._keys, bounds, options, self._store.clock))
        await self._complete_ranges(page, prefix, related)
        return page.found[0] if page.found else None

    async def page(
        self,
        prefix: bytes = b"",
        *,
        after: bytes | None = None,
        limit: int = 100,
        reverse: bool = False,
        named: bool = False,
        related: Related | None = None,
        renew: bool = False,
    ) -> Page:
        """Return a page of the members that begin with a prefix, with their values, in one round trip.

        A related range of more than 10,000 members takes further round trips.

        Args:
            prefix: The beginning of the members.
            after: The `after` of the previous page, or any other bound: the page begins behind it.
            limit: The most members, 1 to 10,000. The page has fewer if it would have more than about 8 MiB.
            reverse: True reads from the greatest member downwards.
            named: True also reads the fields that each value names, which then is a `Head`.
            related: The range to read with each member.
            renew: True also renews the expiry, if the handle has a time to live.

        Raises:
            InvalidRecord: A prefix, bound or range is invalid.
            ValueError: The limit is out of range.
        """
        bounds = reads.bounds_of(prefix, before=after) if reverse else reads.bounds_of(prefix, after=after)
        options = ReadOptions(prefix, limit, reverse=reverse, named=named, related=related, renew=renew)
        page = await self._run(reads.page(self._keys, bounds, options, self._store.clock))
        await self._complete_ranges(page, prefix, related)
        return page

    async def _complete_ranges(self, page: Page, prefix: bytes, related: Related | None) -> None:
        """Read the rest of each related range that is longer than one call returns."""
        if related is None:
            return
        for found in page.found:
            if len(found.related) >= reads.RANGE_COUNT:
                beginning = related.prefix + found.member[len(prefix) :] + related.suffix
                after: bytes | None = found.related[-1][0]
                while after is not None:
                    rest = await self.page(beginning, after=after, limit=reads.RANGE_COUNT)
                    found.related += [(each.member, each.value) for each in rest.found]
                    after = rest.after

    async def walk(
        self,
        start: bytes,
        *,
        prefix: bytes = b"",
        related: Related | None = None,
        traces: Sequence[Trace] = (),
        skip_start: bool = False,
        limit: int | None = None,
    ) -> Walk:
        """Follow the parents of a member, whose values are heads, to the end of the chain.

        Without traces, returns each member with its value. With traces, returns what each collected, and ends as soon
        as all of them have their seed. Takes one round trip per 2,000 members or 8 MiB.

        Args:
            start: The first member.
            prefix: The beginning of the members, which the related range leaves out.
            related: The range that the traces belong to.
            traces: What to collect.
            skip_start: True begins with the parent of `start`.
            limit: The most members to visit, with `start`. `None` means to the end.

        Raises:
            InvalidRecord: A member, range or trace is invalid.
            TooLarge: The chain has more than 100,000 members, or goes round in a circle; or a member has more than
                10,000 related ones.
        """
        most = LONGEST_WALK_COUNT if limit is None else limit
        walker = Walker(self._keys, start, prefix, related, traces, most, skip_start)
        while (call := walker.next_call()) is not None:
            await self._run(call)
        if limit is None and walker.member:
            raise TooLarge(
                f"the chain of a record is over {LONGEST_WALK_COUNT:,} members, a fixed limit, or is a circle"
            )
        return walker.walk

    async def drop(self, prefix: bytes, *, before: bytes | None = None, limit: int | None = None) -> int:
        """Remove the members that begin with a prefix, and the fields of their names; return their number.

        Takes one round trip per 1,000 members. If it fails halfway, the same call removes the rest.

        Args:
            prefix: The beginning of the members. b"" means all of them.
            before: Only members less than this one.
            limit: The most members to remove, least first. `None` means all.

        Raises:
            InvalidRecord: The prefix or bound is not bytes.
        """
        bounds = reads.bounds_of(prefix, before=before)
        dropped = 0
        while limit is None or dropped < limit:
            wanted = reads.DROP_COUNT if limit is None else min(limit - dropped, reads.DROP_COUNT)
            count = await self._run(reads.drop(self._keys, bounds, wanted, self._store.sender))
            dropped += count
            if count < wanted:
                break
        return dropped

    async def clear(self, *, equals: Mapping[bytes, bytes] = _NO_FIELDS) -> bool:
        """Remove the whole record with its copies in quarantine, and return True if it existed.

        A write that is called after it begins a new record, which stays. The copies go in a second step, if there are
        any. If that fails, the same call removes the rest.

        Args:
            equals: Conditions: these fields have these values.

        Raises:
            RecordConflict: A condition does not hold, for instance because there is no record.
        """
        cleared = await self._run(calls.clear(self._keys, equals, self._store.settings))
        if cleared.copies_ms:
            await self._run(drop_copy(of_record(self._keys), *cleared.copies_ms))
        return cleared.was_there

    async def touch(self) -> bool:
        """Renew the expiry, if the handle has a time to live. Returns False if there is no record."""
        return await self._run(calls.touch(self._keys, self._store.clock))

    async def set_aside(self) -> bool:
        """Put the record into quarantine if it cannot be read, and return True if so. There is then no record."""
        return await put_into_quarantine(self._store, [self._keys], "it was set aside") > 0

    async def _run(self, call: Call[T], records: Sequence[RecordKeys] = ()) -> T:
        if not self._store.agreement.has_begun:
            await self._store.agreement.begin()
        try:
            return await self._store.run(call)
        except CorruptSession as corrupt:
            if call.op.is_read:
                raise
            await put_into_quarantine(self._store, records or [self._keys], corrupt.text)
        return await self._store.run(call.again())

    @property
    def keys(self) -> RecordKeys:
        """The record's keys in Redis."""
        return self._keys


def open_record(store: Store, record_id: str, tag: str | None, owner: str | None, ttl_s: float | None) -> Record:
    """Return the handle of a record. See `Memory.record`."""
    return Record(store, record_keys(store.keys, record_id, tag, owner=owner, ttl_s=ttl_s))
