"""What a process that was forked off has of the connections of the one it came from: nothing.

It inherits their sockets. While it has them open, the system goes on sending what the parent has given up, see
`base.discard_unsent`, and a connection that the parent closes stays open for the server.
"""

from __future__ import annotations

import contextlib
import os

_Held = tuple[int, int]
_held: set[_Held] = set()
"""Descriptors of sockets that are open, and of each the inode: that of another file that has its number is another."""

NONE: _Held = -1, -1


def hold(descriptor: int) -> _Held:
    """Notes that this socket is open, until it is dropped."""
    held = descriptor, os.fstat(descriptor).st_ino
    _held.add(held)
    return held


def drop(held: _Held) -> None:
    """The socket is about to be closed, or is."""
    _held.discard(held)


def _let_go() -> None:
    """Puts something else in the sockets' places: closed, their numbers would be given to others, and closed again."""
    inherited = list(_held)
    _held.clear()
    if not inherited:
        return
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor, inode in inherited:
        with contextlib.suppress(OSError):  # it is closed
            if os.fstat(descriptor).st_ino == inode:
                os.dup2(nothing, descriptor, inheritable=False)
    os.close(nothing)


os.register_at_fork(after_in_child=_let_go)
