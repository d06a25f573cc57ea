"""The blocking record: each method runs the coroutine of the async method with the same name."""

from __future__ import annotations

from collections.abc import Sequence

from redismem.concurrency.run_sync import blocking, run_without_loop
from redismem.protocol.record.changes import Change
from redismem.record import record, together


class Record:
    """The handle of one record, without `await`. See `redismem.record.Record`."""

    __slots__ = ("_twin",)

    def __init__(self, twin: record.Record) -> None:
        self._twin = twin

    def __repr__(self) -> str:
        return f"<blocking {repr(self._twin)[1:]}"

    @property
    def id(self) -> str:
        """The record's id, unchanged."""
        return self._twin.id

    @property
    def tag(self) -> str:
        """The tag: records of one tag can be written together."""
        return self._twin.tag

    def write(self, change: Change, *others: tuple[Record, Change]) -> bool:
        """See `redismem.record.Record.write`; its docstring is copied below."""
        twins = [(other._twin, its_change) for other, its_change in others]
        return run_without_loop(self._twin.write(change, *twins))

    write.__doc__ = record.Record.write.__doc__
    exists = blocking(record.Record.exists)
    get = blocking(record.Record.get)
    newest = blocking(record.Record.newest)
    page = blocking(record.Record.page)
    walk = blocking(record.Record.walk)
    drop = blocking(record.Record.drop)
    clear = blocking(record.Record.clear)
    set_aside = blocking(record.Record.set_aside)
    touch = blocking(record.Record.touch)


def get_all(records: Sequence[Record], *fields: bytes) -> list[list[bytes | None]]:
    """See `redismem.record.get_all`; its docstring is copied below."""
    return run_without_loop(together.get_all([each._twin for each in records], *fields))


def write_all(changes: Sequence[tuple[Record, Change]]) -> None:
    """See `redismem.record.write_all`; its docstring is copied below."""
    run_without_loop(together.write_all([(each._twin, change) for each, change in changes]))


get_all.__doc__ = together.get_all.__doc__
write_all.__doc__ = together.write_all.__doc__
