"""The calls that keep vectors of messages: beside the blocks of originals, and in a vector set. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from redismem.events import Op
from redismem.originals.vectors import MARK_BYTES
from redismem.protocol import scripts
from redismem.protocol.call import Call, Command, evalsha
from redismem.protocol.keys import SessionKeys
from redismem.protocol.session.pages import Block


class Beside(NamedTuple):
    """A block of originals, and the field with the vectors of its messages."""

    block: Block
    vectors: bytes | None


BESIDE = "v"
"""Before the number of a block, the field of its vectors."""
IN_SET = "w"
"""The same of a block whose vectors are in the vector set as well."""


def lengths(keys: SessionKeys, numbers: Sequence[int], kind: str = BESIDE) -> Call[dict[int, int]]:
    """How long the vectors of these blocks are, in bytes; 0: there are none."""
    commands = tuple(("HSTRLEN", keys.originals, f"{kind}{number}") for number in numbers)
    return Call(keys.session_id, commands, lambda *found: dict(zip(numbers, found, strict=True)), op=Op.VECTORS)


def beside(keys: SessionKeys, number: int) -> Call[Beside | None]:
    """A block with its vectors; None if there is none of this number."""

    def decode(found: Sequence[bytes | None]) -> Beside | None:
        stored, vectors = found
        return None if stored is None else Beside(Block(number, stored), vectors)

    return Call(keys.session_id, (("HMGET", keys.originals, number, f"v{number}"),), decode, op=Op.VECTORS)


def set_vectors(keys: SessionKeys, block: Block, vectors: bytes) -> Call[bool]:
    """Keeps them beside this block; False: it is another one by now."""
    script = scripts.load("set_vectors")
    command = evalsha(script, (keys.originals,), (block.number, block.stored, vectors))
    return Call(keys.session_id, (command,), bool, script, op=Op.SET_VECTORS)


def move_vectors(
    keys: SessionKeys, number: int, vectors: bytes, model: bytes, rows: Iterable[tuple[bytes, bytes]]
) -> Call[int]:
    """Puts these vectors, which stand beside a full block, into the vector set.

    `rows`: elements and vectors, as `element_of` and `nearest.floats` give them. 1: they are there, 0: the block has
    other vectors by now, -1: this server has no vector sets, or none for this user.
    """
    script = scripts.load("move_vectors")
    pairs = (part for row in rows for part in row)
    command = evalsha(script, (keys.originals, keys.vectors), (number, vectors, model, *pairs))
    return Call(keys.session_id, (command,), int, script, op=Op.SET_VECTORS)


def element_of(mark: bytes, seq: int) -> bytes:
    """What stands in the vector set for a message: with the mark of the model, so that no other's is taken for it."""
    return b"%s%d" % (mark, seq)


def near(keys: SessionKeys, mark: bytes, vector: bytes, limit: int) -> Call[dict[int, float]]:
    """The cosines of those messages in the vector set that lie nearest to this vector, by their seqs.

    The server compares it with each, in a thread: about a microsecond a message.
    """

    def decode(found: Any) -> dict[int, float]:
        pairs = found.items() if isinstance(found, Mapping) else zip(found[::2], found[1::2], strict=True)
        # The server says how alike they are from 0 to 1.
        return {int(name[MARK_BYTES:]): 2 * float(score) - 1 for name, score in pairs if name[:MARK_BYTES] == mark}

    command = ("VSIM", keys.vectors, "FP32", vector, "WITHSCORES", "COUNT", limit, "TRUTH")
    return Call(keys.session_id, (command,), decode, op=Op.RECALL)


def in_set(keys: SessionKeys, numbers: Sequence[int]) -> Call[dict[int, bytes | None]]:
    """What is kept beside these blocks of the vectors that are in the vector set as well."""
    command: Command = ("HMGET", keys.originals, *(f"{IN_SET}{number}" for number in numbers))
    return Call(keys.session_id, (command,), lambda found: dict(zip(numbers, found, strict=True)), op=Op.RECALL)
