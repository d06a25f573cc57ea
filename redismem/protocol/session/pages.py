"""A page of a conversation as it is stored: blocks of originals, then elements of the window. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from redismem.errors import UnsupportedFormat
from redismem.events import Op
from redismem.messages.compression import expanded_bytes
from redismem.messages.decoding import decode_messages
from redismem.messages.message import Message
from redismem.messages.values import Undecodable
from redismem.originals.blocks import block_number, decode_block, unpacked_bytes
from redismem.originals.dictionaries import Dictionaries
from redismem.protocol import scripts
from redismem.protocol.call import Call, Command, evalsha
from redismem.protocol.keys import SessionKeys
from redismem.protocol.layout import COUNTERS, EDITED, EPOCH, WITH_ORIGINALS, bounds
from redismem.protocol.replies import corrupt


class Block(NamedTuple):
    """A block of originals as it was read."""

    number: int
    stored: bytes


@dataclass(slots=True)
class Page:
    """Some messages of a session that follow each other, as far as they are there."""

    session_id: str
    epoch: str
    start_seq: int
    originals_stop: int
    """The seq behind the last message that a block may hold; the window goes on there."""
    blocks: Sequence[Block]
    elements: Sequence[bytes]
    dictionaries: Dictionaries = field(default_factory=dict)
    """The dictionaries that the blocks were compressed with: whoever reads the blocks has to set them first."""
    unreadable: list[Block] = field(default_factory=list)
    """Blocks that turned out to be unreadable: what reads them passes them over."""

    @property
    def count(self) -> int:
        """How many seqs it is about: fewer than were asked for if the session, or what is kept of it, begins here."""
        return max(0, self.originals_stop - self.start_seq) + len(self.elements)

    @property
    def unpacked_bytes(self) -> int:
        """How many bytes there are to decode, as far as blocks and elements say it."""
        return sum(unpacked_bytes(each.stored) for each in self.blocks) + sum(map(expanded_bytes, self.elements))

    def stored(self) -> Iterator[tuple[int, list[bytes]]]:
        """The elements, in groups that follow each other, with the seq of each group's first. Raises Undecodable."""
        for block in self.blocks:
            try:
                first_seq, elements = decode_block(*block, self.dictionaries)
            except Undecodable:
                self.unreadable.append(block)
                continue
            skipped = max(0, self.start_seq - first_seq)
            yield first_seq + skipped, elements[skipped : max(0, self.originals_stop - first_seq)]
        yield max(self.start_seq, self.originals_stop), list(self.elements)

    def messages(self) -> list[Message]:
        """Oldest first; gaps are among them. Raises CorruptSession, UnsupportedFormat."""
        found: list[Message] = []
        try:
            for first_seq, elements in self.stored():
                try:
                    found += decode_messages(elements, first_seq, self.epoch)
                except Undecodable:
                    if first_seq >= self.originals_stop:
                        raise
                    self.unreadable += [block for block in self.blocks if block.number == block_number(first_seq)]
        except UnsupportedFormat as newer:
            raise UnsupportedFormat(str(newer), self.session_id) from None
        except (Undecodable, ValueError) as cause:
            raise corrupt(self.session_id, cause, self.epoch) from None
        return found


def page(session_id: str, reply: Sequence[Any]) -> Page | None:
    """What the page script gave; None if there is no session. Raises CorruptSession."""
    if not reply:
        return None
    epoch, start_seq, originals_stop, first_block, block_count, *found = reply
    try:
        name = epoch.decode()
    except ValueError as cause:
        raise corrupt(session_id, cause, epoch.decode("utf-8", "replace")) from None
    blocks = [Block(number, stored) for number, stored in enumerate(found[:block_count], first_block) if stored]
    return Page(session_id, name, start_seq, originals_stop, blocks, found[block_count:])


def why_unreadable(block: Block, known: Dictionaries) -> Undecodable:
    """DictionaryMissing: it can be read again once its dictionary is back. Undecodable: its bytes are none of ours."""
    try:
        decode_block(*block, known)
    except Undecodable as unreadable:
        return unreadable
    return Undecodable("what is in a block of originals is no message")


def block(keys: SessionKeys, number: int) -> Call[Block | None]:
    """A block of originals; None if there is none of this number."""
    commands = (("HGET", keys.originals, number),)
    return Call(keys.session_id, commands, lambda stored: Block(number, stored) if stored else None, op=Op.BLOCK)


class Signed(NamedTuple):
    """What is known of a session's originals before any block is read."""

    epoch: str
    first_seq: int
    """The seq of the first message of the window."""
    kept: bool
    signatures: Sequence[bytes | None]
    version: str = ""
    """What `edited` is: after a replacement, a block may hold another message."""


def signatures(keys: SessionKeys, numbers: Sequence[int], vectors: Sequence[int] = ()) -> Command:
    """The command that reads the signatures of these blocks, and behind them the vectors of those.

    With vectors, who made those of the vector set comes last.
    """
    meant = (*(f"v{number}" for number in vectors), "vectors") if vectors else ()
    return ("HMGET", keys.originals, *(f"s{number}" for number in numbers), *meant)


def signed(keys: SessionKeys, numbers: Sequence[int], vectors: Sequence[int] = ()) -> Call[Signed]:
    """What there is to recall from, the signatures of these blocks, and behind them the vectors of those.

    Raises CorruptSession, UnsupportedFormat.
    """

    def decode(state: Sequence[bytes | None], found: Sequence[bytes | None]) -> Signed:
        epoch, counters, kept, edited = state
        if counters is None:
            return Signed("", 1, False, ())
        try:
            return Signed(
                (epoch or b"").decode(), bounds(counters)[0], kept is not None, found, (edited or b"").decode()
            )
        except UnsupportedFormat as other:
            raise UnsupportedFormat(str(other), keys.session_id) from None
        except (Undecodable, ValueError) as cause:
            raise corrupt(keys.session_id, cause, (epoch or b"").decode("utf-8", "replace")) from None

    asked = ("HMGET", keys.state, EPOCH, COUNTERS, WITH_ORIGINALS, EDITED)
    return Call(keys.session_id, (asked, signatures(keys, numbers, vectors)), decode, op=Op.RECALL)


def blocks(keys: SessionKeys, numbers: Sequence[int]) -> Call[list[Block]]:
    """The blocks with these numbers, as far as they are there."""

    def decode(found: Sequence[bytes | None]) -> list[Block]:
        return [Block(number, stored) for number, stored in zip(numbers, found, strict=True) if stored]

    return Call(keys.session_id, (("HMGET", keys.originals, *numbers),), decode, op=Op.RECALL)


def quarantine_block(keys: SessionKeys, block: Block, now_ms: int, idle_timeout_ms: int) -> Call[bool]:
    """The block that cannot be read to `…:quarantine:<session>:<now_ms>:originals`; False: it is another one by now."""
    script = scripts.load("quarantine_block")
    kept = b"%s:%d:originals" % (keys.quarantine, now_ms)
    command = evalsha(script, (keys.originals, keys.vectors, kept), (block.number, block.stored, idle_timeout_ms))
    return Call(keys.session_id, (command,), bool, script, op=Op.QUARANTINE_BLOCK)
