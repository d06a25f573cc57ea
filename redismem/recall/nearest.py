"""Nearest-neighbour search over quantized vectors. Needs numpy, so it is imported only if there is an embedder."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sized
from heapq import nlargest

import numpy as np

from redismem.errors import ModelFailed
from redismem.originals.blocks import BLOCK_COUNT, block_number, first_seq_of
from redismem.originals.vectors import DIMENSIONS_LIMIT, Vectors

_LARGEST = 127
_FLOAT = np.dtype("<f4")
_PAIRS_LIMIT, _PAIRS_LEAST = 128, 32
# Standard errors: about one useless embedder in a thousand seems to be better than chance.
_CHANCE = 3.0


def quantize(embedded: object, count: int) -> tuple[int, list[bytes]]:
    """Check an embedder's vectors of `count` texts, and return their dimensions and one row per vector.

    A row is a scale and one signed byte per dimension.

    Raises:
        ModelFailed: The number of vectors is not `count`, their sizes differ, or a number is not finite. The error is
            permanent: a retry would not help.
    """
    try:
        vectors = np.asarray(embedded, dtype=np.float64)
    except Exception:  # a foreign array may raise anything
        raise _make_error("the embedder returned something other than vectors of one size") from None
    if vectors.ndim != 2 or vectors.shape[0] != count:
        raise _make_error(f"the embedder returned something other than {count} vectors for {count} texts")
    dimensions = vectors.shape[1]
    if not 1 <= dimensions <= DIMENSIONS_LIMIT:
        raise _make_error(f"the embedder returned vectors of {dimensions} dimensions, not of 1 to {DIMENSIONS_LIMIT}")
    if not np.isfinite(vectors).all():
        raise _make_error("the embedder returned a number that is not finite")
    largest = np.abs(vectors).max(axis=1, keepdims=True)
    vectors = vectors / np.where(largest > 0, largest, 1)  # squares neither overflow nor underflow
    rows = np.rint(vectors * _LARGEST).astype(np.int8)
    lengths = np.sqrt((rows.astype(np.float64) ** 2).sum(axis=1))
    scales = np.divide(1, lengths, out=np.zeros(count), where=lengths > 0).astype(_FLOAT)
    return dimensions, [scale.tobytes() + row.tobytes() for scale, row in zip(scales, rows, strict=True)]


def _make_error(reason: str) -> ModelFailed:
    return ModelFailed(reason, reason=reason, permanent=True)


def find_nearest(row: bytes, blocks: Mapping[int, Vectors], before_seq: int, limit: int) -> dict[int, float]:
    """Return the highest positive cosine similarities to the row, at most `limit`, by seq before `before_seq`."""
    query = np.frombuffer(row, np.int8, offset=_FLOAT.itemsize).astype(np.float32)
    query /= max(1.0, float(np.linalg.norm(query)))
    cosines: dict[int, float] = {}
    for number, vectors in list(blocks.items()):
        if vectors.dimensions != len(query):
            continue  # the settings were different then
        rows = np.frombuffer(vectors.rows, np.int8).reshape(-1, vectors.dimensions)
        scores = (rows @ query) * np.frombuffer(vectors.scales, _FLOAT)
        first_seq = first_seq_of(number) + vectors.place
        cosines.update(enumerate(scores.tolist(), first_seq))
    best = nlargest(
        limit, ((score, seq) for seq, score in cosines.items() if seq < before_seq and 0 < score < math.inf)
    )
    return {seq: score for score, seq in best}


def knows_words(pairs: Iterable[tuple[int, int]], blocks: Mapping[int, Vectors]) -> bool:
    """Return False if the vectors say nothing of these texts, such as vectors drawn by chance.

    Messages that share a rare word must be more similar than other messages. Fewer than 32 pairs with vectors decide
    nothing.

    Args:
        pairs: The seqs of messages that share a rare word.
        blocks: The vectors by the number of their block.
    """
    rows: list[tuple[bytes, bytes]] = []
    for one, other in pairs:
        row, other_row = (
            None if (vectors := blocks.get(block_number(seq))) is None else vectors.row((seq - 1) % BLOCK_COUNT)
            for seq in (one, other)
        )
        # Equal texts have equal vectors, whatever the embedder.
        if row and other_row and row != other_row and len(row) == len(other_row) == len(rows[0][0] if rows else row):
            rows.append((row, other_row))
            if len(rows) == _PAIRS_LIMIT:
                break
    if len(rows) < _PAIRS_LEAST:
        return True
    ones, others = (_unit_vectors([pair[at] for pair in rows]) for at in (0, 1))
    by_chance = np.roll(others, len(rows) // 2, axis=0)
    gains = (ones * (others - by_chance)).sum(axis=1)
    return bool(gains.mean() * math.sqrt(len(gains)) > _CHANCE * gains.std())


def _unit_vectors(rows: list[bytes]) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    """Return the vectors of these rows, one per line."""
    table = np.frombuffer(b"".join(rows), np.uint8).reshape(len(rows), -1)
    scales = np.ascontiguousarray(table[:, : _FLOAT.itemsize]).view(_FLOAT)
    return table[:, _FLOAT.itemsize :].view(np.int8).astype(np.float32) * scales


def estimate_products(row: bytes, blocks: Sized) -> int:
    """Return the approximate number of multiplications that `find_nearest` takes."""
    return len(row) * len(blocks) * BLOCK_COUNT
