"""Entities of a project: its people, technologies and components."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, TypedDict, Unpack

from redismem.errors import Conflict, InvalidItem
from redismem.project.items import fields as checks
from redismem.project.items.indexes import MENTIONED
from redismem.project.items.items import StoredItem, require_present
from redismem.project.items.links import entity_names
from redismem.project.items.records import Entity, Page
from redismem.project.items.schema import ENTITY, ENTITY_TYPES, EntityType
from redismem.project.items.versions import State
from redismem.project.kinds.collection import Collection
from redismem.project.kinds.merging import merge
from redismem.project.queries.query import EntityCriteria, page_limit
from redismem.protocol.project.calls import Group
from redismem.text.normal_forms import fold_case

_TRIES_LIMIT = 30


class EntityFields(TypedDict, total=False):
    """The fields that an update of an entity may set."""

    name: str
    type: EntityType
    description: str
    properties: Mapping[str, Any]
    tags: Sequence[str]
    valid_until: datetime | None


class EntityQuery(EntityCriteria, total=False):
    """The arguments of `list` and `count`; `at` and `known_at` select an earlier moment."""

    at: datetime
    known_at: datetime


class Entities(Collection[Entity]):
    """The entities of a project, latest mentioned first. Names are unique."""

    kind = ENTITY
    record = Entity

    async def create(
        self,
        name: str,
        type: EntityType = "other",
        description: str = "",
        *,
        properties: Mapping[str, Any] | None = None,
        tags: Sequence[str] = (),
        at: datetime | None = None,
    ) -> Entity:
        """Create an entity. Raises Conflict if another entity has this name in any case; InvalidItem, TooLarge."""
        given = {"name": name, "type": type, "description": description, "properties": properties or {}, "tags": tags}
        sets = self.kind.check_fields(given)
        change = await self._items.change()
        created = change.create(self.kind, sets, None if at is None else checks.moment(at, "at"))
        change.name(fold_case(sets["name"]), "", created)
        return self._to_record(await change.commit(), created)

    async def update(
        self, id: str, *, expect: int | None = None, at: datetime | None = None, **fields: Unpack[EntityFields]
    ) -> Entity:
        """Set these fields. `expect` is the version that the caller has seen.

        Raises ItemNotFound, InvalidItem, TooLarge; Conflict also if another entity has the name.
        """
        sets = self.kind.check_fields(fields)
        if not sets:
            raise InvalidItem("an update needs at least one field")
        stored, at_ms = await self._open(id, expect, at)
        self._refuse_merged(stored)
        change = await self._items.change()
        change.alter(stored, at_ms, sets=sets)
        after = change.state(id)
        for lost in set(entity_names(stored.state)) - set(entity_names(after)):
            change.name(lost, id, "")
        for gained in set(entity_names(after)) - set(entity_names(stored.state)):
            change.name(gained, "", id)
        return self._to_record(await change.commit(), id)

    async def find_by_name(self, name: str) -> Entity | None:
        """Return the entity with this name in any case, or the entity that it was merged into; else `None`."""
        found = await self._find_by_name(checks.line(name, "name"))
        return None if found is None else self.record.of(found.id, found.state)

    async def find_or_create(
        self,
        name: str,
        type: EntityType = "other",
        description: str = "",
        *,
        properties: Mapping[str, Any] | None = None,
        tags: Sequence[str] = (),
        at: datetime | None = None,
    ) -> Entity:
        """Return the entity with this name, after creating it if it is missing and filling in its missing fields.

        Fields that have a value stay unchanged. Of concurrent callers, exactly one creates the entity. Raises
        InvalidItem, TooLarge.
        """
        checked = checks.line(name, "name")
        for _ in range(_TRIES_LIMIT):
            try:
                found = await self._find_by_name(checked)
                if found is None:
                    return await self.create(name, type, description, properties=properties, tags=tags, at=at)
                given = {"type": type, "description": description, "properties": properties or {}, "tags": tags}
                return await self._enrich(found, self.kind.check_fields(given))
            except Conflict:
                continue
        raise Conflict("other writers kept changing this entity")

    async def add_mention(self, id: str, context: str, source: str = "", *, at: datetime | None = None) -> Entity:
        """Record a mention at that moment, or now. Raises ItemNotFound, InvalidItem, TooLarge."""
        context, source = checks.text(context, "context"), checks.text(source, "source")
        for _ in range(_TRIES_LIMIT):
            stored, at_ms = await self._open(id, None, at)
            self._refuse_merged(stored)
            change = await self._items.change()
            # A mention may be older than the entity's first entry.
            when_ms = change.moment(stored, None if at_ms is None else max(at_ms, stored.state["valid_from_ms"]))
            mention = [context, change.now_ms if at_ms is None else at_ms, source]
            change.alter(stored, when_ms, adds={"mentions": [mention], "mention_count": 1})
            try:
                return self._to_record(await change.commit(), id)
            except Conflict:
                continue
        raise Conflict("other writers kept changing this entity")

    async def set_property(
        self, id: str, name: str, value: Any, *, expect: int | None = None, at: datetime | None = None
    ) -> Entity:
        """Set one property to a JSON value. Raises ItemNotFound, InvalidItem, TooLarge, Conflict."""
        stored, at_ms = await self._open(id, expect, at)
        self._refuse_merged(stored)
        added = checks.properties({name: value}, "properties")
        checks.properties(stored.state["properties"] | added, "properties")
        change = await self._items.change()
        change.alter(stored, at_ms, adds={"properties": added})
        return self._to_record(await change.commit(), id)

    async def remove_property(
        self, id: str, name: str, *, expect: int | None = None, at: datetime | None = None
    ) -> Entity:
        """Remove one property. Raises ItemNotFound, InvalidItem, Conflict."""
        stored, at_ms = await self._open(id, expect, at)
        change = await self._items.change()
        change.alter(stored, at_ms, drops={"properties": [checks.tag_like(name, "a property")]})
        return self._to_record(await change.commit(), id)

    async def link(self, id: str, relation: str, other_id: str, *, at: datetime | None = None) -> Entity:
        """Add a relation between two entities, which is stored in both. Raises ItemNotFound, InvalidItem, Conflict."""
        return await self._relate(id, relation, other_id, at, ends=False)

    async def unlink(self, id: str, relation: str, other_id: str, *, at: datetime | None = None) -> Entity:
        """Remove a relation between two entities. Raises ItemNotFound, InvalidItem, Conflict."""
        return await self._relate(id, relation, other_id, at, ends=True)

    async def merge(self, primary_id: str, duplicate_id: str) -> Entity:
        """Merge a duplicate entity into the primary one, in one step.

        The duplicate's mentions, properties, tags and relations move to the primary. If both have a property, the
        primary's value stays. The duplicate's name then finds the primary. Raises ItemNotFound, InvalidItem, Conflict.
        """
        primary, duplicate = await self._load_others([self._id(primary_id), self._id(duplicate_id)], None)
        states = await merge(self._items, primary, duplicate)
        return self._to_record(states, primary_id)

    async def people(self, *, limit: int = 100, cursor: str | None = None) -> Page[Entity]:
        """Return the entities of type person."""
        return await self._list({"type": "person"}, limit, cursor)

    async def technologies(self, *, limit: int = 100, cursor: str | None = None) -> Page[Entity]:
        """Return the entities of type technology."""
        return await self._list({"type": "technology"}, limit, cursor)

    async def components(self, *, limit: int = 100, cursor: str | None = None) -> Page[Entity]:
        """Return the entities of type component."""
        return await self._list({"type": "component"}, limit, cursor)

    async def most_mentioned(self, *, limit: int = 10, type: EntityType | None = None) -> Sequence[Entity]:
        """Return the most mentioned entities, most mentioned first, of one type or of all."""
        name = MENTIONED if type is None else f"{MENTIONED}:{checks.choice(*ENTITY_TYPES)(type, 'type')}"
        index = self._items.keys.index(self.kind.letter, name)
        raw = await self._items.run(self._items.calls.find(index, [Group((index,))], page_limit(limit)))
        found = [self._items.decode(item_id, body) for item_id, body in raw.found]
        return [self.record.of(stored.id, stored.state) for stored in found]

    async def list(
        self, *, limit: int = 100, cursor: str | None = None, **criteria: Unpack[EntityQuery]
    ) -> Page[Entity]:
        """Return matching entities, latest mentioned first; merged entities only on request. Raises InvalidItem."""
        return await self._list(criteria, limit, cursor)

    async def count(self, **criteria: Unpack[EntityQuery]) -> int:
        """Count the matching entities. Reads each of them."""
        return await self._count(criteria)

    async def _find_by_name(self, name: str) -> StoredItem | None:
        holder = await self._items.run(self._items.calls.holder(fold_case(name)))
        if holder is None:
            return None
        (found,) = await self._items.read([holder])
        # The name may be stale, or may have moved to another entity in the meantime.
        return found if found is not None and fold_case(name) in entity_names(found.state) else None

    async def _enrich(self, stored: StoredItem, given: State) -> Entity:
        state = stored.state
        sets = {"type": given["type"]} if state["type"] == "other" != given["type"] else {}
        if not state["description"] and given["description"]:
            sets["description"] = given["description"]
        added = {name: value for name, value in given["properties"].items() if name not in state["properties"]}
        tags = [tag for tag in given["tags"] if tag not in state["tags"]]
        if sets or added or tags:
            checks.properties(state["properties"] | added, "properties")
            change = await self._items.change()
            if tags:
                sets["tags"] = sorted([*state["tags"], *tags])
            change.alter(stored, sets=sets, adds={"properties": added} if added else {})
            state = (await change.commit())[stored.id]
        return self.record.of(stored.id, state)

    async def _relate(self, id: str, relation: str, other_id: str, at: datetime | None, *, ends: bool) -> Entity:
        name = checks.tag_like(relation, "relation")
        if self._id(id) == self._id(other_id):
            raise InvalidItem(f"{id} cannot be linked with itself")
        found = await self._items.read([id, other_id], with_versions=at is not None)
        one, other = require_present(found, [id, other_id])
        change = await self._items.change()
        at_ms = None if at is None else checks.moment(at, "at")
        for each, entry in ((one, [name, other.id, True]), (other, [name, one.id, False])):
            self._refuse_merged(each)
            if ends:
                change.alter(each, at_ms, drops={"relations": [entry]})
            else:
                change.alter(each, at_ms, adds={"relations": [entry]})
        return self._to_record(await change.commit(), id)

    def _refuse_merged(self, stored: StoredItem) -> None:
        if stored.state["merged_into"]:
            raise InvalidItem(f"{stored.id} is merged into {stored.state['merged_into']}")
