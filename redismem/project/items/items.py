"""Store the items of one project: read, search, and change several of them atomically."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from redismem.errors import Conflict, CorruptSession, InvalidItem, ItemNotFound, TooLarge
from redismem.messages.values import Undecodable
from redismem.project.items import fields
from redismem.project.items.indexes import IndexEntry, places
from redismem.project.items.pending_import import carry_out
from redismem.project.items.schema import ItemKind, kind_of
from redismem.project.items.versions import (
    Delta,
    State,
    advance,
    check_path,
    decode_body,
    decode_delta,
    encode_body,
    fold,
)
from redismem.protocol.call import Call
from redismem.protocol.project import calls as project_calls
from redismem.protocol.project.calls import Batch, ProjectCalls, Removal, Unfinished, Write
from redismem.protocol.project.keys import ProjectKeys
from redismem.store.store import Store

T = TypeVar("T")

ChangeId = str
"""The nonce of a change that has an id: a hash of the id, then a hash of what it asks for; "" for any other change."""
ITEM_BYTES = 256 * 1024
LINKS = ("related_decisions", "related_tasks", "dependencies", "blocked_by", "relations", "aliases")
_IMPORTS_LIMIT = 50
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_KEY_CHARS = 20


class ChangeKnown(Exception):
    """A change with an id was made before. `is_same` is False if the id belonged to another one."""

    def __init__(self, item_id: str, *, is_same: bool) -> None:
        super().__init__(item_id)
        self.item_id, self.is_same = item_id, is_same


@dataclass(slots=True)
class StoredItem:
    """An item as read from Redis."""

    kind: ItemKind
    id: str
    state: State
    deltas: list[Delta] | None
    """The versions; `None` if they were not read."""
    first: Delta | None
    """The only version; `None` if the item has several."""

    def as_of(self, at_ms: int | None, known_ms: int | None) -> State | None:
        """Return the state at the moment `at_ms`, as known at `known_ms`; `None` if the item did not exist."""
        if at_ms is None and known_ms is None:
            state: State | None = self.state
        else:
            assert self.deltas is not None
            state = fold(self.kind, self.deltas, at_ms, known_ms)
        return None if state is None or state["deleted"] else state


class Items:
    """The stored items of a project. All times of the project come from its clock."""

    def __init__(self, store: Store, keys: ProjectKeys, *, carries_out: bool = True, change_id: ChangeId = "") -> None:
        """Open the items. If a committed import is found, `carries_out` applies it; without it, Conflict is raised.

        With a `change_id` the items take one change, and raise ChangeKnown where they see that it was made before.
        """
        self.store = store
        self.change_id = change_id
        self._carries_out = carries_out
        self.keys = keys
        self.calls = ProjectCalls(keys)
        self._is_listed = False

    async def now_ms(self) -> int:
        """Return the server's time in milliseconds."""
        return await self.store.server_time_ms()

    async def run(self, call: Call[T]) -> T:
        """Run a call and return its value. Applies a committed import first. Raises the errors of `Store.run`."""
        for _ in range(_IMPORTS_LIMIT):
            try:
                return await self.store.run(self.calls.refuse_unfinished(call))
            except Unfinished:
                if not self._carries_out:
                    raise Conflict("a committed import has not been applied yet") from None
                await carry_out(self.store, self.keys)
        raise Conflict("imports followed each other too fast to run in between")

    async def read(self, item_ids: Sequence[str], *, with_versions: bool = False) -> list[StoredItem | None]:
        """Read items in one round trip, including deleted items; `None` for a missing item."""
        if not item_ids:
            return []
        with_versions = with_versions or self.change_id != ""
        bodies, versions = await self.run(self.calls.read(item_ids, with_versions=with_versions))
        found = [
            None if body is None else self.decode(item_id, body, versions[at] if with_versions else None)
            for at, (item_id, body) in enumerate(zip(item_ids, bodies, strict=True))
        ]
        if self.change_id:
            self._refuse_known(found)
        return found

    def _refuse_known(self, found: Iterable[StoredItem | None]) -> None:
        """Raise ChangeKnown if one of these items has a version that this change made."""
        for stored in found:
            for delta in (stored.deltas or ()) if stored is not None else ():
                if delta.nonce.startswith(self.change_id[:_KEY_CHARS]):
                    assert stored is not None
                    raise ChangeKnown(stored.id, is_same=delta.nonce.startswith(self.change_id))

    async def get(self, item_id: str, *, with_versions: bool = False) -> StoredItem:
        """Read an item. Raises ItemNotFound if it does not exist or is deleted."""
        (stored,) = await self.read([item_id], with_versions=with_versions)
        if stored is None or stored.state["deleted"]:
            raise ItemNotFound(f"there is no {kind_of(item_id).name} {item_id}")
        return stored

    def decode(self, item_id: str, body: bytes, versions: dict[bytes, bytes] | None = None) -> StoredItem:
        """Decode an item. Raises CorruptSession."""
        try:
            kind = kind_of(item_id)
        except InvalidItem:
            raise CorruptSession(f"project {self.keys.name}: a field of its items is no id of an item") from None
        try:
            state, first = decode_body(kind, body)
            deltas = None
            if versions is not None:
                found = [first] if first is not None else [decode_delta(packed) for packed in versions.values()]
                # A crash may have left a version that the body does not count.
                deltas = [delta for delta in found if delta.version <= state["version"]]
                if len(deltas) != state["version"]:
                    raise Undecodable(f"{len(deltas)} versions are stored, expected {state['version']}")
        except Undecodable as cause:
            raise CorruptSession(f"item {item_id} of project {self.keys.name}: {cause}") from None
        return StoredItem(kind, item_id, state, deltas, first)

    async def change(self) -> ItemChange:
        """Begin a new change, whose time is now."""
        return ItemChange(self, await self.now_ms())

    async def register(self) -> None:
        """Register the project in the list of its namespace, once."""
        if not self._is_listed:
            await self.store.open()
            await self.store.run(project_calls.register(self.store.keys, self.keys.name))
            self._is_listed = True


