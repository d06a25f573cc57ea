"""Operations shared by all kinds: get, query, change and erase items, now or as of an earlier moment."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Generic, NamedTuple, TypeVar

from redismem.errors import Conflict, InvalidItem, ItemNotFound
from redismem.project.items import erasing
from redismem.project.items.fields import as_datetime, item_id, moment
from redismem.project.items.items import Items, StoredItem, require_present
from redismem.project.items.links import TWINS, entity_names, unlink_all
from redismem.project.items.records import Item, Page
from redismem.project.items.schema import ENTITY, ItemKind
from redismem.project.items.versions import State
from redismem.project.queries import as_of, pages
from redismem.project.queries.as_of import Moment
from redismem.project.queries.query import Query, page_limit

R = TypeVar("R", bound=Item)


class Version(NamedTuple):
    """One change of an item: when it became true, when it was written, its fields and its reason."""

    version: int
    at: datetime
    known_at: datetime
    fields: tuple[str, ...]
    reason: str


class Collection(Generic[R]):
    """The items of one kind. A write takes effect now; `at=` dates it back.

    Reading methods take `at=` for the state at a moment, and `known_at=` for the state as known at a moment. Every
    method may raise StoreUnavailable. If another writer was faster, a method raises Conflict and writes nothing.
    """

    kind: ItemKind
    record: type[R]

    def __init__(self, items: Items) -> None:
        """Use `Memory.project` instead of this constructor."""
        self._items = items

    async def get(self, id: str, *, at: datetime | None = None, known_at: datetime | None = None) -> R:
        """Return an item. Raises ItemNotFound if it does not exist, or did not exist at that moment."""
        state = await self._state_of(id, at, known_at)
        if state is None:
            then = "" if at is None and known_at is None else " as of that moment"
            raise ItemNotFound(f"there is no {self.kind.name} {id}{then}")
        return self.record.of(id, state)

    async def exists(self, id: str, *, at: datetime | None = None, known_at: datetime | None = None) -> bool:
        """True if the item exists, or existed at that moment."""
        return await self._state_of(id, at, known_at) is not None

    async def versions(self, id: str) -> list[Version]:
        """Return the versions of an item, oldest first, also if the item is deleted. Raises ItemNotFound."""
        (stored,) = await self._items.read([self._id(id)], with_versions=True)
        if stored is None:
            raise ItemNotFound(f"there is no {self.kind.name} {id}")
        return [
            Version(
                delta.version,
                as_datetime(delta.at_ms),
                as_datetime(delta.known_ms),
                tuple(sorted({*delta.sets, *delta.adds, *delta.drops})),
                delta.reason,
            )
            for delta in sorted(stored.deltas or (), key=lambda delta: delta.version)
        ]

    async def delete(self, id: str, *, expect: int | None = None, at: datetime | None = None) -> None:
        """Delete an item and its links. Earlier states remain readable by `get(id, at=…)`.

        `expect` is the version that the caller has seen. Raises ItemNotFound, Conflict.
        """
        stored, at_ms = await self._open(id, expect, at)
        change = await self._items.change()
        moment_ms = change.moment(stored, at_ms)
        await unlink_all(self._items, change, [stored])
        change.alter(stored, moment_ms, sets={"deleted": True, "valid_until": moment_ms})
        if self.kind is ENTITY:
            for name in entity_names(stored.state):
                change.name(name, id, "")
        await change.commit()

    async def erase(self, id: str) -> bool:
        """Erase an item permanently, with all versions, index entries and links. Returns False if it does not exist.

        Unlike after `delete`, no moment and no version of it can be read again; a deleted item can be erased, too. A
        chain of decisions closes around an erased one. Entities that were merged into an erased one are erased with it.
        """
        return await erasing.erase_one(self._items, self._id(id))

    async def valid_at(
        self, moment: datetime, *, known_at: datetime | None = None, limit: int = 100, cursor: str | None = None
    ) -> Page[R]:
        """Return the items that were valid at a moment, in their state at that moment and in any status.

        The cost grows with the number of results and of later changes."""
        query = Query(self.kind, with_all=True, valid_ms=_ms(moment, "moment"))
        return await self._page(query, limit, cursor, moment, known_at)

    async def clear(self) -> int:
        """Erase all items of this kind with all versions, and return how many there were.

        Works in steps: items added in the meantime may remain.
        """
        return await erasing.erase_all(self._items, self.kind)

    # Shared by the kinds.

    async def _state_of(self, id: str, at: datetime | None, known_at: datetime | None) -> State | None:
        at_ms, known_ms = _ms(at, "at"), _ms(known_at, "known_at")
        past = at_ms is not None or known_ms is not None
        (stored,) = await self._items.read([self._id(id)], with_versions=past)
        return None if stored is None else stored.as_of(at_ms, known_ms)

    def _id(self, id: str) -> str:
        checked: str = item_id(self.kind.letter)(id, "the id")
        return checked

    async def _open(self, id: str, expect: int | None, at: datetime | None) -> tuple[StoredItem, int | None]:
        """Read an item to change, and convert `at` to milliseconds. Raises ItemNotFound, Conflict."""
        at_ms = _ms(at, "at")
        stored = await self._items.get(self._id(id), with_versions=at_ms is not None)
        if expect is not None and expect != stored.state["version"]:
            raise Conflict(f"another writer was faster: {id} is at version {stored.state['version']} now")
        return stored, at_ms

    async def _load_others(self, item_ids: list[str], at: datetime | None) -> list[StoredItem]:
        """Read further items that a change of an item also alters. Raises ItemNotFound."""
        return require_present(await self._items.read(item_ids, with_versions=at is not None), item_ids)

    async def _update_fields(
        self, id: str, fields: Mapping[str, Any], expect: int | None, at: datetime | None, reason: str = ""
    ) -> R:
        """Set the fields that the caller passed."""
        sets = self.kind.check_fields(fields)
        if not sets:
            raise InvalidItem("an update needs at least one field")
        stored, at_ms = await self._open(id, expect, at)
        change = await self._items.change()
        change.alter(stored, at_ms, sets=sets, reason=reason)
        return self._to_record(await change.commit(), id)

    async def _change_status(self, id: str, status: str, reason: str, expect: int | None, at: datetime | None) -> R:
        """Change an item's status. Raises InvalidTransition."""
        stored, at_ms = await self._open(id, expect, at)
        change = await self._items.change()
        change.alter(stored, at_ms, sets={"status": status}, reason=reason)
        return self._to_record(await change.commit(), id)

    async def _link(self, id: str, name: str, other_id: str, at: datetime | None, *, ends: bool = False) -> R:
        """Link two items in both directions, or end the link."""
        checked = item_id("t" if name == "related_tasks" else "d")(other_id, "the other's id")
        if checked == self._id(id):
            raise InvalidItem(f"{id} cannot be linked with itself")
        one, other = await self._load_others([id, checked], at)
        change = await self._items.change()
        at_ms = _ms(at, "at")
        twin = TWINS[self.kind.letter, name]
        if ends:
            change.alter(one, at_ms, drops={name: [other.id]})
            change.alter(other, at_ms, drops={twin: [one.id]})
        else:
            change.alter(one, at_ms, adds={name: [other.id]})
            change.alter(other, at_ms, adds={twin: [one.id]})
        return self._to_record(await change.commit(), id)

    async def _list(self, criteria: Any, limit: int, cursor: str | None) -> Page[R]:
        given = dict(criteria)
        at, known_at = given.pop("at", None), given.pop("known_at", None)
        return await self._page(Query.of(self.kind, given), limit, cursor, at, known_at)

    async def _page(
        self, query: Query, limit: int, cursor: str | None, at: datetime | None, known_at: datetime | None
    ) -> Page[R]:
        limit, at_ms, known_ms = page_limit(limit), _ms(at, "at"), _ms(known_at, "known_at")
        if at_ms is None and known_ms is None:
            found, following = await pages.load_page(self._items, query, limit, cursor)
        else:
            moment = Moment(at_ms, known_ms)
            found, following = await as_of.page_as_of(self._items, query, moment, limit, cursor)
        return Page([self.record.of(item_id, state) for item_id, state in found], following)

    async def _count(self, criteria: Any) -> int:
        given = dict(criteria)
        at, known_at = _ms(given.pop("at", None), "at"), _ms(given.pop("known_at", None), "known_at")
        query = Query.of(self.kind, given)
        if at is None and known_at is None:
            return sum([1 async for _ in pages.load_all(self._items, query)])
        return await as_of.count_as_of(self._items, query, Moment(at, known_at))

    def _to_record(self, states: Mapping[str, State], id: str) -> R:
        return self.record.of(id, states[id])


def _ms(value: datetime | None, name: str) -> int | None:
    return None if value is None else moment(value, name)
