"""Scenes of an import that random tests seldom play: late, repeated, concurrent and interrupted imports."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from redismem import Conflict
from redismem.project.items.items import Items
from redismem.project.project import Project
from redismem.protocol.project import imports
from redismem.protocol.project.calls import Unfinished
from redismem.protocol.project.imports import Pieces
from support.clock import ProjectClock

Scene = Callable[[Project, ProjectClock, Any], Awaitable[None]]


def piece(items: Items, *writes: tuple[Any, ...]) -> bytes:
    gathered = Pieces()
    for command, key, *arguments in writes:
        gathered.add(command, key, *arguments)
    (made,) = gathered.cut()
    return made


async def stage(items: Items, nonce: str, *pieces: bytes) -> bytes:
    """Stage the pieces of an import. Returns the state of the project that it depends on."""
    seen = await items.store.run(imports.read_change_count(items.keys))
    for number, each in enumerate(pieces, 1):
        await items.store.run(imports.stage(items.keys, nonce, number, each))
    return seen


async def commit(items: Items, nonce: str, seen: bytes) -> bool:
    return await items.store.run(imports.commit(items.keys, nonce, seen))


async def each_write_is_made(apollo: Project, clock: ProjectClock, raw: Any) -> None:
    items = apollo._items
    index, gone = items.keys.index("x", "one"), items.keys.index("x", "gone")
    await raw.zadd(index, {"old": 1})
    await raw.hset(items.keys.names, mapping={"old": "1", "kept": "1"})
    await raw.set(gone, "x")
    writes = (
        *(("ZADD", index, number, f"m{number}") for number in range(700)),
        ("ZREM", index, "old"),
        ("HSET", items.keys.names, "new", "2"),
        ("HDEL", items.keys.names, "old"),
        ("DEL", gone),
    )
    assert await commit(items, "n", await stage(items, "n", piece(items, *writes)))
    assert await raw.pttl(items.keys.journal) == -1, "a committed import does not expire"
    assert await items.run(items.calls.counts([index])) == [700]
    assert await raw.hgetall(items.keys.names) == {b"kept": b"1", b"new": b"2"}
    assert not await raw.exists(gone)
    assert not await raw.exists(items.keys.journal)


async def calls_apply_the_pieces_first(apollo: Project, clock: ProjectClock, raw: Any) -> None:
    made = await apollo.tasks.create("a")
    items = apollo._items
    other = items.keys.index("x", "one")
    change = await items.change()
    change.alter(await items.get(made.id), sets={"title": "b"})
    await commit(items, "n", await stage(items, "n", piece(items, ("ZADD", other, 1, "m"))))
    before = await raw.hgetall(items.keys.items)
    asks: list[Callable[[], Awaitable[Any]]]
    inner, items.store.run = items.store.run, _refusing(items)  # type: ignore[method-assign]
    asks = [change.commit, lambda: apollo.tasks.get(made.id), apollo.tasks.list, lambda: apollo.context(["a"])]
    for ask in asks:
        with pytest.raises(_LookedForPieces):
            await ask()
    items.store.run = inner  # type: ignore[method-assign]
    assert await raw.hgetall(items.keys.items) == before
    assert (await apollo.tasks.get(made.id)).title == "a"
    assert await raw.zcard(other) == 1


class _LookedForPieces(Exception):
    pass


def _refusing(items: Items) -> Any:
    """Return a `run` that raises when a call looks for pieces of an import."""
    inner, left = items.store.run, imports.list_pieces(items.keys).commands

    async def run(call: Any, **options: Any) -> Any:
        if call.commands == left:
            raise _LookedForPieces
        return await inner(call, **options)

    return run


async def a_late_piece_undoes_nothing(apollo: Project, clock: ProjectClock, raw: Any) -> None:
    items = apollo._items
    made = piece(items, ("HSET", items.keys.names, "a", "imported"))
    await commit(items, "n", await stage(items, "n", made))
    assert await items.store.run(imports.apply(items.keys, b"1", made))
    await raw.hset(items.keys.names, "a", "changed since")
    assert not await items.store.run(imports.apply(items.keys, b"1", made))
    assert await raw.hget(items.keys.names, "a") == b"changed since"


async def a_repeated_commit_is_recognised(apollo: Project, clock: ProjectClock, raw: Any) -> None:
    items = apollo._items
    seen = await stage(items, "n", piece(items, ("HSET", items.keys.names, "a", "1")))
    assert await commit(items, "n", seen)
    assert not await commit(items, "n", seen), "its answer was lost"
    assert await items.run(items.calls.holder("a")) == "1"
    assert not await commit(items, "n", seen), "and it is applied"
    with pytest.raises(Conflict):
        await commit(items, "another", seen)


async def a_crash_cuts_off_an_import(apollo: Project, clock: ProjectClock, raw: Any) -> None:
    """A crash may cut the log before the journal: a retry then continues, unless the project changed meanwhile."""
    await apollo.tasks.create("a")
    items = apollo._items
    seen = await stage(items, "n", piece(items, ("HSET", items.keys.names, "a", "1")))
    await raw.hset(items.keys.changes, mapping={"count": int(seen or 0) + 1, "imported": "n"})
    assert await commit(items, "n", seen)
    seen = await stage(items, "m", piece(items, ("HSET", items.keys.names, "a", "2")))
    await items.run(items.calls.holder("a"))
    await raw.hset(items.keys.changes, mapping={"count": int(seen or 0) + 1, "imported": "m"})
    await apollo.tasks.create("b")
    with pytest.raises(Conflict):
        await commit(items, "m", seen)


async def a_changed_project_refuses_an_import(apollo: Project, clock: ProjectClock, raw: Any) -> None:
    items = apollo._items
    seen = await stage(items, "n", piece(items, ("HSET", items.keys.names, "a", "1")))
    await apollo.tasks.create("in between")
    with pytest.raises(Conflict, match="depends on it"):
        await commit(items, "n", seen)
    assert await items.run(items.calls.holder("a")) is None
    for nonce in ("one", "other"):
        seen = await stage(items, nonce, piece(items, ("HSET", items.keys.names, "a", nonce)))
    await commit(items, "one", seen)
    with pytest.raises(Unfinished):
        await commit(items, "other", seen)
    assert await items.run(items.calls.holder("a")) == "one"
    with pytest.raises(Conflict, match="depends on it"):
        await commit(items, "other", seen)


async def an_import_was_staged_for_too_long(apollo: Project, clock: ProjectClock, raw: Any) -> None:
    items = apollo._items
    seen = await stage(items, "n", piece(items, ("HSET", items.keys.names, "a", "1")))
    await raw.delete(items.keys.staging("n"))
    with pytest.raises(Conflict):
        await commit(items, "n", seen)
    assert not await raw.exists(items.keys.journal)


SCENES: list[Scene] = [
    each_write_is_made,
    calls_apply_the_pieces_first,
    a_late_piece_undoes_nothing,
    a_repeated_commit_is_recognised,
    a_crash_cuts_off_an_import,
    a_changed_project_refuses_an_import,
    an_import_was_staged_for_too_long,
]
