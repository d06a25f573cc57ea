"""Calls about a project: its items and their versions, a change of some of them, a page of a query. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

from redismem.errors import TooLarge
from redismem.events import Op
from redismem.protocol import scripts
from redismem.protocol.call import Call, Command, evalsha
from redismem.protocol.keys import Keys
from redismem.protocol.project.keys import ProjectKeys, registry
from redismem.protocol.replies import fields

T = TypeVar("T")

# So few that a call keeps others waiting for two or three milliseconds at most.
EXAMINE_LIMIT = 250
LOOKUP_LIMIT = 1_500
SORT_LIMIT = 400
CHANGE_LIMIT = 5_000
LATEST = (1 << 53) - 1
"""More than any score."""
EARLIEST = -LATEST
"""Less than any score: what was true before 1970 has one below 0."""
_FIRST = (str(LATEST), "-")


class Unfinished(Exception):
    """An import of the project counts, and is to be carried out before anything else is done with it."""


class Write(NamedTuple):
    """A version of an item: its number, what the item is with it, what it changed. An empty body erases the item."""

    item_id: str
    version: int
    body: bytes
    delta: bytes


class Removal(NamedTuple):
    """An item's place in an index that it leaves. An index that is then empty takes its word from the vocabulary."""

    left: bytes
    item_id: str
    vocabulary: bytes | None
    word: str


@dataclass(slots=True)
class Batch:
    """What one change consists of, as the script takes it."""

    sizes: list[tuple[bytes, int]] = field(default_factory=list)
    """an index, and how many items it must hold"""
    checks: list[tuple[str, int]] = field(default_factory=list)
    """an item that is not written, and the version that it must have"""
    writes: list[Write] = field(default_factory=list)
    names: list[tuple[str, str, str]] = field(default_factory=list)
    """a name, the id that has it, the id that is to have it; "" for none"""
    additions: list[tuple[bytes, int, str]] = field(default_factory=list)
    """an index, a score, a member"""
    removals: list[Removal] = field(default_factory=list)

    @property
    def work(self) -> int:
        """How many steps the script takes for it, more or less."""
        checked = len(self.sizes) + len(self.checks) + 2 * len(self.names)
        return checked + 3 * len(self.writes) + len(self.additions) + 2 * len(self.removals)


class Group(NamedTuple):
    """Indexes of which an item is in one; or one index, and the bounds of its score there."""

    indexes: tuple[bytes, ...]
    bounds: tuple[int, int] | None = None


class Page(NamedTuple):
    """Found items, as they are stored, and where the query goes on; None at the end."""

    found: list[tuple[str, bytes]]
    after: tuple[str, str] | None


