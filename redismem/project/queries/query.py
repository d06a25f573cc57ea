"""A query: its criteria, the indexes that answer it, and the test of a single item. No I/O."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypedDict

from redismem.errors import InvalidItem
from redismem.project.items import fields as checks
from redismem.project.items.indexes import ALL, LIVE, OPEN, is_open, order, words, words_of
from redismem.project.items.schema import ENTITY_TYPES, PRIORITIES, ItemKind
from redismem.project.items.versions import State
from redismem.protocol.project.calls import EARLIEST, LATEST, Group
from redismem.protocol.project.keys import ProjectKeys
from redismem.text.normal_forms import fold_case

WORDS_MATCHED_LIMIT = 64
"""The maximum number of words that a prefix is looked up under. With more words, each item found is tested instead."""
_PAGE_LIMIT = 1_000
# name in a query → index, field of the state
_RANGES = {"created": ("created", "created_ms"), "updated": ("updated", "updated_ms"), "due": ("due", "due_date")}


class Criteria(TypedDict, total=False):
    """The criteria of a query, all of which must hold. `…_after` includes its moment, `…_before` does not."""

    status: str | Sequence[str]
    """the item has one of these statuses"""
    tags: Sequence[str]
    """the item has all of these tags"""
    text: str
    """the item contains each of these words, or a word that begins with it"""
    fields: Sequence[str]
    """the text fields to search for the words"""
    created_after: datetime
    created_before: datetime
    updated_after: datetime
    updated_before: datetime
    include_archived: bool


class DecisionCriteria(Criteria, total=False):
    """The criteria of a query for decisions. Superseded decisions are omitted by default."""

    include_superseded: bool


class TaskCriteria(Criteria, total=False):
    """The criteria of a query for tasks. Completed and cancelled tasks are omitted by default."""

    assignee: str
    priority: str | Sequence[str]
    due_after: datetime
    due_before: datetime
    include_completed: bool
    include_cancelled: bool


class EntityCriteria(Criteria, total=False):
    """The criteria of a query for entities. Merged entities are omitted by default."""

    type: str | Sequence[str]
    include_merged: bool


_KNOWN = {
    "d": DecisionCriteria.__annotations__.keys(),
    "t": TaskCriteria.__annotations__.keys(),
    "e": EntityCriteria.__annotations__.keys(),
    "c": Criteria.__annotations__.keys(),
}


@dataclass(frozen=True, slots=True)
class Query:
    """A validated query."""

    kind: ItemKind
    statuses: tuple[str, ...] = ()
    included: tuple[str, ...] = ()
    """hidden statuses to include; `merged`"""
    tags: tuple[str, ...] = ()
    beginnings: tuple[str, ...] = ()
    fields: tuple[str, ...] | None = None
    ranges: tuple[tuple[str, int, int], ...] = ()
    """index, least, greatest"""
    choices: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """field and its allowed values: priority, type, assignee"""
    with_archived: bool = False
    with_all: bool = False
    """any status, archived or not"""
    valid_ms: int | None = None
    """valid at this moment"""

    @classmethod
    def of(cls, kind: ItemKind, criteria: Any) -> Query:
        """Validate criteria. Raises InvalidItem."""
        given = {name: value for name, value in criteria.items() if value is not None}
        unknown = given.keys() - _KNOWN[kind.letter]
        if unknown:
            near = checks.suggest_name(min(unknown), _KNOWN[kind.letter])
            raise InvalidItem(f"no {kind.name} can be asked for by {', '.join(sorted(unknown))}{near}")
        statuses = _check_choice(given.get("status"), "status", tuple(kind.transitions or ()))
        included = [
            name.removeprefix("include_") for name, value in given.items() if name.startswith("include_") and value
        ]
        choices = [
            (name, _check_choice(given[name], name, options))
            for name, options in (("priority", PRIORITIES), ("type", ENTITY_TYPES))
            if name in given
        ]
        if "assignee" in given:
            choices.append(("assignee", (fold_case(checks.tag_like(given["assignee"], "assignee")),)))
        return cls(
            kind,
            statuses,
            tuple(name for name in included if name != "archived"),
            tuple(checks.tags(given.get("tags", ()), "tags")),
            tuple(dict.fromkeys(words(checks.text(given.get("text", ""), "text")))),
            _fields(kind, given.get("fields")),
            tuple(_ranges(given)),
            tuple(choices),
            "archived" in included,
        )

    def groups(self, keys: ProjectKeys, matched: Sequence[Sequence[str]]) -> list[Group]:
        """Return the indexes whose intersection answers the query. `matched` lists the known words for each prefix."""
        letter = self.kind.letter
        groups = [self._visible(keys)]
        if self.statuses and not self.with_archived:
            groups.append(Group((keys.index(letter, LIVE),)))
        groups += [Group((keys.index(letter, f"tag:{tag}"),)) for tag in self.tags]
        for found in matched:
            if len(found) <= WORDS_MATCHED_LIMIT:
                groups.append(Group(tuple(keys.index(letter, f"word:{word}") for word in found)))
        groups += [Group((keys.index(letter, index),), (least, greatest)) for index, least, greatest in self.ranges]
        for name, options in self.choices:
            # The type index has only open items; other items are tested one by one.
            if name != "type" or not (self.included or self.with_archived):
                groups.append(Group(tuple(keys.index(letter, f"{name}:{option}") for option in options)))
        return groups

    def _visible(self, keys: ProjectKeys) -> Group:
        if self.with_all:
            names = [ALL]
        elif self.statuses:
            names = [f"status:{status}" for status in self.statuses]
        else:
            names = [OPEN, *(name if name == "merged" else f"status:{name}" for name in self.included)]
            names += ["archived"] * self.with_archived
        return Group(tuple(keys.index(self.kind.letter, name) for name in names))

    def fits(self, state: State | None) -> bool:
        """True if an item in this state matches the query."""
        if state is None or state["deleted"]:
            return False
        fits = self._is_visible(state) and set(self.tags) <= set(state["tags"])
        fits = fits and all(_value(state, name) in options for name, options in self.choices)
        until_ms = state["valid_until"]
        fits = fits and (self.valid_ms is None or until_ms is None or self.valid_ms < until_ms)
        fits = fits and all(self._in_range(state, *each) for each in self.ranges)
        return fits and self._has_words(state)

    def _is_visible(self, state: State) -> bool:
        if self.with_all:
            return True
        if state["archived"] and not self.with_archived:
            return False
        if self.statuses:
            return state["status"] in self.statuses
        is_merged = bool(state.get("merged_into"))
        included = ("merged" in self.included) if is_merged else state["status"] in self.included
        return is_open(self.kind, state) or included or (self.with_archived and state["archived"])

    def _in_range(self, state: State, index: str, least: int, greatest: int) -> bool:
        value = state[_RANGES[index][1]]
        if value is None or (index == "due" and not is_open(self.kind, state)):
            return False
        return bool(least <= value <= greatest)

    def _has_words(self, state: State) -> bool:
        if not self.beginnings:
            return True
        index_words = words_of(self.kind, state)
        if self.fields is not None:
            index_words &= words_of(self.kind, state, self.fields)
        return all(any(word.startswith(text) for word in index_words) for text in self.beginnings)


def _value(state: State, name: str) -> str | None:
    value = state[name]
    return fold_case(value) if name == "assignee" and value is not None else value


def _check_choice(given: Any, name: str, options: tuple[str, ...]) -> tuple[str, ...]:
    if given is None:
        return ()
    values = [given] if isinstance(given, str) else list(given)
    if not values:
        raise InvalidItem(f"{name} must name at least one value")
    return tuple(dict.fromkeys(checks.choice(*options)(each, name) for each in values))


def _fields(kind: ItemKind, given: Any) -> tuple[str, ...] | None:
    return None if given is None else _check_choice(given, "fields", kind.texts)


def _ranges(given: dict[str, Any]) -> list[tuple[str, int, int]]:
    ranges = []
    for name, (index, _) in _RANGES.items():
        after, before = given.get(f"{name}_after"), given.get(f"{name}_before")
        if after is not None or before is not None:
            least = EARLIEST if after is None else checks.moment(after, f"{name}_after")
            greatest = LATEST if before is None else checks.moment(before, f"{name}_before") - 1
            ranges.append((index, least, greatest))
    return ranges


def sort_key(kind: ItemKind, item_id: str, state: State) -> tuple[int, str]:
    """Return the sort key of an item; greater comes first."""
    return order(kind, state), item_id


def page_limit(limit: int) -> int:
    """Return the limit. Raises InvalidItem unless it is between 1 and 1,000."""
    if type(limit) is not int or not 1 <= limit <= _PAGE_LIMIT:
        raise InvalidItem(f"a page holds 1 to {_PAGE_LIMIT:,} items")
    return limit


def encode_cursor(after: tuple[str, str] | None) -> str | None:
    """Encode the start of the next page as a cursor."""
    return None if after is None else base64.urlsafe_b64encode(json.dumps(after).encode()).decode()


def decode_cursor(cursor: str | None) -> tuple[str, str] | None:
    """Decode a cursor. Raises InvalidItem if it was not returned by a page."""
    if cursor is None:
        return None
    try:
        score, item_id = json.loads(base64.b64decode(cursor.encode("ascii"), b"-_", validate=True))
        if type(score) is str and str(int(score)) == score and checks.is_item_id(item_id[:1], item_id):
            return score, item_id
    except (ValueError, TypeError, AttributeError, binascii.Error, RecursionError):
        pass
    raise InvalidItem("this cursor was not returned by a page")
