"""Forget what the projects of a namespace know of one person, as far as an owner or a session leads to it.

The record of a conversation goes with the session of its messages, and a person's entity by its name. Texts of other
items are not searched: an item belongs to its project, whoever said so.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from redismem.project.items.erasing import erase_one
from redismem.project.items.items import Items
from redismem.project.items.schema import CONVERSATION, TASK
from redismem.protocol.project.calls import EARLIEST, LATEST, projects
from redismem.protocol.project.keys import ProjectKeys
from redismem.store.store import Store
from redismem.text.normal_forms import fold_case

_CONVERSATION = re.compile(r"project:([A-Za-z0-9][A-Za-z0-9._-]{0,63}):(c-[0-9a-z-]+)")
_PAGE_COUNT = 500


class ProjectErasure:
    """One run: `count` is the number of erased items, and `left` names the items that tell of the person and stay."""

    def __init__(self, store: Store, owner: str | None) -> None:
        self._store = store
        self._owner = owner
        self.count = 0
        self.left: set[str] = set()
        """Each as `<project>/<id>`."""
        self.has_projects = False

    async def remove_conversation(self, session_id: str) -> None:
        """Erase the record of the conversation whose messages are in this session; call it before they are removed.

        Without the session, nothing tells any more whose the record is.

        Raises:
            Conflict: Other writers keep interfering.
            StoreUnavailable: Redis does not answer.
        """
        match = _CONVERSATION.fullmatch(session_id)
        if match is None:
            return
        items = self._items(match[1])
        (stored,) = await items.read([match[2]])
        if stored is None or stored.kind is not CONVERSATION:
            return
        await self._leave(items, stored.state["extracted"])
        self.count += await erase_one(items, stored.id)

    async def remove_named(self) -> None:
        """Erase the entity of the person in each project, and note the tasks that are assigned to them.

        Raises:
            Conflict: Other writers keep interfering.
            StoreUnavailable: Redis does not answer.
        """
        names = await self._store.run(projects(self._store.keys))
        self.has_projects = bool(names)
        for name in names if self._owner is not None else ():
            items = self._items(name)
            await self._remove_entity(items, self._owner or "")
            await self._note_tasks(items, self._owner or "")

    async def _remove_entity(self, items: Items, owner: str) -> None:
        holder = await items.run(items.calls.holder(fold_case(owner)))
        (stored,) = await items.read([holder]) if holder else (None,)
        if stored is None or owner not in (stored.state["name"], *stored.state["aliases"]):
            return  # a name of another person may differ in capitals alone
        if stored.state["type"] == "person":
            self.count += await erase_one(items, stored.id)
        else:
            self.left.add(f"{items.keys.name}/{stored.id}")

    async def _note_tasks(self, items: Items, owner: str) -> None:
        index, read_count = items.keys.index(TASK.letter, f"assignee:{fold_case(owner)}"), 0
        while page := await items.run(items.calls.members(index, EARLIEST, LATEST, read_count, _PAGE_COUNT)):
            read_count += len(page)
            found = [stored for stored in await items.read(page) if stored is not None]
            self.left |= {f"{items.keys.name}/{each.id}" for each in found if each.state["assignee"] == owner}

    async def _leave(self, items: Items, item_ids: Sequence[str]) -> None:
        """Note the items that were made from a conversation, as far as they exist."""
        for at in range(0, len(item_ids), _PAGE_COUNT):
            read = await items.read(item_ids[at : at + _PAGE_COUNT])
            self.left |= {f"{items.keys.name}/{stored.id}" for stored in read if stored is not None}

    def _items(self, project: str) -> Items:
        return Items(self._store, ProjectKeys(self._store.keys, project))
