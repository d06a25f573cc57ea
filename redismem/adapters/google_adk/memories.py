"""`MemoryService` finds what a user said in any session of an app, by recall over all conversations of an owner."""

from __future__ import annotations

import asyncio
import contextlib
import json
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence, Set
from datetime import UTC, datetime
from functools import partial
from typing import Any

from google.adk.events.event import Event
from google.adk.memory.base_memory_service import BaseMemoryService, SearchMemoryResponse
from google.adk.memory.memory_entry import MemoryEntry
from google.adk.sessions.session import Session as AdkSession
from google.genai import types

from redismem import Conflict, Memory, Message, NotInWindow, Session, SessionNotFound
from redismem.adapters.sessions import Closes, Opened, check_prefix, in_order, make_policy, quote_part, read_or_begin
from redismem.record.pages import all_listed
from redismem.text.stems import stems

_BATCH_COUNT = 500
_PAGE_COUNT = 100
_HITS_COUNT = 64
"""The hits that a search ranks: the most that recall returns."""
_TOGETHER_COUNT = 16
"""The sessions that are read at once."""
_DELETED = {"deleted": True}


class MemoryService(Closes, BaseMemoryService):
    """A memory service for Google ADK, in place of `InMemoryMemoryService`.

    >>> memory = MemoryService("redis://127.0.0.1:6379/0")
    >>> runner = Runner(app_name="shop", agent=agent, session_service=service, memory_service=memory)

    The events of each of ADK's sessions are the messages of a session of redismem whose owner is the user. A search is
    recall over all conversations of this owner, without those of other apps. What one process adds, each finds at once.

    Every method may raise StoreUnavailable, and InvalidSessionId if the user's id is not 1 to 256 bytes, or if app,
    user and session together have more than about 240 bytes.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        memory: Memory | None = None,
        redis_client: Any = None,
        key_prefix: str = "adk_memory",
        ttl: float | None = None,
        limit: int = 10,
    ) -> None:
        """Make a service. It connects on first use.

        Args:
            url: The URL of Redis. `None` means `REDISMEM_URL`.
            memory: A memory to use instead of a URL. The caller closes it.
            redis_client: A redis.asyncio client to use instead of a URL. The caller closes it.
            key_prefix: The beginning of the ids of all sessions: `<key_prefix>:<app>/<user>/<session>`.
            ttl: The seconds after its last addition after which Redis removes the memories of a session. `None` keeps
                them for ten years.
            limit: The most memories that a search returns.

        Raises:
            InvalidSessionId: `key_prefix` cannot begin a session id.
            InvalidSettings: URL, memory, client or ttl is invalid, or more than one of the first three is given.
            ValueError: `limit` is not a positive integer.
        """
        check_prefix(key_prefix)
        if type(limit) is not int or limit < 1:
            raise ValueError("limit must be an integer, 1 or more")
        self._prefix, self._limit = f"{key_prefix}:" if key_prefix else "", limit
        self._policy = make_policy(ttl, summarise=False)
        self._opened = Opened(url, memory, redis_client)
        try:
            self._open("x", "x", "x")  # refuses prefix and ttl at the start of the program, not in its first turn
        except BaseException:
            self._opened.close()
            raise

    async def add_session_to_memory(self, session: AdkSession) -> None:
        """Store the events of a session that have text, in place of those stored for it earlier.

        An event that was deleted from the memory stays deleted. If the session has only grown, its new events alone are
        written.

        Raises:
            TooLarge: An event, or the session with more than 10,000 events, exceeds its limit.
        """
        stored = self._open(session.app_name, session.user_id, session.id)
        given = [message for event in session.events if (message := _encode_event(event)) is not None]
        while True:
            context = await read_or_begin(stored, stored.read)
            old = in_order(context)
            new = _keep_deleted(old, given)
            same = sum(1 for _ in _same_beginning(old, new))
            batch = new[same : same + _BATCH_COUNT]
            if len(old) == same == len(new):
                return
            try:
                if len(old) == same:
                    await stored.append(*batch, expect=context)
                else:
                    await stored.rewrite(old[same].seq, batch, expect=context)
            except Conflict:  # another process was faster
                continue

    async def add_events_to_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        events: Sequence[Event],
        session_id: str | None = None,
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        """Store events that have text behind those stored earlier. Those whose id the session has or had are left out.

        Args:
            app_name: The name of the app.
            user_id: The id of the user.
            events: The events.
            session_id: The session that they belong to; `None` means none.
            custom_metadata: Not stored.

        Raises:
            TooLarge: An event, or the session with more than 10,000 events, exceeds its limit.
        """
        del custom_metadata
        messages = [message for event in events if (message := _encode_event(event)) is not None]
        await self._add(self._open(app_name, user_id, session_id or ""), messages)

    async def add_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        memories: Sequence[MemoryEntry],
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        """Store memories that belong to no session, with their own metadata. One without an id gets one.

        Args:
            app_name: The name of the app.
            user_id: The id of the user.
            memories: The memories. Those without text, or with the id of an earlier one, are left out.
            custom_metadata: Not stored.

        Raises:
            InvalidMessage: The metadata of a memory cannot be written as JSON.
            TooLarge: A memory, or more than 10,000 of them, exceed their limit.
        """
        del custom_metadata
        messages = [message for entry in memories if (message := _encode_entry(entry)) is not None]
        await self._add(self._open(app_name, user_id, ""), messages)

    async def search_memory(self, *, app_name: str, user_id: str, query: str) -> SearchMemoryResponse:
        """Return the memories of a user in an app that match a query best, those that share most of its words first.

        Words match in any form of them: "hinges" finds "hinge". A query that names a day finds what was said on it.
        """
        beginning = self._id(app_name, user_id, "")
        asking = self._opened.memory.session(self._id(app_name, user_id), owner=user_id)  # it is never begun
        found = await asking.recall(query, max(self._limit, _HITS_COUNT), scope="owner")
        own = [each for each in found if (each.session_id or "").startswith(beginning)]
        words = set(stems(query))
        best = _rank(_count(words, own))
        if len(best) < self._limit and len(own) < len(found):  # what else the user said may have come before it
            best = await self._search_all(app_name, user_id, words)
        # Recall adds messages beside its hits, which share no word. Hits by a day may share none either.
        return SearchMemoryResponse(memories=[_decode(each) for each in (best or own)[: self._limit]])

    async def _search_all(self, app_name: str, user_id: str, words: Set[str]) -> list[Message]:
        """Return all memories of a user in an app that share words with a query, best first. Reads a few at a time."""
        sessions = [session async for session in self._sessions(app_name, user_id)]
        counted: list[tuple[int, Message]] = []
        for at in range(0, len(sessions), _TOGETHER_COUNT):
            for context in await asyncio.gather(*(session.read() for session in sessions[at : at + _TOGETHER_COUNT])):
                counted += _count(words, in_order(context))
                await asyncio.sleep(0)
        return _rank(counted)

    async def delete_memory(self, *, app_name: str, user_id: str, memory_id: str | None = None) -> None:
        """Remove a memory for good: it stays removed if its session is added again. Reads all memories of the user.

        Args:
            app_name: The name of the app.
            user_id: The id of the user.
            memory_id: The id of an event or a memory. `None` removes nothing.
        """
        if memory_id:
            async for session in self._sessions(app_name, user_id):
                await _delete(session, memory_id)

    async def _sessions(self, app_name: str, user_id: str) -> AsyncIterator[Session]:
        """Yield the sessions with the memories of a user in an app."""
        beginning = self._id(app_name, user_id, "")
        async for page in all_listed(partial(self._opened.memory.sessions, _PAGE_COUNT, owner=user_id)):
            for entry in page.sessions:
                if entry.session_id.startswith(beginning):
                    yield self._opened.memory.session(entry.session_id, owner=user_id)

    async def _add(self, stored: Session, messages: Sequence[Message]) -> None:
        """Append messages whose ids the session has not."""
        while True:
            context = await read_or_begin(stored, stored.read)
            known = {each.id for each in in_order(context)}
            new = {each.id: each for each in messages[::-1] if each.id not in known}  # of equal ids, the first one
            if not new:
                return
            try:
                await stored.append(*[*new.values()][::-1][:_BATCH_COUNT], expect=context)
            except Conflict:  # another process was faster
                continue

    def _id(self, *names: str) -> str:
        return self._prefix + "/".join(quote_part(name) for name in names)

    def _open(self, app_name: str, user_id: str, session_id: str) -> Session:
        id = self._id(app_name, user_id, session_id)
        return self._opened.memory.session(id, policy=self._policy, owner=user_id)


async def _delete(session: Session, memory_id: str) -> None:
    """Put a mark without text in the place of a memory, which keeps its id."""
    while True:
        context = await read_or_begin(session, session.read)
        messages = [each for each in in_order(context) if each.id == memory_id and not _is_deleted(each)]
        try:
            for message in messages:
                await session.replace(message, Message.opaque(_DELETED, id=memory_id))
        except (Conflict, NotInWindow, SessionNotFound):  # another process has changed the session
            continue
        return


def _same_beginning(old: Sequence[Message], new: Sequence[Message]) -> Sequence[Message]:
    """Return the messages at the beginning of `old` that `new` has too."""
    for at, (before, after) in enumerate(zip(old, new, strict=False)):
        is_same = before.to_openai() == after.to_openai() and before.metadata == after.metadata
        if before.id != after.id or not (is_same or before.shortened):
            return old[:at]
    return old[: len(new)]


def _keep_deleted(old: Sequence[Message], given: Sequence[Message]) -> list[Message]:
    """Return messages with the mark of each deleted one in its place, or before all others if it is not among them."""
    marks = {each.id: Message.opaque(_DELETED, id=each.id) for each in old if _is_deleted(each)}
    others = marks.keys() - {each.id for each in given}
    return [*(mark for id, mark in marks.items() if id in others), *(marks.get(each.id, each) for each in given)]


def _is_deleted(message: Message) -> bool:
    return message.to_openai() == _DELETED


def _encode_event(event: Event) -> Message | None:
    """Return an event as a message; `None` without text, because no search would find it."""
    metadata = {"author": event.author, "at": event.timestamp}
    return _encode(event.id, event.content, metadata, _moment(event.timestamp))


def _encode_entry(entry: MemoryEntry) -> Message | None:
    metadata = {"author": entry.author, "timestamp": entry.timestamp, "custom": entry.custom_metadata}
    try:
        at = datetime.fromisoformat(entry.timestamp or "")
    except ValueError:
        at = None
    if at is not None and at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    return _encode(entry.id or str(uuid.uuid4()), entry.content, metadata, at)


def _encode(id: str, content: types.Content | None, metadata: dict[str, Any], at: datetime | None) -> Message | None:
    texts = [part.text for part in (content.parts if content and content.parts else ()) if part.text]
    if content is None or not "".join(texts).strip():
        return None
    metadata["role"] = content.role
    if content != types.Content(role=content.role, parts=[types.Part(text=texts[0])]):
        metadata["content"] = json.loads(content.model_dump_json(exclude_none=True))
    role = "user" if metadata["author"] == "user" or content.role == "user" else "assistant"
    given = {name: value for name, value in metadata.items() if value is not None}
    return Message(role, " ".join(texts), metadata=given, timestamp=at, id=id)


def _moment(at_s: float) -> datetime | None:
    try:
        return datetime.fromtimestamp(at_s, UTC)
    except (OverflowError, ValueError, OSError):
        return None


def _count(words: Set[str], messages: Sequence[Message]) -> list[tuple[int, Message]]:
    """Return the messages that share words with a query, each with their number."""
    counted = [(len(words & set(stems(_text(each)))), each) for each in messages]
    return [each for each in counted if each[0]]


def _rank(counted: Sequence[tuple[int, Message]]) -> list[Message]:
    """Return counted messages, those that share most words first."""
    return [message for _, message in sorted(counted, key=lambda each: -each[0])]


def _text(message: Message) -> str:
    content = message.to_openai().get("content")
    return content if isinstance(content, str) else ""


def _decode(message: Message) -> MemoryEntry:
    metadata = message.metadata or {}
    if "content" in metadata:
        content = types.Content.model_validate_json(json.dumps(metadata["content"]))
    else:
        content = types.Content(role=metadata.get("role"), parts=[types.Part(text=_text(message))])
    timestamp = metadata.get("timestamp")
    if "at" in metadata:
        with contextlib.suppress(OverflowError, ValueError, OSError):  # beyond the years that a date can have
            timestamp = datetime.fromtimestamp(metadata["at"]).isoformat()  # noqa: DTZ006 (as ADK formats them)
    return MemoryEntry(
        content=content,
        id=message.id,
        author=metadata.get("author"),
        timestamp=timestamp,
        custom_metadata=metadata.get("custom", {}),
    )
