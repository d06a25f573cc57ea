"""Measure recall by its evidence: the share of the messages with the answer among those that a model is given."""

from __future__ import annotations

import json
import math
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.measuring import chosen_server, surroundings, table
from benchmarks.remembered.conversation import Conversation, Question, Turn, share
from benchmarks.remembered.dated import dated
from benchmarks.remembered.many import HITS_LIMIT, ManySessions
from benchmarks.remembered.standing import standing
from benchmarks.running import load, run, show_results
from redismem import Memory, Message, Session, Settings
from redismem.inspection.weight import stored_bytes
from redismem.originals.blocks import BLOCK_COUNT
from redismem.originals.vectors import Vectors, decode_vectors, encode_vectors
from redismem.text.stems import stems
from redismem.workers.strategies import Trim
from redismem.workers.summaries import Worker

FILE_HELP = (
    "measure recall by its evidence, in made-up conversations or in those of a file, one per line: "
    '{"name": …, "language": "en", "messages": [{"role", "content", "time_ms"}, …], "questions": '
    '[{"text", "answer", "gold": [seqs], "kind", "asked_ms"}, …]}; seqs count from 1, and name, language, kind, '
    "time_ms and asked_ms may be left out"
)
MADE_UP = Path()
"""The place of a file if there is none: the conversations are made up."""
BUDGETS = (350, 700, 1_400)
PLAIN = "plain BM25"
OFFLINE = "wordllama"
"""The embedder that is measured if it is installed."""
ASKING_NOTHING = (
    "ok",
    "Thanks",
    "Great, thank you so much",
    "yes please",
    "haha",
    "Sounds good",
    "Alright, got it",
    "lol nice",
)
"""Messages that ask for nothing. Recall should quote nothing for them: their row says how many tokens it quotes."""
_ALONE_BUDGET = 700
_TOLD_TOGETHER = 40


@dataclass
class Found:
    """The sums over the questions of one kind."""

    count: int = 0
    evidence: float = 0.0
    words: float = 0.0
    tokens: int = 0
    cpu_s: float = 0.0

    def add(self, other: Found) -> None:
        self.count += other.count
        self.evidence += other.evidence
        self.words += other.words
        self.tokens += other.tokens
        self.cpu_s += other.cpu_s

    def figures(self) -> tuple[float, float, float, float]:
        """Return evidence, words, tokens and CPU µs per question."""
        count = max(1, self.count)
        return self.evidence / count, self.words / count, self.tokens / count, self.cpu_s / count * 1e6


Results = dict[tuple[str, str], Found]
"""The figures by method and kind of question."""


def made_up(*, quick: bool) -> Iterator[Conversation]:
    """Yield generated conversations with the messages that answer each question."""
    if quick:
        yield dated("en", 150)
        return
    for count in (250, 600, 1_000):
        yield dated("en", count)
        yield dated("en", count, with_assistant=True)
    for language in ("de", "es"):
        yield dated(language, 600)
        yield dated(language, 600, with_assistant=True)
    for language, count in (("en", 1_000), ("en", 600), ("de", 600), ("es", 600)):
        yield standing(language, count)


def load_file(file: Path) -> Iterator[Conversation]:
    """Yield the conversations of a file. Questions without gold messages are left out."""
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        given = json.loads(line)
        turns = [
            Turn({name: value for name, value in each.items() if name != "time_ms"}, each.get("time_ms", 0))
            for each in given["messages"]
        ]
        questions = [
            Question(
                each["text"],
                str(each.get("answer", "")),
                gold=tuple(each["gold"]),
                kind=str(each.get("kind", "fact")),
                asked_ms=each.get("asked_ms", 0),
            )
            for each in given["questions"]
            if each.get("gold")
        ]
        name, language = given.get("name", f"conversation {number}"), given.get("language", "en")
        yield Conversation(name, language, turns, questions)


def plain_bm25(texts: Sequence[str], k1: float = 1.2, b: float = 0.75) -> Callable[[str], list[int]]:
    """Return a search that ranks the texts with BM25, without neighbours or anything else. It returns seqs."""
    counts = [Counter(stems(text)) for text in texts]
    lengths = [counted.total() for counted in counts]
    usual = sum(lengths) / max(1, len(lengths))
    documents = Counter(stem for counted in counts for stem in counted)

    def search(query: str) -> list[int]:
        scores: dict[int, float] = {}
        for stem in dict.fromkeys(stems(query)):
            rarity = math.log(1 + (len(texts) - documents[stem] + 0.5) / (documents[stem] + 0.5))
            for at, counted in enumerate(counts):
                if often := counted[stem]:
                    weight = often * (k1 + 1) / (often + k1 * (1 - b + b * lengths[at] / usual))
                    scores[at + 1] = scores.get(at + 1, 0.0) + rarity * weight
        return sorted(scores, key=scores.__getitem__, reverse=True)

    return search


