"""Who writes the summary of a claimed session: the strategy, or the extractive summariser if it cannot.

They work outside Redis, within their time, while the lease is kept.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Protocol

from redismem.concurrency.callbacks import awaited_within
from redismem.context import Summary
from redismem.errors import ModelFailed, ProviderUnavailable, RedismemError
from redismem.events import facts, unquoted
from redismem.messages.message import Message
from redismem.models import Draft
from redismem.protocol.ids import session_hash
from redismem.protocol.queue.calls import Job, QueueCalls
from redismem.store.store import Store
from redismem.text.word_counts import Sketch
from redismem.workers.failures import log_failure, reason_of
from redismem.workers.provider_pauses import Provider
from redismem.workers.strategies import DROPPED, Dropped, Strategy, Summarize, checked, instead_of

log = logging.getLogger("redismem.worker")

URGENT_MS = 86_400_000
"""What was due before that has a window that is half full, and is due since 0: no pause may keep it from a summary."""


class Todo(Protocol):
    """What a summary is to stand for: messages, or summaries, or both."""

    @property
    def covered(self) -> Sequence[Message]:
        """The messages, oldest first."""

    @property
    def folded(self) -> Sequence[Summary]:
        """The summaries, oldest first."""


class Writers:
    """A strategy, and what writes `instead` of it; None if nothing does."""

    def __init__(self, store: Store, strategy: Strategy, provider: Provider) -> None:
        self.strategy = checked(strategy)
        self.instead = instead_of(strategy, store.settings)
        self._store = store
        self._provider = provider

    async def written(
        self, calls: QueueCalls, job: Job, todo: Todo, by: Strategy, sketch: Sketch | None
    ) -> Summary | None:
        """The summary that the strategy writes; None drops the messages without one.

        `instead` writes it if that was asked for, or the strategy has failed for too long, or for good. Raises
        ModelFailed, and whatever the strategy raises.
        """
        raised: Exception | None = None
        is_last = self.instead is not None and job.attempts > self._store.settings.max_attempts
        if by is not self.strategy or is_last:
            why = "the provider answers nobody" if job.failure is None else job.failure.reason
        else:
            started_s = time.monotonic()
            try:
                summary = await self._drafted(calls, job, todo, by, sketch)
            except Exception as error:
                if isinstance(error, ProviderUnavailable):
                    since_ms = None if job.failure is None else job.failure.since_ms
                    await self._provider.failed(error, since_ms, _now_ms(job, started_s))
                else:
                    await self._provider.answered(job.now_ms)
                if self.instead is None or not self._gives_up(job, error):
                    raise
                why, raised = reason_of(error), error
            else:
                await self._provider.answered(job.now_ms)
                return summary
        assert self.instead is not None
        known = facts(op="summary", session=session_hash(calls.keys.session_id), attempt=job.attempts, reason=why)
        own = None if raised is None or isinstance(raised, RedismemError) else raised
        what = "session %s: the extractive summariser writes instead: %s"
        log.warning(what, known["session"], why, exc_info=own and unquoted(own), extra=known)
        return await self._drafted(calls, job, todo, self.instead, sketch)

    def _gives_up(self, job: Job, error: Exception) -> bool:
        """Whether the strategy is not to be asked for this session again."""
        settings = self._store.settings
        since_ms = job.now_ms if job.failure is None else job.failure.since_ms
        if job.due_ms <= URGENT_MS or job.now_ms - since_ms >= settings.extractive_after_s * 1000:
            return True
        if isinstance(error, ProviderUnavailable):
            return False
        is_permanent = isinstance(error, ModelFailed) and error.permanent
        return is_permanent or job.attempts >= settings.max_attempts

    async def _drafted(
        self, calls: QueueCalls, job: Job, todo: Todo, by: Strategy, sketch: Sketch | None
    ) -> Summary | None:
        settings = self._store.settings
        covered, folded = todo.covered, todo.folded
        previous = "\n\n".join(summary.text for summary in folded) or None
        write: Callable[[], Awaitable[Draft | Dropped]] = partial(by.compact, covered, previous)
        if isinstance(by, Summarize):
            others_tokens = sum(each.tokens for each in job.context.summaries if each not in folded)
            write = partial(by.drafted, covered, previous, sketch, others_tokens)
        late = _failed(f"no summary within {settings.summary_timeout_s:g} s")
        renewal = asyncio.create_task(self._renew(calls, job, time.monotonic()))
        try:
            draft = await awaited_within(settings.summary_timeout_s, late, write)
        finally:
            renewal.cancel()
        return None if draft is DROPPED else _summary(job, covered, folded, draft, settings.max_summary_bytes)

    async def _renew(self, calls: QueueCalls, job: Job, started_s: float) -> None:
        while True:
            await asyncio.sleep(self._store.settings.lease_s / 3)
            try:
                await self._provider.keep_probe(_now_ms(job, started_s))
                if not await self._store.run(calls.extend(job.fence)):
                    return
            except RedismemError as error:
                session = session_hash(calls.keys.session_id)
                log_failure(f"session {session}: the lease was not renewed", error, facts(op="extend", session=session))


def _now_ms(job: Job, started_s: float) -> int:
    """The server's time, as far as it can be told without asking: the job was claimed when this worker started."""
    return job.now_ms + int((time.monotonic() - started_s) * 1000)


def _failed(reason: str) -> ModelFailed:
    return ModelFailed(reason, reason=reason)


def _summary(job: Job, covered: Sequence[Message], folded: Sequence[Summary], draft: Draft, max_bytes: int) -> Summary:
    """Raises ModelFailed, or UnicodeEncodeError, for a text that is none."""
    if not isinstance(draft, Draft):
        raise _failed(f"the strategy gave no Draft but a {type(draft).__name__}; what is to be dropped is DROPPED")
    text: object = draft.text
    if not isinstance(text, str) or not text.strip():
        raise _failed("the summary is empty, or not a text")
    size = len(text.encode())
    if size > max_bytes:
        raise _failed(f"the summary has {size} bytes, over {max_bytes}")
    first_seq = folded[0].first_seq if folded else covered[0].seq
    last_seq = covered[-1].seq if covered else folded[-1].last_seq
    times = [time_ms for summary in folded for time_ms in (summary.start_ms, summary.end_ms)]
    times += [message.time_ms for message in covered]
    message_ids = (*(summary.id for summary in folded), *(str(message.id) for message in covered))
    return Summary(
        id=f"{job.context.epoch}:{first_seq}-{last_seq}",
        text=text,
        first_seq=first_seq,
        last_seq=last_seq,
        start_ms=min(times),
        end_ms=max(times),
        model=draft.model,
        tokens=size // 4 + 4,
        created_ms=job.now_ms,
        message_ids=message_ids,
    )
