"""Drain the projects of a namespace: a model reads waiting conversations and extracts items from them.

While the model's provider is down, it is paused; summaries by the same provider pause too. A conversation is not
evicted before it has been extracted.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
from collections import Counter

from redismem.context.context import Context
from redismem.errors import ModelFailed, ProviderUnavailable
from redismem.events import facts
from redismem.models import ChatModel
from redismem.project.extraction.extraction import Extraction, Outcome, ask_within_timeout
from redismem.project.items.fields import is_item_id
from redismem.project.project import Project
from redismem.protocol.ids import session_hash
from redismem.protocol.keys import NAMESPACE
from redismem.protocol.project import calls as project_calls
from redismem.store.store import Store
from redismem.workers.archive import OnEvict
from redismem.workers.failures import log_failure
from redismem.workers.provider_pauses import Availability, Provider

log = logging.getLogger("redismem.worker")

_DUE_COUNT = 20
_CONVERSATION = re.compile(rf"project:({NAMESPACE.pattern}):(.+)", re.ASCII)
_random = random.SystemRandom()

Waiting = tuple[Project, str]


class ExtractionWorker:
    """Drain the waiting conversations in the projects of a namespace."""

    def __init__(self, store: Store, model: ChatModel, *, concurrency: int = 4) -> None:
        self.outcomes: Counter[Outcome] = Counter()
        """The number of conversations per outcome."""
        self.concurrency = concurrency
        self._store = store
        self._ask = ask_within_timeout(model, store.settings)
        self._provider = Provider(store, getattr(model, "provider", model.name))
        self._slots = asyncio.Semaphore(concurrency)
        self._in_hand: set[str] = set()
        self._stopping = False

    @property
    def is_crowded(self) -> bool:
        """True if more conversations wait in this process than `concurrency` allows at a time."""
        return len(self._in_hand) > self.concurrency

    def stop(self) -> None:
        """Stop claiming conversations. Extractions in progress continue."""
        self._stopping = True

    async def drain(self) -> int:
        """Extract from every due conversation and return how many were done. Raises StoreUnavailable."""
        done = 0
        while not self._stopping:
            outcomes = await self._run_round(await self._store.server_time_ms())
            done += outcomes.count(Outcome.DONE)
            if Outcome.DONE not in outcomes:
                break
        return done

    async def _run_round(self, now_ms: int) -> list[Outcome | None]:
        availability = await self._provider.look(now_ms)
        if availability is Availability.PAUSED:
            return []
        due = await self._load_due()
        if availability is Availability.AVAILABLE:
            return await asyncio.gather(*(self._extract_logged(each) for each in due))
        outcomes: list[Outcome | None] = []
        if not due or not await self._provider.probe(now_ms):
            return outcomes
        try:
            for each in due:
                outcomes.append(await self._extract_logged(each, is_probe=True))
                if not self._provider.is_probed:
                    break
        finally:
            await self._provider.return_probe()
        return outcomes

    async def _load_due(self) -> list[Waiting]:
        """Return due conversations of all projects, in random order so that a failing one does not block the rest."""
        names = await self._store.run(project_calls.projects(self._store.keys))
        due: list[Waiting] = []
        for project in [Project(self._store, name) for name in names]:
            due += [(project, each) for each in await project.extractions.due(_DUE_COUNT)]
        return _random.sample(due, len(due))

    async def _extract_logged(self, waiting: Waiting, *, is_probe: bool = False) -> Outcome | None:
        """Extract from one conversation and log the outcome.

        Returns `None` if the extraction raised an error, which is logged, or was not started: the conversation is in
        progress, the worker is stopping, or the provider is paused.
        """
        project, conversation_id = waiting
        if conversation_id in self._in_hand:
            return None
        self._in_hand.add(conversation_id)
        session = session_hash(project.conversations.session_id(conversation_id))
        try:
            async with self._slots:
                if self._stopping or (self._provider.is_paused and not is_probe):
                    return None
                extraction = await self._extract(project, conversation_id)
        except Exception as error:  # of one conversation: the others continue; its lease, if it has one, expires
            log_failure(f"session {session}: not extracted", error, facts(op="extraction", session=session))
            return None
        finally:
            self._in_hand.discard(conversation_id)
        self.outcomes[extraction.outcome] += 1
        known = facts(op="extraction", session=session, outcome=extraction.outcome)
        log.info(
            "session %s: %s, %d items %s",
            session,
            extraction.outcome,
            len(extraction.item_ids),
            extraction.reason,
            extra=known,
        )
        return extraction.outcome

    async def _extract(self, project: Project, conversation_id: str) -> Extraction:
        asked_ms = await self._store.server_time_ms()
        extraction = await project.extractions.extract(
            conversation_id, self._ask, at_once=False, unanswered=self._note_outage
        )
        if extraction.outcome in (Outcome.DONE, Outcome.FAILED, Outcome.FENCED):
            await self._provider.record_answer(asked_ms)
        return extraction

    async def _note_outage(self, outage: ProviderUnavailable, since_ms: int | None, now_ms: int) -> bool:
        await self._provider.record_failure(outage, since_ms, now_ms)
        return self._provider.is_paused

    def wrap_on_evict(self, on_evict: OnEvict | None) -> OnEvict:
        """Return an `on_evict` that keeps a conversation until it has been extracted, then calls the given one."""

        async def evicted(session_id: str, context: Context) -> None:
            match = _CONVERSATION.fullmatch(session_id)
            if match is not None and is_item_id("c", match[2]) and await self._is_waiting(match[1], match[2]):
                raise ModelFailed("a conversation stays until it is extracted", reason="waits for its extraction")
            if on_evict is not None:
                await on_evict(session_id, context)

        return evicted

    async def _is_waiting(self, project_name: str, conversation_id: str) -> bool:
        return await Project(self._store, project_name).extractions.waits(conversation_id)
