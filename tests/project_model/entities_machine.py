"""Entities at random."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from project_model.machine import ASKED, LATE_MS, PLACES, TAGS, ProjectMachine
from project_model.model import Fields, Modelled, adds, both, drops, has_words, sets
from redismem import Conflict, InvalidItem

NAMES = st.sampled_from(["Redis", "REDIS", "Alpha beta", "alpha", "Straße", "STRASSE", "gamma", "Delta al"])
TYPES = st.sampled_from(["person", "technology", "other"])
VALUES = st.sampled_from([1, "x", None, [1, {"a": 2.5}]])
KEYS = st.sampled_from(["a", "b", "c"])


def mentions(*added: tuple[str, int, str]) -> Any:
    def effect(fields: Fields) -> None:
        fields["mentions"] = sorted([*fields["mentions"], *added], key=lambda each: each[1])
        fields["mention_count"] += len(added)

    return effect


def puts(values: Fields) -> Any:
    return lambda fields: fields.update(properties=fields["properties"] | values)


class EntitiesMachine(ProjectMachine):
    """Creates, renames, mentions, links and merges entities, and asks for them."""

    def store(self) -> Any:
        return self.apollo.entities

    def order(self, fields: Fields) -> Any:
        return max([fields["created_ms"], *(at_ms for _, at_ms, _ in fields["mentions"])])

    def compare(self, record: Any, expected: Fields) -> None:
        names = ("name", "type", "tags", "properties", "mention_count", "aliases", "merged_into")
        self.same(record, expected, *names)
        assert [(each.context, self.ms(each.at), each.source) for each in record.mentions] == expected["mentions"]
        assert [tuple(each) for each in record.relations] == expected["relations"]

    def holder(self, name: str) -> Modelled | None:
        """Return the entity that a name leads to now."""
        for item in self.living():
            names = [item.now["name"], *item.now["aliases"]]
            if not item.now["merged_into"] and name.casefold() in [each.casefold() for each in names]:
                return item
        return None

    def made(self, record: Any, name: str, type: str, tags: list[str], properties: Fields) -> None:
        item = self.items[record.id] = Modelled(record.id)
        fresh = {"mentions": [], "mention_count": 0, "aliases": [], "relations": [], "merged_into": None}
        stored = sorted({tag.casefold() for tag in tags})
        item.happen(
            self.now_ms,
            self.now_ms,
            sets(name=name, type=type, tags=stored, properties=properties, valid_until=None, **fresh),
        )

    @rule(name=NAMES, type=TYPES, tags=TAGS)
    def create(self, name: str, type: Any, tags: list[str]) -> None:
        if self.holder(name) is not None:
            self.refused(Conflict, lambda: self.apollo.entities.create(name, type))
        else:
            self.made(self.apollo.entities.create(name, type, tags=tags), name, type, tags, {})

    @rule(name=NAMES, type=TYPES, tags=TAGS, properties=st.dictionaries(KEYS, VALUES, max_size=2))
    def find_or_create(self, name: str, type: Any, tags: list[str], properties: Fields) -> None:
        item = self.holder(name)
        times = None if item is None else self.moment_of(item, None)
        record = self.apollo.entities.find_or_create(name, type, tags=tags, properties=properties)
        if item is None or times is None:
            self.made(record, name, type, tags, properties)
            return
        known = item.now
        new = {key: value for key, value in properties.items() if key not in known["properties"]}
        more = sorted({*known["tags"], *(tag.casefold() for tag in tags)})
        retyped = {"type": type} if known["type"] == "other" != type else {}
        retagged = {"tags": more} if more != known["tags"] else {}
        if new or retyped or retagged:
            item.happen(times, self.now_ms, both(sets(**retyped, **retagged), puts(new)))
        assert record.id == item.id
        self.compare(record, item.now)

    @rule(place=PLACES, name=NAMES, late_ms=LATE_MS)
    @precondition(lambda self: self.living())
    def rename(self, place: int, name: str, late_ms: int | None) -> None:
        item, at_ms = self.pick(place), self.late(late_ms)

        def call() -> Any:
            return self.apollo.entities.update(item.id, name=name, at=self.moment(at_ms))

        if item.now["merged_into"]:
            self.refused(InvalidItem, call)
        elif not self.is_too_early(item, at_ms, call):
            moment_ms = self.moment_of(item, at_ms)
            holder = self.holder(item.with_one_more(moment_ms, sets(name=name))[0]["name"])
            if holder is not None and holder.id != item.id:
                self.refused(Conflict, call)
                return
            call()
            item.happen(moment_ms, self.now_ms, sets(name=name))

    @rule(place=PLACES, context=st.sampled_from(["here", "there"]), late_ms=LATE_MS)
    @precondition(lambda self: self.living())
    def mention(self, place: int, context: str, late_ms: int | None) -> None:
        item, at_ms = self.pick(place), self.late(late_ms)

        def call() -> Any:
            return self.apollo.entities.add_mention(item.id, context, "chat", at=self.moment(at_ms))

        if item.now["merged_into"]:
            self.refused(InvalidItem, call)
        else:
            moment_ms = self.moment_of(item, None if at_ms is None else max(at_ms, item.begun_ms))
            call()
            said_ms = self.now_ms if at_ms is None else at_ms
            item.happen(moment_ms, self.now_ms, mentions((context, said_ms, "chat")))

    @rule(place=PLACES, key=KEYS, value=VALUES, late_ms=LATE_MS)
    @precondition(lambda self: self.living())
    def set_property(self, place: int, key: str, value: Any, late_ms: int | None) -> None:
        item, at_ms = self.pick(place), self.late(late_ms)

        def call() -> Any:
            return self.apollo.entities.set_property(item.id, key, value, at=self.moment(at_ms))

        if item.now["merged_into"]:
            self.refused(InvalidItem, call)
        elif not self.is_too_early(item, at_ms, call):
            moment_ms = self.moment_of(item, at_ms)
            call()
            item.happen(moment_ms, self.now_ms, puts({key: value}))

    @rule(place=PLACES, key=KEYS, late_ms=LATE_MS)
    @precondition(lambda self: self.living())
    def remove_property(self, place: int, key: str, late_ms: int | None) -> None:
        item, at_ms = self.pick(place), self.late(late_ms)

        def call() -> Any:
            return self.apollo.entities.remove_property(item.id, key, at=self.moment(at_ms))

        if self.is_too_early(item, at_ms, call):
            return
        moment_ms = self.moment_of(item, at_ms)
        call()

        def effect(fields: Fields) -> None:
            fields["properties"] = {name: value for name, value in fields["properties"].items() if name != key}

        item.happen(moment_ms, self.now_ms, effect)

    @rule(place=PLACES, other=PLACES, relation=st.sampled_from(["runs", "uses"]), ends=st.booleans(), late_ms=LATE_MS)
    @precondition(lambda self: self.living())
    def link(self, place: int, other: int, relation: str, ends: bool, late_ms: int | None) -> None:
        one, two, at_ms = self.pick(place), self.pick(other), self.late(late_ms)
        verb = self.apollo.entities.unlink if ends else self.apollo.entities.link

        def call() -> Any:
            return verb(one.id, relation, two.id, at=self.moment(at_ms))

        if one.id == two.id or one.now["merged_into"] or two.now["merged_into"]:
            self.refused(InvalidItem, call)
            return
        if any(self.is_too_early(item, at_ms, call) for item in (one, two)):
            return
        times = {item.id: self.moment_of(item, at_ms) for item in (one, two)}
        call()
        for item, entry in ((one, (relation, two.id, True)), (two, (relation, one.id, False))):
            item.happen(times[item.id], self.now_ms, (drops if ends else adds)("relations", entry))

    @rule(place=PLACES, other=PLACES)
    @precondition(lambda self: self.living())
    def merge(self, place: int, other: int) -> None:
        one, two = self.pick(place), self.pick(other)

        def call() -> Any:
            return self.apollo.entities.merge(one.id, two.id)

        if one.id == two.id or one.now["merged_into"] or two.now["merged_into"]:
            self.refused(InvalidItem, call)
            return
        mine, its = one.now, two.now
        others = {id for _, id, _ in its["relations"]} - {one.id}
        times = {id: self.moment_of(self.items[id], None) for id in {one.id, two.id, *others}}
        record = call()
        effects = [sets(tags=sorted({*mine["tags"], *its["tags"]}))]
        effects += [sets(type=its["type"])] * (mine["type"] == "other")
        effects.append(puts({key: value for key, value in its["properties"].items() if key not in mine["properties"]}))
        effects += [mentions(*its["mentions"])]
        names = [name for name in (its["name"], *its["aliases"]) if name != mine["name"]]
        effects += [adds("aliases", name) for name in names]
        for name, id, outgoing in its["relations"]:
            if id == one.id:
                effects.insert(0, drops("relations", (name, two.id, not outgoing)))
            else:
                effects.append(adds("relations", (name, id, outgoing)))
        one.happen(times[one.id], self.now_ms, both(*effects))
        for id in others:
            gone = [
                drops("relations", (name, two.id, not way)) for name, its_id, way in its["relations"] if its_id == id
            ]
            come = [
                adds("relations", (name, one.id, not way)) for name, its_id, way in its["relations"] if its_id == id
            ]
            self.items[id].happen(times[id], self.now_ms, both(*gone, *come))
        ended = sets(merged_into=one.id, valid_until=times[two.id], relations=[])
        two.happen(times[two.id], self.now_ms, ended)
        self.compare(record, one.now)

    @rule(place=PLACES, late_ms=LATE_MS)
    @precondition(lambda self: self.living())
    def delete(self, place: int, late_ms: int | None) -> None:
        item, at_ms = self.pick(place), self.late(late_ms)
        if self.is_too_early(item, at_ms, lambda: self.apollo.entities.delete(item.id, at=self.moment(at_ms))):
            return
        moment_ms, relations = self.moment_of(item, at_ms), item.now["relations"]
        times = {id: self.moment_of(self.items[id], None) for _, id, _ in relations}
        self.apollo.entities.delete(item.id, at=self.moment(at_ms))
        for id, other_ms in times.items():
            entries = [(name, item.id, not outgoing) for name, other, outgoing in relations if other == id]
            effect = both(*(drops("relations", entry) for entry in entries))
            self.items[id].happen(other_ms, self.now_ms, effect)
        item.happen(moment_ms, self.now_ms, sets(deleted=True, valid_until=moment_ms))

    @rule(name=NAMES)
    def a_name_finds_its_holder(self, name: str) -> None:
        found, holder = self.apollo.entities.find_by_name(name), self.holder(name)
        assert (None if found is None else found.id) == (None if holder is None else holder.id)

    @rule(
        asked=ASKED,
        type=st.none() | TYPES,
        tags=TAGS,
        merged=st.booleans(),
        ago_ms=st.none() | st.integers(0, 30_000),
        limit=st.sampled_from([1, 2, 100]),
    )
    def ask_for_some(
        self, asked: str, type: str | None, tags: list[str], merged: bool, ago_ms: int | None, limit: int
    ) -> None:
        wanted = {tag.casefold() for tag in tags}

        def fits(fields: Fields) -> bool:
            words = " ".join([fields["name"], *fields["aliases"]])
            shown = merged or not fields["merged_into"]
            return (
                shown and type in (None, fields["type"]) and wanted <= set(fields["tags"]) and has_words(asked, words)
            )

        self.ask(fits, ago_ms, limit, text=asked, type=type, tags=tags, include_merged=merged)

    @rule(type=st.none() | TYPES)
    def entities_mentioned_most_come_first(self, type: Any) -> None:
        shown = [(item.now, item.id) for item in self.living() if not item.now["merged_into"]]
        counts = [(fields["mention_count"], id) for fields, id in shown if type in (None, fields["type"])]
        found = self.apollo.entities.most_mentioned(limit=1_000, type=type)
        assert [each.id for each in found] == [id for _, id in sorted(counts, reverse=True)]
