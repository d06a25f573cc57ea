"""The same conversation in many sessions of one owner: each talk, between pauses of most of a day, in its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from benchmarks.remembered.conversation import Conversation, Question, Turn
from redismem import Memory, Message
from redismem.workers.strategies import Trim
from redismem.workers.summaries import Worker

HITS_LIMIT, SESSIONS_LIMIT = 10, 5
_OWNER = "the person"
_PAUSE_MS = 20 * 3_600_000
_SEARCHES = (20, 16, 12, 8, 5)


def split(turns: Sequence[Turn]) -> Iterator[list[Turn]]:
    """Yield the talks of a conversation."""
    talk: list[Turn] = []
    for turn in turns:
        if talk and turn.ms - talk[-1].ms > _PAUSE_MS:
            yield talk
            talk = []
        talk.append(turn)
    yield talk


class ManySessions:
    """The sessions of one owner. Messages are named by their seqs in the whole conversation."""

    def __init__(self, memory: Memory, conversation: Conversation) -> None:
        self._memory = memory
        self._talks = list(split(conversation.turns))
        self._firsts: dict[str | None, int] = {}
        """The seq of each session's first message."""

    async def tell(self) -> None:
        """Append each talk, and let a worker trim it."""
        worker, first = Worker(self._memory.store, Trim()), 1
        for number, talk in enumerate(self._talks):
            session = self._memory.session(f"talk-{number:03}", owner=_OWNER)
            for turn in talk:
                said = datetime.fromtimestamp(turn.ms / 1000, UTC)
                await session.append(Message(timestamp=said, **turn.payload))
            await worker.drain()
            self._firsts[session.id] = first
            first += len(talk)

    async def ask(self, asked: Message, budget: int) -> tuple[set[int], str]:
        """Ask in a turn of a new session. Return the seqs of the recalled messages, and their quotation."""
        session = self._memory.session("asking", owner=_OWNER)
        context = await session.append_and_read(asked, recall=budget, recall_scope="owner")
        shown = [str(each["content"]) for each in context.to_openai()]
        seqs = self._seqs(context.recalled)
        await session.clear()
        return seqs, "\n".join(text for text in shown if "<recalled>" in text)

    async def search(self, question: Question) -> tuple[set[int], bool]:
        """Return the seqs of the best 10 matches, and True if at most 5 sessions contain a message with the answer."""
        session = self._memory.session("asking", owner=_OWNER)
        best = self._seqs(await session.recall(question.text, HITS_LIMIT, scope="owner"))
        wanted = {self._session_of(seq) for seq in question.gold}
        for limit in _SEARCHES:
            found = {message.session_id for message in await session.recall(question.text, limit, scope="owner")}
            if len(found) <= SESSIONS_LIMIT:
                break
        return best, not wanted.isdisjoint(found)

    def _seqs(self, messages: Sequence[Message]) -> set[int]:
        return {self._firsts[message.session_id] + message.seq - 1 for message in messages}

    def _session_of(self, seq: int) -> str | None:
        return max((first, session_id) for session_id, first in self._firsts.items() if session_id and first <= seq)[1]
