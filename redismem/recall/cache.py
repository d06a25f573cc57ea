"""What this process keeps of the sessions that it recalled from last, so that the next question costs little. No I/O.

Bounded in sessions and bytes. What is kept of a session counts only while the session is as it was: whoever asks says
how it is, in words that the reply of the same question brought.
"""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import islice

from redismem.formats.recalled import format_line
from redismem.messages.decoding import StoredMessages
from redismem.messages.message import Message
from redismem.messages.values import Undecodable
from redismem.originals.blocks import BLOCK_COUNT, block_number, first_seq_of
from redismem.originals.signatures import Signature, decode_signature
from redismem.originals.vectors import Vectors, decode_vectors
from redismem.recall.postings import Postings
from redismem.recall.selection import calling

# What a bytes object and its places in a list and a dict take beside the bytes, about.
_ELEMENT_BYTES = 160
_SESSION_BYTES = 2_000
_CALL_BYTES = 600
_LINE_BYTES = 100


class Contents:
    """The messages of one block as they are stored, and what choosing among them asks for."""

    __slots__ = ("calling", "elements", "first_seq", "is_whole", "lines", "size_bytes", "stop_seq", "tokens")

    def __init__(self, first_seq: int, elements: Sequence[bytes], epoch: str) -> None:
        """Raises Undecodable, UnsupportedFormat."""
        stored = StoredMessages(elements, first_seq, epoch)
        self.first_seq = first_seq
        self.stop_seq = first_seq + len(elements)
        self.is_whole = self.stop_seq == first_seq_of(block_number(first_seq) + 1)
        """Whether it goes up to the end of its block."""
        self.elements = elements
        self.tokens = stored.tokens()
        """The tokens of each message that may be recalled, by its seq: of none that is pinned."""
        usable = (message for message in stored.messages() if message.seq in self.tokens)
        self.calling = calling(usable) if stored.may_hold_calls else {}
        """The calls and results in these messages, by the seqs of those that have any."""
        self.lines: dict[int, str] = {}
        """The lines of messages that were quoted before, by seq."""
        elements_bytes = sum(map(len, elements)) + _ELEMENT_BYTES * len(elements)
        self.size_bytes = elements_bytes + _CALL_BYTES * len(self.calling)
        """What the block takes here, in bytes, with the lines that were made."""


class CachedSession:
    """What is kept of one session: where each stem stands, and blocks that were read. Fit for any number of threads."""

    def __init__(self, epoch: str, version: str, stop: int) -> None:
        """`version`: what `edited` is; a message of a block may be another after that. `stop`: the first block."""
        self.stop = stop
        """Blocks before this one are full, and were taken up."""
        self.postings = Postings()
        self.contents: dict[int, Contents] = {}
        self.vectors: dict[int, Vectors] = {}
        """The vectors of messages, by the numbers of their blocks: with an embedder."""
        self.set_model: bytes | None = None
        """Who made the vectors of the session's vector set; None: it has none of this embedder's."""
        self.seen: object = None
        """How the session was when all of this was brought up to date last: as it is now, if this is equal."""
        self.noted_bytes = 0
        """How many bytes it counted as when it was noted last."""
        self._epoch = epoch
        self._version = version
        self._last: tuple[int, bytes] | None = None
        self._growing: tuple[int, bytes | None] | None = None
        self._contents_bytes = self._vectors_bytes = 0
        self._lock = threading.Lock()

    @property
    def size_bytes(self) -> int:
        return _SESSION_BYTES + self.postings.size_bytes + self._contents_bytes + self._vectors_bytes

    def asked(self, more_count: int) -> Sequence[int]:
        """The signatures to ask for: of the last block taken up, as a sign that all are there still; then new ones."""
        more = range(self.stop, self.stop + more_count)
        return more if self._last is None else (self._last[0], *more)

    def holds(self, epoch: str, version: str, stored: Mapping[int, bytes | None]) -> bool:
        """Whether what is known is still so, as the session and these signatures are now."""
        is_there = self._last is None or stored.get(self._last[0]) == self._last[1]
        return self._epoch == epoch and self._version == version and is_there and self._grows_on(stored)

    def _grows_on(self, stored: Mapping[int, bytes | None]) -> bool:
        """Whether the block that was not full has what it had: after a prune it is gone, or another has begun there."""
        number, before = self._growing or (self.stop, None)
        now, known = stored.get(number), self.postings.blocks.get(number)
        if before in (None, now) or known is None or number != self.stop:
            return True
        found = _decoded(now)
        return found is not None and all(
            new == old for old, new in zip(known.weights, found.weights, strict=True) if old
        )

    def take(self, stored: Mapping[int, bytes | None], stop: int) -> None:
        """Takes up the signatures of full blocks before this one. One that cannot be read is passed over."""
        with self._lock:
            numbers = range(self.stop, stop)  # none, if another was faster
            self.postings.add([(number, found) for number in numbers if (found := _decoded(stored.get(number)))])
            for number in numbers:
                if (encoded := stored.get(number)) is not None:
                    self._last = number, encoded
            self.stop = max(self.stop, stop)

    def grow(self, number: int, encoded: bytes | None) -> None:
        """The signature of the block that is not full yet, if there is one."""
        if number != self.stop or (number, encoded) == self._growing:
            return
        with self._lock:
            if number == self.stop:
                # What was read of it may be another by now: a failover that lost its last messages has others there.
                if (gone := self.contents.pop(number, None)) is not None:
                    self._contents_bytes -= gone.size_bytes
                self.postings.grow(number, _decoded(encoded))
                self._growing = number, encoded

    def take_vectors(self, stored: Mapping[int, bytes | None], mark: bytes, since: int) -> None:
        """Takes up vectors, if they are of this model; those of blocks before `since` are forgotten."""
        found = {number: each for number in stored if (each := _vectors(stored[number], mark))}
        if found:
            with self._lock:
                # Another dict each time: whoever searches meanwhile has the one before.
                both = self.vectors | found
                self.vectors = {number: each for number, each in both.items() if number >= since}
                self._vectors_bytes = sum(each.size_bytes + _ELEMENT_BYTES for each in self.vectors.values())

    def lacking(self, dimensions: int, count: int, limit: int) -> list[int]:
        """The newest full blocks that were taken up whose messages do not all have a vector here, `count` at most.

        `dimensions`: of the vectors; 0 for any. `limit`: how many blocks are looked at.
        """
        whole = {number: each for number, each in self.vectors.items() if each.stop == BLOCK_COUNT}
        known = {number for number, each in whole.items() if dimensions in (0, each.dimensions)}
        newest = range(self.stop - 1, max(-1, self.stop - 1 - limit), -1)
        return list(islice((number for number in newest if number not in known), count))

    def missing(self, numbers: Sequence[int], window_seq: int) -> list[int]:
        """The numbers of the blocks that were not read, as far as they stand before this window by now."""
        known = self.contents.get
        return [
            number
            for number in numbers
            if (found := known(number)) is None or not (found.is_whole or found.stop_seq >= window_seq)
        ]

    def keep(self, number: int, found: Contents) -> None:
        """Keeps a block that was read."""
        with self._lock:
            before = self.contents.get(number)
            self.contents[number] = found
            self._contents_bytes += found.size_bytes - (0 if before is None else before.size_bytes)

    def keep_line(self, block: Contents, seq: int, text: str) -> None:
        """Keeps the line of a message of this block that was quoted."""
        with self._lock:
            size_bytes = sys.getsizeof(text) + _LINE_BYTES if seq not in block.lines else 0
            block.lines[seq] = text
            block.size_bytes += size_bytes
            if self.contents.get(block_number(block.first_seq)) is block:
                self._contents_bytes += size_bytes

    def found(self, seqs: Sequence[int], contents: Sequence[Contents]) -> Found:
        """The messages of these seqs, which stand in these blocks."""
        return Found(self, self._epoch, seqs, contents)


