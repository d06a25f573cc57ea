"""The graph of task dependencies."""

from __future__ import annotations

from collections.abc import Sequence

from redismem.project.items.items import Items, StoredItem, require_present


async def load_reachable(items: Items, task_ids: Sequence[str]) -> list[StoredItem]:
    """Load these tasks and all direct and indirect dependencies, in one round trip per level. Raises ItemNotFound."""
    found = {stored.id: stored for stored in require_present(await items.read(task_ids), task_ids)}
    level = list(found.values())
    while level:
        missing = {other for stored in level for other in stored.state["dependencies"]} - found.keys()
        read = await items.read(sorted(missing))
        level = [stored for stored in read if stored is not None and not stored.state["deleted"]]
        found |= {stored.id: stored for stored in level}
    return list(found.values())
