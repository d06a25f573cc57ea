"""The model: what happened to each item, replayed. It shares nothing with the package."""

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


@dataclass
class Modelled:
    """One item: all that happened to it."""

    id: str
    happenings: list[Happening] = field(default_factory=list)

    def happen(self, at_ms: int, known_ms: int, effect: Callable[[Fields], None]) -> None:
        self.happenings.append(Happening(at_ms, len(self.happenings) + 1, known_ms, effect))

    def as_of(self, at_ms: int | None = None, known_ms: int | None = None) -> Fields | None:
        """What it was; None if there was nothing, or it was deleted."""
        then = [
            each
            for each in self.happenings
            if (at_ms is None or each.at_ms <= at_ms) and (known_ms is None or each.known_ms <= known_ms)
        ]
        if not then or all(each.version != 1 for each in then):
            return None
        fields: Fields = {}
        for each in sorted(then):
            each.effect(fields)
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

    def statuses_with(self, at_ms: int, status: str) -> list[str]:
        """The statuses it would have come through if it had come to this one then."""
        passed: list[tuple[int, int, str]] = []
        for each in self.happenings:
            before: Fields = {"status": None, "tags": [], "blocked_by": [], "dependencies": [], "related": []}
            each.effect(before)
            if before["status"] is not None:
                passed.append((each.at_ms, each.version, before["status"]))
        passed.append((at_ms, len(self.happenings) + 1, status))
        return [status for _, _, status in sorted(passed)]


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


def has_words(asked: str, text: str) -> bool:
    """Whether each word that is asked for begins a word of the text, without case."""

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
