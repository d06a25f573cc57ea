"""Recall over all conversations of an owner: one search in an index of all of them, which quotes messages of several.

`OwnerLoader` reads the index at the same time as a turn appends. Then the best blocks are read, unless they are cached.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence, Set
from functools import partial

from redismem.concurrency.offload import LARGE_BYTES, run_apart, run_both
from redismem.context.context import Context
from redismem.context.results import RecalledMessages
from redismem.errors import CorruptSession, RedismemError, StoreUnavailable, UnsupportedFormat
from redismem.events import facts
from redismem.formats.recalled import OWNER_FRAME_TOKENS, SESSION_TOKENS
from redismem.formats.tool_groups import CallIds
from redismem.messages.decoding import StoredMessages
from redismem.messages.message import FoundMessage, Message
from redismem.messages.values import Undecodable
from redismem.originals.blocks import BLOCK_COUNT, unpacked_bytes
from redismem.originals.dictionaries import Dictionaries
from redismem.protocol.call import Call
from redismem.protocol.clock import local_day
from redismem.protocol.ids import session_hash
from redismem.protocol.owner import calls
from redismem.protocol.owner.calls import Asked, Contained, decode_state
from redismem.protocol.owners import encode_owner
from redismem.protocol.session.pages import Block
from redismem.recall import HITS_LIMIT
from redismem.recall.bm25 import MANY_POSTINGS, Ranked, Ranking, lift_neighbours, select_blocks
from redismem.recall.cache import RecallCache
from redismem.recall.cached import Contents
from redismem.recall.matches import Matches
from redismem.recall.originals import Originals
from redismem.recall.owner.cached import BlockRef, CachedOwner, OwnedSession
from redismem.recall.owner.loading import OwnerLoader
from redismem.recall.proximity import LineWords
from redismem.recall.recall import decode_contents, leave_out, make_contents
from redismem.recall.rules import choose_rules
from redismem.recall.selection import Size, choose, count_hits, group_calls
from redismem.store.dictionaries import load_dictionaries
from redismem.store.store import Store

log = logging.getLogger("redismem")

_NO_SEQ = 1 << 62
_ATTEMPTS_LIMIT = 3
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
        self._since = cache.removals_count
        self._today: int | None = None
        self._in_turn = False

    async def search(self, limit: int | None = None, max_tokens: int | None = None) -> RecalledMessages:
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
    ) -> RecalledMessages:
        try:
            if isinstance(loaded, RedismemError):
                raise loaded
            return await self._select(loaded, None, max_tokens, OWNER_FRAME_TOKENS, before_seq)
        except (StoreUnavailable, UnsupportedFormat, CorruptSession) as error:
            session = session_hash(self._session_id)
            extra = facts(op="recall", session=session, error=type(error).__name__)
            log.warning("session %s: recall failed, the turn goes on without it: %s", session, error.text, extra=extra)
            return RecalledMessages((), before_seq - 1)

    async def _load(self) -> CachedOwner:
        """Return the index of the owner's sessions as they are now."""
        before = self._cache.get_owner(self._owner)
        known = before if isinstance(before, CachedOwner) else None
        cached = await OwnerLoader(self._store, self._owner, self._session_id, known).load()
        self._cache.put_owner(self._owner, cached, self._since)
        if count := cached.unsearched_sessions:
            session = session_hash(self._session_id)
            text = "session %s: %d conversations of its owner were not searched, or in part"
            log.info(text, session, count, extra=facts(op="recall", session=session, session_count=count))
        return cached

    async def _select(
        self,
        cached: CachedOwner,
        limit: int | None,
        max_tokens: int | None,
        frame_tokens: int = 0,
        before_seq: int = _NO_SEQ,
    ) -> RecalledMessages:
        ranking = Ranking(self._query, local_day(self._store.clock) if self._today is None else self._today)
        if not ranking.hashes and ranking.period is None:
            return RecalledMessages()
        for attempt in range(_ATTEMPTS_LIMIT):
            postings = cached.postings
            matches = ranking.match(postings)
            own = cached.sessions.get(self._session_id)
            stop_seq = before_seq if own is None else min(before_seq, own.state.first_seq)
            find = partial(_find, ranking, matches, cached, self._session_id, stop_seq, self._in_turn)
            is_much = matches.count > MANY_POSTINGS
            hits, matching, rules, proximity = await run_apart(self._store.transport, find, is_much=is_much)
            considered = hits if max_tokens is None else hits[: count_hits(max_tokens)]
            if limit is None:
                considered = [*rules, *considered]
            places = {n: cached.places[n] for n in select_blocks(postings, considered) if n in cached.places}
            if await self._read(cached, places.values()) or attempt == _ATTEMPTS_LIMIT - 1:
                break
            cached = await self._load()  # a session has changed meanwhile
        self._cache.put_owner(self._owner, cached, self._since)
        found = _Found()
        for number, place in places.items():
            session = cached.sessions[place.session_id]
            stop = stop_seq if place.session_id == self._session_id else _NO_SEQ
            found.add(number, place, session.state.epoch, session.contents.get(place.number, ()), stop)
        rules = found.choose_rules(rules, ranking.hashes) if limit is None else []
        if proximity is not None:
            hits = proximity.order(hits, found.words_of, limit, max_tokens)
        chosen = found.choose(hits, matching, limit, max_tokens, frame_tokens, rules)
        return RecalledMessages(chosen, cached.unsearched_count)

    async def _read(self, cached: CachedOwner, places: Iterable[BlockRef]) -> bool:
        """Read the blocks that are not cached. False means that a session has changed since its state was read."""
        missing: dict[str, list[int]] = {}
        for place in places:
            if place.number not in cached.sessions[place.session_id].contents:
                missing.setdefault(place.session_id, []).append(place.number)
        if not missing:
            return True
        keys = self._store.keys
        asked = [
            Asked(keys.session(name), (), [n for n in numbers if n in cached.sessions[name].state.originals], False)
            for name, numbers in missing.items()
        ]
        asked = [each for each in asked if each.blocks]
        found = await self._store.run(calls.read_contents(asked)) if asked else []
        blocks = [block.stored for each in found for block in each.blocks]
        dictionaries = await load_dictionaries(self._store, blocks)
        read = {each.keys.session_id: contained for each, contained in zip(asked, found, strict=True)}
        work = partial(self._decode, cached, missing, read, dictionaries)
        is_much = sum(map(unpacked_bytes, blocks)) > LARGE_BYTES
        unreadable = await run_apart(self._store.transport, work, is_much=is_much)
        for name, some in unreadable.items():
            await leave_out(Originals(self._store, keys.session(name)), some, in_turn=self._in_turn)
        return all(self._is_same(cached.sessions[name], contained) for name, contained in read.items())

    def _is_same(self, session: OwnedSession, contained: Contained) -> bool:
        now = decode_state(session.state.session_id, encode_owner(self._owner), contained.stored)
        return now is not None and now.is_as(session.state, with_window=session.has_window)

    def _decode(
        self,
        cached: CachedOwner,
        missing: Mapping[str, Sequence[int]],
        read: Mapping[str, Contained],
        dictionaries: Dictionaries,
    ) -> dict[str, list[Block]]:
        """Add the messages of these blocks of sessions to the cached ones, and return the blocks that are unreadable.

        Nothing is added of a session that has changed. Raise UnsupportedFormat.
        """
        unreadable: dict[str, list[Block]] = {}
        for name, numbers in missing.items():
            session = cached.sessions[name]
            if name in read and not self._is_same(session, read[name]):
                continue
            state, with_days = session.state, self._store.settings.recall_days
            contents: dict[int, list[Contents]] = {number: [] for number in numbers}
            make = partial(make_contents, state.first_seq, state.epoch, with_days, state.zone)
            for block in read[name].blocks if name in read else ():
                try:
                    decoded, _ = decode_contents(block, numbers, dictionaries, make)
                except Undecodable:
                    unreadable.setdefault(name, []).append(block)
                    contents = {number: each for number, each in contents.items() if number not in block.numbers}
                    continue
                for number, each in decoded.items():
                    contents.setdefault(number, []).append(each)
            for number, parts in contents.items():
                if number in session.parts:
                    first_seq, elements = session.parts[number]
                    parts.append(Contents(first_seq, elements, state.epoch, with_days=with_days, zone=state.zone))
                cached.add_contents(BlockRef(name, number), parts)
        return unreadable


