"""The items of a store: each is one record, whose id has its namespace and key."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar, cast

from langgraph.store.base import (
    GetOp,
    Item,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    validate_op_namespace,
)

from redismem import CorruptSession, Memory
from redismem.adapters.langgraph.opening import check_minutes
from redismem.adapters.langgraph.ranking import Index, Vectors, compare, encode_vectors, query_vector, score
from redismem.adapters.sessions import Owner, read_or_begin, resolve_owner
from redismem.concurrency.together import run_all
from redismem.record import Change, Record, get_all, write_all

FIELDS = CREATED, VALUE, VECTORS = b"created", b"value", b"vectors"
_PAGE_LIMIT = 256
_LEAST_COUNT = 32
"""The items that a search with a filter reads at first: a second page costs more than these."""
_encode_json = json.JSONEncoder(ensure_ascii=False).encode
Name = tuple[tuple[str, ...], str]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StoredValue:
    """An item as its record has it."""

    namespace: tuple[str, ...]
    key: str
    value: dict[str, Any]
    created_at: datetime
    updated_at: datetime
    ttl_minutes: float | None
    vectors: bytes

    def to_item(self) -> Item:
        """Return LangGraph's item."""
        return Item(
            value=self.value,
            key=self.key,
            namespace=self.namespace,
            created_at=self.created_at,
            updated_at=self.updated_at,
        )

    def to_search_item(self, score: float | None = None) -> SearchItem:
        """Return LangGraph's result of a search."""
        return SearchItem(self.namespace, self.key, self.value, self.created_at, self.updated_at, score)


