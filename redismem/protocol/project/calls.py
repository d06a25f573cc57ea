"""Calls about a project: read items and versions, change items, find a page of a query. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

from redismem.errors import TooLarge
from redismem.events import Op
from redismem.protocol import scripts
from redismem.protocol.call import Argument, Call, Command, script_call
from redismem.protocol.keys import Keys, key_of_name
from redismem.protocol.project.keys import ProjectKeys, registry
from redismem.protocol.replies import fields

T = TypeVar("T")

# Limits that keep a call from blocking the server for more than two or three milliseconds.
EXAMINE_LIMIT = 250
LOOKUP_LIMIT = 1_500
SORT_LIMIT = 400
CHANGE_LIMIT = 5_000
LATEST = (1 << 53) - 1
"""Greater than any score."""
EARLIEST = -LATEST
"""Less than any score; times before 1970 are negative."""
_BEFORE_ALL = (str(LATEST), "-")


class Unfinished(Exception):
    """A committed import of the project must be applied before any other call."""


class Write(NamedTuple):
    """A version of an item: its number, the item in this version, and the change. An empty body erases the item."""

    item_id: str
    version: int
    body: bytes
    delta: bytes


class Removal(NamedTuple):
    """The removal of an item from an index. If the index is then empty, its word is removed from the vocabulary."""

    left: bytes
    item_id: str
    vocabulary: bytes | None
    word: str


@dataclass(slots=True)
class Batch:
    """The parts of one change, as change.lua takes them."""

    sizes: list[tuple[bytes, int]] = field(default_factory=list)
    """an index, and the number of items it must hold"""
    checks: list[tuple[str, int]] = field(default_factory=list)
    """an item that is not written, and the version it must have"""
    writes: list[Write] = field(default_factory=list)
    names: list[tuple[str, str, str]] = field(default_factory=list)
    """a name, its holder's id, and the new holder's id; "" means no holder"""
    additions: list[tuple[bytes, int, str]] = field(default_factory=list)
    """an index, a score, a member"""
    removals: list[Removal] = field(default_factory=list)

    @property
    def work(self) -> int:
        """The approximate number of steps of the script."""
        checked = len(self.sizes) + len(self.checks) + 2 * len(self.names)
        return checked + 3 * len(self.writes) + len(self.additions) + 2 * len(self.removals)


class Group(NamedTuple):
    """A condition on items: to be in one of several indexes, or in a single one with the score within bounds."""

    indexes: tuple[bytes, ...]
    bounds: tuple[int, int] | None = None


class ItemPage(NamedTuple):
    """A page of stored items, and the position to continue from; None means that there are no more items."""

    found: list[tuple[str, bytes]]
    after: tuple[str, str] | None


class ProjectCalls:
    """Builds the calls of one project."""

    __slots__ = ("keys",)

    def __init__(self, keys: ProjectKeys) -> None:
        self.keys = keys

    def read(self, item_ids: Sequence[str], *, with_versions: bool = False) -> Call[list[Any]]:
        """Build a call that reads the body of each item, or None if missing, and its versions if `with_versions`."""
        commands: tuple[Command, ...] = (("HMGET", self.keys.items, *item_ids),)
        if with_versions:
            commands += tuple(("HGETALL", self.keys.versions(item_id)) for item_id in item_ids)

        def decode(bodies: list[Any], *versions: Any) -> list[Any]:
            return [bodies, [fields(reply) for reply in versions]]

        return Call(None, commands, decode, op=Op.PROJECT_READ)

    def change(self, batch: Batch) -> Call[bool]:
        """Build an all-or-nothing change.

        The call returns True if it made the change, and False if this batch was made before.

        Decoding raises Unfinished.

        Raises:
            TooLarge: the batch would block the server for too long.
        """
        if batch.work > CHANGE_LIMIT:
            raise TooLarge(f"the change takes {batch.work} steps, over {CHANGE_LIMIT:,}, a fixed limit")
        fixed = [key_of_name(self.keys, name) for name in scripts.load("change").keys]
        places = {key: number for number, key in enumerate(fixed, 1)}

        def place(key: bytes) -> int:
            return places.setdefault(key, len(places) + 1)

        parts = (batch.sizes, batch.checks, batch.writes, batch.names, batch.additions, batch.removals)
        arguments: list[Argument] = []
        for index, count in batch.sizes:
            arguments += (place(index), count)
        for check in batch.checks:
            arguments += check
        for write in batch.writes:
            versions = place(self.keys.versions(write.item_id))
            arguments += (write.item_id, write.version, versions, write.body, write.delta)
        for name in batch.names:
            arguments += name
        for index, score, member in sorted(batch.additions, key=lambda addition: addition[0]):
            arguments += (place(index), score, member)
        for removal in batch.removals:
            vocabulary = 0 if removal.vocabulary is None else place(removal.vocabulary)
            arguments += (place(removal.left), removal.item_id, vocabulary, removal.word or "-")
        return script_call(
            Op.PROJECT_CHANGE,
            self.keys,
            _decode_change,
            {"counts": " ".join(str(len(part)) for part in parts)},
            script="change",
            more_keys=list(places)[len(fixed) :],
            more=arguments,
        )

    def find(
        self, order: bytes, groups: Sequence[Group], limit: int, after: tuple[str, str] | None = None
    ) -> Call[ItemPage]:
        """Build a call that finds a page of the items that are in all groups, by descending score in `order`.

        At least one group must have no bounds.
        """
        limits = {
            "limit": limit,
            "examine_limit": EXAMINE_LIMIT,
            "lookup_limit": LOOKUP_LIMIT,
            "sort_limit": SORT_LIMIT,
        }
        request = " ".join(str(limits[name]) for name in scripts.values_in("find", "request"))
        score, item_id = after or _BEFORE_ALL
        more: list[Argument] = []
        for group in groups:
            more += (len(group.indexes), *(group.bounds or ("-", "-")))
        named = {"order": order, "request": request, "after_score": score, "after_id": item_id}
        indexes = [index for group in groups for index in group.indexes]
        keys, op = self.keys, Op.PROJECT_FIND
        return script_call(op, keys, _decode_page, named, script="find", more_keys=indexes, more=more)

    def holder(self, name: str) -> Call[str | None]:
        """Build a call that reads the holder of a name; None means that the name is free."""
        return Call(
            None,
            (("HGET", self.keys.names, name),),
            lambda reply: None if reply is None else str(reply.decode()),
            op=Op.PROJECT_READ,
        )

    def all_names(self) -> Call[dict[str, str]]:
        """Build a call that reads all names with their holders' ids."""

        def decode(reply: Any) -> dict[str, str]:
            return {name.decode("utf-8", "replace"): holder.decode() for name, holder in fields(reply).items()}

        return Call(None, (("HGETALL", self.keys.names),), decode, op=Op.PROJECT_READ)

    def words(self, vocabulary: bytes, beginnings: Sequence[str], limit: int) -> Call[list[list[str]]]:
        """Build a call that finds words of a vocabulary by prefix, at most `limit` words per prefix."""
        commands: tuple[Command, ...] = tuple(
            ("ZRANGE", vocabulary, f"[{text}", b"(" + text.encode() + b"\xff", "BYLEX", "LIMIT", 0, limit)
            for text in beginnings
        )
        return Call(
            None, commands, lambda *lists: [[word.decode() for word in words] for words in lists], op=Op.PROJECT_WORDS
        )

    def counts(self, indexes: Sequence[bytes]) -> Call[list[int]]:
        """Build a call that counts the items of each index."""
        commands = tuple(("ZCARD", index) for index in indexes)
        return Call(None, commands, lambda *counts: list(map(int, counts)), op=Op.PROJECT_COUNT)

    def count_between(self, index: bytes, least: int, greatest: int) -> Call[int]:
        """Build a call that counts an index's items with a score between two bounds, inclusive."""
        return Call(None, (("ZCOUNT", index, least, greatest),), int, op=Op.PROJECT_COUNT)

    def remove_from(self, index: bytes, item_ids: Sequence[str]) -> Call[int]:
        """Build a call that removes items from one index."""
        return Call(None, (("ZREM", index, *item_ids),), int, op=Op.PROJECT_CHANGE)

    def read_ranks(self, index: bytes, first: int, last: int) -> Call[list[str]]:
        """Build a call that reads an index's items by rank, lowest score first."""
        return Call(None, (("ZRANGE", index, first, last),), _decode_ids, op=Op.PROJECT_FIND)

    def read_scores(self, index: bytes, least: int, offset: int, limit: int) -> Call[list[tuple[str, int]]]:
        """Build a call that reads an index's items from a score on, lowest first, with their scores."""
        command = ("ZRANGE", index, least, "+inf", "BYSCORE", "LIMIT", offset, limit, "WITHSCORES")
        return Call(None, (command,), _decode_scores, op=Op.PROJECT_FIND)

    def ends(self, indexes: Sequence[bytes]) -> Call[list[int]]:
        """Build a call that reads the lowest and highest score of each non-empty index."""
        commands = tuple(("ZRANGE", index, at, at, "WITHSCORES") for index in indexes for at in (0, -1))

        def decode(*answers: Any) -> list[int]:
            return [score for answer in answers for _, score in _decode_scores(answer)]

        return Call(None, commands, decode, op=Op.PROJECT_FIND)

    def members(self, index: bytes, least: int, greatest: int, offset: int, limit: int) -> Call[list[str]]:
        """Build a call that reads a part of an index's items between two scores, lowest first."""
        command = ("ZRANGE", index, least, greatest, "BYSCORE", "LIMIT", offset, limit)
        return Call(None, (command,), _decode_ids, op=Op.PROJECT_FIND)

    def refuse_unfinished(self, call: Call[T]) -> Call[T]:
        """Extend the call, so that it raises Unfinished while a committed import is not applied."""
        if call.script is not None and call.script.name == "change":
            return call

        def decode(*answers: Any) -> T:
            if answers[-1]:
                raise Unfinished
            return call.decode(*answers[:-1])

        commands = (*call.commands, ("EXISTS", self.keys.journal))
        return replace(call, commands=commands, decode=decode, is_separable=call.op is not Op.PROJECT_CHANGE)