class ItemChange:
    """A set of new versions, written atomically."""

    def __init__(self, items: Items, now_ms: int) -> None:
        self.now_ms = now_ms
        self._items = items
        self._nonce = items.change_id + os.urandom(6).hex()
        self._before: dict[str, StoredItem | None] = {}
        self._deltas: dict[str, Delta] = {}
        self._checks: dict[str, int] = {}
        self._names: list[tuple[str, str, str]] = []
        self._sizes: dict[bytes, int] = {}
        self._erased: list[StoredItem] = []

    def create(self, kind: ItemKind, sets: State, at_ms: int | None = None, reason: str = "") -> str:
        """Create an item that is true since `at_ms`, or since now, and return its id."""
        item_id = known_id(kind, self._items.change_id) if self._items.change_id else new_id(kind, self.now_ms)
        self._before[item_id] = None
        at_ms = self.now_ms if at_ms is None else self._check_past(at_ms)
        self._deltas[item_id] = Delta(1, at_ms, self.now_ms, self._nonce, dict(sets), reason=reason)
        return item_id

    def _check_past(self, at_ms: int) -> int:
        """Raise InvalidItem for a future moment."""
        if at_ms > self.now_ms:
            raise InvalidItem("at lies in the future: items cannot be entered before they are true")
        return at_ms

    def moment(self, stored: StoredItem, at_ms: int | None) -> int:
        """Return the time from which a change of the item is true: `at_ms`, or now. Raises InvalidItem.

        If the clock was set back, the latest version may lie in the future. Then now means the time of that version,
        and any `at_ms` before it is accepted.
        """
        latest_ms: int = stored.state["latest_ms"]
        if at_ms is None:
            return max(self.now_ms, latest_ms)
        if at_ms < stored.state["valid_from_ms"]:
            raise InvalidItem(f"{stored.kind.name} {stored.id} did not exist yet: at lies before its valid_from")
        return at_ms if at_ms <= latest_ms else self._check_past(at_ms)

    def alter(
        self,
        stored: StoredItem,
        at_ms: int | None = None,
        *,
        sets: State | None = None,
        adds: State | None = None,
        drops: dict[str, list[Any]] | None = None,
        reason: str = "",
    ) -> None:
        """Add a new version of an item. If this change already has a version of it, extend that version."""
        self._before[stored.id] = stored
        # known_ms never decreases, even if a clock was set back.
        known_ms = max(self.now_ms, stored.state["updated_ms"])
        new = Delta(stored.state["version"] + 1, self.moment(stored, at_ms), known_ms, self._nonce)
        delta = self._deltas.setdefault(stored.id, new)
        delta.sets |= sets or {}
        for name, value in (adds or {}).items():
            delta.adds[name] = delta.adds[name] + value if name in delta.adds else value
        for name, values in (drops or {}).items():
            delta.drops[name] = delta.drops.get(name, []) + values
        delta.reason = fields.reason(reason) or delta.reason

    def list_created(self, kind: ItemKind) -> list[tuple[str, State]]:
        """Return the items of a kind that this change creates, with their fields."""
        return [
            (item_id, delta.sets)
            for item_id, delta in self._deltas.items()
            if delta.version == 1 and kind_of(item_id) is kind
        ]

    def erase(self, stored: StoredItem) -> None:
        """Erase an item with all its versions."""
        self._erased.append(stored)

    def check(self, stored: StoredItem) -> None:
        """Make the commit fail if another writer changes this item, which the change itself does not alter."""
        self._checks[stored.id] = stored.state["version"]

    def check_size(self, kind: ItemKind, index: str, count: int) -> None:
        """Make the commit fail if the number of items in this index changes before it."""
        self._sizes[self._items.keys.index(kind.letter, index)] = count

    def name(self, name: str, before: str, holder: str) -> None:
        """Move a name from one entity to another. "" means no entity."""
        self._names.append((name, before, holder))

    async def commit(self) -> dict[str, State]:
        """Write the change and return the new states. Raises Conflict, InvalidItem, InvalidTransition, TooLarge."""
        batch = Batch(names=self._names)
        made = {item_id: self.state(item_id) for item_id in self._deltas}
        batch.sizes = list(self._sizes.items())
        batch.checks = [pair for pair in self._checks.items() if pair[0] not in made]
        for item_id, state in made.items():
            delta, kind = self._deltas[item_id], kind_of(item_id)
            body = encode_body(kind, state, delta)
            check_size(kind, item_id, state, body)
            batch.writes.append(Write(item_id, delta.version, body, b"" if delta.version == 1 else delta.encode()))
            before = self._before[item_id]
            add_moves(self._items.keys, batch, item_id, None if before is None else before.state, state)
        for stored in self._erased:
            batch.writes.append(Write(stored.id, stored.state["version"] + 1, b"", b""))
            add_moves(self._items.keys, batch, stored.id, stored.state, None)
        await self._items.register()
        await self._items.run(self._items.calls.change(batch))
        return made

    def state(self, item_id: str) -> State:
        """Return an item's state after this change. Raises InvalidItem, InvalidTransition."""
        delta, stored = self._deltas[item_id], self._before[item_id]
        kind = kind_of(item_id)
        if stored is None:
            state = fold(kind, [delta])
        elif delta.at_ms >= stored.state["latest_ms"]:
            state = advance(kind, stored.state, delta)
        else:
            assert stored.deltas is not None, "an item that is changed late is read with its versions"
            state = fold(kind, [*stored.deltas, delta])
        assert state is not None
        until_ms = delta.sets.get("valid_until")
        if until_ms is not None and until_ms < state["valid_from_ms"]:
            raise InvalidItem(
                f"{kind.name} {item_id} cannot end before it begins: valid_until lies before its valid_from"
            )
        if stored is None or state["history"] != stored.state["history"]:
            check_path(kind, state)
        return state


