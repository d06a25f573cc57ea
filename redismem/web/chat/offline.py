"""Answers without a model, from the session's memory alone. The page says that no model is set up."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator
from itertools import chain, islice

from redismem.context.context import Context
from redismem.messages.message import Message
from redismem.text.sentences import split_sentences
from redismem.text.stems import QUESTION_STEMS, stems

_SHOWN_CHARS = 300
_READ_CHARS = 2_000
"""The characters of a message, of a summary and of a param's value in which an answer is looked for."""
_READ_COUNT = 200
_QUOTES_COUNT = 3
_SPEAKERS = {"user": "You said", "assistant": "I said"}


def answer(context: Context | None, text: str, hidden: Collection[str] = ()) -> str:
    """Answer a message with the sentences and params that share its rarest words.

    If nothing matches, the answer is all that the memory knows. Takes bounded time.
    """
    if context is None:
        return "The memory is unreachable, so right now I remember nothing."
    asked = _stems_of(text)
    lines = _matching_sentences(context, asked)
    params = dict(_params(context, hidden))
    facts = {name: value for name, value in params.items() if asked & _stems_of(f"{name} {value}")}
    if not (lines or facts):
        lines, facts = [_describe_length(context)], params
        lines += [f"Summary of earlier messages: {_shorten(summary.text)}" for summary in context.summaries[-1:]]
    if facts:
        lines.append(f"I know {'; '.join(f'{name}: {_shorten(value)}' for name, value in facts.items())}.")
    return "\n\n".join(lines)


def split_words(text: str) -> Iterator[str]:
    """Yield a text word by word, each word with the blanks after it."""
    yield from re.findall(r"\S+\s*", text)


def _stems_of(text: str) -> set[str]:
    return {stem for stem in stems(text[:_READ_CHARS]) if stem not in QUESTION_STEMS}


def _describe_length(context: Context) -> str:
    before = [message for message in context.messages[:-1] if message.role == "user"]
    if not before and not context.summaries:
        return "This is your first message in this conversation."
    return f"This conversation has {context.total_messages} messages. None that I remember shares a word with this one."


def _matching_sentences(context: Context, asked: set[str]) -> list[str]:
    """Return the sentences that share the rarest words with the message, oldest first; newer ones win among equals."""
    sentences = list(_sentences(context))
    shared = [asked & _stems_of(sentence) for _, sentence in sentences]
    counts = Counter(stem for stems_of_one in shared for stem in stems_of_one)
    scores = [sum(1 / counts[stem] for stem in stems_of_one) for stems_of_one in shared]
    best = sorted(((score, at) for at, score in enumerate(scores) if score), reverse=True)[:_QUOTES_COUNT]
    good = sorted(at for score, at in best if score >= best[0][0] / 2)
    return [f"{sentences[at][0]}: “{_shorten(sentences[at][1])}”" for at in good]


def _sentences(context: Context) -> Iterator[tuple[str, str]]:
    """Yield the remembered sentences, oldest first, each with its source."""
    for summary in context.summaries[-1:]:
        for sentence in split_sentences(summary.text[:_READ_CHARS]):
            yield "The summary says", sentence
    window = islice(context.messages, max(0, len(context.messages) - _READ_COUNT), len(context.messages) - 1)
    for message in chain(context.recalled, window):
        if isinstance(message.content, str) and message.role in _SPEAKERS and not _is_answer(message):
            for sentence in split_sentences(message.content[:_READ_CHARS]):
                yield _SPEAKERS[message.role], sentence


def _is_answer(message: Message) -> bool:
    """True for an answer of the chat, which may be a quotation itself."""
    return message.role == "assistant" and isinstance(message.metadata, dict) and "turn" in message.metadata


def _params(context: Context, hidden: Collection[str]) -> Iterator[tuple[str, str]]:
    for name, value in sorted(context.state.params.items()):
        if name not in hidden and isinstance(value, str | int | float):
            yield name, str(value)


def _shorten(text: str) -> str:
    line = " ".join(text[: 4 * _SHOWN_CHARS].split())
    return line if len(line) <= _SHOWN_CHARS else line[: _SHOWN_CHARS - 1] + "…"
