"""A page of a stored conversation: blocks of originals, then elements of the window. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from redismem.events import Op
from redismem.messages.compression import expanded_bytes
from redismem.messages.decoding import decode_messages
from redismem.messages.message import Message
from redismem.messages.values import Undecodable
from redismem.originals.blocks import (
    block_number,
    decode_block,
    head_of,
    is_merged,
    numbers_in,
    unpacked_bytes,
)
from redismem.originals.dictionaries import Dictionaries
from redismem.protocol.call import Call, Command
from redismem.protocol.keys import SessionKeys
from redismem.protocol.layout import COUNTERS, EDITED, EPOCH, OWNER, WITH_ORIGINALS, ZONE, bounds, decode_zone
from redismem.protocol.owners import check_same_owner
from redismem.protocol.replies import decoding


class Block(NamedTuple):
    """A block of originals, as stored. A merged block has the number of the first block in it."""

    number: int
    stored: bytes

    @property
    def numbers(self) -> range:
        """The numbers of the blocks in it."""
        return numbers_in(self.number, self.stored)


class Window(NamedTuple):
    """The seqs of a session's window."""

    epoch: str
    first_seq: int
    last_seq: int
    is_sparse: bool = False
    """True if gaps stand for several seqs, so that places do not follow from seqs."""


@dataclass(slots=True)
class MessagePage:
    """Consecutive stored messages of a session. Originals that Redis no longer has are missing."""

    session_id: str
    epoch: str
    start_seq: int
    originals_stop: int
    """The seq after the last message that a block may contain, at which the window begins."""
    blocks: Sequence[Block]
    elements: Sequence[bytes]
    dictionaries: Dictionaries = field(default_factory=dict)
    """The dictionaries of the blocks, which the caller must set before decoding."""
    unreadable: list[Block] = field(default_factory=list)
    """The blocks that decoding has skipped because they are unreadable."""
    zone: str | None = None
    window: Window | None = None
    """The window beside the page, which tells the positions of the next page."""

    @property
    def count(self) -> int:
        """The number of seqs. It is less than requested if the session or its originals begin on this page."""
        return max(0, self.originals_stop - self.start_seq) + len(self.elements)

    @property
    def unpacked_bytes(self) -> int:
        """The number of bytes to decode, according to the headers of blocks and elements."""
        return sum(unpacked_bytes(block.stored) for block in self.blocks) + sum(map(expanded_bytes, self.elements))

    def element_groups(self) -> Iterator[tuple[int, list[bytes]]]:
        """Yield consecutive groups of elements, each with its first seq. Adds unreadable blocks to `unreadable`."""
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
        """Decode the messages, oldest first, gaps included.

        Raises:
            CorruptSession: an element of the window cannot be read.
            UnsupportedFormat: another release wrote a message.
        """
        messages: list[Message] = []
        with decoding(self.session_id, self.epoch):
            for first_seq, elements in self.element_groups():
                try:
                    messages += decode_messages(elements, first_seq, self.epoch, self.zone)
                except Undecodable:
                    if first_seq >= self.originals_stop:
                        raise
                    self.unreadable += [block for block in self.blocks if block_number(first_seq) in block.numbers]
        return messages


def explain_unreadable(block: Block, known: Dictionaries) -> Undecodable:
    """Return the error that decoding the block raises.

    DictionaryMissing means that the block is readable once its dictionary is back. Any other error means that the block
    is corrupt.
    """
    try:
        decode_block(*block, known)
    except Undecodable as unreadable:
        return unreadable
    return Undecodable("a block of originals holds elements that are no messages")


def with_heads(numbers: Iterable[int]) -> list[int]:
    """Return the numbers of blocks, and of the merged blocks that may contain them."""
    every = set(numbers)
    return sorted(every | {head_of(number) for number in every})


def find_blocks(numbers: Iterable[int], stored: Mapping[int, bytes | None]) -> list[Block]:
    """Return the blocks of these numbers that exist, each merged block once.

    `stored` has the fields of the numbers, and those of `with_heads`. After a crash, a block may also exist beside the
    merged block that contains it; the merged block counts.
    """
    found: dict[int, Block] = {}
    for number in numbers:
        head, own = stored.get(head_of(number)), stored.get(number)
        if head and (is_merged(head) or (not own and number in numbers_in(head_of(number), head))):
            found[head_of(number)] = Block(head_of(number), head)
        elif own:
            found[number] = Block(number, own)
    return list(found.values())