def tokens_of(text: str) -> int:
    return len(text.encode()) // 4


async def tell(memory: Memory, conversation: Conversation) -> Session:
    """Append the conversation with its times, keep all of it as originals, and return the session."""
    session, worker = memory.session(conversation.name), Worker(memory.store, Trim())
    messages = [
        Message(timestamp=datetime.fromtimestamp(turn.ms / 1000, UTC), **turn.payload) if turn.ms else turn.payload
        for turn in conversation.turns
    ]
    # What is still in the window is not recalled, so this pushes the last messages out of it.
    messages += [Message("user", f"({at})") for at in range(memory.settings.recent_limit + 1)]
    for at in range(0, len(messages), _TOLD_TOGETHER):
        await session.append(*messages[at : at + _TOLD_TOGETHER])
        await worker.drain()
    return session


async def embedder_alone(texts: Sequence[str], questions: Sequence[str], embed: Any) -> dict[str, list[int]]:
    """Return the seqs of the texts by the similarity of their vectors to each question, best first."""
    from redismem.recall.embedder import open_embedder  # needs numpy
    from redismem.recall.nearest import find_nearest

    embedder = open_embedder(embed, Settings())
    _, rows = await embedder.rows([*texts, *questions])
    vectors = {}
    for number in range(-(-len(texts) // BLOCK_COUNT)):
        block = rows[number * BLOCK_COUNT : min((number + 1) * BLOCK_COUNT, len(texts))]
        encoded = encode_vectors(embedder.mark, embedder.dimensions, dict(enumerate(block)), 0, len(block))
        vectors[number] = decode_vectors(encoded) or Vectors(embedder.dimensions, 0, b"", b"")
    await embedder.aclose()
    return {
        question: list(find_nearest(row, vectors, len(texts) + 1, len(texts)))
        for question, row in zip(questions, rows[len(texts) :], strict=True)
    }


async def measure(url: str, name: str, conversation: Conversation, embed: Any = None) -> tuple[Results, float]:
    """Return the figures by method and kind, and the bytes of a message in Redis: without an embedder, and with it."""
    results: Results = {}
    size_bytes = await _measure_recall(results, "recall", url, name, conversation, None)
    texts = [str(turn.payload.get("content") or "") for turn in conversation.turns]
    _measure_alone(results, PLAIN, conversation, texts, plain_bm25(texts))
    if embed is not None:
        label = embed if isinstance(embed, str) else "embedder"
        size_bytes = await _measure_recall(results, f"recall, {label}", url, f"{name}-vectors", conversation, embed)
        nearest = await embedder_alone(texts, [question.text for question in conversation.questions], embed)
        _measure_alone(results, f"{label} alone", conversation, texts, nearest.__getitem__)
    return results, size_bytes


async def _measure_recall(
    results: Results, label: str, url: str, name: str, conversation: Conversation, embed: Any
) -> float:
    """Measure recall at all budgets, and return the bytes of a message in Redis."""
    settings = Settings(shards=1, threshold=4, recent_limit=2, train_dictionaries=False, embed_timeout_s=30)
    async with Memory.connect(url, namespace=name, settings=settings, embed=embed) as memory:
        session = await tell(memory, conversation)
        size_bytes = await stored_bytes(memory.store, [session.id]) or 0
        for question in conversation.questions:
            for budget in BUDGETS:
                _add(results, f"{label} {budget}", question, await _recall(session, conversation, question, budget))
            best = {message.seq for message in await session.recall(question.text, HITS_LIMIT)}
            _add(results, f"{label}, best 10", question, _judge(question, conversation, best, "", 0))
        for text in ASKING_NOTHING if conversation.language == "en" else ():
            found = await _recall(session, conversation, Question(text, text, gold=(0,)), _ALONE_BUDGET)
            results.setdefault((f"{label} {_ALONE_BUDGET}", "asks nothing"), Found()).add(found)
        if embed is None and conversation.turns[0].ms:
            await _measure_many(ManySessions(memory, conversation), conversation, results)
    return size_bytes / len(conversation.turns)


def _measure_alone(
    results: Results,
    label: str,
    conversation: Conversation,
    texts: Sequence[str],
    search: Callable[[str], Sequence[int]],
) -> None:
    """Measure a search that gives the best messages within the budget, and nothing beside them."""
    for question in conversation.questions:
        begun_s = time.process_time()
        seqs, lines, left = set[int](), list[str](), _ALONE_BUDGET
        for seq in search(question.text):
            if tokens_of(texts[seq - 1]) + 1 <= left:
                seqs.add(seq)
                lines.append(texts[seq - 1])
                left -= tokens_of(texts[seq - 1]) + 1
        spent_s = time.process_time() - begun_s
        found = _judge(question, conversation, seqs, "\n".join(lines), spent_s)
        _add(results, f"{label} {_ALONE_BUDGET}", question, found)


async def _measure_many(sessions: ManySessions, conversation: Conversation, results: Results) -> None:
    """Add the figures of recall over all sessions of an owner, with the conversation in many sessions."""
    await sessions.tell()
    for question in conversation.questions:
        for budget in BUDGETS:
            seqs, quoted = await sessions.ask(_make_message(conversation, question), budget)
            _add(results, f"owner {budget}", question, _judge(question, conversation, seqs, quoted, 0))
        best, is_found = await sessions.search(question)
        _add(results, "owner, best 10", question, _judge(question, conversation, best, "", 0))
        _add(results, "owner, best 5 sessions", question, Found(1, float(is_found)))


def _make_message(conversation: Conversation, question: Question) -> Message:
    asked_ms = question.asked_ms or max(turn.ms for turn in conversation.turns)
    return Message("user", question.text, timestamp=datetime.fromtimestamp((asked_ms or 1) / 1000, UTC))


async def _recall(session: Session, conversation: Conversation, question: Question, budget: int) -> Found:
    """Ask in a turn, as a chat would, and take the turn back."""
    context = await session.append_and_read(_make_message(conversation, question), recall=budget)
    shown = context.to_openai()
    begun_s = time.process_time()
    await session.recall(question.text, max_tokens=budget)  # the cache is warm now
    spent_s = time.process_time() - begun_s
    recalled = [each["content"] for each in shown if "<recalled>" in str(each["content"])]
    seqs = {message.seq for message in context.recalled}
    await session.pop()
    return _judge(question, conversation, seqs, "\n".join(recalled), spent_s)


def _judge(question: Question, conversation: Conversation, seqs: set[int], text: str, cpu_s: float) -> Found:
    alone = replace(conversation, questions=[question])
    evidence = len(seqs & set(question.gold)) / len(question.gold)
    return Found(1, evidence, share(text, alone), tokens_of(text), cpu_s)


def report(results: Results) -> str:
    """Return a table of evidence, words, tokens and CPU by method, for each kind of question."""
    kinds = sorted({kind for _, kind in results}, key=lambda kind: (kind == "all", kind))
    rows = []
    for kind in kinds:
        for method, of_kind in results:
            if of_kind == kind:
                evidence, words, tokens, cpu_us = results[method, kind].figures()
                count = results[method, kind].count
                cells = (f"{evidence:.3f}", f"{words:.3f}", f"{tokens:,.0f}", f"{cpu_us:,.0f}")
                rows.append([kind, method, f"{count:,}", *cells])
    return table(("questions", "method", "count", "evidence", "words", "tokens", "CPU µs"), rows)


def show(place: Path, *, embed: str | None, quick: bool, file: Path | None) -> None:
    """Measure all conversations, and print the figures of each and of all together."""
    if embed is None and find_spec(OFFLINE) is not None:
        embed = OFFLINE
    name = f"bench-{os.getpid()}"
    sums: Results = {}
    parts, figures = list[str](), list[dict[str, Any]]()
    with chosen_server(name) as server:
        around = surroundings(server, "benchmarks.remembering") | {"load": load()}
        for number, told in enumerate(made_up(quick=quick) if place == MADE_UP else load_file(place)):
            results, message_bytes = run(measure(server.url, f"{name}-{number}", told, embed))
            shown = "  ".join(
                f"{method} {found.figures()[0]:.3f}" for (method, kind), found in results.items() if kind == "all"
            )
            parts.append(f"{told.name}: {len(told.turns)} messages, {message_bytes:.0f} bytes each; evidence: {shown}")
            figures.append({"conversation": told.name, "message_bytes": message_bytes})
            for key, found in results.items():
                sums.setdefault(key, Found()).add(found)
    rows = [
        dict(zip(("method", "kind", "evidence", "words", "tokens", "cpu_us"), (*key, *found.figures()), strict=True))
        for key, found in sums.items()
    ]
    shown = "\n".join([*parts, "", report(sums)])
    show_results(around, {"conversations": figures, "rows": rows}, shown, file)


def _add(results: Results, method: str, question: Question, found: Found) -> None:
    for kind in (question.kind, "all"):
        results.setdefault((method, kind), Found()).add(found)
