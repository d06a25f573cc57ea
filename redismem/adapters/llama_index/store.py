"""`ChatStore`: the chat store behind the `Memory` of LlamaIndex."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, Self
from weakref import WeakKeyDictionary, WeakValueDictionary

from llama_index.core.base.llms.types import ChatMessage, MessageRole
from llama_index.core.bridge.pydantic import Field, PrivateAttr
from llama_index.core.storage.chat_store.base_db import AsyncDBChatStore, MessageStatus

from redismem import Conflict, Context, InvalidSettings, Memory, Message, Session, SessionNotFound
from redismem.adapters.llama_index.messages import decode, decode_for_model, encode, is_marked
from redismem.adapters.sessions import (
    Sessions,
    in_order,
    make_policy,
    read_or_begin,
    refuse_unseen,
    split_id,
    summary_text,
)
from redismem.record.pages import all_listed

_ALL_COUNT = 1 << 40
_PAGE_COUNT = 10_000
_INFOS_COUNT = 64
"""The sessions that `get_keys` asks about at a time."""


class _Row(NamedTuple):
    message: Message
    status: MessageStatus


class ChatStore(AsyncDBChatStore):
    """A chat store for `llama_index.core.memory.Memory`, in place of `SQLAlchemyChatStore`.

    >>> memory = Memory.from_defaults(session_id="user-42", chat_store=ChatStore("redis://127.0.0.1:6379/0"))

    Each key is one session of redismem, and the row id of a message is its seq. A change is made whole or not at all,
    and once, even if a reply is lost. Any number of processes may share a key.

    Every method may raise StoreUnavailable, and InvalidSessionId if the key cannot be a session id.
    """

    key_prefix: str = Field(default="llama_index", description="The beginning of the session ids")
    summarise: bool = Field(default=False, description="True: older messages become a summary")

    _sessions: Sessions = PrivateAttr()
    _turns: WeakKeyDictionary[asyncio.AbstractEventLoop, WeakValueDictionary[str, asyncio.Lock]] = PrivateAttr(
        default_factory=WeakKeyDictionary
    )

    def __init__(
        self,
        url: str | None = None,
        *,
        memory: Memory | None = None,
        redis_client: Any = None,
        key_prefix: str = "llama_index",
        ttl: float | None = None,
        summarise: bool = False,
        owner: str | Callable[[str], str | None] | None = None,
        zone: str | None = None,
    ) -> None:
        """Make a store. It connects on first use.

        Args:
            url: The URL of Redis. `None` means `REDISMEM_URL`.
            memory: A memory to use instead of a URL. The caller closes it.
            redis_client: A redis.asyncio client to use instead of a URL. The caller closes it.
            key_prefix: The key `42` is the session `<key_prefix>:42` of redismem.
            ttl: The seconds without activity after which Redis removes a key. `None` keeps it for ten years.
            summarise: False keeps every message readable. True lets workers summarise the older messages of sessions
                that this store begins: the summary is then the first active message, and what it covers is archived. A
                `Memory` with memory blocks is then refused.
            owner: The person whom the keys that this store begins belong to, so that `memory.forget(owner=...)` removes
                them. If a store serves several persons: a function that returns the owner of a key, or `None`.
            zone: The time zone of the days in summaries, an IANA name such as "Europe/Zurich"; `None` means UTC.

        Raises:
            InvalidSessionId: `key_prefix` cannot begin a session id, or the owner is invalid.
            InvalidSettings: URL, memory, client, ttl or zone is invalid, or more than one of the first three is given;
                or the memory does not keep originals, which are the archived messages.
        """
        super().__init__(key_prefix=key_prefix, summarise=summarise)
        self._sessions = Sessions(url, memory, redis_client, key_prefix, make_policy(ttl, summarise, zone), owner)
        if not self._sessions.memory.settings.keep_originals:
            self._sessions.close()
            raise InvalidSettings("archived messages are originals: keep_originals must not be false")

    @classmethod
    def class_name(cls) -> str:
        """Return the name of the class in what LlamaIndex serialises."""
        return "RedismemChatStore"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connection, unless another store uses it. A memory or a client of the caller stays open."""
        await self._sessions.aclose()

    async def get_messages(
        self,
        key: str,
        status: MessageStatus | None = MessageStatus.ACTIVE,
        limit: int | None = None,
        offset: int | None = None,
    ) -> list[ChatMessage]:
        """Return the messages of a key, oldest first. An unknown key has none.

        Among the active ones, a tool call without a result and a result without a call are quoted.

        Args:
            key: The key.
            status: The status of the messages; `None` means all.
            limit: The number of messages; `None` means all.
            offset: The number of messages to leave out at the beginning.

        Raises:
            InvalidMessage: The session has a message that is not from LlamaIndex.
            InvalidSettings: A `Memory` with memory blocks asks a store with `summarise`.
            ValueError: `limit` or `offset` is negative.
        """
        _check_counts(limit=limit, offset=offset)
        self._refuse_memory_blocks()
        session = self._sessions.open(key)
        if status is MessageStatus.ACTIVE:
            context, active = await self._read_active(session)
            messages = [*_summarise(context), *await decode_for_model(session, active)]
        else:
            rows = await self._read_rows(session)
            messages = await decode(session, [row.message for row in rows if status in (None, row.status)])
        return messages if limit is None and not offset else messages[offset or 0 :][:limit]

    async def count_messages(self, key: str, status: MessageStatus | None = MessageStatus.ACTIVE) -> int:
        """Return the number of messages that `get_messages` would return."""
        session = self._sessions.open(key)
        if status is MessageStatus.ACTIVE:
            context, active = await self._read_active(session)
            return len(active) + bool(context.summaries)
        return sum(status in (None, row.status) for row in await self._read_rows(session))

    def _refuse_memory_blocks(self) -> None:
        """Refuse a `Memory` with memory blocks if workers summarise: each would miss what the other has taken.

        A `Memory` does not tell its store of its blocks, so they are looked for among the callers.

        Raises:
            InvalidSettings: The caller has memory blocks.
        """
        memory = sys.modules.get("llama_index.core.memory.memory") if self.summarise else None
        frame = None if memory is None else sys._getframe(1)
        while frame is not None:
            if frame.f_globals is vars(memory) and getattr(frame.f_locals.get("self"), "memory_blocks", None):
                raise InvalidSettings(
                    "summarise=True and memory blocks cannot go together, since both take the oldest messages: "
                    "leave out summarise=True, or the memory_blocks"
                )
            frame = frame.f_back

    async def add_message(self, key: str, message: ChatMessage, status: MessageStatus = MessageStatus.ACTIVE) -> None:
        """Add a message. Raises as `add_messages` does."""
        await self.add_messages(key, [message], status)

    async def add_messages(
        self, key: str, messages: Sequence[ChatMessage], status: MessageStatus = MessageStatus.ACTIVE
    ) -> None:
        """Add messages, all or none.

        Raises:
            InvalidMessage: A message has a value that JSON cannot hold.
            InvalidSettings: A `Memory` with memory blocks adds to a store with `summarise`.
            TooLarge: A message, the number of messages or the session exceeds its limit.
        """
        self._refuse_memory_blocks()
        if messages:
            await self._sessions.open(key).append(
                *(encode(message, status, is_read=self.summarise) for message in messages)
            )

    async def set_messages(
        self, key: str, messages: Sequence[ChatMessage], status: MessageStatus = MessageStatus.ACTIVE
    ) -> None:
        """Replace all messages of a key, active and archived, by these, in one step. Raises as `add_messages` does."""
        self._refuse_memory_blocks()
        session = self._sessions.open(key)
        if not messages:
            await session.clear()
            return
        new = [encode(message, status, is_read=self.summarise) for message in messages]
        while True:
            try:
                await session.rewrite(1, new)
                return
            except SessionNotFound:
                pass
            try:
                await session.append(*new, expect=0)
                return
            except Conflict:  # begun meanwhile
                pass

    async def delete_message(self, key: str, idx: int) -> ChatMessage | None:
        """Remove the message with this row id, which is the seq of `redismem.Message`, and return it; or `None`."""
        session = self._sessions.open(key)
        rows = await self._read_rows(session)
        messages = [row.message for row in rows if row.message.seq == idx]
        forgotten = await self._forget(session, messages)
        return (await decode(session, forgotten))[0] if forgotten else None

    async def delete_messages(self, key: str, status: MessageStatus | None = None) -> None:
        """Remove the messages with this status; `None` removes the whole session."""
        session = self._sessions.open(key)
        rows = [] if status is None else await self._read_rows(session)
        wanted = [row.message for row in rows if row.status is status]
        if status is MessageStatus.ARCHIVED or len(wanted) < len(rows):
            await self._forget(session, wanted)
        else:
            await session.clear()

    async def delete_oldest_messages(self, key: str, n: int) -> list[ChatMessage]:
        """Remove the oldest `n` active messages, and return those that this call removed.

        A summary counts as a message, but stays.

        Raises:
            ValueError: `n` is negative.
        """
        _check_counts(n=n)
        session = self._sessions.open(key)
        context, active = await self._read_active(session)
        return await decode(session, await self._forget(session, active[: max(0, n - bool(context.summaries))]))

    async def archive_oldest_messages(self, key: str, n: int) -> list[ChatMessage]:
        """Archive the oldest `n` active messages, in one step, and return those that this call archived.

        Among messages that were added as archived it may take several steps. With `summarise`, summaries and system
        messages count, but stay active.

        Raises:
            ValueError: `n` is negative.
        """
        _check_counts(n=n)
        session = self._sessions.open(key)
        if self.summarise:
            context, active = await self._read_active(session)
            n = sum(not each.pinned for each in active[: max(0, n - bool(context.summaries))])
        archived: list[Message] = []
        async with self._turn(key):
            with contextlib.suppress(SessionNotFound):
                while len(archived) < n and (moved := await session.archive(n - len(archived))):
                    archived += [each for each in moved if not is_marked(each)]
        return await decode(session, archived)

    def _turn(self, key: str) -> asyncio.Lock:
        """Return the lock that lets tasks of this loop archive a key in turn: of many at once, one would succeed."""
        turns = self._turns.setdefault(asyncio.get_running_loop(), WeakValueDictionary())
        return turns.setdefault(key, asyncio.Lock())

    async def get_keys(self) -> list[str]:
        """Return the keys that have messages, most recently used first."""
        keys: list[str] = []
        async for page in all_listed(partial(self._sessions.memory.sessions, _PAGE_COUNT, include_idle=True)):
            found = (split_id(self.key_prefix, entry.session_id) for entry in page.sessions)
            its_own = [key for key in found if key is not None]
            for at in range(0, len(its_own), _INFOS_COUNT):
                part = its_own[at : at + _INFOS_COUNT]
                counts = await asyncio.gather(*map(self._total, part))
                keys += [key for key, count in zip(part, counts, strict=True) if count]
        return keys

    async def _total(self, key: str) -> int:
        try:
            return (await self._sessions.open(key).info()).total_messages
        except SessionNotFound:
            return 0

    async def _read_active(self, session: Session) -> tuple[Context, list[Message]]:
        """Return the active messages, oldest first, and the context that they are from."""
        context = await read_or_begin(session, partial(session.read, renew=self._sessions.renew))
        messages = in_order(context)
        if not messages:
            await refuse_unseen(session, context)
        return context, [each for each in messages if not is_marked(each)]

    async def _read_rows(self, session: Session) -> list[_Row]:
        """Return all messages with their status, oldest first. Those that have left the window are archived."""
        context, messages = await self._read_active(session)
        active, messages = {each.seq for each in messages}, in_order(context)
        if context.first_seq > 1 and not context.degraded:
            messages = await session.tail(_ALL_COUNT)
            new = [each for each in messages if each.seq > context.last_seq]
            active.update(each.seq for each in new if not is_marked(each))
        return [_Row(each, MessageStatus.ACTIVE if each.seq in active else MessageStatus.ARCHIVED) for each in messages]

    async def _forget(self, session: Session, messages: Sequence[Message]) -> list[Message]:
        """Remove messages, and return those that this call removed."""
        most, forgotten = self._sessions.memory.settings.max_batch_count, set[int]()
        for at in range(0, len(messages), most):
            try:
                forgotten.update((await session.forget(*(each.seq for each in messages[at : at + most]))).seqs)
            except SessionNotFound:
                break
        return [message for message in messages if message.seq in forgotten]


def _summarise(context: Context) -> list[ChatMessage]:
    """Return the summaries of a context as one message; none without summaries."""
    return [ChatMessage(role=MessageRole.USER, content=summary_text(context))] if context.summaries else []


def _check_counts(**counts: int | None) -> None:
    for name, count in counts.items():
        if count is not None and (type(count) is not int or count < 0):
            raise ValueError(f"{name} must be an integer, 0 or more")
