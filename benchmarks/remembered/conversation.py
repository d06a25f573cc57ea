"""A long conversation, and later questions about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from redismem.cli.tune.words import content_words
from redismem.text.stems import stems


@dataclass(frozen=True)
class Question:
    """A question about the conversation. `older` is the answer before its correction; `None` means no correction."""

    text: str
    answer: str
    older: str | None = None
    gold: tuple[int, ...] = ()
    """The seqs of the messages that contain the answer; () means unknown."""
    kind: str = "fact"
    asked_ms: int = 0
    """The time of the question; 0 means after the last message."""


@dataclass(frozen=True)
class Turn:
    """A message and its time."""

    payload: dict[str, Any]
    ms: int


@dataclass(frozen=True)
class Conversation:
    name: str
    language: str
    turns: Sequence[Turn]
    questions: Sequence[Question]


def share(text: str, conversation: Conversation) -> float:
    """Return the share of the answers' content words in the text, from 0 to 1, as the mean over the questions."""
    said = set(stems(text))
    shares = [_share(said, question.answer, conversation.language) for question in conversation.questions]
    return sum(shares) / len(shares)


def _share(said: set[str], answer: str, language: str) -> float:
    words = content_words(answer, language)
    return len(words & said) / len(words)


def updates(text: str, conversation: Conversation) -> tuple[int, int, int]:
    """Count the corrected facts: all of them, the facts told as they are now, and the facts told as they were.

    A fact is told as it is now if the text has the newer answer. It is told as it was if a line has the older answer
    alone, and no later line has the newer one.
    """
    lines = [set(stems(line)) for line in text.splitlines()]
    corrected = [question for question in conversation.questions if question.older is not None]
    newer_count = stale_count = 0
    for question in corrected:
        newer, older = (content_words(each or "", conversation.language) for each in (question.answer, question.older))
        newer_at = max((at for at, line in enumerate(lines) if newer <= line), default=-1)
        older_at = max((at for at, line in enumerate(lines) if older <= line and not newer <= line), default=-1)
        newer_count += newer_at >= 0
        stale_count += older_at > newer_at
    return len(corrected), newer_count, stale_count
