"""The stored keys of a project, and the indexes of each kind of items, are those of lua/README.md."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from support.clock import ProjectClock

from redismem import Memory

README = (Path(__file__).parents[2] / "lua" / "README.md").read_text()

KEY = "key of a project"


def table_rows(first: str) -> list[list[str]]:
    (found,) = re.findall(rf"^\| {first} \|.*\n\|[-|]+\n((?:\|.*\n)+)", README, re.MULTILINE)
    return [[cell.strip().strip("`") for cell in row.strip("|").split(" | ")] for row in found.splitlines()]


async def create_every_kind(memory: Memory, clock: ProjectClock) -> None:
    """Create items of every kind, so that every index has an entry."""
    apollo = clock.set_in(memory).project("apollo")
    decision = await apollo.decisions.create(title="a", tags=["x"])
    await apollo.decisions.accept(decision.id)
    due = clock.now
    first = await apollo.tasks.create(title="a", tags=["x"], assignee="Ada", due_date=due)
    second = await apollo.tasks.create(title="b", dependencies=[first.id])
    await apollo.tasks.block(second.id, first.id)
    ada = await apollo.entities.create("Ada", "person", tags=["x"])
    await apollo.entities.merge(ada.id, (await apollo.entities.create("A.", "person")).id)


async def test_the_readme_lists_exactly_the_stored_keys_and_indexes(raw: Any, memory: Memory, namespace: str) -> None:
    await create_every_kind(memory, ProjectClock())
    tag = f"rm:{{{namespace}:@apollo}}:"
    names = {key.decode().removeprefix(tag) async for key in raw.scan_iter(f"{tag}*")}
    indexes: dict[str, set[str]] = {}
    others = set()
    for name in names:
        found = re.fullmatch(r"([cdet]):([a-z]+)(:.*)?", name)
        if found:
            indexes.setdefault(found[2] + (":" if found[3] else ""), set()).add(found[1])
        else:
            others.add(re.sub(":.*", ":<item>", name))
    rows = {re.sub("<.*", "", name): set(letters) for name, letters, _ in table_rows("index of a project")}
    assert indexes.keys() <= rows.keys()
    for name, letters in indexes.items():
        assert letters <= rows[name], name
    # No conversation or archived item is created here.
    unseen = {name for name in rows if name not in indexes}
    others |= {"staged:<nonce>", "journal"}  # exist only during an import
    assert unseen <= {"archived"}
    keys = {row[0].replace("ns:@apollo", f"{namespace}:@apollo").removeprefix(tag) for row in table_rows(KEY)}
    assert others | {"<letter>:<index>", "rm:{ns}:projects"} == keys


async def test_the_readme_has_the_type_of_each_key(raw: Any, memory: Memory, namespace: str) -> None:
    await create_every_kind(memory, ProjectClock())
    tag = f"rm:{{{namespace}:@apollo}}:"
    types = {
        key.replace("ns:@apollo", f"{namespace}:@apollo").removeprefix(tag): kind for key, kind, _ in table_rows(KEY)
    }
    async for key in raw.scan_iter(f"{tag}*"):
        name = key.decode().removeprefix(tag)
        told_as = name if name in types else "versions:<item>" if name.startswith("versions:") else "<letter>:<index>"
        assert (await raw.type(key)).decode() == types[told_as], name
