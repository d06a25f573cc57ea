"""Measure the share of a long conversation that reaches the model: the content words of answers to later questions.

Each conversation is appended message by message, and the worker summarises overdue sessions, on a private redis-server.
The extractive summariser writes the summaries, unless --provider names a model (its name and key come from
REDISMEM_MODEL and REDISMEM_MODEL_API_KEY).

The friends' chats are generated from a seed, in six languages. The customer's year consists of the transcripts in
--file or BENCH_TRANSCRIPTS; without them it is left out. A token is four bytes of the texts that a model would
receive.

--evidence measures recall alone: the share of the messages with the answer that a model is given, and the share of the
answer's words, for budgets of 350, 700 and 1,400 tokens, beside plain BM25 over the same messages. With an embedder
(wordllama, if it is installed), it also measures recall with the embedder, and the embedder alone. In the rows "owner",
the conversation is told in many sessions of one owner, a talk in each, and recall searches all of them.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.measuring import chosen_server, surroundings, table
from benchmarks.remembered import evidence
from benchmarks.remembered.conversation import Conversation, Turn, share, updates
from benchmarks.remembered.customer import customer
from benchmarks.remembered.friends import LANGUAGES, friends
from benchmarks.remembered.standing import KIND as STANDING
from benchmarks.remembered.standing import standing
from benchmarks.running import load, options, over_lane, run, show_results
from redismem import Message, Session, Settings
from redismem.text.sentences import split_sentences
from redismem.workers.strategies import from_settings
from redismem.workers.summaries import Worker

TOTALS = (500, 1_750, 3_000)
DEFAULT_TOTAL = 1_750
RECALLED_TOKENS = 700
RECENT_COUNT = 6
LIMITS = {"default context": (0.44, 2_000), "context with recall": (0.64, 2_400), "recall alone": (0.56, 700)}
_BAR_CHARS = 40


def made(file: Path | None, *, quick: bool) -> Iterator[Conversation]:
    """Yield the conversations, longest first."""
    if file is not None:
        yield customer(file, 120 if quick else 1_000)
        if not quick:
            yield customer(file, 300, seed=1)
    if not quick:
        yield friends("en", 1_000)
    for language in ("en", "zh") if quick else LANGUAGES:
        yield friends(language, 120 if quick else 400, seed=1)
    for language in () if quick else ("en", "de", "es"):
        yield standing(language, 600)


def told(payloads: Sequence[dict[str, Any]]) -> str:
    """Return the text that a model receives: the texts, and the arguments of tool calls."""
    texts = []
    for payload in payloads:
        content = payload.get("content")
        texts.append(content if isinstance(content, str) else json.dumps(content, ensure_ascii=False))
        texts += [call["function"]["arguments"] for call in payload.get("tool_calls") or ()]
    return "\n".join(texts)


def tokens_of(text: str) -> int:
    return len(text.encode()) // 4


async def _fill(session: Session, worker: Worker, turns: Sequence[Turn], threshold: int) -> float:
    """Append a conversation, and return the CPU seconds of the summaries."""
    spent_s = 0.0
    for turn in turns:
        said = Message(timestamp=datetime.fromtimestamp(turn.ms / 1000, UTC), **turn.payload)
        if (await session.append(said)).window_count > threshold:
            started_s = time.process_time()
            await worker.drain()
            spent_s += time.process_time() - started_s
    return spent_s


def _row(label: str, text: str, conversation: Conversation) -> dict[str, Any]:
    corrected, newer, stale = updates(text, conversation)
    found = share(text, conversation)
    verbatim = [question.answer in text for question in conversation.questions if question.kind.startswith(STANDING)]
    row = {"label": label, "tokens": tokens_of(text), "share": found, "updates": (corrected, newer, stale)}
    return row | {"rules": (len(verbatim), sum(verbatim))}


def _random_text(conversation: Conversation, tokens: int) -> str:
    """Return random sentences and the recent messages, together of this many tokens."""
    turns = conversation.turns
    recent = told([turn.payload for turn in turns[-RECENT_COUNT:]])
    every = [each for turn in turns[:-RECENT_COUNT] for each in split_sentences(told([turn.payload]))]
    picked = []
    left = tokens - tokens_of(recent)
    for sentence in random.Random(7).sample(every, len(every)):
        if tokens_of(sentence) <= left:
            picked.append(sentence)
            left -= tokens_of(sentence) + 1
    return "\n".join([*picked, recent])


def _everything(conversation: Conversation) -> str:
    """Return all messages, with a date above the messages of each day."""
    texts = []
    day = ""
    for turn in conversation.turns:
        said = datetime.fromtimestamp(turn.ms / 1000, UTC)
        texts += [] if day == (day := f"{said.day} {said:%B %Y}") else [day]
        texts.append(told([turn.payload]))
    return "\n".join(texts)


async def _asked(session: Session, conversation: Conversation, context: str) -> list[dict[str, Any]]:
    """Return the rows of recall: each question is asked alone, and its answer is searched in the result."""
    rows = []
    for label, before in (("recall alone", ""), ("context with recall", context)):
        shares, tokens = 0.0, 0
        for question in conversation.questions:
            found = await session.recall(question.text, max_tokens=RECALLED_TOKENS)
            text = f"{before}\n{told([message.to_openai() for message in found])}"
            alone = Conversation(conversation.name, conversation.language, (), [question])
            shares, tokens = shares + share(text, alone), tokens + tokens_of(text)
        count = len(conversation.questions)
        rows.append({"label": label, "tokens": tokens // count, "share": shares / count, "updates": None})
    return rows


async def measure(url: str, name: str, conversation: Conversation, settings: Settings) -> dict[str, Any]:
    """Return the rows of one conversation."""
    rows = []
    spent_us = 0.0
    default = ""
    for total in TOTALS:
        changed = settings.model_copy(update={"summary_tokens_total": total})
        strategy = from_settings(changed)
        assert strategy is not None
        async with over_lane(url, f"{name}-{total}", changed) as memory:
            session, worker = memory.session(conversation.name), Worker(memory.store, strategy)
            spent_s = await _fill(session, worker, conversation.turns, changed.threshold)
            text = told((await session.read()).to_openai())
            label = "default context" if total == DEFAULT_TOTAL else f"the same, summaries of {total:,} tokens"
            rows.append(_row(label, text, conversation))
            if total == DEFAULT_TOTAL:
                default, spent_us = text, spent_s / max(1, worker.outcomes.total()) * 1e6
                rows += await _asked(session, conversation, default)
    rows.append(_row("random sentences", _random_text(conversation, tokens_of(default)), conversation))
    rows.append(_row("everything", _everything(conversation), conversation))
    return {
        "conversation": conversation.name,
        "messages": len(conversation.turns),
        "questions": len(conversation.questions),
        "worker_us": spent_us,
        "rows": rows,
    }


def report(results: Sequence[dict[str, Any]]) -> str:
    """Return a table for each conversation, then the targets."""
    parts = []
    for result in results:
        parts.append(
            f"{result['conversation']}: {result['messages']} messages, {result['questions']} questions; "
            f"{result['worker_us']:,.0f} µs of the worker's processor a summary"
        )
        most = max(row["share"] / max(1, row["tokens"]) for row in result["rows"])
        rows = [[row["label"], f"{row['tokens']:,}", f"{row['share']:.3f}", _updated(row)] for row in result["rows"]]
        for row, cells in zip(result["rows"], rows, strict=True):
            a_thousand = 1_000 * row["share"] / max(1, row["tokens"])
            bar = "#" * max(1, round(_BAR_CHARS * a_thousand / (1_000 * most)))
            cells.append(f"{a_thousand:.3f} {bar:{_BAR_CHARS}}")
        parts.append(
            table(
                (
                    "what a model is given",
                    "tokens",
                    "share",
                    "newer told, older",
                    f"{'share a thousand tokens':{_BAR_CHARS + 6}}",
                ),
                rows,
            )
        )
    return "\n\n".join([*parts, *_verdicts(results)])


def _updated(row: dict[str, Any]) -> str:
    if row["updates"] is None or not row["updates"][0]:
        return ""
    corrected, newer, stale = row["updates"]
    return f"{newer}/{corrected}, {stale}"


def _verdicts(results: Sequence[dict[str, Any]]) -> Iterator[str]:
    others = [result for result in results if not result["conversation"].startswith(STANDING)]
    for label, (least, most) in LIMITS.items():
        rows = [row for result in others for row in result["rows"] if row["label"] == label]
        if rows:
            found, tokens = (sum(row[figure] for row in rows) / len(rows) for figure in ("share", "tokens"))
            limits = f"limits: at least {least}, at most {most:,}"
            yield f"{label}: share {found:.3f} at {tokens:,.0f} tokens, the mean; {limits}"
    every = [row["updates"] for result in others for row in result["rows"] if row["label"] == "default context"]
    corrected, newer, stale = (sum(each[at] for each in every) for at in range(3))
    rules = [row["rules"] for result in results for row in result["rows"] if row["label"] == "default context"]
    if rules_count := sum(count for count, _ in rules):
        yield f"standing rules: {sum(kept for _, kept in rules) / rules_count:.3f} of {rules_count} verbatim"
    if corrected:
        found = f"the newer stands in {newer / corrected:.3f} of {corrected}, the older is told as true in {stale}"
        yield f"updated facts: {found}; limits: at least 0.95, and 0"


def main() -> None:
    parser = options("benchmarks.remembering", __doc__ or "", rounds=1)
    parser.add_argument("--file", type=Path, help='JSON lines of {"session_id", "messages"}: one customer\'s year')
    parser.add_argument(
        "--evidence", nargs="?", const=evidence.MADE_UP, type=Path, metavar="FILE", help=evidence.FILE_HELP
    )
    parser.add_argument("--embed", help="with --evidence: openai:MODEL or gemini:MODEL [default: wordllama]")
    parser.add_argument("--provider", choices=("openai", "gemini", "anthropic"), help="a model writes the summaries")
    asked = parser.parse_args()
    if asked.evidence is not None:
        evidence.show(asked.evidence, embed=asked.embed, quick=asked.quick, file=asked.json)
        return
    file = asked.file or (Path(named) if (named := os.environ.get("BENCH_TRANSCRIPTS")) else None)
    if file is None:
        print("without a customer's year: --file FILE adds one\n")
    elif not file.is_file():
        parser.error(f"there is no file {file}")
    settings = Settings(shards=1, **({"model_provider": asked.provider} if asked.provider else {}))
    name = f"bench-{os.getpid()}"
    results = []
    with chosen_server(name) as server:
        around = surroundings(server, "benchmarks.remembering") | {"load": load()}
        for number, conversation in enumerate(made(file, quick=asked.quick)):
            results.append(run(measure(server.url, f"{name}-{number}", conversation, settings)))
    show_results(around, {"conversations": results}, report(results), asked.json)


if __name__ == "__main__":
    main()
