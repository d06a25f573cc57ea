"""Recall: the earlier messages of a session that a question is about, in one round trip more than without.

What was read for one question is kept for the next, as far as it cannot change: see `hot`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from functools import partial
from operator import attrgetter
from typing import Any

from redismem.concurrency.offload import LARGE_BYTES, apart
from redismem.context import Context
from redismem.errors import StoreUnavailable, UnsupportedFormat
from redismem.events import facts
from redismem.messages.coercion import Shape
from redismem.messages.decoding import is_gap
from redismem.messages.message import Message
from redismem.messages.values import Undecodable
from redismem.originals.blocks import BLOCK_COUNT, block_number, decode_block
from redismem.originals.dictionaries import Dictionaries
from redismem.originals.fields import searchable_texts
from redismem.originals.signatures import TEXT_CHARS, decode_signature, encode_signature
from redismem.protocol import layout, replies
from redismem.protocol.call import Call
from redismem.protocol.ids import session_hash
from redismem.protocol.keys import SessionKeys
from redismem.protocol.session import pages
from redismem.protocol.session.pages import Block, Signed
from redismem.recall.bm25 import HITS_LIMIT, HITS_MOST, QUERY_CHARS, SIGNATURES_LIMIT, Ranking, blocks_of, fused
from redismem.recall.cache import CachedSession, Contents, Found, RecallCache
from redismem.recall.originals import Originals
from redismem.recall.postings import Postings
from redismem.recall.selection import calling, chosen, groups
from redismem.recall.semantic import BLOCKS_LIMIT as VECTORS_LIMIT
from redismem.recall.semantic import Meaning
from redismem.store.dictionaries import load_dictionaries
from redismem.store.store import Store
from redismem.text.plain import pieces

log = logging.getLogger("redismem")

_FIRST_COUNT = 64
"""Signatures that are asked for, of a session that this process has not seen: of the first thousand messages."""
_MORE_COUNT = 3
"""Signatures that are asked for, of a session that it knows: of so many blocks that may have come since."""
_NOTHING = CachedSession("", "", 0).found((), ())
_FIRST_SEQ = attrgetter("first_seq")
_PLAIN = {"role", "content"}
# A turn looks for so many messages, and one more for each so many of its tokens: no more of the usual length fit.
_FEWEST_HITS, _HIT_TOKENS = 8, 100


class Recall:
    """One question to one session."""

    def __init__(self, store: Store, cache: RecallCache, keys: SessionKeys, query: str) -> None:
        self._store = store
        self._cache = cache
        self._keys = keys
        self._query = query
        self._hot = hot = cache.get(keys.session_id)
        self._asked = range(_FIRST_COUNT) if hot is None else hot.asked(_MORE_COUNT)
        self._signed = Signed("", 1, False, ())
        self._meaning = meaning = None if store.embedder is None else Meaning(store, keys, query, store.embedder)
        self._vectors = [] if meaning is None else meaning.asked(hot, self._asked)

    async def search(self, limit: int = HITS_LIMIT, max_tokens: int | None = None) -> list[Message]:
        """The messages, oldest first. Raises StoreUnavailable, CorruptSession, UnsupportedFormat."""
        if self._meaning is not None:
            self._meaning.begin(self._hot)
        try:
            call = pages.signed(self._keys, self._asked, self._vectors)
            self._signed = await self._store.run(call, quarantine=True)
            return (await self._found(limit, max_tokens)).messages()
        finally:
            if self._meaning is not None:
                self._meaning.end()

    async def search_in_turn(self, call: Call[Context], max_tokens: int) -> Context:
        """The context of this append, with what is recalled for it. Raises as the append does.

        That the turn has been made is no matter of what is recalled: nothing is, if it cannot be read now.
        """

        decode_context = call.decode

        def decode(reply: Any, stored: Any, elements: Any, signatures: Sequence[Any] = ()) -> Context:
            stored = replies.fields(stored)
            context = decode_context(reply, stored, elements)
            kept = bool(signatures) and layout.WITH_ORIGINALS in stored
            self._signed = Signed(context.epoch, context.first_seq, kept, signatures, context.window_version)
            return context

        call.commands = (*call.commands, pages.signatures(self._keys, self._asked, self._vectors))
        call.decode = decode
        if self._meaning is not None:
            self._meaning.begin(self._hot)
        try:
            context = await self._store.run(call, quarantine=True)
            if not context.degraded:
                context.recalled = await self._found_or_none(max_tokens)
            return context
        finally:
            if self._meaning is not None:
                self._meaning.end()

    async def _found_or_none(self, max_tokens: int) -> Found:
        try:
            return await self._found(None, max_tokens)
        except (StoreUnavailable, UnsupportedFormat) as error:
            session = session_hash(self._keys.session_id)
            known = facts(op="recall", session=session, error=type(error).__name__)
            log.warning("session %s: nothing is recalled in this turn: %s", session, error.text, extra=known)
            return _NOTHING

    async def _found(self, limit: int | None, max_tokens: int | None) -> Found:
        signed = self._signed
        if not signed.kept or signed.first_seq <= 1:
            self._cache.forget(self._keys.session_id)
            return _NOTHING
        ranking = Ranking(self._query)
        if not ranking.hashes and self._meaning is None:
            return _NOTHING
        hot = await self._up_to_date()
        most = limit if limit is not None else _FEWEST_HITS + (max_tokens or 0) // _HIT_TOKENS
        hits = ranking.best(hot.postings, signed.first_seq, most)
        if self._meaning is not None:
            hits = fused(hits, await self._meaning.best(hot, signed.first_seq, min(most, HITS_MOST)))
        numbers = blocks_of(hot.postings, hits)
        await self._read(hot, numbers)
        self._cache.note(self._keys.session_id, hot)
        found = [each for number in numbers if (each := hot.contents.get(number)) is not None]
        tokens: dict[int, int] = {}
        for each in found:
            tokens.update(each.tokens)
        if any(each.stop_seq > signed.first_seq for each in found):  # another turn, made meanwhile, has read further
            tokens = {seq: size for seq, size in tokens.items() if seq < signed.first_seq}
        called = sorted([each for each in found if each.calling], key=_FIRST_SEQ)
        calls = {seq: ids for each in called for seq, ids in each.calling.items()}
        seqs = chosen(hits, tokens, groups(calls) if calls else {}, limit, max_tokens)
        return hot.found(seqs, found)

    async def _up_to_date(self) -> CachedSession:
        """What this process knows of the session, with all blocks before the window."""
        signed, hot = self._signed, self._hot
        if hot is not None and self._meaning is None and hot.seen == (self._asked, signed):
            return hot
        stored = dict(zip(self._asked, signed.signatures, strict=False))
        stop = block_number(signed.first_seq)
        if hot is None or not hot.holds(signed.epoch, signed.version, stored) or stop - hot.stop > SIGNATURES_LIMIT:
            hot = CachedSession(signed.epoch, signed.version, max(0, stop - SIGNATURES_LIMIT))
        wanted = range(hot.stop, block_number(signed.first_seq - 1) + 1)
        others = [number for number in wanted if number not in stored]
        vectors = dict(zip(self._vectors, behind := signed.signatures[len(self._asked) :], strict=False))
        meant = [] if self._meaning is None else [each for each in wanted[-VECTORS_LIMIT:] if each not in vectors]
        if others or meant:
            more = await self._store.run(pages.signed(self._keys, others, meant), quarantine=True)
            stored.update(zip(others, more.signatures, strict=False))
            vectors.update(zip(meant, more.signatures[len(others) :], strict=False))
        for number in range(hot.stop, stop):
            hot.take(stored, number + 1)
            await self._store.transport.sleep(0)
        hot.grow(stop, stored.get(stop) if wanted.stop > stop else None)
        hot.postings.drop_before(stop - SIGNATURES_LIMIT)
        if self._meaning is not None:
            self._meaning.take(hot, vectors, wanted.stop, behind[-1])
        hot.seen = (self._asked, signed)
        return hot

    async def _read(self, hot: CachedSession, numbers: Sequence[int]) -> None:
        """Reads those of these blocks that are not at hand."""
        window_seq, epoch = self._signed.first_seq, self._signed.epoch
        missing = hot.missing(numbers, window_seq)
        if not missing:
            return
        unreadable: list[Block] = []
        blocks = await self._store.run(pages.blocks(self._keys, missing), quarantine=True)
        known = await load_dictionaries(self._store, (block.stored for block in blocks))
        for block in blocks:
            try:
                signed = hot.postings.blocks.get(block.number)
                is_large = signed is None or signed.block_bytes > LARGE_BYTES
                work = partial(contents_of, block, known, window_seq, epoch)
                hot.keep(block.number, await apart(self._store.transport, work, is_much=is_large))
            except Undecodable:
                unreadable.append(block)
        if unreadable:
            await Originals(self._store, self._keys).quarantine(unreadable)


def contents_of(block: Block, known: Dictionaries, window_seq: int, epoch: str) -> Contents:
    """What of a block stands before the window. Raises Undecodable, UnsupportedFormat."""
    first_seq, elements = decode_block(*block, known)
    return Contents(first_seq, elements[: max(0, window_seq - first_seq)], epoch)


def within(context: Context, query: str, limit: int, max_tokens: int | None = None) -> list[Message]:
    """The same among the messages of a context that is at hand, such as a transcript's."""
    messages = {message.seq: message for message in context.messages}
    blocks: dict[int, list[Message]] = {}
    for message in context.messages:
        blocks.setdefault(block_number(message.seq), []).append(message)
    postings = Postings()
    for number, part in blocks.items():
        texts: list[list[str]] = [[] for _ in range(BLOCK_COUNT)]
        for message in part:
            texts[(message.seq - 1) % BLOCK_COUNT] = searchable_texts(message)
        postings.add([(number, decode_signature(encode_signature(0, texts, 0)))])
    hits = Ranking(query).best(postings, context.last_seq + 1, limit)
    usable = [message for message in context.messages if not (message.pinned or is_gap(message))]
    tokens = {message.seq: message.tokens for message in usable}
    return [messages[seq] for seq in chosen(hits, tokens, groups(calling(usable)), limit, max_tokens)]


def extract_query(messages: Iterable[Message | Shape]) -> str:
    """What messages say, as far as it is looked at: of very many only the first."""
    texts, left = list[str](), QUERY_CHARS
    for each in messages:
        texts.append(_said(each))
        left -= len(texts[-1])
        if left <= 0:
            break
    return "\n".join(texts)


def _said(given: Message | Shape) -> str:
    # As most messages are of the user's; what is not plain, or a tool's, is looked at as those that are kept are.
    if type(given) is dict and given.keys() == _PLAIN and given["role"] == "user":
        content = given["content"]
        if type(content) is str and len(content) <= TEXT_CHARS and content.isascii() and content.isprintable():
            return content
    message = given if isinstance(given, Message) else Message.from_openai(given)
    return "" if is_gap(message) else "\n".join(text for _, text in pieces(message, TEXT_CHARS))
