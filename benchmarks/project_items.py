"""The items of a measured project: equal in every run, with later changes to some of them."""

from __future__ import annotations

import random
from typing import Any

from redismem.project.items.fields import as_datetime
from redismem.project.items.items import ItemChange
from redismem.project.items.schema import DECISION, ENTITY, TASK, ItemKind
from redismem.project.project import Project

FULL = {"decisions": 10_000, "tasks": 50_000, "entities": 20_000}
KINDS: dict[str, ItemKind] = {"decisions": DECISION, "tasks": TASK, "entities": ENTITY}
RARE_COUNT = 10
BATCH_COUNT = 40
BEGIN_MS = 4_000_000_000_000
WORDS = [f"{letter}{number:02d}word" for letter in "abcdefghij" for number in range(40)]
STATUSES = ("backlog", "planned", "in_progress", "blocked", "completed", "cancelled")

FILLED = as_datetime(BEGIN_MS + 10**9)
"""A moment after all items are filled in, and before their changes."""
HALF: dict[str, Any] = {}
"""The moment at which half of the decisions exist."""
IDS: dict[str, str] = {}
"""An item of each store."""


def made(store: str, count: int) -> list[dict[str, Any]]:
    """Return the fields of the items for either side, equal in every run."""
    chance = random.Random(7)
    every = count // RARE_COUNT
    items = []
    for number in range(count):
        rare = number % every == 0
        words = [*chance.choices(WORDS, k=25), "even" if number % 2 else "odd", "three" if number % 3 == 0 else "x"]
        text = " ".join(words + ["needle"] * rare)
        tags = ["common", *["rare"] * rare]
        fields: dict[str, Any] = {"description": text, "tags": sorted(tags)}
        if store == "decisions":
            fields |= {"title": f"decision {number}", "status": "accepted", "rationale": " ".join(words[:8])}
        elif store == "tasks":
            status = STATUSES[chance.randrange(4)] if rare else chance.choice(STATUSES)
            fields |= {"title": f"task {number}", "status": status, "assignee": "Ada" if rare else f"p{number % 50}"}
            fields["priority"] = chance.choice(["low", "medium", "high"])
            fields["due_date"] = BEGIN_MS + (10 if rare else 10**7)
        else:
            fields |= {"name": f"entity {number}", "type": "person" if rare or number % 3 else "component"}
        items.append(fields)
    return items


async def fill(apollo: Project, divisor: int) -> int:
    """Fill the project, and return the number of its items."""
    total = 0
    for store, count in FULL.items():
        items = made(store, count // divisor)
        for begin in range(0, len(items), BATCH_COUNT):
            change = ItemChange(apollo._items, BEGIN_MS + total)
            statuses: dict[str, str] = {}
            for item in items[begin : begin + BATCH_COUNT]:
                begun = {"status": "in_progress"} if store == "tasks" else {}
                IDS[store] = change.create(KINDS[store], item | begun)
                statuses[IDS[store]] = item.get("status", "")
                total += 1
                change.now_ms += 1
            await change.commit()
            if store == "tasks":
                await lead(apollo, statuses, change.now_ms)
            if store == "decisions" and begin <= len(items) // 2:
                HALF["at"] = as_datetime(change.now_ms)
    await revise(apollo, divisor)
    return total


async def lead(apollo: Project, statuses: dict[str, str], now_ms: int) -> None:
    """Lead tasks, which begin in progress, to these statuses."""
    change = ItemChange(apollo._items, now_ms)
    for stored in await apollo._items.read([id for id, status in statuses.items() if status != "in_progress"]):
        assert stored is not None
        status = statuses[stored.id]
        change.alter(stored, sets={"status": status, "blocked_by": ["an answer"] if status == "blocked" else []})
    await change.commit()


async def revise(apollo: Project, divisor: int) -> None:
    """Change ten decisions and a tenth of the entities after FILLED."""
    for store, count in (("decisions", RARE_COUNT), ("entities", FULL["entities"] // divisor // 10)):
        index = apollo._items.keys.index(KINDS[store].letter, "all")
        ids = await apollo._items.run(apollo._items.calls.read_ranks(index, 0, count - 1))
        for begin in range(0, len(ids), BATCH_COUNT):
            change = ItemChange(apollo._items, BEGIN_MS + 2 * 10**9)
            for stored in await apollo._items.read(ids[begin : begin + BATCH_COUNT]):
                assert stored is not None
                change.alter(stored, sets={"description": "revised"})
            await change.commit()
