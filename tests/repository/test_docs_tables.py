"""Tables of the pages that name what stands in the tree: each name is there, where its row says."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from repository import test_architecture

from redismem.project.items.schema import DECISION, ENTITY_TYPES, PRIORITIES, TASK, ItemKind
from redismem.project.kinds.collection import Collection
from redismem.project.kinds.conversations import Conversations
from redismem.project.kinds.decisions import Decisions
from redismem.project.kinds.entities import Entities
from redismem.project.kinds.tasks import Tasks

ROOT = Path(__file__).parents[2]


def cells(text: str, head: str) -> list[list[str]]:
    """The cells of each row of the first table under this heading."""
    (section,) = re.findall(rf"^#+ {head}\n(.*?)(?=^#|\Z)", text, re.MULTILINE | re.DOTALL)
    table = section[section.index("|---") :].partition("\n")[2].partition("\n\n")[0]
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in table.splitlines()]


def rows(text: str, head: str) -> list[tuple[str, str]]:
    """The first two cells of each row of the first table under this heading."""
    return [(row[0], row[1]) for row in cells(text, head)]


def wrong_statuses(page: str, kind: ItemKind) -> Iterator[str]:
    """Statuses of a kind of items whose row is missing, or says that others may begin so or follow."""
    assert kind.transitions is not None
    told = {status: (ways, after) for status, ways, after in cells(page, f"Statuses of a {kind.name}")}
    for status, after in kind.transitions.items():
        ways, following = told.pop(f"`{status}`", ("", ""))
        begins = ("`create`" in ways) == (status in kind.begins)
        if not begins or set(re.findall(r"`(\w+)`", following.partition(";")[0])) != after - {status}:
            yield status
    yield from told


def methods_of(store: type) -> set[str]:
    """Return the public methods of a store, without those that all stores share."""
    return {name for name, _ in inspect.getmembers(store, inspect.isfunction) if name[0] != "_"}


def missing_names(page: str, files: dict[str, str]) -> Iterator[str]:
    """Yield names that a row claims are in a test file, but are not. A name with a dot or a slash belongs elsewhere."""
    for file, wanted in rows(page, "Who must be told"):
        text = "\n".join(text for name, text in files.items() if f"`{Path(name).name}`" == file)
        for name in re.findall(r"`(\w+)`", wanted):
            if re.search(rf"\b{name}\b", text) is None:
                yield f"{file} {name}"


def wrong_doors(page: str, doors: dict[str, str]) -> Iterator[str]:
    """Libraries whose row names other rooms than they may be imported in."""
    told = {
        name.removesuffix("-api").replace("-", "_"): rooms
        for names, rooms in rows(page, "Doors")
        for name in names.lower().split(", ")
    }
    for library, allowed in doors.items():
        cell = told.get(library, "")
        if set(re.findall(r"`redismem/(\w+)(?:\.py|/)`", cell)) != set(allowed.split()):
            yield library


def test_what_a_newcomer_is_sent_to_in_a_test_is_there() -> None:
    files = {str(path): path.read_text() for path in (ROOT / "tests").rglob("test_*.py")}
    assert list(missing_names((ROOT / "CONTRIBUTING.md").read_text(), files)) == []
    page = "### Who must be told\n\n| file | what |\n|---|---|\n| `test_a.py` | in `HERE`, `GONE` and `x/y.py` |\n"
    assert list(missing_names(page, {"tests/test_a.py": "HERE = 1"})) == ["`test_a.py` GONE"]


def test_every_library_has_the_doors_that_the_architecture_says() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    assert list(wrong_doors(page, test_architecture.DOORS)) == []
    page = "## Doors\n\n| library | door |\n|---|---|\n| redis, numpy | `redismem/transport/` |\n"
    assert list(wrong_doors(page, {"redis": "transport", "numpy": "nearest"})) == ["numpy"]


PROJECT = (ROOT / "docs" / "project.md").read_text()
STORES: tuple[type, ...] = (Decisions, Tasks, Entities, Conversations)


@pytest.mark.parametrize("kind", [DECISION, TASK], ids=lambda kind: kind.name)
def test_the_statuses_of_items_and_what_may_follow_are_those_that_are_checked(kind: ItemKind) -> None:
    assert list(wrong_statuses(PROJECT, kind)) == []
    first, *_ = kind.begins
    page = PROJECT.replace(f"| `{first}` | `create`", f"| `{first}` | ").replace("| `backlog` |\n", "| `planned` |\n")
    wrong = {"decision": [first], "task": [first, "completed", "cancelled"]}[kind.name]
    assert list(wrong_statuses(page, kind)) == wrong


def test_a_method_that_leads_to_a_status_and_every_other_one_of_a_store_is_in_the_table() -> None:
    told = {store: set(re.findall(r"`(\w+)`", names)) for store, names in rows(PROJECT, "Methods")}
    shared = methods_of(Collection) | {"list", "count"}
    assert told.pop("all") == shared
    assert told == {store.__name__.lower(): methods_of(store) - shared for store in STORES}
    for kind, store in ((DECISION, Decisions), (TASK, Tasks)):
        ways = {name for row in cells(PROJECT, f"Statuses of a {kind.name}") for name in re.findall(r"`(\w+)`", row[1])}
        assert ways <= methods_of(store)


def test_the_priorities_and_the_types_of_entities_are_told() -> None:
    (told,) = re.findall(r"`priority`: (.*?)\. An entity's `type` is (.*?)\.\n", PROJECT, re.DOTALL)
    priorities, types = (set(re.findall(r"`(\w+)`", each)) for each in told)
    assert (priorities, types) == (set(PRIORITIES), set(ENTITY_TYPES))
