"""Choose the calls of a lane that go over its second connection, so that small calls need not wait behind them.

These are calls of more than 32 KiB, and reads of whole windows whose last read had a reply of that size. The calls of a
subject, such as a session, never overtake each other: while it has calls on one connection, its next calls go over the
same one.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence

from redismem.protocol.call import Command, Subject, tag_of
from redismem.transport.lane.connection import LARGE_BYTES, PendingCall

_WINDOWS_LIMIT = 1_000


def _reads_window(commands: Sequence[Command]) -> bool:
    last = commands[-1]
    return last[0] == "LRANGE" and last[2] == 0


def _subject_of(call: PendingCall) -> Subject:
    return call.subject or tag_of(call.commands)


class LargeCalls:
    """The subjects with large windows, and those that have calls on the second connection of one lane."""

    def __init__(self) -> None:
        self.windows: dict[Subject, None] = {}
        """The sessions whose last read of the whole window had a large reply. The oldest are forgotten."""
        self.pending: dict[Subject, weakref.ref[PendingCall]] = {}
        """The last call on the second connection, for each subject that has one there."""

    def note_reply(self, call: PendingCall) -> None:
        """Remember the session of a call whose reply was large, if it read a window."""
        if call.commands and _reads_window(call.commands):
            self.windows[_subject_of(call)] = None
            if len(self.windows) > _WINDOWS_LIMIT:
                self.windows.pop(next(iter(self.windows)))

    def take(self, call: PendingCall, others: Iterable[PendingCall]) -> bool:
        """Return True if the call goes over the second connection. `others` are the calls on the first one."""
        subject = _subject_of(call)
        if subject is None:
            return False
        if subject not in self.pending:
            is_large_read = subject in self.windows and _reads_window(call.commands)
            if not is_large_read and len(call.content) <= LARGE_BYTES:
                return False
            if any(_subject_of(other) == subject for other in others):
                return False
            self.windows.pop(subject, None)  # its reply tells whether it is still large
        self._note_sent(subject, call)
        return True

    def _note_sent(self, subject: Subject, call: PendingCall) -> None:
        """Let the subject's next calls follow this one, as long as it waits to be sent or for its reply."""
        pending = self.pending

        def end(reference: weakref.ref[PendingCall]) -> None:
            if pending.get(subject) is reference:
                del pending[subject]

        pending[subject] = weakref.ref(call, end)