def combine(calls: Sequence[Call[Any]]) -> Call[list[Any]]:
    """Combine calls of one project into one transaction. All scripts in it must be the same one."""
    counts = [len(call.commands) for call in calls]
    ordered = sorted(range(len(calls)), key=lambda at: calls[at].script is None)
    commands = tuple(command for at in ordered for command in calls[at].commands)
    script = next((call.script for call in calls if call.script is not None), None)

    def decode(*answers: Any) -> list[Any]:
        values: dict[int, Any] = {}
        begin = 0
        for at in ordered:
            values[at] = calls[at].decode(*answers[begin : begin + counts[at]])
            begin += counts[at]
        return [values[at] for at in range(len(calls))]

    return Call(None, commands, decode, script, op=Op.PROJECT_FIND)


def register(keys: Keys, name: str) -> Call[int]:
    """Build a call that registers a project in its namespace."""
    return Call(None, (("ZADD", registry(keys), 0, name),), int, op=Op.PROJECT_RECORD)


def projects(keys: Keys) -> Call[list[str]]:
    """Build a call that reads the sorted names of the namespace's projects."""
    command = ("ZRANGE", registry(keys), 0, -1)
    return Call(None, (command,), _decode_ids, op=Op.PROJECT_RECORD)


def _decode_ids(reply: Sequence[bytes]) -> list[str]:
    return [member.decode() for member in reply]


def _decode_change(reply: int) -> bool:
    if reply < 0:
        raise Unfinished
    return bool(reply)


def _decode_page(reply: list[Any]) -> ItemPage:
    score, item_id, *pairs = reply
    found = [(pairs[at].decode(), pairs[at + 1]) for at in range(0, len(pairs), 2)]
    after = (score.decode(), item_id.decode()) if item_id else None
    return ItemPage([(found_id, body) for found_id, body in found if body], after)


def _decode_scores(reply: Any) -> list[tuple[str, int]]:
    """Decode items with scores: pairs in RESP3, a flat list in RESP2."""
    flat = reply and not isinstance(reply[0], list | tuple)
    pairs = zip(reply[::2], reply[1::2], strict=True) if flat else reply
    return [(member.decode(), int(float(score))) for member, score in pairs]