@dataclass(frozen=True, slots=True)
class StoreItems:
    """The items in one memory."""

    memory: Memory
    key_prefix: str
    index: Index | None
    owner: Owner[tuple[str, ...]]

    async def check_answer(self) -> None:
        """Check that Redis answers."""
        await self.memory.record(self.key_prefix).exists()

    async def batch(self, ops: Sequence[Op], vectors: Vectors) -> list[Result]:
        """Run operations: reads first, then the last write of each item."""
        puts = self._check(ops)
        now = datetime.now(UTC).isoformat()
        changes = [(record, self._encode(op, vectors, now)) for op, record in puts.values() if op.value is not None]
        results: list[Result] = [None] * len(ops)
        gets = [at for at, op in enumerate(ops) if isinstance(op, GetOp)]
        for at, item in zip(gets, await self._read([cast("GetOp", ops[at]) for at in gets]), strict=True):
            results[at] = item
        finds = {
            at: self._find(op, vectors) for at, op in enumerate(ops) if isinstance(op, SearchOp | ListNamespacesOp)
        }
        for at, found in zip(finds, await self._run_all(finds.values()), strict=True):
            results[at] = found
        await write_all(changes)
        await self._run_all(record.clear() for op, record in puts.values() if op.value is None)
        return results

    async def _run_all(self, works: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
        return await run_all(works, blocks=self.memory.store.transport.blocks)

    async def _find(self, op: SearchOp | ListNamespacesOp, vectors: Vectors) -> list[Any]:
        return await (self._search(op, vectors) if isinstance(op, SearchOp) else self._list_namespaces(op))

    def _check(self, ops: Sequence[Op]) -> dict[Name, tuple[PutOp, Record]]:
        """Return the writes, after all operations were found to be valid: an invalid one writes nothing."""
        puts: dict[Name, tuple[PutOp, Record]] = {}
        for op in ops:
            validate_op_namespace(op)
            if isinstance(op, PutOp):
                if op.ttl is not None:
                    check_minutes(op.ttl)
                puts[op.namespace, op.key] = op, self._record(op.namespace, op.key, op.ttl)
        return puts

    def _encode(self, op: PutOp, vectors: Vectors, now: str) -> Change:
        text = _encode_json({"updated_at": now, "ttl": op.ttl, "value": dict(op.value or ())})
        embedded = encode_vectors(vectors[each] for each in self.index.texts(op)) if self.index else b""
        return Change(
            sets={VALUE: text.encode("utf-8", "surrogatepass"), **({VECTORS: embedded} if embedded else {})},
            sets_once={CREATED: now.encode()},
            drops=() if embedded else (VECTORS,),
        )

    def _record(self, namespace: tuple[str, ...], key: str, ttl_minutes: float | None = None) -> Record:
        """Return the record of an item. The items of one namespace lie in one shard."""
        owner = resolve_owner(self.owner, namespace)
        labels = ".".join((self.key_prefix, *namespace))
        ttl_s = None if ttl_minutes is None else ttl_minutes * 60
        return self.memory.record(f"{labels}..{key}", tag=labels, owner=owner, ttl_s=ttl_s)

    def _name(self, record_id: str) -> Name:
        labels, _, key = record_id[len(self.key_prefix) :].partition("..")
        return tuple(labels[1:].split(".")) if labels else (), key

    async def _read(self, ops: Sequence[GetOp]) -> list[Item | None]:
        records = [self._record(op.namespace, op.key) for op in ops]
        try:
            values = await get_all(records, *FIELDS[:2])
        except CorruptSession:  # one of them: it is put into quarantine, and the others are read
            values = [await read_or_begin(record, partial(record.get, *FIELDS[:2])) for record in records]
        found = [_decode((op.namespace, op.key), *fields) for op, fields in zip(ops, values, strict=True)]
        await self._renew(each for op, each in zip(ops, found, strict=True) if each is not None and op.refresh_ttl)
        return [None if each is None else each.to_item() for each in found]

    async def _renew(self, found: Iterable[StoredValue]) -> None:
        await self._run_all(
            self._record(each.namespace, each.key, each.ttl_minutes).touch()
            for each in found
            if each.ttl_minutes is not None
        )

    async def _below(
        self, prefix: tuple[str, ...], fields: Sequence[bytes], limit: int
    ) -> AsyncIterator[tuple[Name, tuple[bytes | None, ...]]]:
        """Read the items below a namespace, in the order of their ids: names and fields."""
        cursor: str | None = None
        beginning = ".".join((self.key_prefix, *prefix, ""))
        while True:
            page = await self.memory.records(beginning, limit, cursor, fields=fields)
            for entry in page.records:
                name = self._name(entry.id)
                if (owner := resolve_owner(self.owner, name[0])) is None or entry.owner == owner:
                    yield name, entry.values
            cursor, limit = page.cursor, min(4 * limit, _PAGE_LIMIT)
            if cursor is None:
                return

    async def _matching(self, op: SearchOp, *, ranked: bool) -> AsyncIterator[StoredValue]:
        """Read the items that fit a search. Without a ranking the caller stops once it has enough, so pages grow."""
        least = _LEAST_COUNT if op.filter else 1
        limit = _PAGE_LIMIT if ranked else min(max(op.offset + op.limit, least), _PAGE_LIMIT)
        async for name, values in self._below(op.namespace_prefix, FIELDS if ranked else FIELDS[:2], limit):
            found = _decode(name, *values)
            if found and all(compare(found.value.get(key), wanted) for key, wanted in (op.filter or {}).items()):
                yield found

    async def _search(self, op: SearchOp, vectors: Vectors) -> list[SearchItem]:
        found: list[tuple[StoredValue, float | None]] = []
        wanted = op.offset + op.limit
        if op.query and self.index is not None:
            question = query_vector(vectors, op.query)
            scored = [
                (each, score(each.vectors, question) if each.vectors else None)
                async for each in self._matching(op, ranked=True)
            ]
            scored.sort(key=lambda each: -2 if each[1] is None else each[1], reverse=True)
            found = scored[:wanted]
        elif wanted > 0:
            async for each in self._matching(op, ranked=False):
                found.append((each, None))
                if len(found) == wanted:
                    break
        results = found[op.offset :]
        await self._renew(each for each, _ in results if op.refresh_ttl)
        return [each.to_search_item(points) for each, points in results]

    async def _list_namespaces(self, op: ListNamespacesOp) -> list[tuple[str, ...]]:
        found = {
            namespace[: op.max_depth]
            async for (namespace, _), _ in self._below(_exact_prefix(op), (), 1_000)
            if all(_fits(condition, namespace) for condition in op.match_conditions or ())
        }
        return sorted(found)[op.offset : op.offset + op.limit]


def _decode(
    name: Name, created: bytes | None, encoded: bytes | None, vectors: bytes | None = None
) -> StoredValue | None:
    """Return an item from the fields of its record; `None` if there is none."""
    if created is None or encoded is None:
        return None
    found = json.loads(encoded.decode("utf-8", "surrogatepass"))
    created_at, updated_at = (datetime.fromisoformat(text) for text in (created.decode(), found["updated_at"]))
    return StoredValue(*name, found["value"], created_at, updated_at, found["ttl"], vectors or b"")


def _exact_prefix(op: ListNamespacesOp) -> tuple[str, ...]:
    """Return the labels that all wanted namespaces begin with, so that no others are read."""
    longest: tuple[str, ...] = ()
    for condition in op.match_conditions or ():
        if condition.match_type == "prefix":
            end = condition.path.index("*") if "*" in condition.path else len(condition.path)
            longest = max(longest, condition.path[:end], key=len)
    return longest


def _fits(condition: MatchCondition, namespace: tuple[str, ...]) -> bool:
    if condition.match_type not in ("prefix", "suffix"):
        raise ValueError(f"Unsupported match type: {condition.match_type}")
    path = condition.path
    part = namespace[: len(path)] if condition.match_type == "prefix" else namespace[-len(path) or len(namespace) :]
    return len(part) == len(path) and all(wanted in ("*", label) for label, wanted in zip(part, path, strict=True))
