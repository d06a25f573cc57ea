"""The words of later answers that reach a model, for each pair of summary and recall budgets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.remembered.busy import busy
from benchmarks.remembered.conversation import Conversation, Question, share
from benchmarks.remembered.customer import customer
from benchmarks.remembered.dated import dated
from benchmarks.remembered.many import ManySessions
from benchmarks.remembered.standing import standing
from benchmarks.running import over_lane
from redismem import Message, Session, Settings
from redismem.workers.strategies import from_settings
from redismem.workers.summaries import Worker

MANY = "many sessions"
Pair = tuple[int, int]
"""The tokens of the summary, and those of recall."""


@dataclass
class Curves:
    """The sums over the questions of one set of conversations."""

    count: int = 0
    asked_count: int = 0
    """The number of questions but those for a date, whose words are in any text that has dates."""
    words: dict[Pair, float] = field(default_factory=dict)
    evidence: dict[int, float] = field(default_factory=dict)
    """By the budget of recall."""

    def share(self, pair: Pair) -> float:
        return self.words[pair] / max(1, self.asked_count)

    def mean_evidence(self, budget: int) -> float:
        return self.evidence.get(budget, 0.0) / max(1, self.count)


def conversations(seed: int, count: int, file: Path | None) -> Iterator[tuple[str, Conversation]]:
    """Yield the conversations of a seed, each with the name of its set."""
    yield "friends", dated("en", count, seed)
    yield "assistant", dated("en", count, seed, with_assistant=True)
    yield "standing", standing("en", count, seed)
    yield "busy friends", busy("en", count, seed)
    yield "busy assistant", busy("en", count, seed, with_assistant=True)
    yield MANY, dated("en", count, seed + 1_000)
    if file is not None:
        yield "customer", customer(file, count, seed)


async def measure(
    url: str, name: str, conversation: Conversation, pairs: Sequence[Pair], budgets: Sequence[int], curves: Curves
) -> None:
    """Add the figures of one conversation in one session: its worker summarises it once for each summary budget."""
    texts: dict[int, str] = {}
    quotes: dict[tuple[Question, int], str] = {}
    sizes = sorted({summary for summary, _ in pairs if summary})
    for summary_tokens in sizes:
        settings = Settings(shards=1, train_dictionaries=False, summary_tokens_total=summary_tokens)
        async with over_lane(url, f"{name}-{summary_tokens}", settings) as memory:
            session = memory.session("conversation")
            strategy = from_settings(settings)
            assert strategy is not None
            await fill(session, Worker(memory.store, strategy), conversation, settings.threshold)
            context = await session.read()
            texts[summary_tokens] = _text(context.to_openai())
            if summary_tokens == sizes[-1]:  # what is recalled does not depend on the summary
                texts[0] = _text([message.to_openai() for message in context.messages])
                for question in conversation.questions:
                    for budget in _recall_budgets(pairs, budgets):
                        seqs, quotes[question, budget] = await ask(session, conversation, question, budget)
                        _add_evidence(curves, question, budget, seqs, budgets)
    _add_words(curves, conversation, pairs, texts, quotes)


async def measure_many(
    url: str, name: str, conversation: Conversation, pairs: Sequence[Pair], budgets: Sequence[int], curves: Curves
) -> None:
    """Add the figures of a conversation in many sessions of an owner, asked from a new session: it has no summary."""
    quotes: dict[tuple[Question, int], str] = {}
    settings = Settings(shards=1, train_dictionaries=False, threshold=4, recent_limit=2)
    async with over_lane(url, name, settings) as memory:
        sessions = ManySessions(memory, conversation)
        await sessions.tell()
        for question in conversation.questions:
            for budget in _recall_budgets(pairs, budgets):
                seqs, quotes[question, budget] = await sessions.ask(_message(conversation, question), budget)
                _add_evidence(curves, question, budget, seqs, budgets)
    _add_words(curves, conversation, pairs, dict.fromkeys((summary for summary, _ in pairs), ""), quotes)


def _recall_budgets(pairs: Sequence[Pair], budgets: Sequence[int]) -> list[int]:
    return sorted({*budgets, *(recall for _, recall in pairs if recall)})


async def fill(session: Session, worker: Worker, conversation: Conversation, threshold: int) -> None:
    """Append the conversation message by message, and let the worker summarise it whenever it is due."""
    for turn in conversation.turns:
        said = Message(timestamp=datetime.fromtimestamp(turn.ms / 1000, UTC), **turn.payload)
        if (await session.append(said)).window_count > threshold:
            await worker.drain()


def _message(conversation: Conversation, question: Question) -> Message:
    asked_ms = question.asked_ms or max(turn.ms for turn in conversation.turns)
    return Message("user", question.text, timestamp=datetime.fromtimestamp(asked_ms / 1000, UTC))


async def ask(session: Session, conversation: Conversation, question: Question, budget: int) -> tuple[set[int], str]:
    """Ask in a turn, take the turn back, and return the seqs of the recalled messages with their quotation."""
    context = await session.append_and_read(_message(conversation, question), recall=budget)
    await session.pop()
    quoted = [each["content"] for each in context.to_openai() if "<recalled>" in str(each["content"])]
    return {message.seq for message in context.recalled}, "\n".join(quoted)


def _text(payloads: Sequence[dict[str, Any]]) -> str:
    return "\n".join(str(payload.get("content") or "") for payload in payloads)


def _add_evidence(curves: Curves, question: Question, budget: int, seqs: set[int], budgets: Sequence[int]) -> None:
    if not question.gold or budget not in budgets:
        return
    curves.count += budget == budgets[0]
    found = len(seqs & set(question.gold)) / len(question.gold)
    curves.evidence[budget] = curves.evidence.get(budget, 0.0) + found


def _add_words(
    curves: Curves,
    conversation: Conversation,
    pairs: Sequence[Pair],
    texts: dict[int, str],
    quotes: dict[tuple[Question, int], str],
) -> None:
    for question in conversation.questions:
        if question.kind == "when":
            continue
        curves.asked_count += 1
        alone = replace(conversation, questions=[question])
        for summary, recall in pairs:
            text = f"{texts[summary]}\n{quotes[question, recall] if recall else ''}"
            curves.words[summary, recall] = curves.words.get((summary, recall), 0.0) + share(text, alone)
