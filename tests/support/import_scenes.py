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


async def staged(items: Items, nonce: str, *pieces: bytes) -> bytes:
    """Stage the pieces of an import. Returns the state of the project that it depends on."""
    seen = await items.store.run(imports.read_change_count(items.keys))
    for number, each in enumerate(pieces, 1):
        await items.store.run(imports.stage(items.keys, nonce, number, each))
    return seen


async def counts(items: Items, nonce: str, seen: bytes) -> bool:
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
    assert await counts(items, "n", await staged(items, "n", piece(items, *writes)))
    assert await raw.pttl(items.keys.journal) == -1, "a committed import does not expire"
    assert await items.run(items.calls.counts([index])) == [700]
    assert await raw.hgetall(items.keys.names) == {b"kept": b"1", b"new": b"2"}
    assert not await raw.exists(gone)
    assert not await raw.exists(items.keys.journal)


async def nothing_else_comes_before_its_pieces(apollo: Project, clock: ProjectClock, raw: Any) -> None:
    made = await apollo.tasks.create("a")
    items = apollo._items
    other = items.keys.index("x", "one")
    change = await items.change()
    change.alter(await items.get(made.id), sets={"title": "b"})
    await counts(items, "n", await staged(items, "n", piece(items, ("ZADD", other, 1, "m"))))
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


async def who_comes_late_with_a_piece_undoes_nothing(apollo: Project, clock: ProjectClock, raw: Any) -> None:
    items = apollo._items
    made = piece(items, ("HSET", items.keys.names, "a", "imported"))
    await counts(items, "n", await staged(items, "n", made))
    assert await items.store.run(imports.apply(items.keys, b"1", made))
    await raw.hset(items.keys.names, "a", "changed since")
    assert not await items.store.run(imports.apply(items.keys, b"1", made))
    assert await raw.hget(items.keys.names, "a") == b"changed since"


async def it_is_known_when_it_is_sent_again(apollo: Project, clock: ProjectClock, raw: Any) -> None:
    items = apollo._items
    seen = await staged(items, "n", piece(items, ("HSET", items.keys.names, "a", "1")))
    assert await counts(items, "n", seen)
    assert not await counts(items, "n", seen), "its answer was lost"
    assert await items.run(items.calls.holder("a")) == "1"
    assert not await counts(items, "n", seen), "and it is applied"
    with pytest.raises(Conflict):
        await counts(items, "another", seen)


async def it_is_cut_off_by_a_crash(apollo: Project, clock: ProjectClock, raw: Any) -> None:
    """A crash may cut the log before the journal: a retry then continues, unless the project changed meanwhile."""
    await apollo.tasks.create("a")
    items = apollo._items
    seen = await staged(items, "n", piece(items, ("HSET", items.keys.names, "a", "1")))
    await raw.hset(items.keys.changes, mapping={"count": int(seen or 0) + 1, "imported": "n"})
    assert await counts(items, "n", seen)
    seen = await staged(items, "m", piece(items, ("HSET", items.keys.names, "a", "2")))
    await items.run(items.calls.holder("a"))
    await raw.hset(items.keys.changes, mapping={"count": int(seen or 0) + 1, "imported": "m"})
    await apollo.tasks.create("b")
    with pytest.raises(Conflict):
        await counts(items, "m", seen)


async def it_is_refused_once_something_has_changed(apollo: Project, clock: ProjectClock, raw: Any) -> None:
    items = apollo._items
    seen = await staged(items, "n", piece(items, ("HSET", items.keys.names, "a", "1")))
    await apollo.tasks.create("in between")
    with pytest.raises(Conflict, match="depends on it"):
        await counts(items, "n", seen)
    assert await items.run(items.calls.holder("a")) is None
    for nonce in ("one", "other"):
        seen = await staged(items, nonce, piece(items, ("HSET", items.keys.names, "a", nonce)))
    await counts(items, "one", seen)
    with pytest.raises(Unfinished):
        await counts(items, "other", seen)
    assert await items.run(items.calls.holder("a")) == "one"
    with pytest.raises(Conflict, match="depends on it"):
        await counts(items, "other", seen)


async def it_was_staged_for_too_long(apollo: Project, clock: ProjectClock, raw: Any) -> None:
    items = apollo._items
    seen = await staged(items, "n", piece(items, ("HSET", items.keys.names, "a", "1")))
    await raw.delete(items.keys.staging("n"))
    with pytest.raises(Conflict):
        await counts(items, "n", seen)
    assert not await raw.exists(items.keys.journal)


SCENES: list[Scene] = [
    each_write_is_made,
    nothing_else_comes_before_its_pieces,
    who_comes_late_with_a_piece_undoes_nothing,
    it_is_known_when_it_is_sent_again,
    it_is_cut_off_by_a_crash,
    it_is_refused_once_something_has_changed,
    it_was_staged_for_too_long,
]
