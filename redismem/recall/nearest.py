"""Which vectors lie nearest to another, and vectors in bytes. By numpy: imported only if there is an embedder."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sized
from types import MappingProxyType

import numpy as np

from redismem.errors import ModelFailed
from redismem.originals.blocks import BLOCK_COUNT, first_seq_of
from redismem.originals.vectors import DIMENSIONS_LIMIT, Vectors

_LARGEST = 127
_FLOAT = np.dtype("<f4")
NOTHING: Mapping[int, float] = MappingProxyType({})


def checked_rows(given: object, count: int) -> tuple[int, list[bytes]]:
    """Dimensions, and scale and bytes of each vector that an embedder gave for so many texts.

    Raises ModelFailed, permanently, for anything but one vector a text, of finite numbers and all of one size.
    """
    try:
        vectors = np.asarray(given, dtype=np.float64)
    except Exception:  # whatever an array of the caller's own raises
        raise _failed("the embedder gave something other than vectors of one size") from None
    if vectors.ndim != 2 or vectors.shape[0] != count:
        raise _failed(f"the embedder gave something other than {count} vectors for {count} texts")
    dimensions = vectors.shape[1]
    if not 1 <= dimensions <= DIMENSIONS_LIMIT:
        raise _failed(f"the embedder gave vectors of {dimensions} dimensions, not of 1 to {DIMENSIONS_LIMIT}")
    if not np.isfinite(vectors).all():
        raise _failed("the embedder gave a number that is not finite")
    largest = np.abs(vectors).max(axis=1, keepdims=True)
    vectors = vectors / np.where(largest > 0, largest, 1)  # so that no square is too large, or nothing
    rows = np.rint(vectors * _LARGEST).astype(np.int8)
    lengths = np.sqrt((rows.astype(np.float64) ** 2).sum(axis=1))
    scales = np.divide(1, lengths, out=np.zeros(count), where=lengths > 0).astype(_FLOAT)
    return dimensions, [scale.tobytes() + row.tobytes() for scale, row in zip(scales, rows, strict=True)]


def _failed(reason: str) -> ModelFailed:
    return ModelFailed(reason, reason=reason, permanent=True)


def floats(row: bytes) -> bytes:
    """The vector of a row, as a vector set takes it: it is normalised there."""
    return np.frombuffer(row, np.int8, offset=_FLOAT.itemsize).astype(_FLOAT).tobytes()


def nearest(
    row: bytes, blocks: Mapping[int, Vectors], before_seq: int, limit: int, others: Mapping[int, float] = NOTHING
) -> list[int]:
    """The seqs before this one that point most in the direction of this row, best first; none that points away.

    `others`: cosines of messages that somebody else has compared with it.
    """
    query = np.frombuffer(row, np.int8, offset=_FLOAT.itemsize).astype(np.float32)
    query /= max(1.0, float(np.linalg.norm(query)))
    found = dict(others)
    for number, each in list(blocks.items()):
        if each.dimensions != len(query):
            continue  # made with other settings
        rows = np.frombuffer(each.rows, np.int8).reshape(-1, each.dimensions)
        worth = (rows @ query) * np.frombuffer(each.scales, _FLOAT)
        first_seq = first_seq_of(number) + each.place
        found.update(enumerate(worth.tolist(), first_seq))
    best = sorted(
        ((score, seq) for seq, score in found.items() if seq < before_seq and 0 < score < math.inf), reverse=True
    )
    return [seq for _, seq in best[:limit]]


def work_of(row: bytes, blocks: Sized) -> int:
    """How many products it is, about."""
    return len(row) * len(blocks) * BLOCK_COUNT
