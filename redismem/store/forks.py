"""What a process that was forked off has of the threads of the one it came from: nothing, nor what they were about.

A lock that one of them held would stay held there, and what it had begun would never end.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol


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
