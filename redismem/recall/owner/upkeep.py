"""Keep the index of an owner equal to the owner's sessions.

The index lies in another slot than the sessions, so no script can change both. Before a session of an owner changes,
the caller notes that the index must be checked in a minute. Afterwards it updates the index. If the process dies in
between, a worker makes the check. `OwnerIndex.update` reads the session again after each write, and repeats itself
until nothing has changed meanwhile. So the last of several concurrent updates leaves the index right.
"""

from __future__ import annotations

import logging
from collections.abc import Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from redismem.concurrency.offload import run_apart
from redismem.errors import RedismemError
from redismem.events import facts
from redismem.messages.message import Message
from redismem.originals.blocks import block_number, first_seq_of
from redismem.originals.fields import searchable_texts, sign_messages
from redismem.protocol.ids import session_hash
from redismem.protocol.owner import calls
from redismem.protocol.owner.calls import Described
from redismem.protocol.owner.entries import PART_COUNT, Entry, announcement, encode_entry, encode_name
from redismem.protocol.session import pages
from redismem.protocol.session.page_reads import PageRange
from redismem.recall.originals import Originals
from redismem.recall.owner.cached import BLOCKS_LIMIT, decode_all
from redismem.store.pages import read_page
from redismem.store.store import Store

log = logging.getLogger("redismem")

T = TypeVar("T")

_ROUNDS_LIMIT = 4
_READ_COUNT = 256
_BYTES_PER_TOKEN = 4


async def change_owned(store: Store, owner: str, session_id: str, work: Coroutine[Any, Any, T]) -> T:
    """Do the work, which changes or removes messages of a session of the owner, and update the owner's index.

    If the note or the update fails, the failure is logged, and the work counts all the same. If the work fails, a
    worker checks the index, because the work may be done.
    """
    index = OwnerIndex(store, owner)
    try:
        has_index = await do_logged(session_id, index.note())
        result = await work
    finally:
        work.close()
    if has_index is not False:
        await do_logged(session_id, index.update(session_id))
    return result


async def do_logged(session_id: str, work: Coroutine[Any, Any, T]) -> T | None:
    """Do the work on the index of a session's owner. A failure of Redis is logged: a worker checks the index later."""
    try:
        return await work
    except RedismemError as error:
        log_not_updated(session_id, error)
        return None


def log_not_updated(session_id: str, error: RedismemError) -> None:
    """Log that the index of a session's owner was not updated because of the error."""
    session = session_hash(session_id)
    extra = facts(op="owner_index", session=session, error=type(error).__name__)
    log.warning("session %s: its owner's index is not updated yet, a worker will: %s", session, error.text, extra=extra)


