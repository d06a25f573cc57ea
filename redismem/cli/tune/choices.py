"""The settings to try: one change at a time, and joined changes. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from redismem.settings.settings import Settings

_WINDOWS = ((6, 3), (10, 3), (10, 6), (20, 6), (20, 12), (40, 24))
"""Pairs of threshold and recent window."""
_SUMMARIES = (600, 1_200, 1_750, 3_000)
_RECALLS = (0, 350, 700, 1_200)


@dataclass(frozen=True, slots=True)
class Choice:
    """Settings that differ from those of the environment, and the token budget of recall; 0 means no recall."""

    name: str
    settings: Mapping[str, Any]
    recall: int
    changes: int = 1
    """The number of changes that it joins; 0 for the settings now."""

    def environment(self) -> dict[str, Any]:
        """Return the variables that set it, with their values."""
        return {f"REDISMEM_{name.upper()}": value for name, value in self.settings.items()}

    def lines(self) -> list[str]:
        """Return the lines that set it, for a shell."""
        return [f"export {name}={_format(value)}" for name, value in self.environment().items()]


Kind = Sequence[Choice]
"""The choices of one kind, of which a deployment has one."""


def kinds(now: Settings, recall: int) -> dict[str, Kind]:
    """Return the changes to try by kind, without what is set now."""
    found: dict[str, list[Choice]] = {
        "window": [
            Choice(f"window {threshold}/{recent}", {"threshold": threshold, "recent_limit": recent}, recall)
            for threshold, recent in _WINDOWS
            if now.strategy != "none"
        ],
        "summary": [
            Choice(f"summary {tokens}", {"summary_tokens_total": tokens}, recall)
            for tokens in _SUMMARIES
            if now.strategy == "summarize"
        ],
        "recall": [
            Choice(f"recall {tokens}" if tokens else "no recall", {}, tokens)
            for tokens in _RECALLS
            if tokens != recall and now.keep_originals
        ],
        "strategy": [Choice(f"strategy {each}", {"strategy": each}, recall) for each in ("summarize", "trim", "none")],
        "originals": [Choice("no originals", {"keep_originals": False}, recall)] * (now.keep_originals and not recall),
        "dictionary": [Choice("no dictionary", {"train_dictionaries": False}, recall)],
    }
    return {kind: [each for each in of_kind if _differs(each, now, recall)] for kind, of_kind in found.items()}


def joined(choices: Sequence[Choice], recall: int) -> Choice:
    """Return the choice that makes all these changes. `recall` is the budget now."""
    budgets = [each.recall for each in choices if each.recall != recall]
    settings = {name: value for each in choices for name, value in each.settings.items()}
    return Choice(", ".join(each.name for each in choices), settings, budgets[0] if budgets else recall, len(choices))


def combinations(of_kinds: Mapping[str, Kind], now: Settings, recall: int) -> Iterator[Sequence[Choice]]:
    """Yield each combination of two or more changes that has a meaning."""
    for chosen in product(*((None, *of_kind) for of_kind in of_kinds.values())):
        changes = [each for each in chosen if each is not None]
        if len(changes) > 1 and _has_meaning(joined(changes, recall), now):
            yield changes


def _has_meaning(choice: Choice, now: Settings) -> bool:
    """False if one of the changes makes no difference beside the others."""
    strategy = choice.settings.get("strategy", now.strategy)
    if strategy == "none":
        return False  # all of the conversation is in the window
    if strategy == "trim" and "summary_tokens_total" in choice.settings:
        return False
    keeps = choice.settings.get("keep_originals", now.keep_originals)
    return keeps or not (choice.recall or "train_dictionaries" in choice.settings)


def _differs(choice: Choice, now: Settings, recall: int) -> bool:
    return choice.recall != recall or any(getattr(now, name) != value for name, value in choice.settings.items())


def _format(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
