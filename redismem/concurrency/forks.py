"""Close inherited sockets and reset registered objects in a forked process.

A forked process inherits its parent's sockets. While the child has a socket open, the kernel keeps sending bytes that
the parent has discarded (see `transport.base.discard_unsent`), and the server does not notice if the parent closes it.

Only the forking thread exists in the child. A lock that another thread held would stay locked for ever, and the work of
that thread would never end. So an object with a lock or a thread registers itself with `reset_after_fork`.
"""

from __future__ import annotations

import contextlib
import os
import weakref
from typing import Protocol

_Held = tuple[int, int]
_held: set[_Held] = set()
"""The descriptor and inode of each open socket. If the descriptor is reused for another file, the inode differs."""
NONE: _Held = -1, -1


def hold(descriptor: int) -> _Held:
    """Register an open socket, until `drop`."""
    held = descriptor, os.fstat(descriptor).st_ino
    _held.add(held)
    return held


def drop(held: _Held) -> None:
    """Unregister a socket that is closed or about to be."""
    _held.discard(held)


def _replace_sockets() -> None:
    """Replace the sockets with /dev/null instead of closing them, so that no new file reuses their descriptors.

    The objects copied from the parent close these descriptors later, and would close such a file.
    """
    inherited = list(_held)
    _held.clear()
    if not inherited:
        return
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor, inode in inherited:
        with contextlib.suppress(OSError):  # the descriptor is closed
            if os.fstat(descriptor).st_ino == inode:
                os.dup2(nothing, descriptor, inheritable=False)
    os.close(nothing)


os.register_at_fork(after_in_child=_replace_sockets)


class Inherited(Protocol):
    """An object that a forked process goes on using."""

    def reset(self) -> None:
        """Return to the initial state. It runs in the forked process before any other code."""


_inherited: weakref.WeakSet[Inherited] = weakref.WeakSet()


def reset_after_fork(inherited: Inherited) -> None:
    """Reset this object in every process forked during its lifetime."""
    _inherited.add(inherited)


def _reset_all() -> None:
    for inherited in list(_inherited):
        inherited.reset()


os.register_at_fork(after_in_child=_reset_all)
