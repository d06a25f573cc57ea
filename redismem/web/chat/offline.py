"""Answers without a model, from the session's own memory. It says that it is none."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from redismem.context import Context

_WORD = re.compile(r"[^\W_]{3,}")
_SHOWN_CHARS = 300
_FOUND_COUNT = 3
_NOBODY = "No model is set up, so this is what I remember and nothing more."


def answer(context: Context | None, text: str, hidden: Collection[str] = ()) -> str:
    """What the memory holds of what is asked. Costs time in proportion to the context's length."""
    if context is None:
        return f"{_NOBODY} The memory cannot be reached either, so that is nothing just now."
    lines = [_NOBODY, *_counted(context)]
    lines += [f"You said, or were told: “{found}”" for found in _about(context, text)]
    known = [f"{name}: {_short(str(value))}" for name, value in _params(context, hidden)]
    if known:
        lines.append(f"I know {'; '.join(known)}.")
    lines += [f"Before that, in short: {_short(summary.text)}" for summary in context.summaries[-1:]]
    return "\n\n".join(lines)


def pieces(text: str) -> Iterator[str]:
    """Word by word."""
    yield from re.findall(r"\S+\s*", text)


def _counted(context: Context) -> Iterator[str]:
    before = [message for message in context.messages[:-1] if message.role == "user"]
    if not before and not context.summaries:
        yield "This is the first thing you have said here."
    else:
        yield f"This conversation has {context.total_messages} messages."


def _about(context: Context, text: str) -> list[str]:
    """The earlier messages that share most words with this one; the newest of equals."""
    wanted = set(_WORD.findall(text.casefold()))
    found = []
    for message in context.messages[:-1]:
        content = message.content
        if isinstance(content, str) and message.role == "user":
            shared = len(wanted & set(_WORD.findall(content.casefold())))
            if shared:
                found.append((shared, message.seq, content))
    best = sorted(found, reverse=True)[:_FOUND_COUNT]
    return [_short(content) for _, _, content in sorted(best, key=lambda each: each[1])]


def _params(context: Context, hidden: Collection[str]) -> Iterator[tuple[str, object]]:
    for name, value in sorted(context.state.params.items()):
        if name not in hidden and isinstance(value, str | int | float):
            yield name, value


def _short(text: str) -> str:
    line = " ".join(text[: 4 * _SHOWN_CHARS].split())
    return line if len(line) <= _SHOWN_CHARS else line[: _SHOWN_CHARS - 1] + "…"
