"""Recall: the earlier messages of a session that a question is about, in one round trip more than without."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from redismem.blocks import BLOCK_COUNT, blocks_of, decode_block, encode_block, first_seq_of, number_of
from redismem.context import Context
from redismem.elements import StoredMessages, decode_messages, is_gap
from redismem.errors import StoreUnavailable, UnsupportedFormat
from redismem.events import facts
from redismem.messages import Message
from redismem.models.transcript import pieces
from redismem.originals import Originals
from redismem.protocol import layout, page_calls, replies
from redismem.protocol.call import Call
from redismem.protocol.ids import session_hash
from redismem.protocol.keys import SessionKeys
from redismem.protocol.page_calls import Block, Signed
from redismem.recalling import HITS_LIMIT, PIECE_COUNT, SIGNATURES_LIMIT, Ranking, chosen
from redismem.shapes import Shape
from redismem.signatures import TEXT_CHARS, decode_signature, encode_signature
from redismem.store.store import Store
from redismem.values import Undecodable

log = logging.getLogger("redismem")

_FIRST_COUNT = 64
"""Signatures that are asked for, of a session that this process has not seen: of the first thousand messages."""
_MORE_COUNT = 8
_KNOWN_COUNT = 10_000
_LARGE_BYTES = 65_536


class Recall:
    """One question to one session."""

    def __init__(self, store: Store, keys: SessionKeys, query: str) -> None:
        self._store = store
        self._keys = keys
        self._query = query
        known = store.block_counts.get(keys.session_id)
        last = _FIRST_COUNT if known is None else known + _MORE_COUNT
        self._asked = range(max(0, last - SIGNATURES_LIMIT), last)
        self._signed = Signed("", 1, False, ())

    async def asked(self, limit: int = HITS_LIMIT, max_tokens: int | None = None) -> list[Message]:
        """The messages, oldest first. Raises StoreUnavailable, CorruptSession, UnsupportedFormat."""
        self._signed = await self._store.run(page_calls.signed(self._keys, self._asked), quarantine=True)
        return await self._found(limit, max_tokens)

    async def in_turn(self, call: Call[Context], max_tokens: int) -> Context:
        """The context of this append, with what is recalled for it. Raises as the append does.

        That the turn has been made is no matter of what is recalled: nothing is, if it cannot be read now.
        """

        def decode(reply: Any, stored: Any, elements: Any, signatures: Sequence[Any] = ()) -> Context:
            context = call.decode(reply, stored, elements)
            kept = bool(signatures) and layout.WITH_ORIGINALS in replies.fields(stored)
            self._signed = Signed(context.epoch, context.first_seq, kept, signatures)
            return context

        commands = (*call.commands, page_calls.signatures(self._keys, self._asked))
        context = await self._store.run(replace(call, commands=commands, decode=decode), quarantine=True)
        if not context.degraded:
            try:
                context.recalled = await self._found(None, max_tokens)
            except (StoreUnavailable, UnsupportedFormat) as error:
                session = session_hash(self._keys.session_id)
                known = facts(op="recall", session=session, error=type(error).__name__)
                log.warning("session %s: nothing is recalled in this turn: %s", session, error.text, extra=known)
        return context

    async def _found(self, limit: int | None, max_tokens: int | None) -> list[Message]:
        signed = self._signed
        if not signed.kept or signed.first_seq <= 1:
            return []
        ranking = Ranking(self._query)
        if not ranking.hashes:
            return []
        last = number_of(signed.first_seq - 1)
        self._note(last)
        stored = dict(zip(self._asked, signed.signatures, strict=False))
        others = [number for number in range(max(0, last + 1 - SIGNATURES_LIMIT), last + 1) if number not in stored]
        if others:
            more = await self._store.run(page_calls.signed(self._keys, others), quarantine=True)
            stored.update(zip(others, more.signatures, strict=False))
        found = [(number, each) for number, each in stored.items() if each is not None and number <= last]
        for at in range(0, len(found), PIECE_COUNT):
            if at:
                await self._store.transport.sleep(0)
            ranking.add(_decoded(found[at : at + PIECE_COUNT]))
        hits = ranking.best(signed.first_seq)
        messages = await self._read(ranking.blocks(hits))
        return chosen(hits, messages, limit, max_tokens)

    async def _read(self, numbers: Sequence[int]) -> dict[int, Message]:
        """The messages of these blocks before the window."""
        messages: dict[int, Message] = {}
        unreadable: list[Block] = []
        if not numbers:
            return messages
        for block in await self._store.run(page_calls.blocks(self._keys, numbers), quarantine=True):
            try:
                first_seq, elements = decode_block(*block)
                before = elements[: max(0, self._signed.first_seq - first_seq)]
                found = StoredMessages(before, first_seq, self._signed.epoch)
                messages.update(enumerate(found.messages(), first_seq))
            except Undecodable:
                unreadable.append(block)
            if len(block.stored) > _LARGE_BYTES:
                await self._store.transport.sleep(0)
        await Originals(self._store, self._keys).set_aside(unreadable)
        return messages

    def _note(self, last: int) -> None:
        """How many signatures to ask for next time. If that is wrong, it costs a round trip, or a few empty places."""
        known = self._store.block_counts
        if len(known) >= _KNOWN_COUNT:
            known.clear()
        known[self._keys.session_id] = last + 1


def _decoded(stored: Sequence[tuple[int, bytes]]) -> Iterator[Any]:
    for number, each in stored:
        try:
            yield number, decode_signature(each)
        except Undecodable:
            continue  # `redismem check` tells of it; its block is not found by what it holds


def within(context: Context, query: str, limit: int, max_tokens: int | None = None) -> list[Message]:
    """The same among the messages of a context that is at hand, such as a transcript's."""
    messages = {message.seq: message for message in context.messages}
    ranking, blocks = Ranking(query), dict[int, list[Message]]()
    for message in context.messages:
        blocks.setdefault(number_of(message.seq), []).append(message)
    for number, part in blocks.items():
        texts: list[list[str]] = [[] for _ in range(BLOCK_COUNT)]
        for message in part:
            texts[message.seq - first_seq_of(number)] = texts_of(message)
        ranking.add([(number, decode_signature(encode_signature(0, texts, 0)))])
    return chosen(ranking.best(context.last_seq + 1), messages, limit, max_tokens)


def texts_of(message: Message) -> list[str]:
    """Who says a message, if it has a name, and what it says, as far as it is looked at; nothing for a gap."""
    if is_gap(message):
        return []
    name = message.to_openai().get("name")
    said = [text for _, text in pieces(message, TEXT_CHARS)]
    return [name[:TEXT_CHARS], *said] if isinstance(name, str) else said


def kept_fields(first_seq: int, elements: Sequence[bytes], epoch: str) -> dict[bytes, bytes]:
    """The fields of the originals that keep these elements, which follow each other: blocks, and their signatures."""
    fields: dict[bytes, bytes] = {}
    for number, seq, taken in blocks_of(first_seq, elements):
        texts = [texts_of(message) for message in decode_messages(taken, seq, epoch)]
        fields[b"%d" % number] = encode_block(seq, taken)
        fields[b"s%d" % number] = encode_signature(seq - first_seq_of(number), texts, sum(map(len, taken)))
    return fields


def said(messages: Sequence[Message | Shape]) -> str:
    """What messages say, as far as it is looked at."""
    given = (each if isinstance(each, Message) else Message.from_openai(each) for each in messages)
    return "\n".join(text for message in given if not is_gap(message) for _, text in pieces(message, TEXT_CHARS))
