"""Conversations of a project: the newest 100 records, each with its messages in a session."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Unpack

from redismem.context.results import Receipt
from redismem.errors import Conflict, InvalidItem
from redismem.messages.message import Message
from redismem.project.items import fields
from redismem.project.items.erasing import erase
from redismem.project.items.indexes import ALL
from redismem.project.items.items import Items
from redismem.project.items.records import Conversation, Page
from redismem.project.items.schema import CONVERSATION, kind_of
from redismem.project.items.versions import State
from redismem.project.kinds.collection import Collection
from redismem.project.queries.query import Criteria
from redismem.protocol.project.calls import EARLIEST, LATEST
from redismem.session.session import Session

KEPT_LIMIT = 100


class ConversationQuery(Criteria, total=False):
    """The arguments of `list` and `count`; `at` and `known_at` select an earlier moment."""

    at: datetime
    known_at: datetime


class Conversations(Collection[Conversation]):
    """The conversations of a project, newest first.

    The messages of a conversation expire like the messages of any session: after `idle_timeout_s`, or when
    `max_sessions` other sessions are more recent. `session(id).exists()` is True as long as they exist. The record
    stays.
    """

    kind = CONVERSATION
    record = Conversation

    def __init__(self, items: Items, sessions: Callable[..., Session]) -> None:
        """Called by `Memory.project`."""
        super().__init__(items)
        self._sessions = sessions

    async def start(self, title: str = "", *, tags: Sequence[str] = ()) -> Conversation:
        """Start a conversation. The project keeps the newest 100; older ones are erased with their messages.

        Raises InvalidItem, TooLarge.
        """
        change = await self._items.change()
        created = change.create(self.kind, self.kind.check_fields({"title": title, "tags": tags}))
        conversation = self._to_record(await change.commit(), created)
        index = self._items.keys.index(self.kind.letter, ALL)
        (count,) = await self._items.run(self._items.calls.counts([index]))
        if count > KEPT_LIMIT:
            oldest = await self._items.run(self._items.calls.members(index, EARLIEST, LATEST, 0, count - KEPT_LIMIT))
            await self._forget(oldest)
        return conversation

    def session_id(self, id: str) -> str:
        """Return the id of the session that holds the messages. Raises InvalidItem."""
        return f"project:{self._items.keys.name}:{self._id(id)}"

    def session(self, id: str, *, owner: str | None = None) -> Session:
        """Return the session that holds the messages, without I/O.

        `owner` is the person whom the session belongs to, if this handle creates it: see `Memory.session`.

        Raises InvalidItem; InvalidSessionId for an invalid owner.
        """
        return self._sessions(self.session_id(id), owner=owner)

    async def add(self, id: str, *messages: Message | dict[str, Any], owner: str | None = None) -> Receipt:
        """Append messages to a conversation. If its session has expired, a new session begins.

        `owner` is the person whom the session belongs to, if these are its first messages. `Memory.forget(owner=…)`
        removes the session and the record of the conversation.

        Raises the errors of `Session.append`; InvalidSessionId for an invalid owner; ItemNotFound; InvalidItem if the
        conversation has ended.
        """
        stored = await self._items.get(self._id(id))
        if stored.state["ended_at"] is not None:
            raise InvalidItem(f"conversation {id} has ended")
        receipt = await self.session(id, owner=owner).append(*messages)
        if receipt.created and stored.state["read_seq"]:
            await self._reset_read_seq(id)
        return receipt

    async def _reset_read_seq(self, id: str) -> None:
        """Mark all messages as unread, because the seqs of the new session start at 1."""
        while (stored := await self._items.get(id)).state["read_seq"]:
            change = await self._items.change()
            change.alter(stored, sets={"read_seq": 0})
            with contextlib.suppress(Conflict):
                await change.commit()

    async def end(
        self,
        id: str,
        summary: str = "",
        extracted: Sequence[str] = (),
        *,
        extract: bool = False,
        expect: int | None = None,
    ) -> Conversation:
        """End a conversation, and record its summary. The given ids of items are added to the recorded ones.

        `extract` queues the conversation for extraction, by workers with a model or by `Project.extract_due`.

        Raises ItemNotFound, InvalidItem if it has already ended, TooLarge, Conflict.
        """
        stored, _ = await self._open(id, expect, None)
        if stored.state["ended_at"] is not None:
            raise InvalidItem(f"conversation {id} has ended")
        for item_id in extracted:
            kind_of(item_id)
        change = await self._items.change()
        session = self.session(id)
        info = await session.info() if await session.exists() else None
        count, last_seq = (0, 0) if info is None else (info.total_messages, info.last_seq)
        ended_ms = change.moment(stored, None)
        came_of_it = list(dict.fromkeys([*stored.state["extracted"], *extracted]))
        sets: State = {"summary": fields.text(summary, "summary"), "extracted": came_of_it}
        sets |= {"ended_at": ended_ms, "valid_until": ended_ms, "message_count": count}
        # Read again if messages were added since the last extraction.
        if extract and (stored.state["extraction"] is None or last_seq > stored.state["read_seq"]):
            sets |= {"extraction": "due", "due_ms": change.now_ms, "attempts": 0}
        change.alter(stored, sets=sets)
        return self._to_record(await change.commit(), id)

    async def recent(self, *, limit: int = 10, cursor: str | None = None) -> Page[Conversation]:
        """Return the newest conversations."""
        return await self._list({}, limit, cursor)

    async def list(
        self, *, limit: int = 100, cursor: str | None = None, **criteria: Unpack[ConversationQuery]
    ) -> Page[Conversation]:
        """Return matching conversations, newest first. Raises InvalidItem."""
        return await self._list(criteria, limit, cursor)

    async def count(self, **criteria: Unpack[ConversationQuery]) -> int:
        """Count the matching conversations. Reads each of them."""
        return await self._count(criteria)

    async def delete(self, id: str, *, expect: int | None = None, at: datetime | None = None) -> None:
        """Delete the record as any item, and the messages permanently. Raises ItemNotFound, Conflict."""
        await super().delete(id, expect=expect, at=at)
        await self.session(id).clear()

    async def erase(self, id: str) -> bool:
        """Erase a conversation permanently: its messages, then its record. Returns False if there is no record.

        Items that were extracted from it stay.
        """
        await self.session(id).clear()
        return await super().erase(id)

    async def clear(self) -> int:
        """Erase all conversations with their messages, and return how many there were."""
        index, count = self._items.keys.index(self.kind.letter, "history"), 0
        oldest = self._items.calls.members(index, EARLIEST, LATEST, 0, KEPT_LIMIT)
        while item_ids := await self._items.run(oldest):
            await self._forget(item_ids)
            count += len(item_ids)
        return count

    async def _forget(self, item_ids: Sequence[str]) -> None:
        """Erase conversations, messages before records, so that a run that crashes can be repeated."""
        for item_id in item_ids:
            await self.session(item_id).clear()
            await erase(self._items, [item_id])
