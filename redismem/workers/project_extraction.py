"""What a drain of the projects does: conversations that wait are read by a model, which makes items of what was said.

While the provider answers nobody it is paused as for summaries, together with them if it is the same. A conversation
that is to be evicted is read first.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
from collections import Counter

from redismem.context import Context
from redismem.errors import ModelFailed, ProviderUnavailable
from redismem.events import facts
from redismem.models import ChatModel
from redismem.project.extraction.extraction import Extraction, Outcome, within
from redismem.project.items.fields import is_item_id
from redismem.project.project import Project
from redismem.protocol.ids import session_hash
from redismem.protocol.keys import NAMESPACE
from redismem.protocol.project import calls as project_calls
from redismem.store.store import Store
from redismem.workers.archive import OnEvict
from redismem.workers.failures import log_failure
from redismem.workers.provider_pauses import Answering, Provider

log = logging.getLogger("redismem.worker")

_DUE_COUNT = 20
_CONVERSATION = re.compile(rf"project:({NAMESPACE.pattern}):(.+)", re.ASCII)
_random = random.SystemRandom()

Waiting = tuple[Project, str]


class ExtractionWorker:
    """Drains the conversations that wait in the projects of a namespace."""

    def __init__(self, store: Store, model: ChatModel, *, concurrency: int = 4) -> None:
        self.outcomes: Counter[Outcome] = Counter()
        """How often each outcome was seen."""
        self.concurrency = concurrency
        self._store = store
        self._ask = within(model, store.settings)
        self._provider = Provider(store, getattr(model, "provider", model.name))
        self._slots = asyncio.Semaphore(concurrency)
        self._in_hand: set[str] = set()
        self._stopping = False

    @property
    def is_crowded(self) -> bool:
        """Whether more conversations wait here than are in hand at a time."""
        return len(self._in_hand) > self.concurrency

    def stop(self) -> None:
        """No further claims; what is claimed goes on."""
        self._stopping = True

    async def drain(self) -> int:
        """Works off the conversations that are due. Gives how many were extracted. Raises StoreUnavailable."""
        done = 0
        while not self._stopping:
            outcomes = await self._round(await self._store.server_time_ms())
            done += outcomes.count(Outcome.DONE)
            if Outcome.DONE not in outcomes:
                break
        return done

    async def _round(self, now_ms: int) -> list[Outcome | None]:
        answering = await self._provider.look(now_ms)
        if answering is Answering.NO:
            return []
        due = await self._due()
        if answering is Answering.YES:
            return await asyncio.gather(*(self._attended(each) for each in due))
        outcomes: list[Outcome | None] = []
        if not due or not await self._provider.probe(now_ms):
            return outcomes
        try:
            for each in due:
                outcomes.append(await self._attended(each, is_probe=True))
                if not self._provider.is_probed:
                    break
        finally:
            await self._provider.give_probe_back()
        return outcomes

    async def _due(self) -> list[Waiting]:
        """What is due in all projects, in no order: who waits for an answer that nobody gets must not stay first."""
        names = await self._store.run(project_calls.projects(self._store.keys))
        found: list[Waiting] = []
        for project in [Project(self._store, name) for name in names]:
            found += [(project, each) for each in await project.extractions.due(_DUE_COUNT)]
        return _random.sample(found, len(found))

    async def _attended(self, waiting: Waiting, *, is_probe: bool = False) -> Outcome | None:
        """Extracts one; None if it is in hand, or not to be begun now, or failed in a way that is logged."""
        project, conversation_id = waiting
        if conversation_id in self._in_hand:
            return None
        self._in_hand.add(conversation_id)
        session = session_hash(project.conversations.session_id(conversation_id))
        try:
            async with self._slots:
                if self._stopping or (self._provider.is_paused and not is_probe):
                    return None
                told = await self._extracted(project, conversation_id)
        except Exception as error:  # of one conversation: the others go on; its lease, if it has one, runs out
            log_failure(f"session {session}: not extracted", error, facts(op="extraction", session=session))
            return None
        finally:
            self._in_hand.discard(conversation_id)
        self.outcomes[told.outcome] += 1
        known = facts(op="extraction", session=session, outcome=told.outcome)
        log.info("session %s: %s, %d items %s", session, told.outcome, len(told.item_ids), told.reason, extra=known)
        return told.outcome

    async def _extracted(self, project: Project, conversation_id: str) -> Extraction:
        asked_ms = await self._store.server_time_ms()
        told = await project.extractions.extract(
            conversation_id, self._ask, at_once=False, unanswered=self._note_outage
        )
        if told.outcome in (Outcome.DONE, Outcome.FAILED, Outcome.FENCED):
            await self._provider.answered(asked_ms)
        return told

    async def _note_outage(self, outage: ProviderUnavailable, since_ms: int | None, now_ms: int) -> bool:
        await self._provider.failed(outage, since_ms, now_ms)
        return self._provider.is_paused

    def before(self, on_evict: OnEvict | None) -> OnEvict:
        """An `on_evict` that keeps a conversation until it is read, and then hands it over as the other one does."""

        async def evicted(session_id: str, context: Context) -> None:
            found = _CONVERSATION.fullmatch(session_id)
            if found is not None and is_item_id("c", found[2]) and await self._waits(found[1], found[2]):
                raise ModelFailed("a conversation stays until it is extracted", reason="waits for its extraction")
            if on_evict is not None:
                await on_evict(session_id, context)

        return evicted

    async def _waits(self, project_name: str, conversation_id: str) -> bool:
        return await Project(self._store, project_name).extractions.waits(conversation_id)
