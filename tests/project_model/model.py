"""The model of a project, which replays the happenings of each item. It shares no code with the package."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

Fields = dict[str, Any]


class Happening(NamedTuple):
    at_ms: int
    version: int
    known_ms: int
    effect: Callable[[Fields], None]


Passed = list[tuple[str, int]]
"""The statuses that an item reached, each with its moment."""
Follows = Callable[[Fields, Passed, int], None]
"""A function that derives fields from the statuses passed; `known` counts the ones before the last happening."""


@dataclass
class Modelled:
    """One item, as the list of its happenings."""

    id: str
    follows: Follows = lambda fields, passed, known: None
    happenings: list[Happening] = field(default_factory=list)

    def happen(self, at_ms: int, known_ms: int, effect: Callable[[Fields], None]) -> None:
        self.happenings.append(Happening(at_ms, len(self.happenings) + 1, known_ms, effect))

    def as_of(self, at_ms: int | None = None, known_ms: int | None = None) -> Fields | None:
        """Return the item's fields at a moment, or `None` if it did not exist or was deleted."""
        then = [
            each
            for each in self.happenings
            if (at_ms is None or each.at_ms <= at_ms) and (known_ms is None or each.known_ms <= known_ms)
        ]
        if not then or all(each.version != 1 for each in then):
            return None
        fields, _ = self.replayed(then)
        fields["version"] = max(each.version for each in then)
        fields["created_ms"], fields["valid_from_ms"] = self.happenings[0].known_ms, self.happenings[0].at_ms
        return None if fields.get("deleted") else fields

    @property
    def now(self) -> Fields:
        fields = self.as_of()
        assert fields is not None
        return fields

    @property
    def begun_ms(self) -> int:
        return self.happenings[0].at_ms

    @property
    def latest_ms(self) -> int:
        return max(each.at_ms for each in self.happenings)

    def replayed(self, happenings: Iterable[Happening]) -> tuple[Fields, Passed]:
        """Replay happenings in the order of their moments, and return the fields and the statuses passed."""
        fields: Fields = {}
        passed: Passed = []
        for each in sorted(happenings):
            known = len(passed)
            before = fields.pop("status", None)
            each.effect(fields)
            if "status" in fields:
                passed.append((fields["status"], each.at_ms))
            fields = {"status": before} | fields | {"moment_ms": each.at_ms}
            self.follows(fields, passed, known)
        return fields, passed

    def with_one_more(self, at_ms: int, effect: Callable[[Fields], None]) -> tuple[Fields, list[str]]:
        """Return the fields and statuses as if this had happened as well."""
        fields, passed = self.replayed([*self.happenings, Happening(at_ms, len(self.happenings) + 1, 0, effect)])
        return fields, [status for status, _ in passed]

    def path_with(self, at_ms: int, **values: Any) -> list[str]:
        """Return the statuses passed as if these fields had been set at that moment."""
        return self.with_one_more(at_ms, sets(**values))[1]


def sets(**values: Any) -> Callable[[Fields], None]:
    return lambda fields: fields.update(values)


def adds(name: str, value: Any) -> Callable[[Fields], None]:
    def effect(fields: Fields) -> None:
        fields[name] = [*fields[name], *([] if value in fields[name] else [value])]

    return effect


def drops(name: str, value: Any) -> Callable[[Fields], None]:
    return lambda fields: fields.update({name: [each for each in fields[name] if each != value]})


def both(*effects: Callable[[Fields], None]) -> Callable[[Fields], None]:
    def effect(fields: Fields) -> None:
        for each in effects:
            each(fields)

    return effect


def ends(done: Iterable[str], fields: Fields, passed: Passed, known: int) -> None:
    """Set the end of validity: the given day, or the end of the item unless it was reopened, whichever comes first."""
    if known < len(passed) and known and passed[known - 1][0] in done and fields["status"] not in done:
        fields["said_until"] = None
    since = None
    for status, at_ms in passed:
        since = None if status not in done else at_ms if since is None else since
    fields["valid_until"] = min((ms for ms in (since, fields["said_until"]) if ms is not None), default=None)


def has_words(asked: str, text: str) -> bool:
    """True if each asked word begins a word of the text, ignoring case."""

    def words(text: str) -> list[str]:
        plain = unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())
        return "".join(letter if letter.isalnum() else " " for letter in plain).split()

    return all(any(word.startswith(begun) for word in words(text)) for begun in words(asked))


def legal(ways: dict[str, str], statuses: Iterable[str]) -> bool:
    passed = list(statuses)
    return all(after in ways[before].split() for before, after in pairwise(passed))


def alive(items: Iterable[Modelled], at_ms: int | None, known_ms: int | None) -> Iterator[tuple[str, Fields]]:
    for item in items:
        fields = item.as_of(at_ms, known_ms)
        if fields is not None:
            yield item.id, fields
