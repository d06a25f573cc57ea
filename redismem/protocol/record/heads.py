"""A head: the value of a member that names its parent and further fields, for one call to read. No I/O."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from redismem.errors import TooLarge

_SIZE = re.compile(rb"([0-9]{1,7}):")
_END = b";"
_NAMES_COUNT = 10_000


@dataclass(frozen=True, slots=True)
class Head:
    """A value that names other fields of its record, such as a checkpoint that names the blobs of its channels.

    `Record.newest` and `Record.page` also return the fields that a head names, and `Record.walk` follows `parent`. Keep
    a large body in a field of its own, named by the head: a walk reads every head on its way.
    """

    parent: bytes = b""
    """The member before this one; b"" means that there is none."""
    names: tuple[bytes, ...] = ()
    """The names of other fields."""
    body: bytes = b""
    """Any further bytes."""

    def encode(self) -> bytes:
        """Return the value to write.

        Raises:
            TooLarge: It names more than 10,000 fields.
        """
        if len(self.names) > _NAMES_COUNT:
            raise TooLarge(f"a head names {len(self.names):,} fields, over {_NAMES_COUNT:,}, a fixed limit")
        texts = (self.parent, *self.names)
        return b"".join(b"%d:%b" % (len(text), text) for text in texts) + _END + self.body

    @classmethod
    def decode(cls, value: bytes) -> Head:
        """Return the head in a value.

        Raises:
            ValueError: The value is not the encoding of a head.
        """
        texts = list(_texts(value))
        at = sum(len(b"%d:" % len(text)) + len(text) for text in texts)
        if not texts or value[at : at + 1] != _END:
            raise ValueError("this value is not a head")
        return cls(texts[0], tuple(texts[1:]), value[at + 1 :])


def _texts(value: bytes) -> Iterator[bytes]:
    at = 0
    while (match := _SIZE.match(value, at)) is not None:
        at = match.end() + int(match[1])
        if at > len(value):
            raise ValueError("this value is not a head")
        yield value[match.end() : at]
