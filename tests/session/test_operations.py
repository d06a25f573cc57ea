"""The tables that list the operations of a session, held against the session itself; and the words of their events.

Without this a new operation could be missing from any of them, and nothing would say so.
"""

from __future__ import annotations

import ast
import functools
import inspect
import re
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from protocol.test_acl import TURNS
from store.test_interruptions import FORGOTTEN
from support.operations import OPERATIONS

from redismem import Memory, Session, events
from redismem.events import Op, Outage
from redismem.protocol.call import Call
from redismem.record.record import Record

PACKAGE = Path(events.__file__).parent


class Table(NamedTuple):
    name: str
    rows: Sequence[Callable[[Any], object]]
    """Each calls one method of the session that it is given."""
    left_out: dict[str, str]
    """Operations that the table does without, and why."""


NO_SCRIPT = "it runs no script"
IN_A_BLOCK = dict.fromkeys(("turn", "follow"), "it is no call, but a block or an iterator: tests/live")
NO_CALL = {"check": "it calls no Redis", **IN_A_BLOCK}
TABLES = [
    Table("OPERATIONS of support/operations.py", [row.call for row in OPERATIONS.values()], NO_CALL),
    Table(
        "FORGOTTEN of store/test_interruptions.py",
        [call for call, _ in FORGOTTEN],
        NO_CALL | dict.fromkeys(("exists", "turn_of", "info", "set_aside", "state", "telemetry", "title"), NO_SCRIPT),
    ),
    Table("TURNS of protocol/test_acl.py", [call for call, _ in TURNS], NO_CALL),
]
NAMES = [table.name for table in TABLES]


def called_methods(method: Callable[..., Any]) -> set[str]:
    """The names of what a method calls of its own object."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(method)))
    calls = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    return {
        call.attr
        for call in calls
        if isinstance(call, ast.Attribute) and isinstance(call.value, ast.Name) and call.value.id == "self"
    }


@functools.cache
def operation_of(kind: type) -> dict[str, str]:
    """Each public method, and the operation it is: its own, or that of the one that it passes on to."""
    methods = inspect.getmembers(kind, inspect.isfunction)
    public = {name: method for name, method in methods if not name.startswith("_")}
    found = {}
    for name, method in public.items():
        others = called_methods(method)
        (found[name],) = others if len(others) == 1 and others <= set(public) else (name,)
    return found


class Listening:
    """Notes the names of the methods that are called."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_, **__: self.names.append(name)


def methods_in(rows: Sequence[Callable[[Any], object]]) -> list[str]:
    """The methods that the rows call, one each. Raises ValueError if a row calls more than one, or none."""
    found = []
    for row in rows:
        row(listening := Listening())
        (name,) = listening.names
        found.append(name)
    return found


def check_table(table: Table, kind: type = Session) -> list[str]:
    """Says which operations the table lacks, and which it leaves out though it has them, or there are none."""
    operation = operation_of(kind)
    known, left_out = set(operation.values()), set(table.left_out)
    there = {operation[name] for name in methods_in(table.rows)}
    return [
        *(f"{table.name} lacks {name}" for name in sorted(known - left_out - there)),
        *(f"{table.name} leaves out {name}, and has it" for name in sorted(there & left_out)),
        *(f"there is no operation {name} to leave out of {table.name}" for name in sorted(left_out - known)),
    ]


@pytest.mark.parametrize("table", TABLES, ids=NAMES)
def test_each_table_has_every_operation(table: Table) -> None:
    assert check_table(table) == []


class Wider(Session):
    """A session with two methods that no table knows: an operation, and one that passes on to another."""

    __slots__ = ()

    async def whistle(self, name: str) -> str:
        return await self._store.run(Call(None, ((name,),), str))

    async def turns(self) -> Any:
        return (await self.state()).params["turns"]


@pytest.mark.parametrize("table", TABLES, ids=NAMES)
def test_a_table_that_lacks_an_operation_is_noticed(table: Table) -> None:
    assert check_table(table, Wider) == [f"{table.name} lacks whistle"]
    operation = operation_of(Session)
    names = [operation[name] for name in methods_in(table.rows)]
    for lost in set(names):
        rows = [row for row, name in zip(table.rows, names, strict=True) if name != lost]
        assert check_table(table._replace(rows=rows)) == [f"{table.name} lacks {lost}"]
        (found,) = check_table(table._replace(left_out=table.left_out | {lost: "no reason"}))
        assert found == f"{table.name} leaves out {lost}, and has it"
    (found,) = check_table(table._replace(left_out=table.left_out | {"whistle": "gone"}))
    assert found == f"there is no operation whistle to leave out of {table.name}"


def test_what_passes_on_is_the_same_operation() -> None:
    operation = operation_of(Session)
    assert {name for name, its in operation.items() if its == "state"} >= {"state", "params", "plan"}
    assert {name for name, its in operation.items() if its == "update"} >= {"update", "merge", "set_plan"}
    assert {operation[name] for name in ("append", "read", "telemetry", "prune")} == {
        *("append", "read", "telemetry", "prune")
    }


# The operations of events.


def members_used(package: Path) -> set[str]:
    """The names of all members of `Op` that the package uses."""
    return {name for path in package.rglob("*.py") for name in re.findall(r"\bOp\.([A-Z_]+)\b", path.read_text())}


def test_every_operation_is_used_and_every_call_has_one() -> None:
    assert members_used(PACKAGE) == set(Op.__members__)


def test_an_operation_is_its_word_with_its_traits() -> None:
    assert f"{Op.APPEND} {Op.APPEND!r}" == "append 'append'"
    assert Op("append") is Op.APPEND
    assert {op for op in Op if op.outage is Outage.ACCEPTED} == {"append", "append_and_read", "update"}
    assert {op for op in Op if op.removes} == {
        "clear",
        "prune",
        "archive",
        "move_bodies",
        "pop",
        "rewrite",
        "replace",
        "forget",
        "quarantine",
        "evict",
    }
    assert {op for op in Op if op.is_turn} < {op for op in Op if op.appends}
    methods = {name for op in Op for name in re.findall(r"\w+", op.method)} - {"or"}
    assert methods <= {name for kind in (Session, Memory, Record) for name in dir(kind)}
