"""Check the tables of session operations, and the operation names of events, against the session itself.

Otherwise a table could lack a new operation without any test failing.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from protocol.test_acl import TURNS
from store.fallback.test_store import REFUSED as UNSERVED
from store.fallback.test_store import SERVED
from store.test_corrupt import READS
from store.test_interruptions import FORGOTTEN
from store.test_other_layouts import REFUSED
from store.test_round_trips import OPERATIONS
from test_memory import UNKNOWN

from redismem import Session, events
from redismem.protocol.call import Call

PACKAGE = Path(events.__file__).parent


class Table(NamedTuple):
    name: str
    rows: Sequence[Callable[[Any], object]]
    """Functions that each call one method of the given session."""
    left_out: dict[str, str]
    """Operations that the table leaves out, with the reason."""


NO_SCRIPT = "it runs no script"
TABLES = [
    Table("OPERATIONS of store/test_round_trips.py", [row[-1] for row in OPERATIONS], {}),
    Table("READS of store/test_corrupt.py", [call for call, _ in READS.values()], {}),
    Table(
        "REFUSED of store/test_other_layouts.py",
        list(REFUSED.values()),
        {
            "exists": "it looks whether there are counters, whatever their layout",
            "clear": "it must get rid of any session: test_workers_leave_a_session_of_another_layout_alone",
            "state": "it reads no counters",
        },
    ),
    Table(
        "UNKNOWN of test_memory.py",
        [call for call, _ in UNKNOWN.values()],
        {
            "read": "it has a test of its own: test_the_context_of_an_unknown_session_is_empty",
            "update": "it creates a missing session",
        },
    ),
    Table(
        "FORGOTTEN of store/test_interruptions.py",
        [call for call, _ in FORGOTTEN],
        dict.fromkeys(("exists", "info", "state", "telemetry"), NO_SCRIPT),
    ),
    Table("TURNS of test_acl.py", [call for call, _ in TURNS], {}),
    Table("SERVED and REFUSED of store/test_fallback.py", [*SERVED.values(), *UNSERVED.values()], {}),
]
NAMES = [table.name for table in TABLES]


def called(method: Callable[..., Any]) -> set[str]:
    """Return the names of the methods that a method calls on its own object."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(method)))
    calls = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    return {
        call.attr
        for call in calls
        if isinstance(call, ast.Attribute) and isinstance(call.value, ast.Name) and call.value.id == "self"
    }


def operation_of(kind: type) -> dict[str, str]:
    """Return the operation of each public method: its own name, or the method that it delegates to."""
    methods = inspect.getmembers(kind, inspect.isfunction)
    public = {name: method for name, method in methods if not name.startswith("_")}
    found = {}
    for name, method in public.items():
        others = called(method)
        (found[name],) = others if len(others) == 1 and others <= set(public) else (name,)
    return found


