"""The store: long-term items of LangGraph by namespace and key, one record each."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Self

from langgraph.store.base import BaseStore, IndexConfig, Op, Result, TTLConfig

from redismem import InvalidSettings, Memory, blocking
from redismem.adapters.langgraph.items import StoreItems
from redismem.adapters.langgraph.opening import Closes, Opening, check_ttl
from redismem.adapters.langgraph.ranking import Index
from redismem.adapters.sessions import check_owner


class RedismemStore(Closes, BaseStore):
    """The long-term items of LangGraph in Redis, Valkey or a cluster of them. No Redis modules are needed.

    >>> async with RedismemStore.from_conn_string("redis://127.0.0.1:6379") as store:
    ...     await store.aput(("users", "ann"), "tea", {"likes": "green"})
    ...     graph = builder.compile(checkpointer=saver, store=store)

    An item is one record, which Redis itself removes when its time is over. A search reads the items below its
    namespace in the order of namespaces and keys, until it has enough of them.

    Args:
        memory: A blocking memory serves all methods, the async ones in a thread. An async memory serves all methods,
            those without `await` only in other threads than that of its event loop, as in nodes and subgraphs without
            `await` below `ainvoke`. The caller closes it. `None` opens a memory for each kind of method that is used.
        url: The URL of Redis, instead of a memory. `None` means `REDISMEM_URL`, and all other settings come from the
            environment.
        index: `embed` makes vectors of texts, `dims` is their length, and `fields` are the paths of the texts, all of
            an item by default. A search with a query then compares the query with every item below its namespace.
            Without it, the query of a search changes nothing.
        ttl: `default_ttl` is the minutes after which an unused item is removed; `refresh_on_read` False counts them
            from the last write alone. `None` keeps items that are put without a `ttl`.
        key_prefix: The beginning of the records' ids.
        owner: The person whom the items that this store creates belong to, so that `memory.forget(owner=...)` removes
            them. If a store serves several persons: a function that returns the owner of a namespace, or `None`. Each
            operation calls it, and raises what it raises, before anything is written. An item of another person, or of
            nobody, is refused (OwnerMismatch), and not found by a search.

    Every method may raise StoreUnavailable, also with the fallback.

    Raises:
        InvalidSettings: An argument is out of range or of another type, or both memory and URL are given.
        InvalidSessionId: The owner is empty, too long, or has characters that are not allowed.
    """

    supports_ttl = True
    ttl_config: TTLConfig | None
    index_config: IndexConfig | None

    def __init__(
        self,
        memory: Memory | blocking.Memory | None = None,
        *,
        url: str | None = None,
        index: IndexConfig | None = None,
        ttl: TTLConfig | None = None,
        key_prefix: str = "langgraph-store",
        owner: str | Callable[[tuple[str, ...]], str | None] | None = None,
    ) -> None:
        if not isinstance(key_prefix, str) or not key_prefix or "." in key_prefix:
            raise InvalidSettings("key_prefix is a string without a period: the namespace follows the first one")
        check_ttl(ttl)
        check_owner(owner)
        self.ttl_config, self.index_config = ttl, index
        self._opening = Opening(memory, url)
        self._key_prefix, self._index, self._owner = key_prefix, None if index is None else Index(index), owner

    @classmethod
    def from_conn_string(cls, conn_string: str | None = None, **options: Any) -> Self:
        """Return a store for a URL, to use with `with` or `async with`. See the class for the options.

        Raises:
            InvalidSettings: An argument is invalid.
        """
        return cls(url=conn_string, **options)

    def setup(self) -> None:
        """Check that Redis answers. There are no tables to create.

        Raises:
            StoreUnavailable: Redis does not answer.
        """
        self._opening.run(lambda memory: self._items(memory).check_answer())

    async def asetup(self) -> None:
        """Check that Redis answers. See `setup`."""
        await self._opening.arun(lambda memory: self._items(memory).check_answer())

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Run operations: the reads first, then the last write of each item.

        Raises:
            InvalidNamespaceError: A label is empty, has a period or a NUL, or is not a string.
            InvalidRecord: Namespace and key have more than 1,024 bytes.
            InvalidSessionId: The function `owner` returns no valid owner.
            InvalidSettings: A ttl is out of range.
            TypeError: A value is not JSON.
            StoreUnavailable: Redis does not answer. The same call again is safe.
        """
        operations = list(ops)
        vectors = self._index.embed(operations) if self._index else {}
        return self._opening.run(lambda memory: self._items(memory).batch(operations, vectors))

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Run operations. See `batch`."""
        operations = list(ops)
        vectors = await self._index.aembed(operations) if self._index else {}
        return await self._opening.arun(lambda memory: self._items(memory).batch(operations, vectors))

    def _items(self, memory: Memory) -> StoreItems:
        return StoreItems(memory, self._key_prefix, self._index, self._owner)
