"""Extract items from conversations: a model reads one, its answer is validated, and one change applies it.

Waiting conversations are indexed by due time. A claim is a change of the conversation, and the version that it makes is
the fence: a write that expects an older version is refused, so a late or duplicate worker adds nothing. Only failures
caused by the conversation count as attempts; if the provider is down, the conversation is released unchanged. The text
of a conversation is data: it can create items and change a few fields of items, and nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any

from redismem.concurrency.callbacks import run_callback_within
from redismem.errors import (
    Conflict,
    InvalidItem,
    ItemNotFound,
    ModelFailed,
    ProviderUnavailable,
    RedismemError,
    StoreUnavailable,
    TooLarge,
)
from redismem.models.draft import ChatModel
from redismem.project.extraction import apply
from redismem.project.extraction.answer import INSTRUCTION, ExtractionAnswer, parse_answer, user_prompt
from redismem.project.items.items import Items, StoredItem
from redismem.project.items.schema import CONVERSATION, DECISION, ENTITY, TASK
from redismem.project.items.versions import State
from redismem.project.queries import pages
from redismem.project.queries.query import Query
from redismem.session.session import Session
from redismem.settings.settings import Settings

ATTEMPTS_LIMIT = 5
_BACKOFF_MS = 2_000
_TRIES_LIMIT = 20
_SHOWN = ((DECISION, 30), (TASK, 30), (ENTITY, 60))
_ANSWER_TOKENS = 2_000
_random = random.SystemRandom()

Ask = Callable[[list[dict[str, Any]]], Awaitable[str]]
"""A function that calls a model. Raises ModelFailed, or any error of the caller's model."""
OnUnanswered = Callable[[ProviderUnavailable, int | None, int], Awaitable[bool]]
"""A function that is called if the provider is down, and returns True if the provider is now paused.

It receives the error, the time since which this conversation has failed, and the current time.
"""


def lease_ms(settings: Settings) -> int:
    """Return the length of a worker's lease. It is longer than a model may take, so it need not be renewed."""
    return int((settings.summary_timeout_s + settings.lease_s) * 1000)


def ask_within_timeout(model: ChatModel, settings: Settings) -> Ask:
    """Return a function that calls this model in the event loop, and raises ModelFailed after `summary_timeout_s`."""

    async def ask(messages: list[dict[str, Any]]) -> str:
        late = ModelFailed(f"no answer within {settings.summary_timeout_s:g} s")
        reply = partial(model.reply, messages, max_tokens=_ANSWER_TOKENS)
        return await run_callback_within(settings.summary_timeout_s, late, reply)

    return ask


class Outcome(StrEnum):
    """The outcome of an extraction."""

    DONE = "done"
    ALREADY = "already"
    """no message was added since the last extraction, or another worker has claimed the conversation"""
    FENCED = "fenced"
    """another worker claimed the conversation in the meantime"""
    FAILED = "failed"
    """the model returned no usable answer; the extraction is retried later if attempts are left"""
    UNANSWERED = "unanswered"
    """the provider is down: the conversation keeps waiting, and no attempt was counted"""
    OFFLINE = "offline"
    """there is no model: nothing was extracted"""


@dataclass(frozen=True, slots=True)
class Extraction:
    """The result of an extraction."""

    conversation_id: str
    outcome: Outcome
    item_ids: tuple[str, ...] = ()
    """ids of the items created, changed or mentioned"""
    reason: str = ""
    """why the extraction failed, without any text of the conversation"""


@dataclass(frozen=True, slots=True)
class _Claim:
    """A claimed conversation, and its state before the claim."""

    stored: StoredItem
    before: State
    now_ms: int