def block(keys: SessionKeys, number: int) -> Call[Block | None]:
    """Build a call that reads the block of originals with a number. None means that the block does not exist."""
    read = blocks(keys, [number])
    return Call(keys.session_id, read.commands, lambda reply: next(iter(read.decode(reply)), None), op=Op.BLOCK)


class Signatures(NamedTuple):
    """The signatures of a session's originals, with the other fields that recall needs before it reads a block."""

    epoch: str
    first_seq: int
    """The seq of the first message of the window."""
    has_originals: bool
    signatures: Sequence[bytes | None]
    version: str = ""
    """The value of the field `edited`. It changes with each replacement, because a replacement may change a block."""
    zone: str | None = None


def signature_command(keys: SessionKeys, numbers: Sequence[int], vectors: Sequence[int] = ()) -> Command:
    """Build the command that reads the signatures of blocks `numbers`, then the vectors of blocks `vectors`."""
    fields = *(f"s{number}" for number in with_heads(numbers)), *(f"v{number}" for number in vectors)
    return ("HMGET", keys.originals, *fields)


def decode_signatures(numbers: Sequence[int], reply: Sequence[bytes | None]) -> list[bytes | None]:
    """Return the signatures of blocks `numbers`, then the vectors, from the reply to `signature_command`."""
    from redismem.originals.signatures import find_signatures  # stems cost a cold start, and no append needs them

    fields = with_heads(numbers)
    return [*find_signatures(dict(zip(fields, reply, strict=False)), numbers), *reply[len(fields) :]]


def read_signatures(keys: SessionKeys, numbers: Sequence[int], vectors: Sequence[int] = ()) -> Call[Signatures]:
    """Build a call that reads the signatures of blocks `numbers`, then the vectors of blocks `vectors`.

    Decoding raises:
        CorruptSession: the counters or the epoch cannot be read.
        UnsupportedFormat: another release wrote the session.
        OwnerMismatch: the session has another owner than the keys name.
    """

    def decode(state: Sequence[bytes | None], signatures: Sequence[bytes | None]) -> Signatures:
        epoch, counters, kept, edited, owner, zone = state
        check_same_owner(keys, owner, counters)
        if counters is None:
            return Signatures("", 1, False, ())
        with decoding(keys.session_id, epoch):
            return Signatures(
                (epoch or b"").decode(),
                bounds(counters)[0],
                kept is not None,
                decode_signatures(numbers, signatures),
                (edited or b"").decode(),
                decode_zone(zone),
            )

    read_state = ("HMGET", keys.state, EPOCH, COUNTERS, WITH_ORIGINALS, EDITED, OWNER, ZONE)
    commands = read_state, signature_command(keys, numbers, vectors)
    return Call(keys.session_id, commands, decode, op=Op.RECALL, is_separable=True)


def blocks(keys: SessionKeys, numbers: Sequence[int], epoch: str | None = None) -> Call[list[Block]]:
    """Build a call that reads the blocks with these numbers, each merged block once. Missing blocks are left out.

    With an epoch, all are left out if the session has another one now: it was cleared, and begun anew.
    """
    fields = with_heads(numbers)
    command: Command = ("HMGET", keys.originals, *fields)

    def decode(reply: Sequence[bytes | None]) -> list[Block]:
        return find_blocks(numbers, dict(zip(fields, reply, strict=True)))

    def decode_of_epoch(reply: Sequence[bytes | None], current: bytes | None) -> list[Block]:
        return decode(reply) if (current or b"").decode() == epoch else []

    if epoch is None:
        return Call(keys.session_id, (command,), decode, op=Op.RECALL)
    # The epoch comes last, so that the answer is right if both are sent one by one.
    both = command, ("HGET", keys.state, EPOCH)
    return Call(keys.session_id, both, decode_of_epoch, op=Op.RECALL, is_separable=True)


def read_for_merge(keys: SessionKeys, numbers: Sequence[int]) -> Call[tuple[list[Block], dict[int, bytes]]]:
    """Build a call that reads blocks by number, and their readable signatures, by number of the block."""
    from redismem.originals.signatures import is_signature

    fields = with_heads(numbers)

    def decode(reply: Sequence[bytes | None]) -> tuple[list[Block], dict[int, bytes]]:
        stored = dict(zip(fields, reply, strict=False))
        signatures = zip(numbers, decode_signatures(numbers, reply[len(fields) :]), strict=True)
        readable = {number: each for number, each in signatures if each and is_signature(each)}
        return find_blocks(numbers, stored), readable

    command: Command = ("HMGET", keys.originals, *fields, *(f"s{number}" for number in fields))
    return Call(keys.session_id, (command,), decode, op=Op.BLOCK)
