"""`CheckpointStorage` keeps the checkpoints of workflows in Redis, one record per session."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import partial
from typing import Any
from urllib.parse import quote

from agent_framework import CheckpointStorage as _CheckpointStorage
from agent_framework import WorkflowCheckpoint, WorkflowCheckpointException

# The framework exports no other way to encode a checkpoint; its own storages for databases import these too.
from agent_framework._workflows._checkpoint_encoding import decode_checkpoint_value, encode_checkpoint_value

from redismem import Memory, RecordConflict
from redismem.adapters.sessions import Closes, Opened, check_owner, join_id, read_or_begin, settle
from redismem.record import Change, Head, Retention

_DATA, _PLACE, _MEMBER = b"c:", b"p:", b"w:"
"""The fields of a checkpoint: its data, the member that lists it, and that member `w:<workflow>:<time>:<id>`."""
_PAGE_COUNT = 100
_EPOCH = datetime(1, 1, 1, tzinfo=UTC)
_log = logging.getLogger("redismem")


class CheckpointStorage(Closes, _CheckpointStorage):
    """A checkpoint storage, in place of `InMemoryCheckpointStorage` or `FileCheckpointStorage`.

    >>> storage = CheckpointStorage("user-42", "redis://127.0.0.1:6379/0")
    >>> workflow = WorkflowBuilder(start_executor=start, checkpoint_storage=storage).build()

    A storage has the checkpoints of one session, whichever workflows it runs, in one record. The framework asks for the
    latest checkpoint by the workflow's name alone, so make one storage for each session. Storages with one memory share
    its connections.

    Values are encoded as in `FileCheckpointStorage`: JSON, with pickles of all that JSON cannot hold. Loading one makes
    objects of allowed types alone. It is no security boundary, so only trusted processes may write to the Redis.

    Every method may raise StoreUnavailable.
    """

    def __init__(
        self,
        session_id: str,
        url: str | None = None,
        *,
        memory: Memory | None = None,
        redis_client: Any = None,
        key_prefix: str = "agent_checkpoint",
        ttl: float | None = None,
        owner: str | None = None,
        allowed_checkpoint_types: Iterable[str] = (),
        keep_last: int | None = None,
        max_age: float | None = None,
    ) -> None:
        """Make the storage of a session. It connects on first use.

        Args:
            session_id: The id of the session: a conversation, a ticket or a job.
            url: The URL of Redis. `None` means `REDISMEM_URL`.
            memory: A memory to use instead of a URL. The caller closes it.
            redis_client: A redis.asyncio client to use instead of a URL. The caller closes it.
            key_prefix: The session `42` is the record `<key_prefix>:42` of redismem.
            ttl: The seconds after its last use after which Redis removes the session's checkpoints. `None` keeps them.
            owner: The person whom the checkpoints belong to, so that `memory.forget(owner=...)` removes them.
            allowed_checkpoint_types: Types of your own in checkpoints, such as "my_app.models:MyState". Types that are
                registered with the framework's `register_checkpoint_type`, its own and OpenAI's are always allowed.
            keep_last: The newest checkpoints that workers keep of each workflow, 1 to 1,000. `None` keeps all.
            max_age: The seconds after which workers remove a checkpoint, unless it is the newest one. `None` means
                never.

        Raises:
            InvalidRecord: `ttl`, `keep_last` or `max_age` is out of range, or the id too long.
            InvalidSessionId: The id is empty, `key_prefix` is not a string, or the owner is invalid.
            InvalidSettings: URL, memory or client is invalid, or more than one of them is given.
        """
        record_id = join_id(key_prefix, session_id)
        check_owner(owner)
        self._retention = Retention("agent-framework", keep_last, max_age)
        self._allowed_types = frozenset(allowed_checkpoint_types)
        self._opened = Opened(url, memory, redis_client)
        try:
            self._record = self._opened.memory.record(record_id, owner=owner, ttl_s=ttl)
        except BaseException:
            self._opened.close()
            raise

    async def save(self, checkpoint: WorkflowCheckpoint) -> str:
        """Store a checkpoint in one step, in place of one with the same id, and return its id.

        A caller that is cancelled gets its CancelledError once the save was made or has failed.

        Raises:
            WorkflowCheckpointException: The checkpoint could not be loaded: it has a value that cannot be encoded or a
                type that is not allowed, or its timestamp is invalid.
            TooLarge: It has more than 64 MiB.
        """
        data, member = self._encode(checkpoint), _member(checkpoint)
        await settle(self._save(checkpoint.checkpoint_id, data, member))
        return checkpoint.checkpoint_id

    async def _save(self, checkpoint_id: str, data: bytes, member: bytes) -> None:
        data_field, place_field = _DATA + _encode_id(checkpoint_id), _PLACE + _encode_id(checkpoint_id)
        sets = {data_field: data, place_field: member, member: Head(names=(data_field,)).encode()}
        place: bytes | None = None  # ids are new, save for those that a caller chose
        while True:
            stale = [place] if place not in (None, member) else []
            change = Change(
                equals={} if place is None else {place_field: place},
                absent=[place_field] if place is None else [],
                sets=sets,
                adds=[member],
                drops=stale,
                removes=stale,
            )
            try:
                await self._record.write(self._retention.add_to(change))
                return
            except RecordConflict:
                [place] = await self._record.get(place_field)

    async def load(self, checkpoint_id: str) -> WorkflowCheckpoint:
        """Return a checkpoint.

        Raises:
            WorkflowCheckpointException: The session has no such checkpoint, or its types are not allowed.
        """
        read = partial(self._record.get, _DATA + _encode_id(checkpoint_id), renew=True)
        [data] = await read_or_begin(self._record, read)
        if data is None:
            raise WorkflowCheckpointException(f"No checkpoint found with ID {checkpoint_id}")
        return self._decode(data)

    async def list_checkpoints(self, *, workflow_name: str) -> list[WorkflowCheckpoint]:
        """Return the checkpoints of a workflow, oldest first. Leaves out those that `load` refuses, with a warning."""
        return await self._read(workflow_name, latest=False)

    async def get_latest(self, *, workflow_name: str) -> WorkflowCheckpoint | None:
        """Return the newest checkpoint of a workflow that `load` does not refuse, by its timestamp; `None` without."""
        return next(iter(await self._read(workflow_name, latest=True)), None)

    async def list_checkpoint_ids(self, *, workflow_name: str) -> list[str]:
        """Return the ids of the checkpoints that `list_checkpoints` returns."""
        return [each.checkpoint_id for each in await self.list_checkpoints(workflow_name=workflow_name)]

    async def delete(self, checkpoint_id: str) -> bool:
        """Remove a checkpoint, and return True if the session had it."""
        data_field, place_field = _DATA + _encode_id(checkpoint_id), _PLACE + _encode_id(checkpoint_id)
        while True:
            [place] = await read_or_begin(self._record, partial(self._record.get, place_field))
            if place is None:
                return False
            drops = [data_field, place_field, place]
            try:
                await self._record.write(Change(equals={place_field: place}, drops=drops, removes=[place]))
                return True
            except RecordConflict:  # it was saved anew, or another caller has deleted it
                continue

    async def _read(self, workflow_name: str, *, latest: bool) -> list[WorkflowCheckpoint]:
        """Return the checkpoints of a workflow that can be decoded, or the latest one; log how many cannot."""
        checkpoints: list[WorkflowCheckpoint] = []
        after, unreadable_count = None, 0
        while True:
            options: dict[str, Any] = {"limit": 1 if latest else _PAGE_COUNT, "reverse": latest}
            read = partial(self._record.page, _beginning(workflow_name), after=after, named=True, renew=True, **options)
            page = await read_or_begin(self._record, read)
            for found in page.found:
                try:
                    checkpoints += [self._decode(data or b"") for data in found.named.values()]
                except WorkflowCheckpointException:
                    unreadable_count += 1
                await asyncio.sleep(0)  # a checkpoint may be large, and decoding holds the event loop
            after = page.after
            if after is None or (latest and checkpoints):
                break
        if unreadable_count:
            _log.warning("checkpoints of a workflow were left out, because they cannot be loaded: %d", unreadable_count)
        return checkpoints

    def _encode(self, checkpoint: WorkflowCheckpoint) -> bytes:
        """Return a checkpoint as it is stored, after a check that it can be loaded."""
        try:
            encoded = encode_checkpoint_value(checkpoint.to_dict())
            decode_checkpoint_value(encoded, allowed_types=self._allowed_types)
            return json.dumps(encoded, ensure_ascii=False).encode("utf-8", "surrogatepass")
        except WorkflowCheckpointException:
            raise
        except Exception as error:  # whatever the pickles of the caller's types raise
            raise WorkflowCheckpointException("the checkpoint cannot be encoded or restored") from error

    def _decode(self, data: bytes) -> WorkflowCheckpoint:
        try:
            encoded = json.loads(data.decode("utf-8", "surrogatepass"))
        except ValueError:
            raise WorkflowCheckpointException("the stored checkpoint is not JSON") from None
        return WorkflowCheckpoint.from_dict(decode_checkpoint_value(encoded, allowed_types=self._allowed_types))


def _encode_id(checkpoint_id: str) -> bytes:
    return checkpoint_id.encode("utf-8", "surrogatepass")


def _beginning(workflow_name: str) -> bytes:
    """Return the beginning of the members of a workflow's checkpoints."""
    return _MEMBER + quote(workflow_name, "", errors="surrogatepass").encode() + b":"


def _member(checkpoint: WorkflowCheckpoint) -> bytes:
    """Return the member that lists a checkpoint: members of a workflow sort by time."""
    try:
        time = datetime.fromisoformat(checkpoint.timestamp)
    except (TypeError, ValueError):
        raise WorkflowCheckpointException("the checkpoint's timestamp is no ISO 8601 time: it was not saved") from None
    passed = (time if time.tzinfo else time.replace(tzinfo=UTC)) - _EPOCH
    number = (passed.days * 86_400 + passed.seconds) * 1_000_000 + passed.microseconds
    return _beginning(checkpoint.workflow_name) + b"%020d:" % max(number, 0) + _encode_id(checkpoint.checkpoint_id)
