"""Apply a model's answer in one change: create new items and find existing ones, once per conversation."""

from __future__ import annotations

from redismem.project.extraction.answer import ExtractionAnswer
from redismem.project.items.indexes import words
from redismem.project.items.items import ItemChange, Items, StoredItem, require_present
from redismem.project.items.schema import DECISION, ENTITY, ItemKind
from redismem.project.items.versions import State
from redismem.project.queries import pages
from redismem.project.queries.query import Query
from redismem.text.normal_forms import fold_case

_MENTION_CHARS = 200


async def apply(items: Items, claimed: StoredItem, answer: ExtractionAnswer, read_seq: int) -> list[str]:
    """Apply the answer, and return the ids of items created, changed or mentioned.

    `read_seq` is the seq of the last message that the model was given; the conversation records it.

    Raises Conflict, ItemNotFound, InvalidItem, TooLarge.
    """
    change = await items.change()
    ids: list[str] = []
    mentioned: dict[str, str] = {}
    for kind, sets in answer.made:
        item_id = await _find_existing(items, kind, sets, change)
        if item_id is None:
            item_id = _create(change, kind, sets, claimed)
        elif kind is ENTITY and item_id not in dict(change.list_created(kind)):
            mentioned[item_id] = sets.get("description") or sets["name"]
        ids.append(item_id)
    for item_id in answer.references:
        if item_id.startswith("e-"):
            mentioned.setdefault(item_id, claimed.state["title"])
        ids.append(item_id)
    wanted = list(dict.fromkeys([*(item_id for item_id, _ in answer.updates), *mentioned]))
    stored = dict(zip(wanted, require_present(await items.read(wanted), wanted), strict=True))
    for item_id, sets in answer.updates:
        change.alter(stored[item_id], sets=sets, reason=f"said in {claimed.id}")
        ids.append(item_id)
    for item_id, text in mentioned.items():
        mention = [text[:_MENTION_CHARS], change.now_ms, claimed.id]
        change.alter(stored[item_id], adds={"mentions": [mention], "mention_count": 1})
    ids = list(dict.fromkeys(ids))
    extracted = list(dict.fromkeys([*claimed.state["extracted"], *ids]))
    sets = {"extraction": "done", "due_ms": None, "attempts": 0, "failing_ms": None, "read_seq": read_seq}
    change.alter(claimed, sets=sets | {"extracted": extracted})
    await change.commit()
    return ids


def _create(change: ItemChange, kind: ItemKind, sets: State, claimed: StoredItem) -> str:
    if kind is ENTITY:
        item_id = change.create(kind, sets, reason=f"said in {claimed.id}")
        change.name(fold_case(sets["name"]), "", item_id)
        return item_id
    status = "proposed" if kind is DECISION else "backlog"
    return change.create(kind, sets | {"status": status}, reason=f"said in {claimed.id}")


async def _find_existing(items: Items, kind: ItemKind, sets: State, change: ItemChange) -> str | None:
    """Return the entity with this name, or the open item with this title, that exists or that this change creates."""
    name = fold_case(sets["name"] if kind is ENTITY else sets["title"])
    for item_id, made in change.list_created(kind):
        if fold_case(made["name"] if kind is ENTITY else made["title"]) == name:
            return item_id
    if kind is ENTITY:
        holder = await items.run(items.calls.holder(name))
        (stored,) = await items.read([holder]) if holder else (None,)
        return None if stored is None or stored.state["deleted"] else stored.id
    for word in words(sets["title"])[:1]:
        # A concurrent writer of this title grows the index, so this change is refused and retried.
        (count,) = await items.run(items.calls.counts([items.keys.index(kind.letter, f"word:{word}")]))
        change.check_size(kind, f"word:{word}", count)
    query = Query.of(kind, {"text": sets["title"], "fields": ["title"]})
    found, _ = await pages.load_page(items, query, 100)
    return next((item_id for item_id, state in found if fold_case(state["title"]) == name), None)