class OwnerIndex:
    """The index of one owner. The methods raise StoreUnavailable, CorruptSession and UnsupportedFormat."""

    def __init__(self, store: Store, owner: str) -> None:
        self._store = store
        self._keys = calls.owner_keys(store.keys, owner)

    async def note(self) -> bool:
        """Note that a worker must check the index soon. False means that there is no index, so nothing is noted."""
        return await self._store.run(calls.change(self._keys, self._store.clock))

    async def announce(self, session_id: str, epoch: str, now_ms: int) -> None:
        """Note that a summary is about to change this session, also if the index does not contain it yet.

        `update` removes the note. If the process dies before, a worker makes the update in a minute.
        """
        name, entry = announcement(session_id, epoch, now_ms)
        await self._store.run(calls.change(self._keys, self._store.clock, {name: entry}, expires_ms=now_ms))

    async def drop(self) -> bool:
        """Remove the index. True means that there was one."""
        return await self._store.run(calls.drop(self._keys))

    async def update(self, session_id: str, *, with_window: bool = False) -> None:
        """Make the entries of a session equal to it, and remove them if it is gone or belongs to another owner.

        Args:
            session_id: The session.
            with_window: Include the messages that no summary covers. If the index has such messages of the session
                already, they are always included.
        """
        keys = self._store.keys.session(session_id)
        for _ in range(_ROUNDS_LIMIT):
            described = await self._store.run(calls.describe(keys))
            if not await self._update_from(described, session_id, with_window=with_window):
                return
            if described.is_as(await self._store.run(calls.describe(keys))):
                return

    async def _update_from(self, described: Described, session_id: str, *, with_window: bool) -> bool:
        """Write the entries that this state of the session requires. False means that they are there already."""
        names = (await self._store.run(calls.read_names(self._keys))).get(session_id, [])
        stored = await self._store.run(calls.read_entries(self._keys, names)) if names else {}
        is_ours = described.owner == self._keys.owner
        if is_ours and with_window and _has_all(described, decode_all(stored)):
            return False
        wanted = await self._sign(described, session_id, stored, with_window) if is_ours else {}
        sets = {name: value for name, value in wanted.items() if stored.get(name) != value}
        drops = [name for name in names if name not in wanted]
        if not sets and not drops:
            return False
        expires_ms = described.expires_ms if wanted else 0
        await self._store.run(calls.change(self._keys, self._store.clock, sets, drops, expires_ms))
        return True

    async def _sign(
        self, described: Described, session_id: str, stored: Mapping[bytes, bytes], with_window: bool
    ) -> dict[bytes, bytes]:
        """Return the entries of a session, by their names. An entry of 64 full blocks stays as it is stored."""
        current = {name: entry for name, entry in decode_all(stored) if entry.epoch == described.epoch}
        with_window = with_window or any(entry.signed_seq for entry in current.values())
        window, last = block_number(described.first_seq), block_number(described.first_seq - 1)
        if with_window:
            last = max(last, block_number(described.last_seq))
        first = max(0, last + 1 - BLOCKS_LIMIT)
        wanted, full = dict[bytes, bytes](), set[int]()
        for name, entry in current.items():
            is_whole = len(entry.signatures) == PART_COUNT and max(entry.signatures) < block_number(entry.first_seq)
            if is_whole and entry.edits == described.edits and min(entry.signatures) >= first:
                wanted[name] = stored[name]
                full |= entry.signatures.keys()
        signatures: dict[int, bytes] = {}
        if described.has_originals:
            numbers = range(first, block_number(described.first_seq - 1) + 1)
            signatures = await self._read_signatures(session_id, [n for n in numbers if n not in full])
        if with_window and described.last_seq >= described.first_seq:
            signatures.update(await self._sign_window(described, session_id))
        for part in {number // PART_COUNT for number in signatures}:
            some = {number: each for number, each in signatures.items() if number // PART_COUNT == part}
            signed_seq = described.last_seq if with_window and max(some) >= window else 0
            numbers_of = described.first_seq, signed_seq, described.active_ms
            entry = Entry(described.epoch, described.edits, *numbers_of, some)
            wanted[encode_name(part, session_id)] = encode_entry(part, entry)
        return wanted

    async def _read_signatures(self, session_id: str, numbers: Sequence[int]) -> dict[int, bytes]:
        """Return the stored signatures of these blocks. Blocks without one are left out."""
        keys, signatures = self._store.keys.session(session_id), dict[int, bytes]()
        for at in range(0, len(numbers), _READ_COUNT):
            part = numbers[at : at + _READ_COUNT]
            signed = await self._store.run(pages.read_signatures(keys, part))
            pairs = zip(part, signed.signatures, strict=False)
            signatures |= {number: signature for number, signature in pairs if signature is not None}
        return signatures

    async def _sign_window(self, described: Described, session_id: str) -> Mapping[int, bytes]:
        """Return signatures of the blocks that contain messages of the window."""
        keys = self._store.keys.session(session_id)
        first_seq, stop_seq = first_seq_of(block_number(described.first_seq)), described.last_seq + 1
        window = pages.Window(described.epoch, described.first_seq, described.last_seq)
        page = await read_page(self._store.run, keys, PageRange(stop_seq - first_seq, stop_seq, True, window))
        messages = await Originals(self._store, keys).messages(page)
        return await run_apart(self._store.transport, partial(_sign_messages, messages))


def _has_all(described: Described, entries: Sequence[tuple[bytes, Entry]]) -> bool:
    """True if these entries of a session contain its whole window, and no message has changed since."""
    state = described.epoch, described.edits, described.first_seq
    signed = [entry.signed_seq for _, entry in entries if (entry.epoch, entry.edits, entry.first_seq) == state]
    return max(signed, default=0) >= described.last_seq


def _sign_messages(messages: Sequence[Message]) -> dict[int, bytes]:
    """Return the signatures of the blocks in which these messages stand. Pinned messages are left out."""
    blocks: dict[int, list[Message]] = {}
    for message in messages:
        if not message.pinned:
            blocks.setdefault(block_number(message.seq), []).append(message)
    signatures: dict[int, bytes] = {}
    for number, part in blocks.items():
        if any(map(searchable_texts, part)):
            signatures[number] = sign_messages(part, sum(message.tokens * _BYTES_PER_TOKEN for message in part))
    return signatures
