"""Recall over all conversations of an owner: one search in the index of the owner, which quotes messages of several.

The index is read at the same time as a turn appends, then the best blocks, each from its session. So a turn takes one
more round trip, and a second one where the index is cached and has changed since. A block is skipped if its session
has begun anew or is gone, and a worker then checks the index.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence, Set
from functools import partial

from redismem.concurrency.offload import LARGE_BYTES, run_apart, run_both
from redismem.context.context import Context
from redismem.errors import CorruptSession, InvalidSessionId, RedismemError, StoreUnavailable, UnsupportedFormat
from redismem.events import Op, facts
from redismem.formats.recalled import OWNER_FRAME_TOKENS, SESSION_TOKENS
from redismem.formats.tool_groups import CallIds
from redismem.messages.decoding import StoredMessages
from redismem.messages.message import FoundMessage, Message
from redismem.messages.values import Undecodable
from redismem.originals.blocks import BLOCK_COUNT, first_seq_of
from redismem.protocol.call import Call
from redismem.protocol.clock import local_day
from redismem.protocol.ids import session_hash
from redismem.protocol.owner import calls
from redismem.protocol.owner.entries import VERSION_FIELD
from redismem.protocol.session.page_reads import PageRange
from redismem.protocol.session.pages import MessagePage, Window
from redismem.recall import HITS_LIMIT
from redismem.recall.bm25 import Ranking, lift_neighbours, rank, select_blocks
from redismem.recall.cache import RecallCache
from redismem.recall.cached import Contents
from redismem.recall.originals import Originals
from redismem.recall.owner.cached import BlockRef, CachedOwner
from redismem.recall.owner.upkeep import OwnerIndex, do_logged
from redismem.recall.recall import leave_out
from redismem.recall.selection import Size, choose, count_hits, group_calls
from redismem.store.dictionaries import load_dictionaries
from redismem.store.pages import read_page
from redismem.store.store import Store

log = logging.getLogger("redismem")

_NO_SEQ = 1 << 62
# More than there are days up to the year 9999, so a session and a day make one number.
_DAYS_COUNT = 10_000_000


class OwnerRecall:
    """One search in all conversations of an owner, asked for in the session `session_id`."""

    def __init__(self, store: Store, cache: RecallCache, owner: str, session_id: str, query: str) -> None:
        self._store = store
        self._cache = cache
        self._owner = owner
        self._session_id = session_id
        self._query = query
        self._keys = calls.owner_keys(store.keys, owner)
        self._today: int | None = None
        self._stale = False
        self._in_turn = False

    async def search(self, limit: int | None = None, max_tokens: int | None = None) -> list[Message]:
        """Return the best messages, by session and seq. Without limit and budget there are HITS_LIMIT hits.

        Raise StoreUnavailable, CorruptSession, UnsupportedFormat.
        """
        if limit is None and max_tokens is None:
            limit = HITS_LIMIT
        return await self._select(await self._load(), limit, max_tokens)

    async def search_in_turn(self, call: Call[Context], max_tokens: int) -> Context:
        """Run an append and return its context, with the recalled messages added. Raises the errors of the append.

        If the search fails, the turn succeeds: the failure is logged, and no messages are recalled.
        """
        self._in_turn = True
        append = self._store.run(call, quarantine=True)
        context, loaded = await run_both(self._store.transport, append, self._load_or_error())
        if not context.degraded:
            self._today = context.newest_day
            context.with_days = self._store.settings.recall_days
            context.recalled = await self._select_or_log(loaded, max_tokens, context.first_seq)
        return context

    async def _load_or_error(self) -> CachedOwner | RedismemError:
        try:
            return await self._load()
        except RedismemError as error:
            return error

    async def _select_or_log(
        self, loaded: CachedOwner | RedismemError, max_tokens: int, before_seq: int
    ) -> list[Message]:
        try:
            if isinstance(loaded, RedismemError):
                raise loaded
            return await self._select(loaded, None, max_tokens, OWNER_FRAME_TOKENS, before_seq)
        except (StoreUnavailable, UnsupportedFormat, CorruptSession) as error:
            session = session_hash(self._session_id)
            extra = facts(op="recall", session=session, error=type(error).__name__)
            log.warning("session %s: recall failed, the turn goes on without it: %s", session, error.text, extra=extra)
            return []

    async def _load(self) -> CachedOwner:
        """Return the owner's index, from the cache if it has not changed."""
        cached = self._cache.get_owner(self._owner)
        if isinstance(cached, CachedOwner):
            version = await self._store.run(calls.read_version(self._keys))
            if version == cached.version:
                self._cache.put_owner(self._owner, cached)
                return cached
        stored = await self._store.run(calls.read_index(self._keys))
        is_much = sum(map(len, stored.values())) > LARGE_BYTES // 4
        build = partial(CachedOwner, stored.get(VERSION_FIELD), stored)
        cached = await run_apart(self._store.transport, build, is_much=is_much)
        self._cache.put_owner(self._owner, cached)
        return cached

    async def _select(
        self,
        cached: CachedOwner,
        limit: int | None,
        max_tokens: int | None,
        frame_tokens: int = 0,
        before_seq: int = _NO_SEQ,
    ) -> list[Message]:
        ranking = Ranking(self._query, local_day(self._store.clock) if self._today is None else self._today)
        if not ranking.hashes and ranking.period is None:
            return []
        postings = cached.postings
        entries = ranking.entries(postings)
        is_much = ranking.takes_long(entries, postings)

        def find() -> tuple[Set[int], list[int]]:
            own = ranking.scores(entries, postings, _NO_SEQ)
            return own.keys(), rank(lift_neighbours(own))

        matching, hits = await run_apart(self._store.transport, find, is_much=is_much)
        considered = hits if max_tokens is None else hits[: count_hits(max_tokens)]
        numbers = [number for number in select_blocks(postings, considered) if number in cached.places]
        found = _Found()
        for number, contents in (await self._read({n: cached.places[n] for n in numbers}, before_seq)).items():
            found.add(number, cached.places[number], contents)
        if self._stale:
            # Redis may refuse the note while it serves reads, as one that is full does.
            await do_logged(self._session_id, OwnerIndex(self._store, self._owner).note())
        return found.choose(hits, matching, limit, max_tokens, frame_tokens)

    async def _read(self, places: Mapping[int, BlockRef], before_seq: int) -> dict[int, list[Contents]]:
        """Read these blocks, each from its session, and return the messages that no context of this session shows."""
        reads = [self._read_block(place, before_seq) for place in places.values()]
        if self._store.transport.blocks:
            contents = [await read for read in reads]
        else:
            contents = await asyncio.gather(*reads)
        return dict(zip(places, contents, strict=True))

    async def _read_block(self, place: BlockRef, before_seq: int) -> list[Contents]:
        first_seq = first_seq_of(place.number)
        stop_seq = first_seq + BLOCK_COUNT
        window = Window(place.epoch, stop_seq, stop_seq)  # behind the block, as it probably is
        try:
            keys = self._store.keys.session(place.session_id)
            asked = PageRange(BLOCK_COUNT, stop_seq, True, window)
            page = await read_page(partial(self._store.run, quarantine=True), keys, asked, Op.RECALL)
            if page is None or page.epoch != place.epoch:
                self._stale = True
                return []
            page.dictionaries = await load_dictionaries(self._store, (block.stored for block in page.blocks))
            if place.session_id == self._session_id:
                stop_seq = min(stop_seq, before_seq, page.originals_stop)
            work = partial(_decode, page, range(first_seq, stop_seq), self._store.settings.recall_days)
            contents = await run_apart(self._store.transport, work, is_much=page.unpacked_bytes > LARGE_BYTES)
        except (Undecodable, InvalidSessionId):
            self._stale = True
            return []
        except CorruptSession:
            return []  # the next write of that session puts it into quarantine
        await leave_out(Originals(self._store, keys), page.unreadable, in_turn=self._in_turn)
        return contents


