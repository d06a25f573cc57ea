"""One cached session of recall: its index, and the blocks and vectors read so far."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from functools import lru_cache
from itertools import islice

from redismem.formats.recalled import format_line, line_tokens
from redismem.messages.decoding import StoredMessages
from redismem.messages.message import Message
from redismem.messages.values import Undecodable
from redismem.originals.blocks import BLOCK_COUNT, block_number, first_seq_of
from redismem.originals.signatures import WEIGHTS, Signature, decode_signature
from redismem.originals.vectors import Vectors, decode_vectors
from redismem.recall.postings import Postings
from redismem.recall.proximity import LineWords, read_line
from redismem.recall.rules import subject_hashes
from redismem.recall.selection import Size, map_calls

# The approximate memory of a message with its places in a list and three dicts, without its bytes and its line.
_ELEMENT_BYTES = 480
_SESSION_BYTES = 2_000
_CALL_BYTES = 600


Part = tuple[int, Sequence[bytes]]
"""First seq and elements of one block."""


class Contents:
    """The stored messages of one block, with the numbers by which a search chooses among them."""

    __slots__ = (
        *(
            "_words",
            "_subjects",
            "call_ids",
            "elements",
            "first_seq",
            "is_whole",
            "lines",
            "size_bytes",
            "sizes",
            "stop_seq",
        ),
        "zone",
    )

    def __init__(
        self, first_seq: int, elements: Sequence[bytes], epoch: str, *, with_days: bool = True, zone: str | None = None
    ) -> None:
        """Decode the elements: encoded messages. Raise Undecodable or UnsupportedFormat if one cannot be read."""
        stored = StoredMessages(elements, first_seq, epoch, zone=zone)
        usable_seqs = stored.tokens()
        usable = [message for message in stored.messages() if message.seq in usable_seqs]
        self.first_seq = first_seq
        self.zone = zone
        self.stop_seq = first_seq + len(elements)
        self.is_whole = self.stop_seq == first_seq_of(block_number(first_seq) + 1)
        """True if the elements extend to the end of the block."""
        self.elements = elements
        self.lines = {message.seq: format_line(message, with_days=with_days) for message in usable}
        """The line that quotes each message that is not pinned, by seq."""
        self.sizes: dict[int, Size] = {
            message.seq: (line_tokens(self.lines[message.seq], message), message.day if with_days else None)
            for message in usable
        }
        """The tokens and the day of each line, by seq."""
        self.call_ids = map_calls(usable) if stored.may_hold_calls else {}
        """The ids of tool calls and results, by seq; only for messages that have calls or results."""
        texts_bytes = sum(map(len, elements)) + sum(map(sys.getsizeof, self.lines.values()))
        self.size_bytes = texts_bytes + _ELEMENT_BYTES * len(elements) + _CALL_BYTES * len(self.call_ids)
        """The approximate memory of the block with its lines, in bytes."""
        self._subjects: dict[int, Set[int]] = {}
        self._words: dict[int, LineWords] = {}

    def words_of(self, seq: int) -> LineWords:
        """Return the words of a message."""
        if seq not in self._words:
            self._words[seq] = read_line(self.lines.get(seq, ""))
        return self._words[seq]

    def subject(self, seq: int) -> Set[int]:
        """Return the hashes of the stems that tell the subject of the standing rules in a message."""
        if seq not in self._subjects:
            self._subjects[seq] = subject_hashes(self.lines.get(seq, "").partition(": ")[2])
        return self._subjects[seq]


class CachedSession:
    """The cached index and blocks of one session. Thread-safe."""

    def __init__(self, epoch: str, version: str, start: int, zone: str | None = None) -> None:
        """Create an empty entry.

        Args:
            epoch: The epoch of the session.
            version: The value of the session's field `edited`, which changes with every edit that may change a block.
            start: The number of the first block that the index will contain, until `add_older` adds older ones.
            zone: The time zone of the session.
        """
        self.start = start
        """The number of the first block in the index. Older blocks are not searched."""
        self.stop = start
        """The number of the last full block added, plus one."""
        self.is_full = False
        """True if the index takes no older blocks, because it would take too much memory."""
        self.postings = Postings()
        self.contents: dict[int, Contents] = {}
        """The cached blocks by number."""
        self.siblings: dict[int, Part] = {}
        """First seq and elements of blocks that were read within a merged block, but not asked for, by number."""
        self.vectors: dict[int, Vectors] = {}
        """The vectors of messages, by the number of their block; empty if there is no embedder."""
        self.validator: object = None
        """The state of the session at the last refresh. While the session's state is equal, the entry is current."""
        self.counted_bytes = 0
        """The size of this entry in the cache's sum, in bytes."""
        self.used_s = 0.0
        """The time of the last search, for the cache."""
        self._epoch = epoch
        self._version = version
        self.zone = zone
        self._last: tuple[int, bytes] | None = None
        self._growing: tuple[int, bytes | None] | None = None
        self._contents_bytes = self._vectors_bytes = 0
        # The number of blocks with vectors when these were judged, and the verdict.
        self._trust = 0, True
        self._lock = threading.Lock()

    @property
    def size_bytes(self) -> int:
        """The approximate memory of this entry, in bytes."""
        return _SESSION_BYTES + self.postings.size_bytes + self._contents_bytes + self._vectors_bytes

    def signatures_to_read(self, new_count: int) -> Sequence[int]:
        """Return the numbers of the blocks whose signatures to read next.

        The first one is the last block added, whose signature validates the entry; `new_count` new blocks follow.
        """
        new = range(self.stop, self.stop + new_count)
        return new if self._last is None else (self._last[0], *new)

    def is_current(self, epoch: str, version: str, zone: str | None, stored: Mapping[int, bytes | None]) -> bool:
        """True if the entry matches the session's current epoch, version, zone and signatures."""
        is_there = self._last is None or _is_same_signature(self._last[1], stored.get(self._last[0]))
        is_same = (self._epoch, self._version, self.zone) == (epoch, version, zone)
        return is_same and is_there and self._is_extended(stored)

    def _is_extended(self, stored: Mapping[int, bytes | None]) -> bool:
        """True if the last, partly filled block only grew. A prune may have removed or replaced it."""
        number, before = self._growing or (self.stop, None)
        now = stored.get(number)
        if before in (None, now) or number != self.stop or not (classes := self.postings.weight_classes(number)):
            return True
        signature = decode_or_none(now)
        return signature is not None and all(
            WEIGHTS[old] == new for old, new in zip(classes, signature.weights, strict=True) if old
        )

    def add_signatures(
        self, signatures: Mapping[int, Signature], stored: Mapping[int, bytes | None], stop: int
    ) -> None:
        """Add the signatures of the full blocks before `stop`, by number. `stored` are those of Redis."""
        with self._lock:
            numbers = range(self.stop, stop)  # empty if another search was faster
            self.postings.add([(number, signatures[number]) for number in numbers if number in signatures])
            for number in numbers:
                if (encoded := stored.get(number)) is not None:
                    self._last = number, encoded
            self.stop = max(self.stop, stop)

    def add_older(self, signatures: Mapping[int, Signature], numbers: range) -> None:
        """Add the signatures of these blocks, whole segments, if they end at the first block of the index."""
        with self._lock:
            if numbers.stop == self.start:  # another search may have added them, or dropped those that follow
                self.postings.add([(number, signatures[number]) for number in numbers if number in signatures])
                self.start = numbers.start

    def limit_index(self, max_bytes: int) -> None:
        """Drop the oldest part of an index that takes more memory."""
        with self._lock:
            while self.postings.segment_count > 1 and self.postings.size_bytes > max_bytes:
                self.start, self.is_full = self.postings.drop_oldest(), True

    def limit_contents(self, max_bytes: int) -> None:
        """Drop the blocks of an entry that takes more memory, and keep the index."""
        if self.size_bytes > max_bytes:
            with self._lock:
                self.contents, self.siblings, self._contents_bytes = {}, {}, 0

    def grow(self, number: int, encoded: bytes | None, signature: Signature | None) -> None:
        """Replace the signature of the last, partly filled block. `None` means that no block is partly filled."""
        if number != self.stop or (number, encoded) == self._growing:
            return
        with self._lock:
            if number == self.stop:
                # A failover may have replaced the last messages, so the cached block may be wrong.
                if (removed := self.contents.pop(number, None)) is not None:
                    self._contents_bytes -= removed.size_bytes
                self.postings.grow(number, signature)
                self._growing = number, encoded

    def add_vectors(self, stored: Mapping[int, bytes | None], mark: bytes, since: int) -> None:
        """Add the stored vectors that have this model's mark, and drop the vectors of blocks before `since`."""
        added = {number: vectors for number in stored if (vectors := _decode_vectors(stored[number], mark))}
        if added:
            with self._lock:
                # A new dict each time, because other threads may be searching the old one.
                both = self.vectors | added
                self.vectors = {number: vectors for number, vectors in both.items() if number >= since}
                self._vectors_bytes = sum(vectors.size_bytes + _ELEMENT_BYTES for vectors in self.vectors.values())

    def trusts_vectors(self) -> bool:
        """Return False if the vectors say nothing of the words. Judged again once there are twice as many."""
        judged_count, is_trusted = self._trust
        if len(self.vectors) >= 2 * judged_count:
            from redismem.recall.nearest import knows_words

            is_trusted = knows_words(self.postings.rare_pairs(), self.vectors)
            self._trust = max(1, len(self.vectors)), is_trusted
        return is_trusted

    def blocks_without_vectors(self, dimensions: int, count: int, limit: int) -> list[int]:
        """Return the numbers of the newest full blocks that lack the vector of any message.

        Args:
            dimensions: The dimensions of the vectors; 0 accepts any.
            count: The maximum number of blocks to return.
            limit: The number of newest blocks to check.
        """
        whole = {number: vectors for number, vectors in self.vectors.items() if vectors.stop == BLOCK_COUNT}
        complete = {number for number, vectors in whole.items() if dimensions in (0, vectors.dimensions)}
        newest = range(self.stop - 1, max(-1, self.stop - 1 - limit), -1)
        return list(islice((number for number in newest if number not in complete), count))

    def missing_blocks(self, numbers: Sequence[int], window_seq: int) -> list[int]:
        """Return the numbers of blocks that are not cached, or not with all messages before `window_seq`."""
        get_block = self.contents.get
        return [
            number
            for number in numbers
            if (block := get_block(number)) is None or not (block.is_whole or block.stop_seq >= window_seq)
        ]

    def add_block(self, number: int, block: Contents) -> None:
        """Cache a block."""
        with self._lock:
            before = self.contents.get(number)
            self.contents[number] = block
            self._contents_bytes += block.size_bytes - (0 if before is None else before.size_bytes)
            self._contents_bytes -= _part_bytes(self.siblings.pop(number, None))

    def take_sibling(self, number: int, make: Callable[[int, Sequence[bytes]], Contents]) -> bool:
        """Cache a block that was read within a merged one. False means that it was not, or cannot be read."""
        part = self.siblings.get(number)
        if part is None:
            return False
        try:
            self.add_block(number, make(*part))
        except Undecodable:
            return False  # the caller reads it again, and leaves it out
        return True

    def add_siblings(self, parts: Mapping[int, Part]) -> None:
        """Cache the other blocks of a merged one, until they are asked for."""
        with self._lock:
            added = {number: part for number, part in parts.items() if number not in self.contents}
            self._contents_bytes += sum(_part_bytes(part) for part in added.values())
            self._contents_bytes -= sum(_part_bytes(self.siblings.get(number)) for number in added)
            self.siblings |= added

    def select(self, seqs: Sequence[int], blocks: Iterable[Contents], unsearched_count: int) -> SelectedMessages:
        """Select the messages with these seqs, which these blocks contain."""
        return SelectedMessages(self, self._epoch, seqs, blocks, unsearched_count)