class Found:
    """Messages that were recalled, see `Recalled`."""

    __slots__ = ("_blocks", "_epoch", "_hot", "_seqs")

    def __init__(self, hot: CachedSession, epoch: str, seqs: Sequence[int], contents: Sequence[Contents]) -> None:
        self._hot = hot
        self._epoch = epoch
        self._seqs = seqs
        self._blocks = {block_number(each.first_seq): each for each in contents}

    def __len__(self) -> int:
        return len(self._seqs)

    def messages(self) -> list[Message]:
        return self._made(self._seqs)

    def lines(self) -> list[str]:
        blocks = [self._blocks[(seq - 1) // BLOCK_COUNT].lines for seq in self._seqs]
        new = [seq for seq, known in zip(self._seqs, blocks, strict=True) if seq not in known]
        for message in self._made(new) if new else ():
            self._hot.keep_line(self._blocks[block_number(message.seq)], message.seq, format_line(message))
        return [known[seq] for seq, known in zip(self._seqs, blocks, strict=True)]

    def _made(self, seqs: Sequence[int]) -> list[Message]:
        blocks = [(self._blocks[block_number(seq)], seq) for seq in seqs]
        elements = [block.elements[seq - block.first_seq] for block, seq in blocks]
        return StoredMessages(elements, 0, self._epoch, seqs).messages()


@lru_cache(maxsize=16)  # of the block that is not full, which is looked at twice when it has grown
def _decoded(encoded: bytes | None) -> Signature | None:
    if encoded is None:
        return None
    try:
        return decode_signature(encoded)
    except Undecodable:
        return None  # `redismem check` tells of it; its block is not found by what it holds


def _vectors(encoded: bytes | None, mark: bytes) -> Vectors | None:
    try:
        return None if encoded is None else decode_vectors(encoded, mark)
    except Undecodable:
        return None  # likewise; its messages are found by their words


class RecallCache:
    """Fit for any number of threads."""

    def __init__(self, max_count: int, max_bytes: int) -> None:
        self._max_count = max_count
        self._max_bytes = max_bytes
        self._sessions: OrderedDict[str, CachedSession] = OrderedDict()
        self._lock = threading.Lock()
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, session_id: str) -> CachedSession | None:
        return self._sessions.get(session_id)

    def note(self, session_id: str, hot: CachedSession) -> None:
        """Notes that a session was just asked for, and may have grown; who was not for longest is forgotten."""
        size_bytes = hot.size_bytes
        with self._lock:
            if size_bytes == hot.noted_bytes and self._sessions.get(session_id) is hot:
                self._sessions.move_to_end(session_id)
                return
            before = self._sessions.pop(session_id, None)
            self.size_bytes += size_bytes - (0 if before is None else before.noted_bytes)
            hot.noted_bytes = size_bytes
            self._sessions[session_id] = hot
            while self._sessions and (len(self._sessions) > self._max_count or self.size_bytes > self._max_bytes):
                _, oldest = self._sessions.popitem(last=False)
                self.size_bytes -= oldest.noted_bytes

    def forget(self, session_id: str) -> None:
        """What is known of the session is true no more."""
        with self._lock:
            gone = self._sessions.pop(session_id, None)
            self.size_bytes -= 0 if gone is None else gone.noted_bytes


NO_CACHE = RecallCache(0, 0)
"""A cache that keeps nothing."""
