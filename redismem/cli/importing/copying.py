"""Copy conversations into sessions: append what they lack, read it back and compare. Prints nothing."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from redismem.adapters.sessions import join_id
from redismem.cli.importing.sources import Conversation, Payload, Unreadable
from redismem.context.context import Context
from redismem.context.info import Policy
from redismem.context.results import Receipt
from redismem.errors import Conflict, NotAllowed, OwnerMismatch, RedismemError, StoreUnavailable
from redismem.memory.memory import Memory
from redismem.messages.message import Message
from redismem.session.session import Session

_LISTED_PROBLEMS = 100
_BATCH_COUNT = 200
_TOGETHER_COUNT = 16
_ALL_COUNT = 1 << 40

Owners = Mapping[str, str | None]
"""The owner of each conversation of a source, by the source's id; `None` means that it belongs to nobody."""


@dataclass(slots=True)
class Findings:
    """The outcome of an import: conversations and messages that were copied, or would be in a dry run."""

    copied: int = 0
    continued: int = 0
    """The copied conversations whose beginning was there before."""
    unchanged: int = 0
    messages: int = 0
    expiring: int = 0
    """Conversations whose key in the source has a time to live."""
    problems: list[tuple[str, str]] = field(default_factory=list)
    """The name and reason of the first 100 conversations that were not imported."""
    problems_count: int = 0

    @property
    def conversations(self) -> int:
        """The number of conversations that were read."""
        return self.copied + self.unchanged + self.problems_count

    def add_problem(self, name: str, reason: str) -> None:
        """Count a conversation that was not imported."""
        self.problems_count += 1
        if len(self.problems) < _LISTED_PROBLEMS:
            self.problems.append((name, reason))


class Copying:
    """One import into a memory."""

    def __init__(
        self,
        memory: Memory,
        policy: Policy,
        key_prefix: str,
        encode: Callable[[Payload], Message | Payload],
        owners: Owners | None = None,
        *,
        replace: bool,
        dry_run: bool,
    ) -> None:
        self.findings = Findings()
        self._owners = owners
        self._memory, self._policy, self._key_prefix = memory, policy, key_prefix
        self._encode, self._replace, self._dry_run = encode, replace, dry_run
        self._batch_count = min(_BATCH_COUNT, memory.settings.max_batch_count)

    async def run(self, conversations: AsyncIterator[Conversation], on_progress: Callable[[int], None]) -> Findings:
        """Copy all conversations, a few at a time. Raises StoreUnavailable, NotAllowed."""
        together: list[Conversation] = []
        async for conversation in conversations:
            together.append(conversation)
            if len(together) == _TOGETHER_COUNT:
                await self._copy_all(together)
                on_progress(self.findings.conversations)
                together = []
        await self._copy_all(together)
        return self.findings

    async def _copy_all(self, conversations: Sequence[Conversation]) -> None:
        for outcome in await asyncio.gather(*map(self._copy, conversations), return_exceptions=True):
            if outcome is not None:
                raise outcome

    async def _copy(self, conversation: Conversation) -> None:
        findings = self.findings
        findings.expiring += conversation.expires
        try:
            wanted = await conversation.load()
            session_id, owner = join_id(self._key_prefix, conversation.session_id), self._owner_of(conversation)
            session = self._memory.session(session_id, policy=self._policy, owner=owner)
            done_count = await self._complete(session, conversation.name, wanted)
        except OwnerMismatch:
            findings.add_problem(
                conversation.name, f"session {session_id} was begun with another owner, or with none: clear it first"
            )
        except Unreadable as reason:
            findings.add_problem(conversation.name, str(reason))
        except (StoreUnavailable, NotAllowed):
            raise
        except RedismemError as refused:
            findings.add_problem(conversation.name, refused.text)
        else:
            missing_count = len(wanted) - done_count
            findings.messages += missing_count
            findings.copied += missing_count > 0
            findings.continued += 0 < done_count < len(wanted)
            findings.unchanged += missing_count == 0

    def _owner_of(self, conversation: Conversation) -> str | None:
        if self._owners is None:
            return conversation.owner
        if conversation.session_id not in self._owners:
            raise Unreadable("the file of --owners does not name it; null means that it belongs to nobody")
        return self._owners[conversation.session_id]

    async def _complete(self, session: Session, name: str, wanted: list[Payload]) -> int:
        """Append what the session lacks, or replace its end, and return the number of messages that stay.

        Raises:
            OwnerMismatch: The session has another owner.
            Unreadable: The session has other messages, or does not return what was appended.
        """
        limit = self._memory.settings.max_window_count
        if len(wanted) > limit:
            raise Unreadable(f"it has {len(wanted)} messages, over REDISMEM_MAX_WINDOW_COUNT, {limit}")
        messages = [self._encode(payload) for payload in wanted]
        seen, stored = await session.read(0), await _read_all(session)
        done_count = _equal_count(messages, stored)
        if done_count < min(len(messages), len(stored)) and not self._replace:
            raise Unreadable(f"session {session.id} has other messages: message {done_count + 1} differs")
        if self._dry_run or done_count == len(messages):
            return done_count
        from_seq = stored[done_count].seq if done_count < len(stored) else None
        source = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        try:
            await self._write(session, messages[done_count:], f"import:{source}:{done_count}", seen, from_seq)
        except Conflict:
            raise Unreadable("another process wrote to the session meanwhile: import it again") from None
        if _equal_count(messages, await _read_all(session)) < len(messages):
            raise Unreadable(f"session {session.id} does not return what was appended: import it again")
        return done_count

    async def _write(
        self, session: Session, messages: Sequence[Message | Payload], name: str, seen: Context, from_seq: int | None
    ) -> None:
        """Append the messages, after the first batch has replaced everything from `from_seq` on.

        Raises:
            Conflict: Another process has written to the session since it was seen.
        """
        expect: Context | Receipt = seen
        for batch in self._batches(messages):
            id = f"{name}:{expect.last_seq}"
            if from_seq is None:
                expect = await session.append(*batch, id=id, expect=expect)
            else:
                expect, from_seq = await session.rewrite(from_seq, batch, id=id, expect=expect), None

    def _batches(self, messages: Sequence[Message | Payload]) -> Iterator[Sequence[Message | Payload]]:
        """Split messages into batches of 200, or of a fourth of what an append may hold, or of one."""
        most_bytes = self._memory.settings.max_window_bytes // 4
        start = size_bytes = 0
        for at, message in enumerate(messages):
            more_bytes = len(json.dumps(message.to_openai() if isinstance(message, Message) else message))
            if at - start == self._batch_count or (at > start and size_bytes + more_bytes > most_bytes):
                yield messages[start:at]
                start, size_bytes = at, 0
            size_bytes += more_bytes
        yield messages[start:]


async def _read_all(session: Session) -> list[Message]:
    """Return all messages as they were appended, with the bodies that have left the window."""
    messages = await session.tail(_ALL_COUNT)
    if any(message.shortened for message in messages):
        return await session.messages(include_originals=True)
    return messages


def _equal_count(expected: Sequence[Message | Payload], stored: Sequence[Message]) -> int:
    """Return the number of messages at the beginning that are equal as JSON text, so that 1 and 1.0 differ."""
    count = 0
    for wanted, message in zip(expected, stored, strict=False):
        payload = wanted.to_openai() if isinstance(wanted, Message) else wanted
        if json.dumps(payload) != json.dumps(message.to_openai()):
            break
        count += 1
    return count
