"""The Python reference is that of the docstrings, each name in it can be imported, and no page uses another one."""

from __future__ import annotations

import importlib
import importlib.util
import re
import types
from collections.abc import Iterator
from pathlib import Path

import redismem
from redismem import blocking, messages, metrics, models, session, settings, workers

ROOT = Path(__file__).parents[2]
API = ROOT / "docs" / "api.md"
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "benchmarks" / "README.md"])


def reference() -> types.ModuleType:
    """Return the module that writes the page; it is outside of any package."""
    spec = importlib.util.spec_from_file_location("api_reference", ROOT / ".ci" / "api_reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_reference_is_written_from_the_docstrings() -> None:
    page = API.read_text()
    assert page == reference().render(), "run: make api"
    assert re.findall(r"^.*\bRaises [A-Z].*$", page, re.MULTILINE) == []  # errors are a list below "Raises:"
    assert re.findall(r"^- `\w+`: [a-z].*$", page, re.MULTILINE) == []
    for default in (
        "| `max_sessions` | `1000` | ",
        "| `asks_limit` | `3` | ",
        "when_busy: WhenBusy = 'refuse'",
        "pin: bool | None = ...",
    ):
        assert default in page


def test_a_docstring_becomes_markdown() -> None:
    docstring = """Do it.

    Args:
        name: The name | or
            the other.

    >>> do("it")

    Raises:
        ValueError: It cannot be done.
    """
    args = ["Args:", "", "- `name`: The name | or", "  the other."]
    example = ["```text", '>>> do("it")', "```"]
    expected = ["Do it.", "", *args, "", *example, "", "Raises:", "", "- `ValueError`: It cannot be done."]
    assert reference()._text(docstring) == expected


def public_names(page: str) -> dict[str, list[str]]:
    """The names of each module, as the page lists them under a heading with the module's name."""
    sections = re.split(r"^## ", page, flags=re.MULTILINE)[1:]
    listed = {
        section.partition("\n")[0].strip("` "): re.findall(r"^\| `(\w+)` \|", section.partition("\n### ")[0], re.M)
        for section in sections
    }
    return {module: names for module, names in listed.items() if module.split(".")[0] == "redismem"}


def not_importable(page: str) -> Iterator[str]:
    load = reference().load
    for module, names in public_names(page).items():
        try:
            there = load(module)
        except ImportError:
            yield module
            continue
        yield from (f"{module}.{name}" for name in names if not hasattr(there, name))


def used_names(text: str) -> Iterator[str]:
    """The full name of whatever a page imports from redismem, or names with its module between backticks."""
    code = re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL) + re.findall(r"`([^`\n]+)`", text)
    for body in code:
        for module, names in re.findall(r"from (redismem[\w.]*) import (\([^)]*\)|[^\n]*)", body):
            yield from (f"{module}.{name}" for name in re.findall(r"(\w+)(?: as \w+)?(?:,|\)|$|\s)", names))
        yield from re.findall(r"\bimport (redismem[\w.]*)", body)
        yield from re.findall(
            r"(?<![\w./\[-])redismem(?:\.[A-Za-z_]\w*)+", re.sub(r"(?:from|import) redismem\S*", "", body)
        )


def not_listed(text: str, page: str) -> Iterator[str]:
    """Names that a text uses and the list has not: neither as a module, nor as a name or an attribute of one."""
    public = public_names(page)
    listed = {"redismem", *public, *(f"{module}.{name}" for module, names in public.items() for name in names)}
    classes = {name for name in listed if name.rpartition(".")[2][:1].isupper()}
    for name in used_names(text):
        if name not in listed and not any(name.startswith(f"{prefix}.") for prefix in classes):
            yield name


def test_every_public_name_can_be_imported() -> None:
    page = API.read_text()
    assert list(not_importable(page)) == []
    wrong = page.replace("| `Slots` |", "| `Slotz` |").replace("## `redismem.events`", "## `redismem.news`")
    assert list(not_importable(wrong)) == ["redismem.news", "redismem.slots.Slotz"]


def test_what_a_module_exports_is_listed() -> None:
    public = public_names(API.read_text())
    for module in (redismem, blocking, messages, metrics, models, session, settings, workers):
        assert sorted(public[module.__name__]) == sorted(module.__all__)


def test_pages_use_public_names_only() -> None:
    api = API.read_text()
    assert [(str(path.relative_to(ROOT)), name) for path in PAGES for name in not_listed(path.read_text(), api)] == []


def test_the_examples_use_public_names_only() -> None:
    for path in sorted((ROOT / "examples").rglob("*.py")):
        assert list(not_listed(f"```python\n{path.read_text()}\n```\n", API.read_text())) == [], path


def test_a_name_that_is_not_public_is_noticed() -> None:
    page = API.read_text()
    text = "`redismem.store.Store` `redismem.Memory.connect` `redismem/store/` `redismem.slots`\n"
    assert list(not_listed(text, page)) == ["redismem.store.Store"]
    imports = "from redismem import Memory, Nothing\nfrom redismem.workers import (\n    DROPPED,\n    Drain,\n)\n"
    text = f"```python\n{imports}```\n"
    assert list(not_listed(text, page)) == ["redismem.Nothing", "redismem.workers.Drain"]
