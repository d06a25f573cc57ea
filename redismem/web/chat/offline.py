"""Answers without a model, from the session's memory alone. Each answer says that no model is set up."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from redismem.context import Context

_WORD = re.compile(r"[^\W_]{3,}")
_SHOWN_CHARS = 300
_QUOTES_COUNT = 3
_NO_MODEL = "No model is set up, so I can only tell you what I remember."


def answer(context: Context | None, text: str, hidden: Collection[str] = ()) -> str:
    """Answer a message with matching messages, params and the last summary. Takes time linear in the context."""
    if context is None:
        return f"{_NO_MODEL} The memory is unreachable too, so right now I remember nothing."
    lines = [_NO_MODEL, *_describe_length(context)]
    lines += [f"You said: “{quote}”" for quote in _matching_messages(context, text)]
    facts = [f"{name}: {_shorten(str(value))}" for name, value in _params(context, hidden)]
    if facts:
        lines.append(f"I know {'; '.join(facts)}.")
    lines += [f"Summary of earlier messages: {_shorten(summary.text)}" for summary in context.summaries[-1:]]
    return "\n\n".join(lines)


def split_words(text: str) -> Iterator[str]:
    """Yield a text word by word, each word with the blanks after it."""
    yield from re.findall(r"\S+\s*", text)


def _describe_length(context: Context) -> Iterator[str]:
    before = [message for message in context.messages[:-1] if message.role == "user"]
    if not before and not context.summaries:
        yield "This is your first message in this conversation."
    else:
        yield f"This conversation has {context.total_messages} messages."


def _matching_messages(context: Context, text: str) -> list[str]:
    """Return the user's earlier messages that share most words with this one, newer ones first among equals."""
    words = set(_WORD.findall(text.casefold()))
    matches = []
    for message in context.messages[:-1]:
        content = message.content
        if isinstance(content, str) and message.role == "user":
            shared_count = len(words & set(_WORD.findall(content.casefold())))
            if shared_count:
                matches.append((shared_count, message.seq, content))
    best = sorted(matches, reverse=True)[:_QUOTES_COUNT]
    return [_shorten(content) for _, _, content in sorted(best, key=lambda match: match[1])]


def _params(context: Context, hidden: Collection[str]) -> Iterator[tuple[str, object]]:
    for name, value in sorted(context.state.params.items()):
        if name not in hidden and isinstance(value, str | int | float):
            yield name, value


def _shorten(text: str) -> str:
    line = " ".join(text[: 4 * _SHOWN_CHARS].split())
    return line if len(line) <= _SHOWN_CHARS else line[: _SHOWN_CHARS - 1] + "…"
