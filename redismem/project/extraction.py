"""What was said in a conversation becomes items: a model reads it, its answer is checked, and one change applies it.

A conversation that has ended waits in an index by when it is due. To claim it is a change of it, whose version is the
fence: what is written under an older one is refused. So a worker that comes late, or is started twice, adds nothing.
What stands in a conversation is data. It can make items and change a few of their fields; it can do nothing else.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from redismem.errors import Conflict, InvalidItem, ItemNotFound, ModelFailed, SessionNotFound, TooLarge
from redismem.messages import Message
from redismem.models.draft import ChatModel
from redismem.project import applying, searching
from redismem.project.answers import INSTRUCTION, Answer, parsed, question
from redismem.project.folding import State
from redismem.project.items import Items, Stored
from redismem.project.querying import Query
from redismem.project.schema import CONVERSATION, DECISION, ENTITY, TASK
from redismem.session import Session

LEASE_MS = 120_000
ATTEMPTS_LIMIT = 5
_BACKOFF_MS = 2_000
_TRIES_LIMIT = 5
_SHOWN = ((DECISION, 30), (TASK, 30), (ENTITY, 60))
_ANSWER_TOKENS = 2_000
_random = random.SystemRandom()


class Outcome(StrEnum):
    """How an extraction ended."""

    DONE = "done"
    ALREADY = "already"
    """it was done before, or is another's now"""
    FENCED = "fenced"
    """another one took over meanwhile"""
    FAILED = "failed"
    """the model gave no usable answer; it is tried again later, if attempts are left"""
    OFFLINE = "offline"
    """there is no model to ask: nothing was extracted"""


@dataclass(frozen=True, slots=True)
class Extraction:
    """What came of a conversation."""

    conversation_id: str
    outcome: Outcome
    item_ids: tuple[str, ...] = ()
    """what was made, changed or spoken of"""
    reason: str = ""
    """why it failed, without anything that was said"""


class Extractions:
    """Reads conversations and makes items of them."""

    def __init__(self, items: Items, sessions: Callable[[str], Session], session_id: Callable[[str], str]) -> None:
        self._items = items
        self._sessions = sessions
        self._session_id = session_id

    async def due(self, limit: int) -> list[str]:
        """The conversations that wait, and those whose worker has not come back in time."""
        index = self._items.keys.index(CONVERSATION.letter, "due")
        return await self._items.run(self._items.calls.members(index, 0, await self._items.now_ms(), 0, limit))

    async def extract(self, conversation_id: str, model: ChatModel | None, *, at_once: bool) -> Extraction:
        """Extracts one conversation. `at_once`: even if it has not ended, or is not due yet."""
        if model is None:
            return Extraction(conversation_id, Outcome.OFFLINE, reason="there is no model: nothing was extracted")
        claimed = await self._claim(conversation_id, at_once)
        if claimed is None:
            return Extraction(conversation_id, Outcome.ALREADY)
        try:
            answer = await self._asked(claimed, model)
        except (ModelFailed, InvalidItem, TooLarge) as failure:
            return await self._give_back(claimed, failure)
        return await self._applied(claimed, answer)

    async def _claim(self, conversation_id: str, at_once: bool) -> Stored | None:
        stored = await self._items.get(conversation_id)
        change = await self._items.change()
        state = stored.state
        is_due = state["due_ms"] is not None and state["due_ms"] <= change.now_ms
        is_free = state["extraction"] in (None, "due", "failed")
        if state["extraction"] == "done" or not (is_due or (at_once and is_free)):
            return None
        sets = {"extraction": "claimed", "due_ms": change.now_ms + LEASE_MS}
        change.alter(stored, sets=sets | {"attempts": state["attempts"] + 1})
        try:
            states = await change.commit()
        except Conflict:
            return None
        return Stored(CONVERSATION, conversation_id, states[conversation_id], None, None)

    async def _asked(self, claimed: Stored, model: ChatModel) -> Answer:
        """Raises ModelFailed, InvalidItem, TooLarge."""
        try:
            messages: list[Message] = await self._sessions(self._session_id(claimed.id)).messages()
        except SessionNotFound:
            messages = []
        if not messages:
            return Answer()
        known = []
        for kind, limit in _SHOWN:
            found, _ = await searching.page(self._items, Query(kind), limit)
            known += [(item_id, str(state.get("title") or state["name"])) for item_id, state in found]
        asked = [{"role": "system", "content": INSTRUCTION}, {"role": "user", "content": question(messages, known)}]
        return parsed(await model.reply(asked, max_tokens=_ANSWER_TOKENS), {item_id for item_id, _ in known})

    async def _applied(self, claimed: Stored, answer: Answer) -> Extraction:
        for _ in range(_TRIES_LIMIT):
            try:
                ids = await applying.apply(self._items, claimed, answer)
                return Extraction(claimed.id, Outcome.DONE, tuple(ids))
            except (InvalidItem, TooLarge) as failure:
                return await self._give_back(claimed, failure)
            except (Conflict, ItemNotFound):
                (now,) = await self._items.read([claimed.id])
                if now is None or now.state["version"] != claimed.state["version"]:
                    return Extraction(claimed.id, Outcome.FENCED)
        return await self._give_back(claimed, Conflict("others kept writing what it speaks of"))

    async def _give_back(self, claimed: Stored, failure: Exception) -> Extraction:
        """Tried again later, unless no attempts are left."""
        change = await self._items.change()
        attempts = claimed.state["attempts"]
        wait_ms = int(_BACKOFF_MS * 2**attempts * _random.uniform(0.5, 1))
        if attempts >= ATTEMPTS_LIMIT:
            sets: State = {"extraction": "failed", "due_ms": None}
        else:
            sets = {"extraction": "due", "due_ms": change.now_ms + wait_ms}
        change.alter(claimed, sets=sets)
        try:
            await change.commit()
        except Conflict:
            return Extraction(claimed.id, Outcome.FENCED)
        return Extraction(claimed.id, Outcome.FAILED, reason=getattr(failure, "text", type(failure).__name__))
