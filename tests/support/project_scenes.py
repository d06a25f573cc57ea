"""Scenes of a project that random tests seldom play: races, lost replies and damaged indexes.

Each takes an empty project. `project/test_scenes.py` plays them on the sound scripts, and
`project_model/test_mutants.py` on broken ones.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from redismem import Conflict
from redismem.project.items.erasing import erase
from redismem.project.items.items import ItemChange, Items
from redismem.project.items.schema import ENTITY, TASK
from redismem.project.project import Project
from redismem.protocol.project.calls import LATEST, Batch, Group, Write
from redismem.protocol.server_errors import ServerError
from support.clock import ProjectClock

Scene = Callable[[Project, ProjectClock, Any], Awaitable[None]]


async def read_project(apollo: Project, raw: Any) -> dict[bytes, Any]:
    """Return all stored keys of the project, except its count of changes."""
    prefix = apollo._items.keys.items.removesuffix(b"items")
    found: dict[bytes, Any] = {}
    async for key in raw.scan_iter(prefix + b"*", count=1_000):
        if key == apollo._items.keys.changes:
            continue
        if await raw.type(key) == b"hash":
            found[key] = await raw.hgetall(key)
        else:
            found[key] = await raw.zrange(key, 0, -1, withscores=True)
    return found


async def prepare_rename(items: Items, item_id: str, title: str, **read: Any) -> ItemChange:
    """Prepare a change of the title without committing it."""
    change = await items.change()
    change.alter(await items.get(item_id, **read), sets={"title": title})
    return change


async def a_lost_race(apollo: Project, clock: ProjectClock, raw: Any) -> None:
    made = await apollo.decisions.create("first")
    # Two equal changes at the same time are still two changes.
    one, other = (
        await prepare_rename(apollo._items, made.id, "new"),
        await prepare_rename(apollo._items, made.id, "new"),
    )
    await one.commit()
    before = await read_project(apollo, raw)
    with pytest.raises(Conflict, match="at version 2 now"):
        await other.commit()
    assert await read_project(apollo, raw) == before


async def a_race_of_several(apollo: Project, clock: ProjectClock, raw: Any) -> None:
    """If one of two items has changed meanwhile, neither is written."""
    one, two = await apollo.decisions.create("one"), await apollo.decisions.create("two")
    change = await prepare_rename(apollo._items, one.id, "new")
    change.alter(await apollo._items.get(two.id), sets={"title": "new"})
    await apollo.decisions.update(two.id, title="changed")
    before = await read_project(apollo, raw)
    with pytest.raises(Conflict):
        await change.commit()
    assert await read_project(apollo, raw) == before


async def several_at_once(apollo: Project, clock: ProjectClock, raw: Any) -> None:
    """One change creates two items: both are there, and both stand in each index."""
    change = await apollo._items.change()
    made = {change.create(ENTITY, {"name": name, "tags": ["x"]}) for name in ("one", "two")}
    await change.commit()
    assert {(await apollo.entities.get(item_id)).name for item_id in made} == {"one", "two"}
    assert {entity.id for entity in await apollo.entities.list()} == made
    assert {entity.id for entity in await apollo.entities.list(tags=["x"])} == made


async def a_lost_answer(apollo: Project, clock: ProjectClock, raw: Any) -> None:
    """Retries do nothing, at once and after another change."""
    sent: list[Any] = []
    items = apollo._items
    inner = items.store.run

    async def run(call: Any, **options: Any) -> Any:
        sent.append(call)
        return await inner(call, **options)

    items.store.run = run  # type: ignore[method-assign]
    made = await apollo.decisions.create("first", tags=["x"])
    creation = sent[-1]
    await apollo.decisions.update(made.id, title="second")
    update = sent[-1]
    items.store.run = inner  # type: ignore[method-assign]
    before = await read_project(apollo, raw)
    assert [await items.run(update), await items.run(creation)] == [False, False]
    assert await read_project(apollo, raw) == before
    await apollo.decisions.update(made.id, title="third", tags=[])
    before = await read_project(apollo, raw)
    assert [await items.run(creation), await items.run(update)] == [False, False]
    assert await read_project(apollo, raw) == before


async def a_name_that_is_taken(apollo: Project, clock: ProjectClock, raw: Any) -> None:
    items = apollo._items
    changes = []
    for _ in range(2):
        change = await items.change()
        created = change.create(ENTITY, {"name": "Redis"})
        change.name("redis", "", created)
        changes.append(change)
    await changes[0].commit()
    before = await read_project(apollo, raw)
    with pytest.raises(Conflict, match="has this name"):
        await changes[1].commit()
    assert await read_project(apollo, raw) == before


async def a_name_that_was_left_behind(apollo: Project, clock: ProjectClock, raw: Any) -> None:
    """A crash may leave the name of an entity that does not exist: the name is free."""
    await raw.hset(apollo._items.keys.names, "redis", "e-000000000000000000")
    assert await apollo.entities.find_by_name("redis") is None
    made = await apollo.entities.create("Redis")
    found = await apollo.entities.find_by_name("redis")
    assert found == made


async def a_cycle_that_two_make(apollo: Project, clock: ProjectClock, raw: Any) -> None:
    """Each of two changes finds no cycle; the second is refused."""
    one, two = await apollo.tasks.create("one"), await apollo.tasks.create("two")
    items = apollo._items
    change = await items.change()
    change.alter(await items.get(two.id), adds={"dependencies": [one.id]})
    change.check(await items.get(one.id))
    await apollo.tasks.add_dependency(one.id, two.id)
    with pytest.raises(Conflict):
        await change.commit()
    assert (await apollo.tasks.get(two.id)).dependencies == ()


async def a_task_blocked_by_one_that_ends(apollo: Project, clock: ProjectClock, raw: Any) -> None:
    """A task is blocked by another while that one is being completed: the completion is refused."""
    first, second = await apollo.tasks.create("a", status="in_progress"), await apollo.tasks.create("b")
    items = apollo._items
    ending = await items.change()
    ending.alter(await items.get(first.id), sets={"status": "completed"})
    ending.check_size(TASK, f"waits:{first.id}", 0)
    await apollo.tasks.block(second.id, first.id)
    with pytest.raises(Conflict, match="depends on it"):
        await ending.commit()


async def an_erasure_without_a_trace(apollo: Project, clock: ProjectClock, raw: Any) -> None:
    made = await apollo.entities.create("Redis", tags=["x"])
    await apollo.entities.update(made.id, name="Valkey", description="a store")
    stays = await apollo.entities.create("Other thing", tags=["x"])
    before = await read_project(apollo, raw)
    another = await apollo.entities.create("Store", description="thing", tags=["y"])
    await apollo.entities.add_mention(another.id, "x")
    batch = Batch(writes=[Write(stays.id, 9, b"", b"")])
    with pytest.raises(Conflict):
        await apollo._items.run(apollo._items.calls.change(batch))
    assert await erase(apollo._items, [another.id]) == 1
    assert await read_project(apollo, raw) == before
    assert await apollo.entities.clear() == 2
    assert await read_project(apollo, raw) == {}


async def an_index_that_holds_too_much(apollo: Project, clock: ProjectClock, raw: Any) -> None:
    """Queries skip index entries that a crash left, and the pages are complete."""
    keys = apollo._items.keys
    made = []
    for number in range(5):
        clock.tick()
        made.append((await apollo.decisions.create(f"n{number}")).id)
    await raw.zadd(keys.index("d", "tag:x"), {made[1]: 1, "d-000000000000000000": 5})
    await raw.zadd(keys.index("d", "status:accepted"), dict.fromkeys(made, 1))
    assert len(await apollo.decisions.list(tags=["x"])) == 0
    assert len(await apollo.decisions.active()) == 0
    assert [each.id for each in await apollo.decisions.list(limit=2)] == made[:2:-1]


async def pages_of_many(apollo: Project, clock: ProjectClock, raw: Any) -> None:
    """Pages over more items than a chunk and than one call may scan, by several indexes and by bounds."""
    items, keys = apollo._items, apollo._items.keys
    order, a, b, ranks = (keys.index("d", name) for name in ("all", "a", "b", "ranks"))
    ids = [f"d-{number:018d}" for number in range(1_500)]
    await raw.hset(keys.items, mapping={each: f"2 {each}" for each in ids})
    await raw.zadd(order, {each: at // 3 for at, each in enumerate(ids)})
    await raw.zadd(a, {each: at // 3 for at, each in enumerate(ids) if at % 2})
    await raw.zadd(b, {each: at // 3 for at, each in enumerate(ids) if at % 5 == 0})
    await raw.zadd(ranks, {each: at for at, each in enumerate(ids)})

    async def found(limit: int, *groups: Group) -> list[int]:
        ids: list[int] = []
        after = None
        for _ in range(2_000):
            page = await items.run(items.calls.find(order, groups, limit, after))
            ids += [int(item_id[2:]) for item_id, _ in page.found]
            after = page.after
            if after is None:
                return ids
        raise AssertionError("the pages do not end")

    numbers = range(1_499, -1, -1)
    for limit in (40, 1_000):
        assert await found(limit, Group((order,))) == list(numbers)
        assert await found(limit, Group((order,)), Group((a,))) == [each for each in numbers if each % 2]
        assert await found(limit, Group((a, b))) == [each for each in numbers if each % 2 or each % 5 == 0]
        assert await found(limit, Group((a,)), Group((b,))) == [each for each in numbers if each % 2 and each % 5 == 0]
        narrow = [each for each in numbers if 100 <= each <= 140 and each % 2]
        assert await found(limit, Group((a,)), Group((ranks,), (100, 140))) == narrow
        wide = [each for each in numbers if 100 <= each <= 1_300]
        assert await found(limit, Group((order,)), Group((ranks,), (100, 1_300))) == wide
        assert await found(limit, Group((order,)), Group((ranks,), (0, LATEST))) == list(numbers)
        assert await found(limit, Group((order,)), Group(())) == []


async def a_smaller_group_is_gone_through(apollo: Project, clock: ProjectClock, raw: Any) -> None:
    """One call finds a rare item, as it scans only the smallest group."""
    items, keys = apollo._items, apollo._items.keys
    order, rare = keys.index("d", "all"), keys.index("d", "rare")
    await raw.zadd(order, {f"d-{number:018d}": number for number in range(3_000)})
    await raw.zadd(rare, {f"d-{7:018d}": 7})
    await raw.hset(keys.items, f"d-{7:018d}", "2 x")
    for groups in ([Group((order,)), Group((rare,))], [Group((rare,)), Group((order,))]):
        page = await items.run(items.calls.find(order, groups, 10))
        assert (len(page.found), page.after) == (1, None)


async def a_wrong_type(apollo: Project, clock: ProjectClock, raw: Any) -> None:
    """A change refuses a key of a foreign type before it writes anything."""
    made = await apollo.decisions.create("a")
    await raw.delete(apollo._items.keys.items)
    await raw.set(apollo._items.keys.items, "x")
    before = await raw.zrange(apollo._items.keys.index("d", "all"), 0, -1)
    change = await apollo._items.change()
    change.create(ENTITY, {"name": "Redis"})
    with pytest.raises(Exception, match="unexpected contents") as refused:
        await change.commit()
    assert not isinstance(refused.value, ServerError)
    assert await raw.zrange(apollo._items.keys.index("d", "all"), 0, -1) == before == [made.id.encode()]


async def an_order_by_more_than_age(apollo: Project, clock: ProjectClock, raw: Any) -> None:
    """The order by ids alone would put the critical task in the middle."""
    for priority in ("low", "critical", "medium"):
        clock.tick()
        await apollo.tasks.create(title=priority, description="x", priority=priority)
    assert [task.title for task in await apollo.tasks.list()] == ["critical", "medium", "low"]


SCENES: list[Scene] = [
    an_order_by_more_than_age,
    a_lost_race,
    a_race_of_several,
    several_at_once,
    a_lost_answer,
    a_name_that_is_taken,
    a_name_that_was_left_behind,
    a_cycle_that_two_make,
    a_task_blocked_by_one_that_ends,
    an_erasure_without_a_trace,
    an_index_that_holds_too_much,
    pages_of_many,
    a_smaller_group_is_gone_through,
    a_wrong_type,
]
