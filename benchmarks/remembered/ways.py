"""Ways to give a model what an earlier conversation said, none of which calls a model that writes."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.measuring import Server
from benchmarks.remembered.conversation import Conversation, Question
from benchmarks.remembered.evidence import OFFLINE, plain_bm25, tell, tokens_of
from benchmarks.remembered.splits import ask, fill
from benchmarks.running import over_lane
from redismem import Memory, Settings
from redismem.originals.blocks import BLOCK_COUNT
from redismem.originals.vectors import decode_vectors, encode_vectors
from redismem.workers.strategies import from_settings
from redismem.workers.summaries import Worker

Given = tuple[set[int] | None, str]
"""The seqs of the messages that a model is given, `None` for a summary, and the text."""


class Way:
    """A way to remember: `store` is timed by message, `search` by question."""

    stores_by_budget = False
    """True if what it stores depends on the budget."""

    async def store(self, server: Server, name: str, told: Conversation, budget: int) -> None:
        """Store the conversation."""
        del server, name, budget
        self._texts = [str(turn.payload.get("content") or "") for turn in told.turns]

    async def give(self, question: Question, budget: int) -> Given:
        """Return what the model is given for this question."""
        raise NotImplementedError

    async def search(self, question: Question, budget: int) -> None:
        """Do the work of `give` for its CPU, with warm caches and no turn to take back."""
        await self.give(question, budget)

    async def aclose(self) -> None:
        """Close connections."""


class Window(Way):
    """The last messages that fit into the budget."""

    async def give(self, question: Question, budget: int) -> Given:
        del question
        return take(self._texts, range(len(self._texts), 0, -1), budget, stop=True)


class PlainBM25(Way):
    """The best messages by BM25 with this library's stems, in a list of the process: no neighbours, days or rules."""

    async def store(self, server: Server, name: str, told: Conversation, budget: int) -> None:
        await super().store(server, name, told, budget)
        self._search = plain_bm25(self._texts)

    async def give(self, question: Question, budget: int) -> Given:
        return take(self._texts, self._search(question.text), budget)


class Vectors(Way):
    """The messages nearest to the question by an offline embedder alone."""

    async def store(self, server: Server, name: str, told: Conversation, budget: int) -> None:
        from redismem.recall.embedder import open_embedder  # needs numpy

        await super().store(server, name, told, budget)
        self._blocks = {}
        self._embedder = open_embedder(OFFLINE, Settings())
        _, rows = await self._embedder.rows(self._texts)
        for number in range(-(-len(rows) // BLOCK_COUNT)):
            block = dict(enumerate(rows[number * BLOCK_COUNT : (number + 1) * BLOCK_COUNT]))
            encoded = encode_vectors(self._embedder.mark, self._embedder.dimensions, block, 0, len(block))
            if (decoded := decode_vectors(encoded)) is not None:
                self._blocks[number] = decoded

    async def give(self, question: Question, budget: int) -> Given:
        from redismem.recall.nearest import find_nearest

        _, rows = await self._embedder.rows([question.text])
        count = len(self._texts)
        return take(self._texts, list(find_nearest(rows[0], self._blocks, count + 1, count)), budget)

    async def aclose(self) -> None:
        await self._embedder.aclose()


class SummaryOnly(Way):
    """The extractive summary of this many tokens, without the window behind it."""

    stores_by_budget = True
    summary_share = 1.0

    async def store(self, server: Server, name: str, told: Conversation, budget: int) -> None:
        settings = Settings(shards=1, train_dictionaries=False, summary_tokens_total=round(self.summary_share * budget))
        self._told, self._memory = told, over_lane(server.url, name, settings)
        self._session, strategy = self._memory.session("conversation"), from_settings(settings)
        assert strategy is not None
        await fill(self._session, Worker(self._memory.store, strategy), told, settings.threshold)
        self._summary = "\n".join(summary.text for summary in (await self._session.read()).summaries)

    async def give(self, question: Question, budget: int) -> Given:
        del question, budget
        return None, self._summary

    async def aclose(self) -> None:
        await self._memory.aclose()


class SummaryAndRecall(SummaryOnly):
    """Half of the tokens for the extractive summary, and half for recall in a turn."""

    summary_share = 0.5

    async def give(self, question: Question, budget: int) -> Given:
        _, quoted = await ask(self._session, self._told, question, budget // 2)
        return None, f"{self._summary}\n{quoted}"

    async def search(self, question: Question, budget: int) -> None:
        await self._session.recall(question.text, max_tokens=budget // 2)


class Recall(Way):
    """Recall in a turn, without a summary."""

    embed: str | None = None

    async def store(self, server: Server, name: str, told: Conversation, budget: int) -> None:
        del budget
        settings = Settings(shards=1, threshold=4, recent_limit=2, train_dictionaries=False, embed_timeout_s=30)
        self._told = told
        self._memory = Memory.connect(server.url, namespace=name, settings=settings, embed=self.embed)
        self._session = await tell(self._memory, told)

    async def give(self, question: Question, budget: int) -> Given:
        return await ask(self._session, self._told, question, budget)

    async def search(self, question: Question, budget: int) -> None:
        await self._session.recall(question.text, max_tokens=budget)

    async def aclose(self) -> None:
        await self._memory.aclose()


class RecallWithVectors(Recall):
    """Recall in a turn, by words and by an offline embedder."""

    embed = OFFLINE


def take(texts: Sequence[str], seqs: Sequence[int], budget: int, *, stop: bool = False) -> Given:
    """Return the messages that fit, best first; with `stop`, none after the first that does not fit."""
    taken, left = set[int](), budget
    for seq in seqs:
        if (tokens := tokens_of(texts[seq - 1]) + 1) <= left:
            taken.add(seq)
            left -= tokens
        elif stop:
            break
    return taken, "\n".join(texts[seq - 1] for seq in sorted(taken))