def _part_bytes(part: Part | None) -> int:
    return 0 if part is None else sum(map(sys.getsizeof, part[1]))


class SelectedMessages:
    """The messages that a search has selected. Decodes them on demand; implements `Recalled`."""

    __slots__ = ("_blocks", "_cached", "_epoch", "_seqs", "unsearched_count")

    def __init__(
        self,
        cached: CachedSession,
        epoch: str,
        seqs: Sequence[int],
        blocks: Iterable[Contents],
        unsearched_count: int,
    ) -> None:
        self.unsearched_count = unsearched_count
        self._cached = cached
        self._epoch = epoch
        self._seqs = seqs
        self._blocks = {block_number(block.first_seq): block for block in blocks}

    def __len__(self) -> int:
        return len(self._seqs)

    def messages(self) -> list[Message]:
        """Return the messages, oldest first. Each call returns new objects."""
        return self._decode(self._seqs)

    def lines(self) -> list[tuple[int, str]]:
        """Return the day of each message and the line that quotes it, oldest first."""
        blocks = [(self._blocks[(seq - 1) // BLOCK_COUNT], seq) for seq in self._seqs]
        return [(block.sizes[seq][1] or 0, block.lines[seq]) for block, seq in blocks]

    def _decode(self, seqs: Sequence[int]) -> list[Message]:
        blocks = [(self._blocks[block_number(seq)], seq) for seq in seqs]
        elements = [block.elements[seq - block.first_seq] for block, seq in blocks]
        return StoredMessages(elements, 0, self._epoch, seqs, self._cached.zone).messages()


@lru_cache(maxsize=16)  # a search decodes the signature of the last block twice if the block has grown
def decode_or_none(encoded: bytes | None) -> Signature | None:
    """Return the decoded signature; `None` if there is none, or if it cannot be read."""
    if encoded is None:
        return None
    try:
        return decode_signature(encoded)
    except Undecodable:
        return None  # `redismem doctor --deep` reports it


def _is_same_signature(one: bytes, other: bytes | None) -> bool:
    """True if two stored signatures say the same: that of a block has another form once the block is merged."""
    return one == other or (
        other is not None and (signature := decode_or_none(one)) is not None and signature == decode_or_none(other)
    )


def _decode_vectors(encoded: bytes | None, mark: bytes) -> Vectors | None:
    try:
        return None if encoded is None else decode_vectors(encoded, mark)
    except Undecodable:
        return None  # the search finds its messages by words only; `redismem doctor --deep` reports it