class Listening:
    """An object that records the names of called methods."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_, **__: self.names.append(name)


def methods_in(rows: Sequence[Callable[[Any], object]]) -> list[str]:
    """Return the method that each row calls. Raise ValueError if a row does not call exactly one."""
    found = []
    for row in rows:
        row(listening := Listening())
        (name,) = listening.names
        found.append(name)
    return found


def check_table(table: Table, kind: type = Session) -> list[str]:
    """Return complaints: missing operations, and operations to leave out that are present or unknown."""
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
    """A session with two methods that no table lists: an operation, and a method that delegates to another."""

    __slots__ = ()

    async def whistle(self, name: str) -> str:
        return await self._run(Call(None, ((name,),), str))

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


# The words of events.

OP_PLACE = {"Call": 5, "independent": 2}
UNNAMED = Call(None, (), bool).op
Function = ast.FunctionDef | ast.AsyncFunctionDef


def words_sent(source: str) -> set[str]:
    """Return the `op` of each call. For an `op` that is a parameter: its default and the values that callers pass."""
    tree = ast.parse(source)
    found: set[str] = set()
    for function in (node for node in ast.walk(tree) if isinstance(node, Function)):
        for call in calls_of(function, *OP_PLACE):
            op = argument(call, "op", OP_PLACE[name_of(call)])
            if isinstance(op, ast.Name):
                found |= words_given(tree, function, op.id)
            elif op is None:
                found.add(UNNAMED)
            else:
                found.add(ast.literal_eval(op))
    return found


def words_given(tree: ast.Module, function: Function, parameter: str) -> set[str]:
    """Return the possible values of a parameter: its default and the values that callers pass."""
    names = [each.arg for each in function.args.args]
    place, defaults = names.index(parameter), function.args.defaults
    given = [argument(call, parameter, place - (names[0] == "self")) for call in calls_of(tree, function.name)]
    given += [each for name, each in zip(names[::-1], defaults[::-1], strict=False) if name == parameter]
    return {ast.literal_eval(each) for each in given if each is not None}


def calls_of(tree: ast.AST, *names: str) -> list[ast.Call]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call) and name_of(node) in names]


def name_of(call: ast.Call) -> str:
    return str(getattr(call.func, "id", None) or getattr(call.func, "attr", ""))


def argument(call: ast.Call, name: str, place: int) -> ast.expr | None:
    named = [keyword.value for keyword in call.keywords if keyword.arg == name]
    return named[0] if named else (call.args[place] if place < len(call.args) else None)


def words_told(source: str, by: str = "told") -> set[str]:
    """Return the operation names of a worker's events, or of events that a store emits by itself."""
    words = (call.args[0] for call in calls_of(ast.parse(source), by))
    return {ast.literal_eval(word) for word in words if isinstance(word, ast.Constant)}


def words_listed(source: str) -> set[str]:
    """Return the operation names that the docstring of `Event.op` lists."""
    (event,) = (node for node in ast.parse(source).body if isinstance(node, ast.ClassDef) and node.name == "Event")
    (place,) = (at for at, node in enumerate(event.body) if ast.unparse(node) == "op: str")
    text = ast.literal_eval(event.body[place + 1].value)  # type: ignore[attr-defined]
    lists = re.findall(r"\bBy [^:]*:([^.]*)\.", re.sub(r"\([^)]*\)", "", text))
    return {word for each in lists for word in re.findall(r"[a-z_]+", each)} - {"and"}


def test_every_word_of_an_event_is_listed_and_no_other() -> None:
    sent = [words for path in PACKAGE.glob("protocol/**/*.py") if (words := words_sent(path.read_text()))]
    assert len(sent) > 10
    looked = [words_sent(path.read_text()) for path in PACKAGE.glob("inspection/*.py")]
    told = [words_told(path.read_text()) for path in PACKAGE.glob("workers/*.py")]
    told += [words_told((PACKAGE / "recall" / "semantic.py").read_text())]
    told += [words_told((PACKAGE / "store" / "observed.py").read_text(), "_tell")]
    assert all(sent)
    sent += [words_sent((PACKAGE / "protocol" / "session" / "append.py").read_text())]
    assert set().union(*sent, *looked, *told) == words_listed((PACKAGE / "events.py").read_text())


def test_a_word_is_found_however_it_is_given() -> None:
    source = """
class Calls:
    def _call(self, name, keys): return Call(1, 2, 3, op=name)
    def page(self, limit, op="messages"): return Call(1, 2, 3, op=op)
    def window(self): return self.page(9, op="read_window")
    def extend(self): return self._call("extend", ())
    def append(self): return Call(1, 2, 3, 4, 5, "append")
    def counts(self): return independent(1, 2, "counts")
    def whistle(self): return Call(1, 2, 3, op="whistle")
    def doctor(self): return Call(1, 2, 3)
"""
    sent = {"messages", "read_window", "extend", "append", "counts", "whistle", "look"}
    assert words_sent(source) == sent
    assert words_told("async def f(): await store.told('drain', g())") == {"drain"}
    listed = (
        'class Event:\n    op: str\n    """By a session: append, {}.\n    By workers: drain (or so), evict and look."""'
    )
    assert words_listed(listed.format("whistle")) == {"append", "whistle", "drain", "evict", "look"}
    assert words_listed(listed.format("touch")) == {"append", "touch", "drain", "evict", "look"}