def check_size(kind: ItemKind, item_id: str, state: State, body: bytes) -> None:
    """Raise TooLarge if an item exceeds the size limit, or has more links than one change can update."""
    if len(body) > ITEM_BYTES:
        raise TooLarge(f"{kind.name} {item_id} would have {len(body)} bytes, over {ITEM_BYTES}, a fixed limit")
    for name in LINKS:
        if len(state.get(name, ())) > fields.LIST_COUNT:
            raise TooLarge(
                f"{item_id} would have more than {fields.LIST_COUNT} {name.replace('_', ' ')}, a fixed limit"
            )


def add_moves(keys: ProjectKeys, batch: Batch, item_id: str, before: State | None, after: State | None) -> None:
    """Add an item's index changes to a batch. If `after` is `None`, the item leaves all indexes."""
    kind = kind_of(item_id)
    old, new = places(kind, before), places(kind, after)
    for name, place in new.items():
        if name not in old or old[name].score != place.score:
            batch.additions.append((keys.index(kind.letter, name), place.score, item_id))
        if place.vocabulary and name not in old:
            batch.additions.append((keys.index(kind.letter, place.vocabulary), 0, place.word))
    for name in old.keys() - new.keys():
        batch.removals.append(_removal(keys, kind, item_id, name, old[name]))


def _removal(keys: ProjectKeys, kind: ItemKind, item_id: str, name: str, place: IndexEntry) -> Removal:
    vocabulary = keys.index(kind.letter, place.vocabulary) if place.vocabulary else None
    return Removal(keys.index(kind.letter, name), item_id, vocabulary, place.word)


def new_id(kind: ItemKind, now_ms: int) -> str:
    """Return a new id that sorts by time: a letter, 48 bits of milliseconds, 40 random bits."""
    return _format_id(kind, (now_ms << 40) | int.from_bytes(os.urandom(5), "big"))


def _format_id(kind: ItemKind, number: int) -> str:
    return f"{kind.letter}-" + "".join(_ALPHABET[number >> shift & 31] for shift in range(85, -1, -5))


def change_id_of(name: str, request: bytes) -> ChangeId:
    """Return the nonce of a change with this id that asks for this."""
    key = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=_KEY_CHARS // 2).hexdigest()
    return key + hashlib.blake2b(request, digest_size=6).hexdigest()


def known_id(kind: ItemKind, change_id: ChangeId) -> str:
    """Return the id of the item that a change with an id creates: the same for each attempt."""
    number = int.from_bytes(hashlib.blake2b(change_id[:_KEY_CHARS].encode(), digest_size=11).digest(), "big")
    return _format_id(kind, number)


def require_present(found: Iterable[StoredItem | None], item_ids: Sequence[str]) -> list[StoredItem]:
    """Return the items. Raises ItemNotFound for the first one that is missing or deleted."""
    items = []
    for stored, item_id in zip(found, item_ids, strict=True):
        if stored is None or stored.state["deleted"]:
            raise ItemNotFound(f"there is no {kind_of(item_id).name} {item_id}")
        items.append(stored)
    return items
