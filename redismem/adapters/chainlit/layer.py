"""The data layer: each method of Chainlit's interface."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import uuid
from functools import partial
from typing import Any, Self
from weakref import WeakValueDictionary

from chainlit.data.base import BaseDataLayer
from chainlit.data.storage_clients.base import BaseStorageClient
from chainlit.data.utils import queue_until_user_message
from chainlit.element import Element, ElementDict
from chainlit.step import StepDict
from chainlit.types import Feedback, PageInfo, PaginatedResponse, Pagination, ThreadDict, ThreadFilter
from chainlit.user import PersistedUser, User

from redismem import Memory, RecordConflict
from redismem.adapters.chainlit.files import delete_file, renew_url, upload
from redismem.adapters.chainlit.threads import (
    CREATED,
    ELEMENT,
    FAVORITE,
    FEEDBACK,
    FEEDBACK_ID,
    STEP,
    THREAD,
    UPDATED,
    USER,
    Threads,
    begin_thread,
    current_user,
    encode,
    encode_key,
    is_favorite,
    matches,
    now,
    read_thread,
)
from redismem.adapters.sessions import Opened, join_id, read_or_begin
from redismem.record import Change

_log = logging.getLogger("redismem")


class DataLayer(BaseDataLayer):
    """A data layer for Chainlit, in place of `SQLAlchemyDataLayer`, `DynamoDBDataLayer` or `ChainlitDataLayer`.

    >>> @cl.data_layer
    ... def open_data_layer():
    ...     return DataLayer("redis://127.0.0.1:6379/0")

    A thread is one record with its steps, elements and feedback. Its owner is the user, whose id is the identifier.

    Every method may raise StoreUnavailable, and InvalidSessionId if an id is empty or an identifier has more than 256
    bytes.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        memory: Memory | None = None,
        redis_client: Any = None,
        key_prefix: str = "chainlit",
        ttl: float | None = None,
        storage_provider: BaseStorageClient | None = None,
    ) -> None:
        """Make a data layer. It connects on first use.

        Args:
            url: The URL of Redis. `None` means `REDISMEM_URL`.
            memory: A memory to use instead of a URL. The caller closes it.
            redis_client: A redis.asyncio client to use instead of a URL. The caller closes it.
            key_prefix: The thread `42` is the record `<key_prefix>:42` of redismem, the user `ann`
                `<key_prefix>_user:ann`.
            ttl: The seconds after which Redis removes a thread that was neither changed nor opened, and a user who did
                not log in. `None` keeps both.
            storage_provider: A storage client of Chainlit for the files of elements. Without one, only elements with a
                URL are kept.

        Raises:
            InvalidRecord: `ttl` is out of range.
            InvalidSessionId: `key_prefix` is not a string.
            InvalidSettings: URL, memory or client is invalid, or more than one of them is given.
        """
        join_id(key_prefix, "x")
        self._storage = storage_provider
        self._opened = Opened(url, memory, redis_client)
        self._threads = Threads(self._opened, key_prefix, ttl)
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        try:
            self._threads.thread("x")  # refuses ttl at the start of the program, not in its first turn
        except BaseException:
            self._opened.close()
            raise

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection, unless another store uses it, and the storage provider. A memory stays open."""
        await self._opened.aclose()
        if self._storage is not None:
            await self._storage.close()

    async def build_debug_url(self) -> str:
        """Return an empty string: there is no page for debugging."""
        return ""

    # Users

    async def get_user(self, identifier: str) -> PersistedUser | None:
        """Return a user who has logged in, `None` if there is none."""
        stored = self._threads.user(identifier)
        user, created = await read_or_begin(stored, partial(stored.get, USER, CREATED))
        if user is None or created is None:
            return None
        return PersistedUser(id=identifier, identifier=identifier, createdAt=created.decode(), **json.loads(user))

    async def create_user(self, user: User) -> PersistedUser | None:
        """Store a user, or the metadata of a user who is known, and return the stored user."""
        fields = {"metadata": user.metadata, "display_name": user.display_name}
        await self._threads.user(user.identifier).write(
            Change(sets={USER: encode(fields)}, sets_once={CREATED: now().encode()})
        )
        return await self.get_user(user.identifier)

    # Threads

    async def get_thread_author(self, thread_id: str) -> str:
        """Return the identifier of a thread's user.

        Raises:
            ValueError: There is no such thread, or it has no user.
        """
        [stored] = await self._threads.get(thread_id, THREAD)
        author = None if stored is None else json.loads(stored)["userIdentifier"]
        if author is None:
            raise ValueError(f"Author not found for thread_id {thread_id}")
        return str(author)

    async def get_thread(self, thread_id: str) -> ThreadDict | None:
        """Return a thread with its steps, elements and feedback; `None` if there is no such thread."""
        thread = await read_thread(self._threads.thread(thread_id))
        for element in (thread and thread["elements"]) or ():
            await renew_url(self._storage, element)
        return thread

    async def update_thread(
        self,
        thread_id: str,
        name: str | None = None,
        user_id: str | None = None,
        metadata: dict[str, Any] | None = None,
        tags: list[str] | None = None,
    ) -> None:
        """Change a thread, or begin it. What is `None` stays as it is; a key of the metadata that is `None` goes.

        A thread that begins without a `user_id` belongs to the user of Chainlit's session, if there is one.

        Raises:
            OwnerMismatch: The thread belongs to another user, or has begun without one.
        """
        changes = {"name": name, "userId": user_id, "userIdentifier": user_id, "tags": tags}
        given = {key: value for key, value in changes.items() if value is not None}
        while True:
            [stored] = await self._threads.get(thread_id, THREAD)
            if stored is not None and not given and metadata is None:
                return
            thread = begin_thread(thread_id, user_id) if stored is None else json.loads(stored)
            thread |= given
            merged = {**thread["metadata"], **(metadata or {})}
            thread["metadata"] = {key: value for key, value in merged.items() if value is not None}
            if name is None and "name" in thread["metadata"]:
                thread["name"] = thread["metadata"]["name"]
            change = Change(
                equals={} if stored is None else {THREAD: stored},
                absent=[THREAD] if stored is None else [],
                sets={THREAD: encode(thread)},
                adds=[THREAD],
            )
            try:
                await self._threads.thread(thread_id, thread["userId"]).write(change)
                return
            except RecordConflict:  # another process was faster
                continue

    async def delete_thread(self, thread_id: str) -> None:
        """Remove a thread with all that belongs to it, and the files of its elements in the storage provider."""
        record = self._threads.thread(thread_id)
        thread = await read_thread(record)
        for element in (thread and thread["elements"]) or ():
            await delete_file(self._storage, element)
        await record.clear()

    async def list_threads(self, pagination: Pagination, filters: ThreadFilter) -> PaginatedResponse[ThreadDict]:
        """Return a page of the threads of a user, last active first, without steps and elements.

        A search, or a filter by feedback, reads all threads of the user.

        Raises:
            ValueError: The filters name no user.
        """
        if not filters.userId:
            raise ValueError("userId is required")
        entries = [entry async for entry in self._threads.entries(filters.userId, THREAD, UPDATED)]
        if filters.search or filters.feedback is not None:
            read = self._threads.read_all(entries)
            entries = [entry async for entry, thread in read if matches(thread["steps"], filters)]
        found = [(entry.values[1] or b"", json.loads(entry.values[0])) for entry in entries if entry.values[0]]
        found.sort(key=lambda each: (each[0], each[1]["createdAt"]), reverse=True)
        threads: list[ThreadDict] = [{**thread, "steps": [], "elements": []} for _, thread in found]
        ids = [thread["id"] for thread in threads]
        first = ids.index(pagination.cursor) + 1 if pagination.cursor in ids else 0
        page = threads[first : first + pagination.first]
        info = PageInfo(
            hasNextPage=len(threads) > first + pagination.first,
            startCursor=page[0]["id"] if page else None,
            endCursor=page[-1]["id"] if page else None,
        )
        return PaginatedResponse(pageInfo=info, data=page)

    # Steps

    @queue_until_user_message()
    async def create_step(self, step_dict: StepDict) -> None:
        """Store a step, and begin its thread if it is missing. Values that are `None` stay as they were stored."""
        step = {key: value for key, value in step_dict.items() if value is not None and key != "feedback"}
        async with self._lock(step_dict["id"]):
            await self._write_step(step_dict["threadId"], STEP + encode_key(step_dict["id"]), step)

    async def _write_step(self, thread_id: str, field: bytes, step: dict[str, Any]) -> None:
        while True:
            thread, stored = await self._threads.get(thread_id, THREAD, field)
            if thread is None:
                await self.update_thread(thread_id)
            merged = step if stored is None else {**json.loads(stored), **step}
            sets = {field: encode(merged), UPDATED: now().encode()}
            change = Change(
                equals={} if stored is None else {field: stored},
                absent=[field] if stored is None else [],
                present=[THREAD],
                sets={**sets, FAVORITE: b"1"} if is_favorite(merged) else sets,
                adds=[field],
            )
            try:
                await self._threads.thread(thread_id).write(change)
                return
            except RecordConflict:  # another process was faster
                continue

    def _lock(self, step_id: str) -> asyncio.Lock:
        """Return the lock of a step: Chainlit writes steps in tasks, and each must come after the one before it."""
        return self._locks.setdefault(step_id, asyncio.Lock())

    @queue_until_user_message()
    async def update_step(self, step_dict: StepDict) -> None:
        """Store a step anew, as `create_step` does."""
        await self.create_step(step_dict)

    @queue_until_user_message()
    async def delete_step(self, step_id: str) -> None:
        """Remove a step with its feedback and its elements."""
        async with self._lock(step_id):
            await self._delete_step(step_id, STEP + encode_key(step_id))

    async def _delete_step(self, step_id: str, field: bytes) -> None:
        record = await self._threads.find(field)
        thread = None if record is None else await read_thread(record)
        if record is None or thread is None:
            return
        drops = [field, FEEDBACK + encode_key(step_id)]
        for element in thread["elements"] or ():
            if element.get("forId") == step_id:
                await delete_file(self._storage, element)
                drops.append(ELEMENT + encode_key(element["id"]))
        ids = [feedback["id"] for step in thread["steps"] if step["id"] == step_id and (feedback := step["feedback"])]
        names = [FEEDBACK_ID + encode_key(id) for id in ids if id]
        await record.write(Change(drops=[*drops, *names], removes=drops))

    async def get_favorite_steps(self, user_id: str) -> list[StepDict]:
        """Return the steps that a user has marked as favorites, newest first."""
        entries = [entry async for entry in self._threads.entries(user_id, FAVORITE) if entry.values[0] is not None]
        threads = [thread async for _, thread in self._threads.read_all(entries)]
        steps = [step for thread in threads for step in thread["steps"] if is_favorite(step)]
        return sorted(steps, key=lambda step: step["createdAt"] or "", reverse=True)

    # Feedback

    async def upsert_feedback(self, feedback: Feedback) -> str:
        """Store the feedback of a step, in place of an earlier one, and return its id.

        Raises:
            ValueError: There is no such step.
        """
        id, step, field = (
            feedback.id or str(uuid.uuid4()),
            encode_key(feedback.forId),
            FEEDBACK + encode_key(feedback.forId),
        )
        record = self._threads.thread(feedback.threadId) if feedback.threadId else await self._threads.find(STEP + step)
        while record is not None:
            exists, stored = await record.get(STEP + step, field)
            if exists is None:
                break
            value = {"forId": feedback.forId, "id": id, "value": feedback.value, "comment": feedback.comment}
            earlier = [] if stored is None else [FEEDBACK_ID + encode_key(json.loads(stored)["id"])]
            change = Change(
                equals={STEP + step: exists} if stored is None else {field: stored},
                absent=[field] if stored is None else [],
                sets={field: encode(value), FEEDBACK_ID + encode_key(id): step},
                drops=[name for name in earlier if name != FEEDBACK_ID + encode_key(id)],
                adds=[field],
            )
            try:
                await record.write(change)
                return id
            except RecordConflict:  # another process was faster
                continue
        raise ValueError(f"no step {feedback.forId} is stored for this feedback")

    async def delete_feedback(self, feedback_id: str) -> bool:
        """Remove a feedback, and return True. It is no error if there is none."""
        name = FEEDBACK_ID + encode_key(feedback_id)
        record = await self._threads.find(name)
        [step] = (await record.get(name)) if record is not None else [None]
        if record is not None and step is not None:
            drops = [name, FEEDBACK + step]
            with contextlib.suppress(RecordConflict):  # another feedback has taken its place
                await record.write(Change(equals={name: step}, drops=drops, removes=drops[1:]))
        return True

    # Elements

    @queue_until_user_message()
    async def create_element(self, element: Element) -> None:
        """Store an element of a step. Its content goes to the storage provider; one with a URL keeps the URL.

        Without a storage provider, an element without a URL is not stored, and a warning is logged.

        Raises:
            ValueError: The storage provider did not take the content.
        """
        if not element.for_id:
            return
        stored: dict[str, Any] = {**element.to_dict()}
        if not element.url:
            if self._storage is None:
                _log.warning("an element is not stored: the data layer has no storage provider for its content")
                return
            [thread] = await self._threads.get(element.thread_id, THREAD)
            user = current_user() if thread is None else json.loads(thread)["userId"]
            stored |= await upload(self._storage, element, user)
        field = ELEMENT + encode_key(element.id)
        change = Change(present=[THREAD], sets={field: encode(stored)}, adds=[field])
        while True:
            try:
                await self._threads.thread(element.thread_id).write(change)
                return
            except RecordConflict:  # the thread has not begun
                await self.update_thread(element.thread_id)

    async def get_element(self, thread_id: str, element_id: str) -> ElementDict | None:
        """Return an element of a thread, `None` if there is none."""
        [stored] = await self._threads.get(thread_id, ELEMENT + encode_key(element_id))
        return None if stored is None else await renew_url(self._storage, json.loads(stored))

    @queue_until_user_message()
    async def delete_element(self, element_id: str, thread_id: str | None = None) -> None:
        """Remove an element, and its file in the storage provider."""
        field = ELEMENT + encode_key(element_id)
        record = self._threads.thread(thread_id) if thread_id else await self._threads.find(field)
        [stored] = (await record.get(field)) if record is not None else [None]
        if record is not None and stored is not None:
            await delete_file(self._storage, json.loads(stored))
            await record.write(Change(drops=[field], removes=[field]))
