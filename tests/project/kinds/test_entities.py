"""Entities: their names, properties, mentions and merges."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.clock import ProjectClock

from redismem import Conflict, InvalidItem
from redismem.project.project import Project


async def test_a_name_finds_it_whatever_its_case(apollo: Project) -> None:
    made = await apollo.entities.create("Straße café", "concept")
    for name in ("straße café", "STRASSE CAFÉ", "Strasse Cafe\u0301", " straße café "):
        found = await apollo.entities.find_by_name(name)
        assert found is not None
        assert found.id == made.id
        with pytest.raises(Conflict, match="has this name"):
            await apollo.entities.create(name)
    assert await apollo.entities.find_by_name("straße") is None
    await apollo.entities.update(made.id, name="Weg")
    assert await apollo.entities.find_by_name("straße café") is None
    assert (await apollo.entities.create("STRASSE CAFÉ")).id != made.id
    with pytest.raises(Conflict, match="has this name"):
        await apollo.entities.update(made.id, name="straße café")
    await apollo.entities.delete(made.id)
    assert await apollo.entities.find_by_name("weg") is None
    await apollo.entities.create("weg")


async def test_finding_adds_what_is_new_and_changes_nothing_that_is_known(apollo: Project) -> None:
    made = await apollo.entities.find_or_create("Redis", "technology")
    again = await apollo.entities.find_or_create("redis", "person", "a store", properties={"port": 6379}, tags=["db"])
    assert (again.id, again.type, again.description) == (made.id, "technology", "a store")
    assert (again.properties, again.tags, again.version) == ({"port": 6379}, ("db",), 2)
    same = await apollo.entities.find_or_create("REDIS", "other", "another", properties={"port": 1}, tags=["DB"])
    assert same == again
    unknown = await apollo.entities.find_or_create("Ada")
    assert (await apollo.entities.find_or_create("Ada", "person")).type == "person"
    assert unknown.type == "other"


async def test_many_at_once_create_it_once(apollo: Project) -> None:
    found = await asyncio.gather(
        *(apollo.entities.find_or_create("Redis", properties={f"p{number}": number}) for number in range(8))
    )
    assert len({each.id for each in found}) == 1
    assert await apollo.entities.count() == 1
    assert (await apollo.entities.get(found[0].id)).properties == {f"p{number}": number for number in range(8)}


async def test_mentions_are_kept_in_the_order_of_their_time(apollo: Project, clock: ProjectClock) -> None:
    made = await apollo.entities.create("Redis")
    monday, tuesday = clock.tick(), clock.tick()
    await apollo.entities.add_mention(made.id, "second", "chat 7")
    wednesday = clock.tick()
    found = await apollo.entities.add_mention(made.id, "first", at=monday)
    assert [(each.context, each.at, each.source) for each in found.mentions] == [
        ("first", monday, ""),
        ("second", tuesday, "chat 7"),
    ]
    assert found.mention_count == 2
    then = await apollo.entities.get(made.id, at=monday)
    assert (then.mention_count, [each.context for each in then.mentions]) == (1, ["first"])
    assert (await apollo.entities.get(made.id, at=monday, known_at=tuesday)).mention_count == 0
    assert (await apollo.entities.get(made.id, at=wednesday)).mention_count == 2


async def test_the_last_hundred_mentions_stay_in_sight_and_all_count(apollo: Project, clock: ProjectClock) -> None:
    made = await apollo.entities.create("Redis")
    for number in range(103):
        clock.tick()
        found = await apollo.entities.add_mention(made.id, str(number))
    assert (found.mention_count, len(found.mentions)) == (103, 100)
    assert [found.mentions[0].context, found.mentions[-1].context] == ["3", "102"]


async def test_they_come_by_their_latest_mention_or_by_how_often(apollo: Project, clock: ProjectClock) -> None:
    ids = {}
    for name, kind in (("Ada", "person"), ("Redis", "technology"), ("Bob", "person"), ("API", "component")):
        clock.tick()
        ids[name] = (await apollo.entities.create(name, kind)).id  # type: ignore[arg-type]
    for name in ("Ada", "Ada", "Redis", "Redis", "Redis", "Bob"):
        clock.tick()
        await apollo.entities.add_mention(ids[name], "x")

    def names(found: Any) -> list[str]:
        return [each.name for each in found]

    assert names(await apollo.entities.list()) == ["Bob", "Redis", "Ada", "API"]
    assert names(await apollo.entities.people()) == ["Bob", "Ada"]
    assert names(await apollo.entities.technologies()) == ["Redis"]
    assert names(await apollo.entities.components()) == ["API"]
    assert names(await apollo.entities.most_mentioned()) == ["Redis", "Ada", "Bob", "API"]
    assert names(await apollo.entities.most_mentioned(limit=1, type="person")) == ["Ada"]
    assert names(await apollo.entities.list(type=["person", "component"])) == ["Bob", "Ada", "API"]


async def test_properties_are_set_one_by_one(apollo: Project, clock: ProjectClock) -> None:
    made = await apollo.entities.create("Redis", properties={"a": 1})
    clock.tick()
    await apollo.entities.set_property(made.id, "b", {"c": [None, 2.5]})
    then = clock.now
    clock.tick()
    found = await apollo.entities.remove_property(made.id, "a")
    assert found.properties == {"b": {"c": [None, 2.5]}}
    assert (await apollo.entities.get(made.id, at=then)).properties == {"a": 1, "b": {"c": [None, 2.5]}}
    for name, value in (("", 1), ("a", {1: 2}), ("a", float("nan")), ("a", {1}), (5, 1)):
        with pytest.raises(InvalidItem):
            await apollo.entities.set_property(made.id, name, value)  # type: ignore[arg-type]


async def test_a_relation_is_seen_from_both_ends(apollo: Project) -> None:
    ada, redis = await apollo.entities.create("Ada"), await apollo.entities.create("Redis")
    assert [tuple(each) for each in (await apollo.entities.link(ada.id, "runs", redis.id)).relations] == [
        ("runs", redis.id, True)
    ]
    assert [tuple(each) for each in (await apollo.entities.get(redis.id)).relations] == [("runs", ada.id, False)]
    await apollo.entities.unlink(ada.id, "runs", redis.id)
    for each in (ada, redis):
        assert (await apollo.entities.get(each.id)).relations == ()
    await apollo.entities.link(ada.id, "runs", redis.id)
    await apollo.entities.delete(ada.id)
    assert (await apollo.entities.get(redis.id)).relations == ()


async def test_one_that_is_called_by_an_alias_of_its_own_gives_each_name_once(apollo: Project) -> None:
    store = await apollo.entities.create("Store")
    redis = await apollo.entities.create("Redis")
    await apollo.entities.merge(store.id, redis.id)
    await apollo.entities.update(store.id, name="Redis")
    memory = await apollo.entities.create("Memory")
    found = await apollo.entities.merge(memory.id, store.id)
    assert sorted(found.aliases) == sorted(set(found.aliases))
    assert "Redis" in found.aliases


async def test_two_that_are_the_same_become_one(apollo: Project, clock: ProjectClock) -> None:
    redis = await apollo.entities.create("Redis", properties={"port": 6379}, tags=["a"])
    double = await apollo.entities.create("Redis server", "technology", "a store", properties={"port": 1, "v": 7})
    ada = await apollo.entities.create("Ada")
    await apollo.entities.link(ada.id, "runs", double.id)
    await apollo.entities.link(double.id, "same as", redis.id)
    clock.tick()
    await apollo.entities.add_mention(double.id, "of the double")
    then = clock.now
    clock.tick()
    await apollo.entities.add_mention(redis.id, "of redis")
    clock.tick()
    found = await apollo.entities.merge(redis.id, double.id)
    assert (found.type, found.description, found.properties) == ("technology", "a store", {"port": 6379, "v": 7})
    assert (found.aliases, found.tags, found.mention_count) == (("Redis server",), ("a",), 2)
    assert [each.context for each in found.mentions] == ["of the double", "of redis"]
    assert [tuple(each) for each in found.relations] == [("runs", ada.id, False)]
    assert [tuple(each) for each in (await apollo.entities.get(ada.id)).relations] == [("runs", redis.id, True)]
    by_name = await apollo.entities.find_by_name("REDIS SERVER")
    assert by_name is not None
    assert by_name.id == redis.id
    gone = await apollo.entities.get(double.id)
    assert (gone.merged_into, gone.valid_until, gone.relations) == (redis.id, clock.now, ())
    assert (await apollo.entities.get(double.id, at=then)).merged_into is None
    assert {each.id for each in await apollo.entities.list(text="server")} == {redis.id}
    assert {each.id for each in await apollo.entities.list(text="server", include_merged=True)} == {redis.id, double.id}
    for one, other in ((redis.id, double.id), (double.id, ada.id), (ada.id, ada.id)):
        with pytest.raises(InvalidItem):
            await apollo.entities.merge(one, other)
    for change in (apollo.entities.add_mention(double.id, "x"), apollo.entities.link(ada.id, "runs", double.id)):
        with pytest.raises(InvalidItem, match="is merged into"):
            await change