def _find(
    ranking: Ranking,
    matches: Matches,
    cached: CachedOwner,
    session_id: str,
    stop_seq: int,
    in_turn: bool,
) -> Ranked:
    """Rank the messages, without the window that asks. A turn that asks for nothing has rules alone."""
    window = {*cached.seqs_from(session_id, stop_seq)}
    scores = ranking.scores(matches, window)
    lifted = lift_neighbours(scores, cached.postings)
    rules = ranking.rules(matches, window)
    if in_turn and ranking.asks_nothing(lifted, cached.postings):
        return Ranked([], set(), rules)
    return ranking.rank(matches, scores.keys(), lifted, rules)


class _Found:
    """The messages of the blocks that were read, by their seqs in the numbering of all sessions."""

    def __init__(self) -> None:
        self._sizes: dict[int, Size] = {}
        self._sources: dict[int, tuple[str, str, int, bytes, str | None]] = {}
        self._sessions: dict[str, int] = {}
        self._calls: dict[str, dict[int, CallIds]] = {}
        self._blocks: dict[int, tuple[Contents, int]] = {}

    def add(self, number: int, place: BlockRef, epoch: str, contents: Sequence[Contents], stop_seq: int) -> None:
        """Add the messages before `stop_seq` of a block, which has this number in the numbering of all sessions."""
        shift = (number - place.number) * BLOCK_COUNT
        session = self._sessions.setdefault(place.session_id, len(self._sessions))
        for block in contents:
            for seq, (tokens, day) in block.sizes.items():
                if seq < stop_seq:
                    self._sizes[seq + shift] = tokens, session * _DAYS_COUNT + (day or 0)
                    element = block.elements[seq - block.first_seq]
                    self._sources[seq + shift] = place.session_id, epoch, seq, element, block.zone
                    self._blocks[seq + shift] = block, seq
            if block.call_ids:
                calls_of = self._calls.setdefault(place.session_id, {})
                calls_of.update({seq + shift: ids for seq, ids in block.call_ids.items() if seq < stop_seq})

    def words_of(self, seq: int) -> LineWords | None:
        """Return the words of a message; `None` if it was not read."""
        if (source := self._blocks.get(seq)) is None:
            return None
        block, own = source
        return block.words_of(own)

    def choose_rules(self, rules: Sequence[int], asked: Sequence[int]) -> list[int]:
        """Return the rules that the question concerns. See `rules.choose_rules`."""

        def subject(seq: int) -> Set[int]:
            block, own = self._blocks[seq]
            return block.subject(own)

        return choose_rules([seq for seq in rules if seq in self._blocks], subject, asked)

    def choose(
        self,
        hits: Sequence[int],
        matching: Set[int],
        limit: int | None,
        max_tokens: int | None,
        frame_tokens: int,
        rules: Sequence[int],
    ) -> list[Message]:
        """Return the best messages, by session and seq. See `selection.choose`."""
        together: dict[int, Set[int]] = {}
        for ids in self._calls.values():  # equal ids of two sessions are no pair
            together.update(group_calls(dict(sorted(ids.items()))))
        seqs = choose(hits, matching, self._sizes, together, limit, max_tokens, frame_tokens, SESSION_TOKENS, rules)
        return [_message(*self._sources[seq]) for seq in seqs]


def _message(session_id: str, epoch: str, seq: int, element: bytes, zone: str | None) -> Message:
    (message,) = StoredMessages([element], 0, epoch, [seq], zone).messages()
    return FoundMessage.of(message, session_id)
