"""In which indexes an item stands, and with which score. No I/O.

All but a few have the item's place in the order of its kind as the score: decisions and conversations newest first,
tasks by priority and then newest, entities by their latest mention. Those with another score are for ranges.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from redismem.project.items.fields import fold_case
from redismem.project.items.schema import PRIORITIES, Kind
from redismem.project.items.versions import State

WORDS_LIMIT = 500
"""So many different words of an item are found, the first ones of its texts."""
WORD_CHARS = 40
_RANK = 1 << 44
_WORD = re.compile(r"[^\W_]+")

ALL, LIVE, OPEN, HISTORY = "all", "live", "open", "history"
CHANGED, NOTED = "changed", "noted"
MENTIONED = "mentioned"
WORDS, TAGS = "words", "tags"


class Place(NamedTuple):
    """An item's place in an index, and the vocabulary that has a word while this index is not empty."""

    score: int
    vocabulary: str = ""
    word: str = ""


def words(text: str) -> list[str]:
    """The words of a text as they are found: without case, each of at most 40 characters."""
    return [word[:WORD_CHARS] for word in _WORD.findall(fold_case(text))]


def words_of(kind: Kind, state: State, fields: tuple[str, ...] | None = None) -> set[str]:
    """The words that an item is found by: those of all its texts, or of some."""
    found: dict[str, None] = {}
    for name in kind.texts if fields is None else fields:
        found.update(dict.fromkeys(words(state[name])))
    for alias in state.get("aliases", ()) if fields is None else ():
        found.update(dict.fromkeys(words(alias)))
    return set(list(found)[:WORDS_LIMIT])


def order(kind: Kind, state: State) -> int:
    """An item's place in the order of its kind: greater comes first."""
    created_ms: int = state["created_ms"]
    if kind.letter == "t":
        return PRIORITIES.index(state["priority"]) * _RANK + created_ms
    if kind.letter == "e":
        latest_ms: int = state["mentions"][-1][1] if state["mentions"] else 0
        return max(created_ms, latest_ms)
    return created_ms


def order_ranges(kind: Kind, at_ms: int) -> list[tuple[int, int]]:
    """The parts of the order of a kind where items stand that were there by a moment: least and greatest score of each.

    In falling order. What is changed or entered later may stand elsewhere.
    """
    ranks = range(len(PRIORITIES) - 1, -1, -1) if kind.letter == "t" else [0]
    return [(rank * _RANK, rank * _RANK + at_ms) for rank in ranks]


def is_open(kind: Kind, state: State) -> bool:
    """Whether a query finds it that asks for nothing special."""
    return not (state["archived"] or state.get("merged_into") or state["status"] in kind.hidden)


def places(kind: Kind, state: State | None) -> dict[str, Place]:
    """The indexes that an item stands in, by their names."""
    if state is None:
        return {}
    found = {HISTORY: Place(state["valid_from_ms"])}
    # What is as it was written down at first needs no second look, whatever moment is asked about.
    if state["version"] > 1 or state["valid_from_ms"] != state["created_ms"]:
        found[CHANGED] = Place(max(state["latest_ms"], state["created_ms"]))
        found[NOTED] = Place(state["updated_ms"])
    if state["deleted"]:
        return found
    place = Place(order(kind, state))
    names = [ALL]
    names.append("archived" if state["archived"] else LIVE)
    if state.get("merged_into"):
        names.append("merged")
    if is_open(kind, state):
        names.append(OPEN)
    if state["status"] is not None:
        names.append(f"status:{state['status']}")
    found |= {f"tag:{tag}": Place(place.score, TAGS, tag) for tag in state["tags"]}
    found |= dict.fromkeys(names, place)
    found |= {"created": Place(state["created_ms"]), "updated": Place(state["updated_ms"])}
    found |= {f"word:{word}": Place(place.score, WORDS, word) for word in words_of(kind, state)}
    return found | _own_places(kind, state, place)


def _own_places(kind: Kind, state: State, place: Place) -> dict[str, Place]:
    if kind.letter == "t":
        found = {f"priority:{state['priority']}": place}
        if state["assignee"] is not None:
            found[f"assignee:{fold_case(state['assignee'])}"] = place
        if state["due_date"] is not None and is_open(kind, state):
            found["due"] = Place(state["due_date"])
        found |= {f"needs:{task_id}": place for task_id in state["dependencies"]}
        return found | {f"waits:{task_id}": place for task_id in state["blocked_by"] if task_id.startswith("t-")}
    if kind.letter == "c" and state["due_ms"] is not None:
        return {"due": Place(state["due_ms"])}
    if kind.letter == "e" and is_open(kind, state):
        mentioned = Place(state["mention_count"])
        return {f"type:{state['type']}": place, MENTIONED: mentioned, f"{MENTIONED}:{state['type']}": mentioned}
    return {}
