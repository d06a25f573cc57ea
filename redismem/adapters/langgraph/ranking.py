"""Vectors of a store's items: the texts to embed, and the similarity of an item to a question."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import isfinite, sqrt
from operator import mul
from typing import Any

from langgraph.store.base import IndexConfig, Op, PutOp, SearchOp, ensure_embeddings, get_text_at_path, tokenize_path

from redismem import InvalidSettings

Vectors = Mapping[str, Sequence[float]]


class Index:
    """The index configuration of a store."""

    def __init__(self, config: IndexConfig) -> None:
        """Check the configuration.

        Raises:
            InvalidSettings: it has no embedder, or no number of dimensions.
        """
        self.dims = config.get("dims")
        if not isinstance(self.dims, int) or self.dims < 1:
            raise InvalidSettings("index needs dims, the number of dimensions of its vectors")
        try:
            self._embeddings = ensure_embeddings(config.get("embed"))
        except ValueError as cause:
            raise InvalidSettings("index needs embed: embeddings of LangChain, a function, or a provider") from cause
        self._fields = config.get("fields") or ["$"]

    def texts(self, op: PutOp) -> list[str]:
        """Return the texts of an item that are embedded."""
        if op.value is None or op.index is False:
            return []
        paths = self._fields if op.index is None else op.index
        return [
            text for path in paths for text in get_text_at_path(op.value, path if path == "$" else tokenize_path(path))
        ]

    def embed(self, ops: Iterable[Op]) -> Vectors:
        """Return the vectors of all texts and queries of operations."""
        texts, queries = self._collect_texts(ops)
        documents = self._embeddings.embed_documents(texts) if texts else []
        answers = [self._embeddings.embed_query(query) for query in queries]
        return self._check([*texts, *map(_query, queries)], [*documents, *answers])

    async def aembed(self, ops: Iterable[Op]) -> Vectors:
        """Return the vectors of all texts and queries of operations."""
        texts, queries = self._collect_texts(ops)
        documents = await self._embeddings.aembed_documents(texts) if texts else []
        answers = [await self._embeddings.aembed_query(query) for query in queries]
        return self._check([*texts, *map(_query, queries)], [*documents, *answers])

    def _collect_texts(self, ops: Iterable[Op]) -> tuple[list[str], list[str]]:
        texts: dict[str, None] = {}
        queries: dict[str, None] = {}
        for op in ops:
            if isinstance(op, PutOp):
                texts |= dict.fromkeys(self.texts(op))
            elif isinstance(op, SearchOp) and op.query:
                queries[op.query] = None
        return [*texts], [*queries]

    def _check(self, names: list[str], vectors: list[list[float]]) -> Vectors:
        if len(names) != len(vectors) or any(len(vector) != self.dims for vector in vectors):
            raise InvalidSettings(f"embed of the index must return one vector of {self.dims} dimensions per text")
        return dict(zip(names, map(_normalized, vectors), strict=True))


def query_vector(vectors: Vectors, query: str) -> Sequence[float]:
    """Return the vector of a search's query."""
    return vectors[_query(query)]


def _query(text: str) -> str:
    """Return the name of a query among the vectors: an embedder may embed a query unlike the same text of an item."""
    return f"\0{text}"


def _normalized(vector: Sequence[float]) -> Sequence[float]:
    length = sqrt(sum(map(mul, vector, vector)))
    return [number / length for number in vector] if length and isfinite(length) else [0.0] * len(vector)


def encode_vectors(vectors: Iterable[Sequence[float]]) -> bytes:
    """Return the vectors of one item as float32, one after the other."""
    return b"".join(array("f", vector).tobytes() for vector in vectors)


def score(encoded: bytes, question: Sequence[float]) -> float:
    """Return the greatest cosine similarity of an item's vectors to a question."""
    numbers, dims = array("f", encoded), len(question)
    similarities: Iterator[float] = (
        sum(map(mul, numbers[at : at + dims], question)) for at in range(0, len(numbers), dims)
    )
    return max(similarities)


def compare(value: Any, wanted: Any) -> bool:
    """True if a value of an item fits a filter: equal, or as its operators say, also inside of objects and lists.

    Raises:
        ValueError: an operator is unknown.
    """
    if isinstance(wanted, dict):
        if any(key.startswith("$") for key in wanted):
            return all(_apply(value, operator, operand) for operator, operand in wanted.items())
        return isinstance(value, dict) and all(compare(value.get(key), each) for key, each in wanted.items())
    if isinstance(wanted, list | tuple):
        is_as_long = isinstance(value, list | tuple) and len(value) == len(wanted)
        return is_as_long and all(map(compare, value, wanted))
    return bool(value == wanted)


def _apply(value: Any, operator: str, operand: Any) -> bool:
    if operator in ("$eq", "$ne"):
        return bool(value == operand) is (operator == "$eq")
    if operator not in ("$gt", "$gte", "$lt", "$lte"):
        raise ValueError(f"Unsupported operator: {operator}")
    try:
        difference = float(value) - float(operand)
    except (TypeError, ValueError):
        return False  # an item without the number does not fit
    if operator in ("$gt", "$gte"):
        return difference > 0 or (operator == "$gte" and difference == 0)
    return difference < 0 or (operator == "$lte" and difference == 0)
