"""Write the summary of a claimed session with the strategy, or with the extractive summariser if the strategy fails.

Both work outside Redis and within a time limit, while the lease is renewed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Protocol

from redismem.concurrency.callbacks import run_callback_within
from redismem.context.results import Summary
from redismem.errors import ModelFailed, ProviderUnavailable, RedismemError
from redismem.events import facts, unquoted
from redismem.messages.message import Message
from redismem.models import Draft
from redismem.protocol.ids import session_hash
from redismem.protocol.queue.calls import Job, QueueCalls
from redismem.store.store import Store
from redismem.text.plain import clean_text
from redismem.text.word_counts import Sketch
from redismem.workers.failures import log_failure, reason_of
from redismem.workers.provider_pauses import Provider
from redismem.workers.strategies import DROPPED, Dropped, Strategy, Summarize, fallback_for, validate_strategy

log = logging.getLogger("redismem.worker")

URGENT_MS = 86_400_000
"""A due time below this marks a half-full window, such as 0. A pause of the provider must not delay its summary."""


class Todo(Protocol):
    """The messages and older summaries that a new summary replaces."""

    @property
    def covered(self) -> Sequence[Message]:
        """The messages, oldest first."""

    @property
    def folded(self) -> Sequence[Summary]:
        """The summaries, oldest first."""


class SummaryWriter:
    """Write summaries with a strategy and its fallback. `fallback` is `None` if it is turned off."""

    def __init__(self, store: Store, strategy: Strategy, provider: Provider) -> None:
        self.strategy = validate_strategy(strategy)
        self.fallback = fallback_for(strategy, store.settings)
        self._store = store
        self._provider = provider

    async def write(
        self, calls: QueueCalls, job: Job, todo: Todo, by: Strategy, sketch: Sketch | None
    ) -> Summary | None:
        """Write a summary with the strategy `by` and return it; `None` means that the messages are dropped without one.

        If the strategy fails permanently, or has failed for too long, the fallback writes the summary. Raises
        ModelFailed, and any error of the strategy.
        """
        raised: Exception | None = None
        is_last = self.fallback is not None and job.attempts > self._store.settings.max_attempts
        if by is not self.strategy or is_last:
            why = "the provider is down" if job.failure is None else job.failure.reason
        else:
            started_s = time.monotonic()
            try:
                summary = await self._draft(calls, job, todo, by, sketch)
            except Exception as error:
                if isinstance(error, ProviderUnavailable):
                    since_ms = None if job.failure is None else job.failure.since_ms
                    await self._provider.record_failure(error, since_ms, _now_ms(job, started_s))
                else:
                    await self._provider.record_answer(job.now_ms)
                if self.fallback is None or not self._falls_back(job, error):
                    raise
                why, raised = reason_of(error), error
            else:
                await self._provider.record_answer(job.now_ms)
                return summary
        assert self.fallback is not None
        known = facts(op="summary", session=session_hash(calls.keys.session_id), attempt=job.attempts, reason=why)
        own = None if raised is None or isinstance(raised, RedismemError) else raised
        what = "session %s: the extractive summariser writes instead: %s"
        log.warning(what, known["session"], why, exc_info=own and unquoted(own), extra=known)
        return await self._draft(calls, job, todo, self.fallback, sketch)

    def _falls_back(self, job: Job, error: Exception) -> bool:
        """True if the fallback must write the summary, because the strategy must not be retried for this session."""
        settings = self._store.settings
        since_ms = job.now_ms if job.failure is None else job.failure.since_ms
        if job.due_ms <= URGENT_MS or job.now_ms - since_ms >= settings.extractive_after_s * 1000:
            return True
        if isinstance(error, ProviderUnavailable):
            return False
        is_permanent = isinstance(error, ModelFailed) and error.permanent
        return is_permanent or job.attempts >= settings.max_attempts

    async def _draft(
        self, calls: QueueCalls, job: Job, todo: Todo, by: Strategy, sketch: Sketch | None
    ) -> Summary | None:
        settings = self._store.settings
        covered, folded = todo.covered, todo.folded
        previous = "\n\n".join(summary.text for summary in folded) or None
        write: Callable[[], Awaitable[Draft | Dropped]] = partial(by.compact, covered, previous)
        if isinstance(by, Summarize):
            others_tokens = sum(each.tokens for each in job.context.summaries if each not in folded)
            write = partial(by.draft, covered, previous, sketch, others_tokens)
        late = _failure(f"no summary within {settings.summary_timeout_s:g} s")
        renewal = asyncio.create_task(self._renew(calls, job, time.monotonic()))
        try:
            draft = await run_callback_within(settings.summary_timeout_s, late, write)
        finally:
            renewal.cancel()
        return None if draft is DROPPED else _summary(job, covered, folded, draft, settings.max_summary_bytes)

    async def _renew(self, calls: QueueCalls, job: Job, started_s: float) -> None:
        while True:
            await asyncio.sleep(self._store.settings.lease_s / 3)
            try:
                await self._provider.extend_probe(_now_ms(job, started_s))
                if not await self._store.run(calls.extend(job.fence)):
                    return
            except RedismemError as error:
                session = session_hash(calls.keys.session_id)
                log_failure(f"session {session}: the lease was not renewed", error, facts(op="extend", session=session))


def _now_ms(job: Job, started_s: float) -> int:
    """Estimate the server's time without a round trip, from the time of the claim."""
    return job.now_ms + int((time.monotonic() - started_s) * 1000)


def _failure(reason: str) -> ModelFailed:
    return ModelFailed(reason, reason=reason)


def _summary(job: Job, covered: Sequence[Message], folded: Sequence[Summary], draft: Draft, max_bytes: int) -> Summary:
    """Build the summary from a draft. Raises ModelFailed if it is unusable, UnicodeEncodeError if it has surrogates."""
    if not isinstance(draft, Draft):
        raise _failure(f"the strategy returned a {type(draft).__name__}, not a Draft; to drop messages, return DROPPED")
    text = _checked_text(draft.text)
    size = len(text.encode())
    if size > max_bytes:
        raise _failure(f"the summary has {size} bytes, over {max_bytes}")
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


def _checked_text(text: object) -> str:
    """Return the text of a draft without control characters. Raises the errors of `_summary`."""
    if isinstance(text, str):
        text.encode()
        text = clean_text(text).strip()
    if not isinstance(text, str) or not text:
        raise _failure("the summary is empty, or not a string")
    return text