class ProjectCalls:
    """The calls of one project."""

    __slots__ = ("keys",)

    def __init__(self, keys: ProjectKeys) -> None:
        self.keys = keys

    def read(self, item_ids: Sequence[str], *, with_versions: bool = False) -> Call[list[Any]]:
        """The body of each item, None for one that is not there; then, if asked for, the versions of each."""
        commands: tuple[Command, ...] = (("HMGET", self.keys.items, *item_ids),)
        if with_versions:
            commands += tuple(("HGETALL", self.keys.versions(item_id)) for item_id in item_ids)

        def decode(bodies: list[Any], *versions: Any) -> list[Any]:
            return [bodies, [fields(each) for each in versions]]

        return Call(None, commands, decode, op=Op.PROJECT_READ)

    def change(self, batch: Batch) -> Call[bool]:
        """All of a batch or nothing. True if it was made now, False if this same batch was made before.

        Raises Unfinished; TooLarge for one that would keep others waiting.
        """
        if batch.work > CHANGE_LIMIT:
            raise TooLarge(f"the change consists of {batch.work} steps, at most {CHANGE_LIMIT:,} are made at once")
        fixed = (self.keys.items, self.keys.names, self.keys.journal, self.keys.changes)
        places = {key: number for number, key in enumerate(fixed, 1)}

        def place(key: bytes) -> int:
            return places.setdefault(key, len(places) + 1)

        parts = (batch.sizes, batch.checks, batch.writes, batch.names, batch.additions, batch.removals)
        arguments: list[bytes | str | int] = [" ".join(str(len(part)) for part in parts)]
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
        script = scripts.load("change")
        return Call(None, (evalsha(script, list(places), arguments),), _made, script, op=Op.PROJECT_CHANGE)

    def find(
        self, order: bytes, groups: Sequence[Group], limit: int, after: tuple[str, str] | None = None
    ) -> Call[Page]:
        """A page of what is in all of these groups, the greatest in `order` first. One group has no bounds."""
        keys = [self.keys.items, order, *(index for group in groups for index in group.indexes)]
        score, item_id = after or _FIRST
        arguments: list[bytes | str | int] = [f"{limit} {EXAMINE_LIMIT} {LOOKUP_LIMIT} {SORT_LIMIT}", score, item_id]
        for group in groups:
            arguments += (len(group.indexes), *(group.bounds or ("-", "-")))
        script = scripts.load("find")
        return Call(None, (evalsha(script, keys, arguments),), _page, script, op=Op.PROJECT_FIND)

    def holder(self, name: str) -> Call[str | None]:
        """The id that has this name; None if none has."""
        return Call(
            None,
            (("HGET", self.keys.names, name),),
            lambda found: None if found is None else str(found.decode()),
            op=Op.PROJECT_READ,
        )

    def all_names(self) -> Call[dict[str, str]]:
        """Every name, and the id that has it."""

        def decode(found: Any) -> dict[str, str]:
            return {name.decode("utf-8", "replace"): holder.decode() for name, holder in fields(found).items()}

        return Call(None, (("HGETALL", self.keys.names),), decode, op=Op.PROJECT_READ)

    def words(self, vocabulary: bytes, beginnings: Sequence[str], limit: int) -> Call[list[list[str]]]:
        """The words of a vocabulary that begin so: a list for each beginning, of at most `limit` words."""
        commands: tuple[Command, ...] = tuple(
            ("ZRANGE", vocabulary, f"[{text}", b"(" + text.encode() + b"\xff", "BYLEX", "LIMIT", 0, limit)
            for text in beginnings
        )
        return Call(
            None, commands, lambda *found: [[word.decode() for word in each] for each in found], op=Op.PROJECT_WORDS
        )

    def counts(self, indexes: Sequence[bytes]) -> Call[list[int]]:
        """How many items are in each index."""
        commands = tuple(("ZCARD", index) for index in indexes)
        return Call(None, commands, lambda *found: list(map(int, found)), op=Op.PROJECT_COUNT)

    def count_between(self, index: bytes, least: int, greatest: int) -> Call[int]:
        """How many items of an index have a score between these."""
        return Call(None, (("ZCOUNT", index, least, greatest),), int, op=Op.PROJECT_COUNT)

    def leave(self, index: bytes, item_ids: Sequence[str]) -> Call[int]:
        """Takes items out of one index."""
        return Call(None, (("ZREM", index, *item_ids),), int, op=Op.PROJECT_CHANGE)

    def ranked(self, index: bytes, first: int, last: int) -> Call[list[str]]:
        """The items of an index from one rank to another, the least first."""
        return Call(
            None, (("ZRANGE", index, first, last),), lambda found: [each.decode() for each in found], op=Op.PROJECT_FIND
        )

    def scored(self, index: bytes, least: int, offset: int, limit: int) -> Call[list[tuple[str, int]]]:
        """Items of an index from a score on, the least first: each with its score."""
        command = ("ZRANGE", index, least, "+inf", "BYSCORE", "LIMIT", offset, limit, "WITHSCORES")
        return Call(None, (command,), _scored, op=Op.PROJECT_FIND)

    def ends(self, indexes: Sequence[bytes]) -> Call[list[int]]:
        """The least and the greatest score of each index that is not empty."""
        commands = tuple(("ZRANGE", index, at, at, "WITHSCORES") for index in indexes for at in (0, -1))

        def decode(*found: Any) -> list[int]:
            return [score for each in found for _, score in _scored(each)]

        return Call(None, commands, decode, op=Op.PROJECT_FIND)

    def members(self, index: bytes, least: int, greatest: int, offset: int, limit: int) -> Call[list[str]]:
        """The items of an index between two scores, the least first: a part of them."""
        command = ("ZRANGE", index, least, greatest, "BYSCORE", "LIMIT", offset, limit)
        return Call(None, (command,), lambda found: [each.decode() for each in found], op=Op.PROJECT_FIND)

    def if_whole(self, call: Call[T]) -> Call[T]:
        """The call, which raises Unfinished while an import that counts is not carried out yet."""
        if call.script is not None and call.script.name == "change":
            return call

        def decode(*answers: Any) -> T:
            if answers[-1]:
                raise Unfinished
            return call.decode(*answers[:-1])

        return replace(call, commands=(*call.commands, ("EXISTS", self.keys.journal)), decode=decode)


def together(calls: Sequence[Call[Any]]) -> Call[list[Any]]:
    """Several calls of one project in one transaction, one round trip. Those with a script have the same one."""
    counts = [len(call.commands) for call in calls]
    ordered = sorted(range(len(calls)), key=lambda at: calls[at].script is None)
    commands = tuple(command for at in ordered for command in calls[at].commands)
    script = next((call.script for call in calls if call.script is not None), None)

    def decode(*answers: Any) -> list[Any]:
        found: dict[int, Any] = {}
        begin = 0
        for at in ordered:
            found[at] = calls[at].decode(*answers[begin : begin + counts[at]])
            begin += counts[at]
        return [found[at] for at in range(len(calls))]

    return Call(None, commands, decode, script, op=Op.PROJECT_FIND)


def register(keys: Keys, name: str) -> Call[int]:
    """Lists a project among those of its namespace."""
    return Call(None, (("ZADD", registry(keys), 0, name),), int, op=Op.PROJECT_RECORD)


def projects(keys: Keys) -> Call[list[str]]:
    """The names of the projects of a namespace, sorted."""
    command = ("ZRANGE", registry(keys), 0, -1)
    return Call(None, (command,), lambda found: [name.decode() for name in found], op=Op.PROJECT_RECORD)


def _made(reply: int) -> bool:
    if reply < 0:
        raise Unfinished
    return bool(reply)


def _page(reply: list[Any]) -> Page:
    score, item_id, *pairs = reply
    found = [(pairs[at].decode(), pairs[at + 1]) for at in range(0, len(pairs), 2)]
    after = (score.decode(), item_id.decode()) if item_id else None
    return Page([(each, body) for each, body in found if body], after)


def _scored(found: Any) -> list[tuple[str, int]]:
    """Items with their scores, in either of the forms that a reply has."""
    flat = found and not isinstance(found[0], list | tuple)
    pairs = zip(found[::2], found[1::2], strict=True) if flat else found
    return [(member.decode(), int(float(score))) for member, score in pairs]