def _decode(page: MessagePage, seqs: range, with_days: bool) -> list[Contents]:
    """Return the messages of a page with these seqs. Raise Undecodable, UnsupportedFormat."""
    contents: list[Contents] = []
    for first_seq, elements in page.element_groups():
        skipped = max(0, seqs.start - first_seq)
        some = elements[skipped : max(0, seqs.stop - first_seq)]
        if some:
            contents.append(Contents(first_seq + skipped, some, page.epoch, with_days=with_days, zone=page.zone))
    return contents


class _Found:
    """The messages of the blocks that were read, by their seqs in the numbering of all sessions."""

    def __init__(self) -> None:
        self._sizes: dict[int, Size] = {}
        self._sources: dict[int, tuple[BlockRef, int, bytes, str | None]] = {}
        self._sessions: dict[str, int] = {}
        self._calls: dict[str, dict[int, CallIds]] = {}

    def add(self, number: int, place: BlockRef, contents: Sequence[Contents]) -> None:
        """Add the messages of a block, which has this number in the numbering of all sessions."""
        shift = (number - place.number) * BLOCK_COUNT
        session = self._sessions.setdefault(place.session_id, len(self._sessions))
        for block in contents:
            for seq, (tokens, day) in block.sizes.items():
                self._sizes[seq + shift] = tokens, session * _DAYS_COUNT + (day or 0)
                self._sources[seq + shift] = place, seq, block.elements[seq - block.first_seq], block.zone
            calls_of = self._calls.setdefault(place.session_id, {})
            calls_of.update({seq + shift: ids for seq, ids in block.call_ids.items()})

    def choose(
        self, hits: Sequence[int], matching: Set[int], limit: int | None, max_tokens: int | None, frame_tokens: int
    ) -> list[Message]:
        """Return the best messages, by session and seq. See `selection.choose`."""
        together: dict[int, Set[int]] = {}
        for ids in self._calls.values():  # equal ids of two sessions are no pair
            together.update(group_calls(dict(sorted(ids.items()))))
        seqs = choose(hits, matching, self._sizes, together, limit, max_tokens, frame_tokens, SESSION_TOKENS)
        return [self._message(*self._sources[seq]) for seq in seqs]

    def _message(self, place: BlockRef, seq: int, element: bytes, zone: str | None) -> Message:
        (message,) = StoredMessages([element], 0, place.epoch, [seq], zone).messages()
        return FoundMessage.of(message, place.session_id)