class Extractions:
    """Extract items from conversations."""

    def __init__(self, items: Items, sessions: Callable[[str], Session], session_id: Callable[[str], str]) -> None:
        self._items = items
        self._sessions = sessions
        self._session_id = session_id
        self._settings = items.store.settings

    async def due(self, limit: int) -> list[str]:
        """Return conversations that are due: waiting ones, and ones whose worker's lease has expired."""
        index = self._items.keys.index(CONVERSATION.letter, "due")
        return await self._items.run(self._items.calls.members(index, 0, await self._items.now_ms(), 0, limit))

    async def waits(self, conversation_id: str) -> bool:
        """True if a conversation must be extracted before it is evicted; makes it due. Raises StoreUnavailable."""
        (stored,) = await self._items.read([conversation_id])
        if stored is None or stored.state["deleted"] or stored.state["extraction"] == "failed":
            return False
        if stored.state["extraction"] in ("due", "claimed"):
            return True
        if not await self._has_more(stored):
            return False
        change = await self._items.change()
        change.alter(stored, sets={"extraction": "due", "due_ms": change.now_ms, "attempts": 0})
        with contextlib.suppress(Conflict):  # the eviction asks again
            await change.commit()
        return True

    async def _has_more(self, stored: StoredItem) -> bool:
        """True if messages were added since the last extraction."""
        session = self._sessions(self._session_id(stored.id))
        return await session.exists() and (await session.info()).last_seq > stored.state["read_seq"]

    async def extract(
        self, conversation_id: str, ask: Ask | None, *, at_once: bool, unanswered: OnUnanswered | None = None
    ) -> Extraction:
        """Extract from one conversation. `at_once` extracts even if the conversation has not ended or is not due."""
        if ask is None:
            return Extraction(conversation_id, Outcome.OFFLINE, reason="there is no model: nothing was extracted")
        claimed = await self._claim(conversation_id, at_once)
        if claimed is None:
            return Extraction(conversation_id, Outcome.ALREADY)
        try:
            answer, read_seq = await self._ask_model(claimed, ask)
        except ProviderUnavailable as outage:
            return await self._release_unanswered(claimed, outage, unanswered)
        except StoreUnavailable:  # the lease expires
            raise
        except Exception as failure:  # the caller's model may raise anything
            return await self._release_failed(claimed, failure)
        except asyncio.CancelledError:
            # A stopped worker releases it, so that another worker need not wait for the lease to expire.
            with contextlib.suppress(RedismemError):
                await asyncio.shield(self._release(claimed, _fields_before(claimed)))
            raise
        return await self._apply(claimed, answer, read_seq)

    async def _claim(self, conversation_id: str, at_once: bool) -> _Claim | None:
        stored = await self._items.get(conversation_id)
        change = await self._items.change()
        state = stored.state
        is_due = state["due_ms"] is not None and state["due_ms"] <= change.now_ms
        is_free = state["extraction"] in (None, "due", "failed")
        if not is_due:
            if not at_once or not (is_free or state["extraction"] == "done"):
                return None
            if state["extraction"] == "done" and not await self._has_more(stored):
                return None
        attempts = state["attempts"] if state["extraction"] in ("due", "claimed") else 0
        due_ms = change.now_ms + lease_ms(self._settings)
        change.alter(stored, sets={"extraction": "claimed", "due_ms": due_ms, "attempts": attempts + 1})
        try:
            states = await change.commit()
        except Conflict:
            return None
        now = StoredItem(CONVERSATION, conversation_id, states[conversation_id], None, None)
        return _Claim(now, state | {"attempts": attempts}, change.now_ms)

    async def _ask_model(self, claimed: _Claim, ask: Ask) -> tuple[ExtractionAnswer, int]:
        """Return the model's answer, and the seq of the last message that the model was given."""
        session = self._sessions(self._session_id(claimed.stored.id))
        context = await session.read()
        if not context.epoch:
            return ExtractionAnswer(), 0
        known = []
        for kind, limit in _SHOWN:
            found, _ = await pages.load_page(self._items, Query(kind), limit)
            known += [(item_id, str(state.get("title") or state["name"])) for item_id, state in found]
        messages = [*context.pinned, *context.messages]
        data = user_prompt(messages, known, [summary.text for summary in context.summaries])
        prompt = [{"role": "system", "content": INSTRUCTION}, {"role": "user", "content": data}]
        answer = parse_answer(await ask(prompt), {item_id for item_id, _ in known})
        now = await session.read(limit=1)
        if now.epoch != context.epoch:
            return ExtractionAnswer(), 0  # cleared in the meantime: its content must not survive
        if now.window_version != context.window_version:
            raise Conflict("messages were removed or replaced meanwhile, and must not become items")
        return answer, context.last_seq

    async def _apply(self, claimed: _Claim, answer: ExtractionAnswer, read_seq: int) -> Extraction:
        stored = claimed.stored
        for _ in range(_TRIES_LIMIT):
            try:
                ids = await apply.apply(self._items, stored, answer, read_seq)
                return Extraction(stored.id, Outcome.DONE, tuple(ids))
            except (InvalidItem, TooLarge) as failure:
                return await self._release_failed(claimed, failure)
            except (Conflict, ItemNotFound):
                (now,) = await self._items.read([stored.id])
                if now is None or now.state["version"] != stored.state["version"]:
                    return Extraction(stored.id, Outcome.FENCED)
        return await self._release_failed(claimed, Conflict("other writers kept changing the items it mentions"))

    async def _release_unanswered(
        self, claimed: _Claim, outage: ProviderUnavailable, unanswered: OnUnanswered | None
    ) -> Extraction:
        """Release the conversation unchanged.

        Unless the provider is paused, the conversation backs off for about as long as it has failed. If it has failed
        for `extractive_after_s`, and the request itself may be the cause, that counts as an attempt.
        """
        since_ms = claimed.before["failing_ms"]
        is_paused = unanswered is not None and await unanswered(outage, since_ms, claimed.now_ms)
        failing_ms = claimed.now_ms - (claimed.now_ms if since_ms is None else since_ms)
        longest_ms = int(self._settings.extractive_after_s * 1000)
        if not is_paused and outage.perhaps_request and 0 < longest_ms <= failing_ms:
            return await self._release_failed(claimed, outage)
        sets = _fields_before(claimed) | {"failing_ms": claimed.now_ms if since_ms is None else since_ms}
        if not is_paused and sets["due_ms"] is not None:
            wait_ms = min(max(failing_ms, _BACKOFF_MS), int(self._settings.max_backoff_s * 1000))
            sets["due_ms"] = claimed.now_ms + int(wait_ms * _random.uniform(0.5, 1))
        return await self._release(claimed, sets, Outcome.UNANSWERED, outage)

    async def _release_failed(self, claimed: _Claim, failure: Exception) -> Extraction:
        """Count an attempt, and schedule a retry unless no attempts are left."""
        attempts = claimed.stored.state["attempts"]
        if attempts >= ATTEMPTS_LIMIT:
            sets: State = {"extraction": "failed", "due_ms": None}
        else:
            wait_ms = int(_BACKOFF_MS * 2**attempts * _random.uniform(0.5, 1))
            sets = {"extraction": "due", "due_ms": await self._items.now_ms() + wait_ms}
        return await self._release(claimed, sets, Outcome.FAILED, failure)

    async def _release(
        self, claimed: _Claim, sets: State, outcome: Outcome = Outcome.FAILED, failure: Exception | None = None
    ) -> Extraction:
        change = await self._items.change()
        change.alter(claimed.stored, sets=sets)
        try:
            await change.commit()
        except Conflict:
            return Extraction(claimed.stored.id, Outcome.FENCED)
        # Only the texts of redismem's own errors are free of message text.
        reason = failure.text if isinstance(failure, RedismemError) else type(failure).__name__
        return Extraction(claimed.stored.id, outcome, reason=reason)


def _fields_before(claimed: _Claim) -> State:
    """Return the fields from before the claim. If the claim took over an expired one, the conversation is due."""
    sets = {name: claimed.before[name] for name in ("extraction", "due_ms", "attempts")}
    return sets | {"extraction": "due"} if sets["extraction"] == "claimed" else sets
