"""The records of threads and users: their fields, and how a thread is found, read and listed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from chainlit.context import ChainlitContextException, context
from chainlit.step import StepDict
from chainlit.types import ThreadDict, ThreadFilter

from redismem.adapters.sessions import Opened, join_id, read_or_begin, split_id
from redismem.record import Record, RecordEntry
from redismem.record.pages import all_listed, all_parts

THREAD, STEP, ELEMENT, FEEDBACK = b"t", b"s:", b"e:", b"f:"
"""The members of a thread: itself, a step, an element, and the feedback of a step."""
UPDATED, FAVORITE, FEEDBACK_ID = b"u", b"v", b"i:"
"""Fields of a thread: the time of its last step, a mark that a step is a favorite, and the step of a feedback's id."""
USER, CREATED = b"user", b"created"
_PAGE_COUNT = 1_000
_READS_COUNT = 50
"""The threads that a search reads at once."""
_NO_STEP = StepDict(
    name="", type="undefined", id="", threadId="", parentId=None, streaming=False, waitForAnswer=None, isError=None,
    metadata={}, tags=None, input="", output="", createdAt=None, start=None, end=None, generation=None,
    showInput=None, language=None, feedback=None,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Threads:
    """The records of one data layer."""

    opened: Opened
    prefix: str
    ttl_s: float | None

    def thread(self, thread_id: str, owner: str | None = None) -> Record:
        """Return the record of a thread. Only the write that begins the thread names its owner."""
        return self.opened.memory.record(join_id(self.prefix, thread_id), owner=owner, ttl_s=self.ttl_s)

    async def get(self, thread_id: str, *fields: bytes) -> list[bytes | None]:
        """Return fields of a thread. A damaged one goes into quarantine, and has none."""
        record = self.thread(thread_id)
        return await read_or_begin(record, partial(record.get, *fields))

    def user(self, identifier: str) -> Record:
        """Return the record of a user, who owns it."""
        id = join_id(f"{self.prefix}_user", identifier)
        return self.opened.memory.record(id, owner=identifier, ttl_s=self.ttl_s)

    async def find(self, field: bytes) -> Record | None:
        """Return the thread that has a field: that of Chainlit's session, or else one of all threads."""
        current = current_thread()
        if current is not None and (await self.get(current, field))[0] is not None:
            return self.thread(current)
        async for entry in self.entries(None, field):
            if entry.values[0] is not None:
                return self.opened.memory.record(entry.id, tag=entry.tag, ttl_s=self.ttl_s)
        return None

    async def entries(self, owner: str | None, *fields: bytes) -> AsyncIterator[RecordEntry]:
        """Yield the threads of a user, or all, with fields of each."""
        beginning = f"{self.prefix}:" if self.prefix else ""
        read = partial(self.opened.memory.records, beginning, _PAGE_COUNT, owner=owner, fields=fields)
        async for page in all_listed(read):
            for entry in page.records:
                if split_id(self.prefix, entry.id) is not None:
                    yield entry

    async def read_all(self, entries: Sequence[RecordEntry]) -> AsyncIterator[tuple[RecordEntry, ThreadDict]]:
        """Yield listed threads with all that belongs to them."""
        for at in range(0, len(entries), _READS_COUNT):
            some = entries[at : at + _READS_COUNT]
            records = [self.opened.memory.record(entry.id, tag=entry.tag) for entry in some]
            for entry, thread in zip(some, await asyncio.gather(*map(read_thread, records)), strict=True):
                if thread is not None:
                    yield entry, thread


async def read_thread(record: Record) -> ThreadDict | None:
    """Return a thread with all that belongs to it, in one round trip per 8 MiB; `None` if there is no such thread."""
    found: dict[bytes, Any] = {}
    read = partial(record.page, limit=_PAGE_COUNT, renew=True)
    async for page in all_parts(lambda after: read_or_begin(record, partial(read, after=after))):
        found |= {each.member: json.loads(each.value) for each in page.found if each.value is not None}
    if THREAD not in found:
        return None
    steps = [
        show_step(value, found.get(FEEDBACK + member.removeprefix(STEP)))
        for member, value in found.items()
        if member.startswith(STEP)
    ]
    elements = [value for member, value in found.items() if member.startswith(ELEMENT)]
    steps.sort(key=lambda step: step["createdAt"] or "")
    return {**found[THREAD], "steps": steps, "elements": elements}


def begin_thread(thread_id: str, user_id: str | None) -> dict[str, Any]:
    """Return a new thread of a user, or of the user of Chainlit's session."""
    owner = user_id or current_user()
    named = {"id": thread_id, "createdAt": now(), "name": None, "userId": owner, "userIdentifier": owner}
    return {**named, "tags": None, "metadata": {}}


def matches(steps: Iterable[StepDict], filters: ThreadFilter) -> bool:
    """True if a step contains the text of a filter, and if one has feedback of its value."""
    steps = list(steps)
    text = (filters.search or "").lower()
    has_text = any(text in step["output"].lower() for step in steps) or not text
    values = [feedback["value"] for step in steps if (feedback := step["feedback"])]
    return has_text and (filters.feedback is None or filters.feedback in values)


def show_step(step: Mapping[str, Any], feedback: Any) -> StepDict:
    """Return a stored step as Chainlit shows it: without its input, unless that is to be shown."""
    shown: StepDict = {**_NO_STEP, **step, "feedback": feedback}
    if str(shown["showInput"]).lower() in ("none", "false"):
        shown["input"] = ""
    return shown


def is_favorite(step: Mapping[str, Any]) -> bool:
    """True if the user has marked a step as a favorite."""
    return (step.get("metadata") or {}).get("favorite") is True


def current_user() -> str | None:
    """Return the identifier of the user of Chainlit's session, if the caller is in one."""
    try:
        user = context.session.user
    except ChainlitContextException:
        return None
    return user.identifier if user else None


def current_thread() -> str | None:
    """Return the thread of Chainlit's session, if the caller is in one."""
    try:
        return context.session.thread_id or None
    except ChainlitContextException:
        return None


def encode_key(id: str) -> bytes:
    """Return an id as a part of a field's name."""
    return id.encode("utf-8", "surrogatepass")


def now() -> str:
    """Return the time as Chainlit writes it."""
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")


def encode(value: Mapping[str, Any]) -> bytes:
    """Return a value as JSON."""
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")
