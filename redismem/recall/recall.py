"""Recall: search the originals of a session. A turn with recall takes at most one round trip more.

`cache` caches blocks and indexes for the next query.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any

from redismem.concurrency.offload import LARGE_BYTES, run_apart
from redismem.context.context import Context
from redismem.context.results import RecalledMessages
from redismem.errors import CorruptSession, StoreUnavailable, UnsupportedFormat
from redismem.events import facts
from redismem.formats.recalled import FRAME_TOKENS, format_line, line_tokens
from redismem.messages.coercion import Shape
from redismem.messages.decoding import is_gap
from redismem.messages.message import Message
from redismem.messages.values import Undecodable
from redismem.originals.blocks import block_number, decode_parts, first_seq_of, unpacked_bytes
from redismem.originals.dictionaries import Dictionaries
from redismem.originals.fields import sign_messages
from redismem.originals.signatures import TEXT_CHARS, decode_signature
from redismem.protocol import layout, replies
from redismem.protocol.call import Call
from redismem.protocol.clock import local_day
from redismem.protocol.ids import session_hash
from redismem.protocol.keys import SessionKeys
from redismem.protocol.session import pages
from redismem.protocol.session.pages import Block, Signatures
from redismem.recall import HITS_LIMIT
from redismem.recall.bm25 import (
    HITS_MOST,
    MANY_POSTINGS,
    QUERY_CHARS,
    Ranked,
    Ranking,
    fuse,
    lift_neighbours,
    rank,
    select_blocks,
)
from redismem.recall.cache import NO_CACHE, RecallCache
from redismem.recall.cached import CachedSession, Contents, Part, SelectedMessages
from redismem.recall.loading import IndexLoader
from redismem.recall.originals import Originals
from redismem.recall.postings import Postings
from redismem.recall.proximity import LineWords
from redismem.recall.rules import choose_rules
from redismem.recall.selection import Size, choose, count_hits, group_calls, map_calls
from redismem.recall.semantic import Meaning
from redismem.store.dictionaries import load_dictionaries
from redismem.store.store import Store
from redismem.text.data_runs import replace_data
from redismem.text.plain import pieces

log = logging.getLogger("redismem")

_FIRST_COUNT = 64
"""The number of signatures to read first if the session is not cached; they cover about a thousand messages."""
_MORE_COUNT = 3
"""The number of new signatures to read first if the session is cached already."""
TURN_LOAD_S, SEARCH_LOAD_S = 0.25, 2.0
"""The seconds for which a turn, and a search, read older signatures of a long session that is not cached yet."""
_FIRST_SEQ = attrgetter("first_seq")
_PLAIN = {"role", "content"}


class Recall:
    """One search in the originals of one session."""

    def __init__(
        self, store: Store, cache: RecallCache, keys: SessionKeys, query: str, by_meaning: bool = True
    ) -> None:
        """Prepare a search. It is also by meaning if the store has an embedder, unless `by_meaning` is false."""
        self._store = store
        self._cache = cache
        self._keys = keys
        self._query = query
        self._since = cache.removals_count
        self._cached = cached = cache.get(keys.session_id)
        self._numbers = range(_FIRST_COUNT) if cached is None else cached.signatures_to_read(_MORE_COUNT)
        self._signed = Signatures("", 1, False, ())
        self._today: int | None = None
        self._in_turn = False
        self._load_s = 0.0
        embedder = store.embedder if by_meaning else None
        self._meaning = meaning = None if embedder is None else Meaning(store, keys, query, embedder)
        self._vector_numbers = [] if meaning is None else meaning.blocks_to_read(cached, self._numbers)
        self._loader = IndexLoader(store, keys, cache.max_index_bytes, meaning)

    async def search(
        self, limit: int | None = None, max_tokens: int | None = None, within_s: float | None = None
    ) -> RecalledMessages:
        """Return the best messages, oldest first. Without limit and budget there are HITS_LIMIT hits.

        Reads older signatures for at most `within_s` seconds; `None` means SEARCH_LOAD_S.

        Raise StoreUnavailable, CorruptSession, UnsupportedFormat."""
        if limit is None and max_tokens is None:
            limit = HITS_LIMIT
        self._load_s = SEARCH_LOAD_S if within_s is None else within_s
        if self._meaning is not None:
            self._meaning.begin(self._cached)
        try:
            call = pages.read_signatures(self._keys, self._numbers, self._vector_numbers)
            self._signed = await self._store.run(call, quarantine=True)
            selected = await self._select(limit, max_tokens)
            return RecalledMessages(selected.messages(), selected.unsearched_count)
        finally:
            if self._meaning is not None:
                self._meaning.end()

    async def search_in_turn(self, call: Call[Context], max_tokens: int) -> Context:
        """Run an append and return its context, with the recalled messages added. Raises the errors of the append.

        If the search fails, the turn succeeds: the failure is logged, and no messages are recalled.
        """

        decode_context = call.decode

        def decode(reply: Any, stored: Any, elements: Any, signatures: Sequence[Any] = ()) -> Context:
            stored = replies.fields(stored)
            context = decode_context(reply, stored, elements)
            kept = bool(signatures) and layout.WITH_ORIGINALS in stored
            decoded = pages.decode_signatures(self._numbers, signatures) if kept else ()
            self._signed = Signatures(
                context.epoch, context.first_seq, kept, decoded, context.window_version, context.zone
            )
            return context

        self._in_turn, self._load_s = True, TURN_LOAD_S
        call.commands = (*call.commands, pages.signature_command(self._keys, self._numbers, self._vector_numbers))
        call.decode = decode
        if self._meaning is not None:
            self._meaning.begin(self._cached)
        try:
            context = await self._store.run(call, quarantine=True)
            if not context.degraded:
                self._today = context.newest_day
                context.with_days = self._store.settings.recall_days
                context.recalled = await self._select_or_log(max_tokens)
            return context
        finally:
            if self._meaning is not None:
                self._meaning.end()

    async def _select_or_log(self, max_tokens: int) -> SelectedMessages:
        try:
            return await self._select(None, max_tokens, FRAME_TOKENS)
        except (StoreUnavailable, UnsupportedFormat, CorruptSession) as error:
            session = session_hash(self._keys.session_id)
            extra = facts(op="recall", session=session, error=type(error).__name__)
            log.warning("session %s: recall failed, the turn goes on without it: %s", session, error.text, extra=extra)
            return _nothing(unsearched_count=self._signed.first_seq - 1)

    async def _select(self, limit: int | None, max_tokens: int | None, frame_tokens: int = 0) -> SelectedMessages:
        signed = self._signed
        if not signed.has_originals or signed.first_seq <= 1:
            self._cache.drop(self._keys.session_id)
            return _nothing()
        today = local_day(self._store.clock, signed.zone) if self._today is None else self._today
        ranking = Ranking(self._query, today)
        if not ranking.hashes and ranking.period is None and self._meaning is None:
            return _nothing()
        cached = await self._loader.load(self._cached, self._signed, self._numbers, self._vector_numbers, self._load_s)
        unsearched_count = first_seq_of(cached.start) - 1
        hits, matching, rules, proximity = await self._rank(ranking, cached)
        considered = hits if max_tokens is None else hits[: count_hits(max_tokens)]
        if limit is None:
            considered = [*rules, *considered]
        numbers = select_blocks(cached.postings, considered)
        await self._load_blocks(cached, numbers)
        by_number = {number: block for number in numbers if (block := cached.contents.get(number)) is not None}
        blocks = by_number.values()
        cached.limit_contents(self._cache.max_bytes)
        self._cache.put(self._keys.session_id, cached, self._since)
        sizes: dict[int, Size] = {}
        for block in blocks:
            sizes.update(block.sizes)
        if any(block.stop_seq > signed.first_seq for block in blocks):  # a concurrent turn has read a later window
            sizes = {seq: size for seq, size in sizes.items() if seq < signed.first_seq}
        with_calls = sorted([block for block in blocks if block.call_ids], key=_FIRST_SEQ)
        calls = {seq: ids for block in with_calls for seq, ids in block.call_ids.items()}
        together = group_calls(calls) if calls else {}
        if limit is None and rules:
            contents = {seq: block for seq in rules if (block := by_number.get(block_number(seq))) is not None}
            rules = choose_rules(contents, lambda seq: contents[seq].subject(seq), ranking.hashes)
        if proximity is not None:
            hits = proximity.order(hits, partial(_words_of, by_number), limit, max_tokens)
        chosen = choose(hits, matching, sizes, together, limit, max_tokens, frame_tokens, rules=rules)
        return cached.select(chosen, blocks, unsearched_count)

    async def _rank(self, ranking: Ranking, cached: CachedSession) -> Ranked:
        """Rank the messages by words, and by meaning."""
        postings, window = cached.postings, range(self._signed.first_seq, cached.postings.stop_seq)
        matches = ranking.match(postings)

        def find() -> tuple[dict[int, float], dict[int, float], list[int]]:
            own = ranking.scores(matches, window)
            return own, lift_neighbours(own, postings), ranking.rules(matches, window)

        is_much = matches.count > MANY_POSTINGS
        own, scores, rules = await run_apart(self._store.transport, find, is_much=is_much)
        if self._meaning is None:
            if self._in_turn and ranking.asks_nothing(scores, postings):
                return Ranked([], set(), rules)
            return ranking.rank(matches, own.keys(), scores, rules)
        cosines = await self._meaning.scores(cached, self._signed.first_seq, HITS_MOST)
        beside = {seq + step for seq in cosines for step in (-1, 1)}
        matching = own.keys() | matches.scores(beside - own.keys(), window).keys() | cosines.keys()
        return ranking.rank(matches, matching, fuse(scores, cosines), rules)

    async def _load_blocks(self, cached: CachedSession, numbers: Sequence[int]) -> None:
        """Read the blocks that are not cached. A turn puts unreadable ones into quarantine, a search leaves them."""
        window_seq, epoch = self._signed.first_seq, self._signed.epoch
        missing = cached.missing_blocks(numbers, window_seq)
        if not missing:
            return
        unreadable: list[Block] = []
        make = partial(make_contents, window_seq, epoch, self._store.settings.recall_days, self._signed.zone)
        missing = [number for number in missing if not cached.take_sibling(number, make)]
        blocks = await self._store.run(pages.blocks(self._keys, missing, epoch), quarantine=True) if missing else []
        is_much = sum(unpacked_bytes(block.stored) for block in blocks) > LARGE_BYTES
        dictionaries = await load_dictionaries(self._store, (block.stored for block in blocks))
        for block in blocks:
            work = partial(decode_contents, block, missing, dictionaries, make)
            try:
                contents, siblings = await run_apart(self._store.transport, work, is_much=is_much)
            except Undecodable:
                unreadable.append(block)
                continue
            for number, each in contents.items():
                cached.add_block(number, each)
            cached.add_siblings(siblings)
            await self._store.transport.sleep(0)
        if unreadable:
            await leave_out(Originals(self._store, self._keys), unreadable, in_turn=self._in_turn)


def _nothing(unsearched_count: int = 0) -> SelectedMessages:
    return CachedSession("", "", 0).select((), (), unsearched_count)


def _words_of(blocks: Mapping[int, Contents], seq: int) -> LineWords | None:
    """Return the words of a message; `None` if its block was not read."""
    return None if (block := blocks.get(block_number(seq))) is None else block.words_of(seq)


async def leave_out(originals: Originals, unreadable: Sequence[Block], *, in_turn: bool) -> None:
    """Put unreadable blocks into quarantine in a turn, which writes anyway; else log them. Raises StoreUnavailable."""
    if in_turn:
        await originals.quarantine(unreadable)
    else:
        originals.note(unreadable)


def make_contents(
    window_seq: int, epoch: str, with_days: bool, zone: str | None, first_seq: int, elements: Sequence[bytes]
) -> Contents:
    """Return the elements before the window. Raise Undecodable, UnsupportedFormat."""
    return Contents(first_seq, elements[: max(0, window_seq - first_seq)], epoch, with_days=with_days, zone=zone)


def decode_contents(
    block: Block, numbers: Container[int], dictionaries: Dictionaries, make: Callable[[int, Sequence[bytes]], Contents]
) -> tuple[dict[int, Contents], dict[int, Part]]:
    """Return the contents of the blocks `numbers` in a stored block, and the other blocks in it.

    Raise Undecodable, UnsupportedFormat.
    """
    parts = decode_parts(*block, dictionaries)
    contents = {number: make(*part) for number, part in parts.items() if number in numbers}
    return contents, {number: part for number, part in parts.items() if number not in numbers}


async def search_by_words(store: Store, session_id: str, query: str, limit: int) -> list[Message]:
    """Search the originals of a session by words alone, without caching anything. Return the best messages.

    Raises StoreUnavailable, CorruptSession, UnsupportedFormat.
    """
    recall = Recall(store, NO_CACHE, store.keys.session(session_id), query, by_meaning=False)
    return await recall.search(limit, within_s=TURN_LOAD_S)


def search_context(context: Context, query: str, limit: int, max_tokens: int | None = None) -> list[Message]:
    """Search the messages of a context, such as a transcript, without a store. Return the best ones, oldest first."""
    messages = {message.seq: message for message in context.messages}
    blocks: dict[int, list[Message]] = {}
    for message in context.messages:
        blocks.setdefault(block_number(message.seq), []).append(message)
    postings = Postings()
    for number, part in blocks.items():
        postings.add([(number, decode_signature(sign_messages(part, 0)))])
    ranking = Ranking(query, context.newest_day or 0)
    scores = ranking.scores(ranking.match(postings))
    hits = rank(lift_neighbours(scores, postings))
    usable = [message for message in context.messages if not (message.pinned or is_gap(message))]
    sizes: dict[int, Size] = {
        message.seq: (line_tokens(format_line(message), message), message.day) for message in usable
    }
    return [
        messages[seq] for seq in choose(hits, scores.keys(), sizes, group_calls(map_calls(usable)), limit, max_tokens)
    ]


def extract_query(messages: Iterable[Message | Shape]) -> str:
    """Return the text of these messages as a query. Stops after about QUERY_CHARS characters."""
    texts, left = list[str](), QUERY_CHARS
    for message in messages:
        texts.append(_text_of(message))
        left -= len(texts[-1])
        if left <= 0:
            break
    return "\n".join(texts)


def _text_of(shape: Message | Shape) -> str:
    # A fast path for most messages of users; the slow path reads a message like the search index does.
    if type(shape) is dict and shape.keys() == _PLAIN and shape["role"] == "user":
        content = shape["content"]
        if type(content) is str and len(content) <= TEXT_CHARS and content.isascii() and content.isprintable():
            return replace_data(content)
    message = shape if isinstance(shape, Message) else Message.from_openai(shape)
    return "" if is_gap(message) else "\n".join(text for _, text in pieces(message, TEXT_CHARS))
