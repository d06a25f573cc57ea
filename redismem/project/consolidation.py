"""Archive obsolete items and merge duplicate entities. Valid items are never touched."""

from __future__ import annotations

import unicodedata
from collections import defaultdict
from dataclasses import dataclass

from redismem.errors import Conflict, InvalidItem, ItemNotFound, TooLarge
from redismem.project.items.items import Items, require_present
from redismem.project.items.schema import DECISION, ENTITY, TASK, ItemKind
from redismem.project.items.versions import State
from redismem.project.kinds.merging import merge
from redismem.project.queries import pages
from redismem.project.queries.query import Query

_DAY_MS = 86_400_000
_OVER: tuple[tuple[ItemKind, str], ...] = ((DECISION, "superseded"), (TASK, "cancelled"))


@dataclass(frozen=True, slots=True)
class Consolidation:
    """The result of a consolidation, or of a dry run."""

    dry_run: bool
    archived: tuple[str, ...]
    """ids of decisions and tasks"""
    merged: tuple[tuple[str, str], ...]
    """ids of entities: the surviving entity, and the one merged into it"""
    skipped: tuple[str, ...]
    """ids of items left for the next run, since another writer was changing them, and of entities too large to merge"""


async def consolidate(items: Items, older_than_days: float, dry_run: bool) -> Consolidation:
    """See `Project.consolidate`."""
    if not isinstance(older_than_days, int | float) or not 0 <= older_than_days < 1_000_000:
        raise InvalidItem("older_than_days must be a number of days, 0 or more")
    before_ms = await items.now_ms() - int(older_than_days * _DAY_MS)
    archived, merged, skipped = [], [], []
    for kind, status in _OVER:
        for item_id, state in [pair async for pair in pages.load_all(items, Query(kind, statuses=(status,)))]:
            if state["valid_until"] is None or state["valid_until"] > before_ms:
                continue
            if dry_run or await _archive(items, item_id, status):
                archived.append(item_id)
            else:
                skipped.append(item_id)
    for primary_id, duplicate_id in _find_duplicates([pair async for pair in pages.load_all(items, Query(ENTITY))]):
        if dry_run or await _merge(items, primary_id, duplicate_id):
            merged.append((primary_id, duplicate_id))
        else:
            skipped.append(duplicate_id)
    return Consolidation(dry_run, tuple(archived), tuple(merged), tuple(skipped))


async def _archive(items: Items, item_id: str, status: str) -> bool:
    try:
        stored = await items.get(item_id)
        if stored.state["status"] != status:
            return False
        change = await items.change()
        change.alter(stored, sets={"archived": True}, reason="consolidation")
        await change.commit()
    except (Conflict, ItemNotFound):
        return False
    return True


async def _merge(items: Items, primary_id: str, duplicate_id: str) -> bool:
    ids = [primary_id, duplicate_id]
    try:
        await merge(items, *require_present(await items.read(ids), ids))
    except (Conflict, InvalidItem, ItemNotFound, TooLarge):
        return False
    return True


def _find_duplicates(entities: list[tuple[str, State]]) -> list[tuple[str, str]]:
    """Pair entities of one type whose names differ only in case or punctuation. The one created first survives."""
    groups: dict[tuple[str, str], list[tuple[int, str]]] = defaultdict(list)
    for item_id, state in entities:
        name = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", state["name"]).casefold())
        letters = "".join(letter for letter in name if letter.isalnum())
        if letters:
            groups[state["type"], letters].append((state["created_ms"], item_id))
    pairs = []
    for group in groups.values():
        (_, first), *others = sorted(group)
        pairs += [(first, other) for _, other in others]
    return pairs
