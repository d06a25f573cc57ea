"""The `expect` of a write: a context, a receipt or a seq that the caller has seen, and that must be current. No I/O."""

from __future__ import annotations

from redismem.context.context import Context
from redismem.context.results import Receipt

Expected = int | Context | Receipt
"""Something a caller has seen of a session: a Context, a Receipt, or the last seq alone."""


def parse_expected(expect: Expected, session_id: str) -> tuple[int | None, str, bytes]:
    """Return the last seq, the epoch and the newest append that a caller has seen. None, "" and b"" expect nothing.

    A degraded context or receipt has provisional seqs, so it gives the epoch alone. A bare seq has no epoch.

    Raises:
        TypeError: `expect` is none of these.
        ValueError: The seq is negative, or the context is of another session.
    """
    if isinstance(expect, Context) and expect.session_id != session_id:
        raise ValueError("expect is the context of another session")
    if isinstance(expect, Context | Receipt):
        return (None, expect.epoch, b"") if expect.degraded else (expect.last_seq, expect.epoch, expect.newest_append)
    if type(expect) is not int:
        raise TypeError("expect is a context, a receipt, or the last seq as an integer")
    if expect < 0:
        raise ValueError("expect is a last seq: an integer, 0 or more")
    return expect, "", b""
