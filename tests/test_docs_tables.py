"""Tables of the pages that name what stands in the tree: each name is there, where its row says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import test_architecture

ROOT = Path(__file__).parents[1]


def rows(text: str, head: str) -> list[tuple[str, str]]:
    """The first two cells of each row of the first table under this heading."""
    (section,) = re.findall(rf"^#+ {head}\n(.*?)(?=^#|\Z)", text, re.MULTILINE | re.DOTALL)
    table = section[section.index("|---") :].partition("\n")[2].partition("\n\n")[0]
    return [
        (cells[0].strip(), cells[1].strip()) for row in table.splitlines() if (cells := row.strip("|").split(" | "))
    ]


def missing_names(page: str, files: dict[str, str]) -> Iterator[str]:
    """What rows name of a test's file that is not in it. A name with a dot or a slash is of another file."""
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
