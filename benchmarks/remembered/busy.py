"""Conversations in which far more is told than is ever asked for: every message names people, places and figures.

A summary cannot tell the facts from the rest by their rare words, because the rest has as many. So these conversations
show the limit of summaries, as the others show that of recall.
"""

from __future__ import annotations

from benchmarks.remembered.conversation import Conversation
from benchmarks.remembered.dated import Dated
from benchmarks.remembered.standing import Standing

_SAID_SENTENCES, _ANSWERED_SENTENCES = (1, 4), (6, 16)


class Busy(Standing):
    """A conversation under construction, with the talk of `Standing` and without its rules."""

    def __init__(self, language: str, count: int, seed: int, *, with_assistant: bool) -> None:
        super().__init__(language, count, seed)
        self._with_assistant = with_assistant

    def _choose_lines(self, who: int) -> list[str]:
        if who == 1 and self._with_assistant:
            return list(self._talk("answered", _ANSWERED_SENTENCES))
        return [*self._talk("said", _SAID_SENTENCES), *Dated._choose_lines(self, who)]


def busy(language: str, count: int, seed: int = 0, *, with_assistant: bool = False) -> Conversation:
    """Generate a conversation of this many messages, full of names and figures."""
    told = Busy(language, count, seed, with_assistant=with_assistant).conversation()
    name = f"busy {'assistant' if with_assistant else 'friends'}, {language}, {count}"
    return Conversation(name, language, told.turns, [question for question in told.questions if question.gold])
