"""What a forked process inherits: no sockets of its parent, and objects that start afresh.

The child inherits the parent's sockets. While it has them open, the system goes on sending what the parent has given
up, see `transport.base.discard_unsent`, and a connection that the parent closes stays open for the server.

A lock that one of the parent's threads held would stay held in the child, and what that thread had begun would never
end: an object that needs a lock or a thread registers itself with `inherit`.
"""

from __future__ import annotations

import contextlib
import os
import weakref
from typing import Protocol

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


class Inherited(Protocol):
    """What a process that is forked off goes on with."""

    def begin_again(self) -> None:
        """Called in that process, before anything else runs there."""


_inherited: weakref.WeakSet[Inherited] = weakref.WeakSet()


def inherit(each: Inherited) -> None:
    """Has it begin again in every process that is forked off while it is there."""
    _inherited.add(each)


def _begin_again() -> None:
    for each in list(_inherited):
        each.begin_again()


os.register_at_fork(after_in_child=_begin_again)
