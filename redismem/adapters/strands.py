"""Strands: `Storage` keeps the snapshots of agents, and anything else that Strands stores, in Redis."""

from __future__ import annotations

import asyncio
import builtins
import os
import re
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Self

from redismem import CorruptSession, InvalidSettings, RedismemError
from redismem.adapters.sessions import check_memory, check_owner, check_prefix, escape_id, resolve_owner, split_id
from redismem.blocking import Memory, Record
from redismem.record import Change, RecordEntry, Retention
from redismem.record.pages import all_listed
from redismem.settings.extras import from_extra

with from_extra("strands", __name__):
    from strands.storage import Storage as _Storage
    from strands.types.exceptions import StorageError

_DATA, _VERSION = b"data", b"version"
"""The fields of a key: its data, and random bytes that each write renews."""
_PAGE_COUNT = 1_000
_SLASHES = re.compile("/+")
_SNAPSHOT = re.compile(r"/immutable_history/snapshot_[\da-f]{8}-[\da-f]{4}-7[\da-f]{3}-[\da-f]{4}-[\da-f]{12}\.json\Z")
"""An earlier snapshot of an agent. The latest one lies beside the folder."""


class Storage(_Storage):
    """A storage for Strands, in place of `LocalFileStorage`.

    >>> storage = Storage("redis://127.0.0.1:6379/0")
    >>> agent = Agent(session_manager=SnapshotSessionManager("user-42", storage=storage))

    Each key is a record of its own, written whole or not at all. Keys follow the rules of Strands' own storages: runs
    of "/" count as one, and empty keys, backslashes and ".." are refused. `search` compares words, as Strands' own
    storages do by default: it reads every value.

    Strands runs many calls in threads with an event loop of their own. So the storage uses a blocking memory, whose
    connections all threads share, and never blocks the loop that calls it.

    Every method raises StorageError if Redis does not answer, or if the key is invalid.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        memory: Memory | None = None,
        key_prefix: str = "strands",
        ttl: float | None = None,
        owner: str | Callable[[str], str | None] | None = None,
        single_writer: bool = False,
        keep_last: int | None = None,
        max_age: float | None = None,
    ) -> None:
        """Make a storage. It connects on first use.

        Args:
            url: The URL of Redis. `None` means `REDISMEM_URL`.
            memory: A `redismem.blocking.Memory` to use instead of a URL. The caller closes it.
            key_prefix: The key `notes` is the record `<key_prefix>:notes` of redismem.
            ttl: The seconds after its last write after which Redis removes a key. `None` keeps it.
            owner: The person whom the keys that this storage creates belong to, so that `memory.forget(owner=...)`
                removes them. If a storage serves several persons: a function that returns the owner of a key, or
                `None`. Each call asks it, in a thread, with the key as `list` returns it. A key of another person, or
                of nobody, is refused, and not listed.
            single_writer: True refuses a write to a key that has changed since this storage read or wrote it, and to
                one that it has never read unless the key is new. So make one storage for each agent, over one memory.
            keep_last: The earlier snapshots of an agent that workers keep, 1 to 1,000. `None` keeps all. The latest
                snapshot, with which an agent goes on, always stays.
            max_age: The seconds after which workers remove an earlier snapshot. `None` means never.

        Raises:
            InvalidRecord: `ttl`, `keep_last` or `max_age` is out of range.
            InvalidSessionId: `key_prefix` is not a string, or the owner is invalid.
            InvalidSettings: URL or memory is invalid, or both are given.
        """
        check_prefix(key_prefix)
        self._retention = Retention("strands", keep_last, max_age)
        if memory is not None:
            check_memory(memory, Memory)
            if url is not None:
                raise InvalidSettings("give one of url and memory: only one of them would be used")
        self._prefix, self._ttl_s, self._owner = key_prefix, ttl, owner
        self._seen: dict[str, bytes | None] | None = {} if single_writer else None
        self._is_own = memory is None
        self._memory = memory or Memory.connect(url)
        try:
            check_owner(owner)
            self._memory.record(
                self._id("x"), ttl_s=self._ttl_s
            )  # refuses prefix and ttl at the start of the program, not in its first turn
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection. A memory of the caller stays open."""
        if self._is_own:
            self._memory.close()

    async def write(self, key: str, data: bytes) -> None:
        """Store data under a key, in place of earlier data.

        Raises:
            StorageError: The key or its owner is invalid, the data is larger than 64 MiB, or Redis does not answer.
                With `single_writer`, another one wrote the key since: the cause is a RecordConflict.
        """
        with _failing("write", key):
            await asyncio.to_thread(self._write, _normalize(key), bytes(data))

    def _write(self, key: str, data: bytes) -> None:
        version = os.urandom(8)
        change = Change(sets={_DATA: data, _VERSION: version})
        if _SNAPSHOT.search(key):
            change = self._retention.add_to(change, is_ranked=True)
        if self._seen is not None:
            seen = self._seen.get(key)
            change = replace(change, absent=[_DATA]) if seen is None else replace(change, equals={_VERSION: seen})
        self._open(key).write(change)
        if self._seen is not None:
            self._seen[key] = version

    async def read(self, key: str) -> bytes | None:
        """Return the data of a key, `None` if there is no such key."""
        with _failing("read", key):
            return await asyncio.to_thread(self._read, _normalize(key))

    def _read(self, key: str) -> bytes | None:
        record = self._open(key)
        try:
            data, version = record.get(_DATA, _VERSION)
        except CorruptSession:  # an agent that cannot read would never write anew
            record.set_aside()
            data = version = None
        if self._seen is not None:
            self._seen[key] = version
        return data

    async def delete(self, key: str) -> None:
        """Remove a key, if it exists."""
        with _failing("delete", key):
            await asyncio.to_thread(self._delete, _normalize(key))

    def _delete(self, key: str) -> None:
        self._open(key).clear()
        if self._seen is not None:
            self._seen.pop(key, None)

    async def list(self, query: str = "") -> builtins.list[str]:
        """Return the keys that begin with `query`, in order."""
        beginning = self._id(_SLASHES.sub("/", _check(query)).lstrip("/"))
        keys: builtins.list[str] = []
        with _failing("list", query):
            async for page in all_listed(partial(asyncio.to_thread, self._memory.records, beginning, _PAGE_COUNT)):
                keys += await asyncio.to_thread(self._own_keys, page.records)
        return sorted(keys)  # colons sort elsewhere in the ids of records

    def _open(self, key: str) -> Record:
        owner = resolve_owner(self._owner, key)
        return self._memory.record(self._id(key), owner=owner, ttl_s=self._ttl_s)

    def _own_keys(self, entries: Iterable[RecordEntry]) -> builtins.list[str]:
        """Return the keys of these records, without those of another owner."""
        found = ((split_id(self._prefix, entry.id), entry.owner) for entry in entries)
        return [key for key, owner in found if key is not None and resolve_owner(self._owner, key) in (None, owner)]

    def _id(self, key: str) -> str:
        """Return the id of a key's record, or the beginning of the ids of all keys that begin like this."""
        return f"{self._prefix}:{escape_id(key)}" if self._prefix else escape_id(key)


@contextmanager
def _failing(what: str, key: str) -> Generator[None, None, None]:
    try:
        yield
    except RedismemError as error:
        raise StorageError(f"failed to {what} {key!r}: {error}") from error


def _check(key: str) -> str:
    if "\\" in key or ".." in key.split("/"):
        raise StorageError(f"invalid key {key!r}: backslashes and '..' are not allowed")
    return key


def _normalize(key: str) -> str:
    normalized = _SLASHES.sub("/", _check(key)).strip("/")
    if not normalized:
        raise StorageError("a key is not empty")
    return normalized
