"""Compute the index entries of an item, with their scores. No I/O.

Most entries are scored by the item's position in the order of its kind: decisions and conversations newest first, tasks
by priority and then newest, entities by latest mention. The other scores serve range queries.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from redismem.project.items.schema import PRIORITIES, ItemKind
from redismem.project.items.versions import State
from redismem.text.normal_forms import fold_case

WORDS_LIMIT = 500
"""The maximum number of different words indexed per item. Further words of its texts are not indexed."""
WORD_CHARS = 40
_RANK = 1 << 44
_WORD = re.compile(r"[^\W_]+")

ALL, LIVE, OPEN, HISTORY = "all", "live", "open", "history"
CHANGED, NOTED = "changed", "noted"
MENTIONED = "mentioned"
WORDS, TAGS = "words", "tags"


class IndexEntry(NamedTuple):
    """An item's entry in an index: its score, and the vocabulary that lists `word` while the index is not empty."""

    score: int
    vocabulary: str = ""
    word: str = ""


def words(text: str) -> list[str]:
    """Split a text into index words: casefolded, each at most 40 characters."""
    return [word[:WORD_CHARS] for word in _WORD.findall(fold_case(text))]


def words_of(kind: ItemKind, state: State, fields: tuple[str, ...] | None = None) -> set[str]:
    """Return the words that an item is indexed under: the words of all its text fields, or only of `fields`."""
    index_words: dict[str, None] = {}
    for name in kind.texts if fields is None else fields:
        index_words.update(dict.fromkeys(words(state[name])))
    for alias in state.get("aliases", ()) if fields is None else ():
        index_words.update(dict.fromkeys(words(alias)))
    return set(list(index_words)[:WORDS_LIMIT])


def order(kind: ItemKind, state: State) -> int:
    """Return an item's score in the order of its kind; greater comes first."""
    created_ms: int = state["created_ms"]
    if kind.letter == "t":
        return PRIORITIES.index(state["priority"]) * _RANK + created_ms
    if kind.letter == "e":
        latest_ms: int = state["mentions"][-1][1] if state["mentions"] else 0
        return max(created_ms, latest_ms)
    return created_ms


def order_ranges(kind: ItemKind, at_ms: int) -> list[tuple[int, int]]:
    """Return the score ranges that contain the items that existed at a moment: (minimum, maximum), highest first.

    The score of an item that was changed or entered later may be outside these ranges.
    """
    ranks = range(len(PRIORITIES) - 1, -1, -1) if kind.letter == "t" else [0]
    return [(rank * _RANK, rank * _RANK + at_ms) for rank in ranks]


def is_open(kind: ItemKind, state: State) -> bool:
    """True if a query without options returns the item."""
    return not (state["archived"] or state.get("merged_into") or state["status"] in kind.hidden)


def places(kind: ItemKind, state: State | None) -> dict[str, IndexEntry]:
    """Return the item's index entries by index name."""
    if state is None:
        return {}
    entries = {HISTORY: IndexEntry(state["valid_from_ms"])}
    # An item never changed and not entered late needs no entry: it looked the same at any moment since.
    if state["version"] > 1 or state["valid_from_ms"] != state["created_ms"]:
        entries[CHANGED] = IndexEntry(max(state["latest_ms"], state["created_ms"]))
        entries[NOTED] = IndexEntry(state["updated_ms"])
    if state["deleted"]:
        return entries
    place = IndexEntry(order(kind, state))
    names = [ALL]
    names.append("archived" if state["archived"] else LIVE)
    if state.get("merged_into"):
        names.append("merged")
    if is_open(kind, state):
        names.append(OPEN)
    if state["status"] is not None:
        names.append(f"status:{state['status']}")
    entries |= {f"tag:{tag}": IndexEntry(place.score, TAGS, tag) for tag in state["tags"]}
    entries |= dict.fromkeys(names, place)
    entries |= {"created": IndexEntry(state["created_ms"]), "updated": IndexEntry(state["updated_ms"])}
    entries |= {f"word:{word}": IndexEntry(place.score, WORDS, word) for word in words_of(kind, state)}
    return entries | _own_places(kind, state, place)


def _own_places(kind: ItemKind, state: State, place: IndexEntry) -> dict[str, IndexEntry]:
    if kind.letter == "t":
        entries = {f"priority:{state['priority']}": place}
        if state["assignee"] is not None:
            entries[f"assignee:{fold_case(state['assignee'])}"] = place
        if state["due_date"] is not None and is_open(kind, state):
            entries["due"] = IndexEntry(state["due_date"])
        entries |= {f"needs:{task_id}": place for task_id in state["dependencies"]}
        return entries | {f"waits:{task_id}": place for task_id in state["blocked_by"] if task_id.startswith("t-")}
    if kind.letter == "c" and state["due_ms"] is not None:
        return {"due": IndexEntry(state["due_ms"])}
    if kind.letter == "e" and is_open(kind, state):
        mentioned = IndexEntry(state["mention_count"])
        return {f"type:{state['type']}": place, MENTIONED: mentioned, f"{MENTIONED}:{state['type']}": mentioned}
    return {}
