"""A change of a record, and its encoding as arguments of the script. No I/O."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from redismem.errors import InvalidRecord, TooLarge
from redismem.protocol.call import Argument

NAME_BYTES = 4_096
"""The largest name of a field or member."""
_LAST_US = 2**53 - 1
"""The last time that is exact as a score in Redis, in the year 2255."""
CHANGE_BYTES = 64 * 1024 * 1024
"""The most bytes that one write may send."""
CHANGE_COUNT = 20_000
"""The most names that one write may contain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change of one record: conditions, and what is written if all of them hold. Names and values are bytes.

    Drops and removals come first, so a field that is dropped and set is set.
    """

    equals: Mapping[bytes, bytes] = field(default_factory=dict)
    """Conditions: these fields have these values."""
    absent: Collection[bytes] = ()
    """Conditions: these fields do not exist."""
    present: Collection[bytes] = ()
    """Conditions: these fields exist."""
    sets: Mapping[bytes, bytes] = field(default_factory=dict)
    """Fields to set."""
    sets_once: Mapping[bytes, bytes] = field(default_factory=dict)
    """Fields to set unless they exist: the first write wins."""
    drops: Collection[bytes] = ()
    """Fields to remove."""
    adds: Collection[bytes] = ()
    """Members to add to the order."""
    removes: Collection[bytes] = ()
    """Members to remove from the order."""

    updated_us: int | None = None
    """The time of the update in microseconds since 1970, by which `Memory.records(newest=True)` sorts the record.

    `None` leaves the record at its place in that list, or out of it.
    """

    def checks(self) -> list[tuple[bytes, bytes]]:
        """Return the field of each condition with its argument, in the order of the script's numbers."""
        equal = [(name, b"=" + check_value(value)) for name, value in self.equals.items()]
        return [*equal, *((name, b"") for name in self.absent), *((name, b"*") for name in self.present)]

    def encode(self) -> list[Argument]:
        """Return the counts, then the arguments.

        Raises:
            InvalidRecord: a name is not 1 to 4,096 bytes, or a value is not bytes, or the time is out of range.
            TooLarge: it has more than 20,000 names.
        """
        for names in (self.adds, self.removes, self.drops, self.equals, self.absent, self.present):
            if names:
                check_names(names)
        checks = self.checks() if self.equals or self.absent or self.present else []
        counts = [*map(len, (checks, self.sets, self.sets_once, self.drops, self.adds, self.removes))]
        if sum(counts) > CHANGE_COUNT:
            raise TooLarge(f"a change has {sum(counts)} names, over {CHANGE_COUNT:,}, a fixed limit")
        updated = "-" if self.updated_us is None else _check_time(self.updated_us)
        arguments: list[Argument] = [f"{' '.join(map(str, counts))} {updated}"]
        for check in checks:
            arguments += check
        for fields in (self.sets, self.sets_once):
            for name, value in fields.items():
                arguments += (check_name(name), check_value(value))
        arguments += self.drops
        for member in self.adds:
            arguments += (0, member)
        arguments += self.removes
        return arguments


def _check_time(time_us: object) -> int:
    if type(time_us) is not int or abs(time_us) > _LAST_US:
        raise InvalidRecord("the time of an update is a whole number of microseconds")
    return time_us


def check_name(name: object) -> bytes:
    """Return the name of a field or member.

    Raises:
        InvalidRecord: it is not 1 to 4,096 bytes.
    """
    if not isinstance(name, bytes) or not 1 <= len(name) <= NAME_BYTES:
        raise InvalidRecord(f"a field or member of a record is 1 to {NAME_BYTES} bytes, not a str")
    return name


def check_names(*groups: Collection[bytes]) -> None:
    """Check names of fields or members, as `check_name` does. A single name, whose elements are ints, is refused."""
    for name in (name for group in groups for name in group):
        check_name(name)


def check_value(value: object) -> bytes:
    """Return a value.

    Raises:
        InvalidRecord: it is not bytes.
    """
    if not isinstance(value, bytes):
        raise InvalidRecord("a value of a record is bytes")
    return value


def check_size(arguments: Collection[Argument]) -> None:
    """Refuse arguments that are too large for one call.

    Raises:
        TooLarge: they have more than 64 MiB.
    """
    size = sum([len(argument) for argument in arguments if isinstance(argument, bytes)])
    if size > CHANGE_BYTES:
        raise TooLarge(f"a write of {size:,} bytes is over {CHANGE_BYTES:,}, a fixed limit: split it")
