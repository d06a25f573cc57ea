"""docs/howto/troubleshooting.md has every public error, and quotes texts that the package really has."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from redismem import errors

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "howto" / "troubleshooting.md").read_text()
PLACEHOLDER = "…"
REPORTS = ("log.warning", "log.error", "self._log.warning", "self._log.error", "complain")
# Most warnings of these modules come once, at the start of a process.
STARTING = (
    "cli/place.py",
    "cli/serve.py",
    "cli/serving.py",
    "settings/environment.py",
    "settings/settings.py",
    "store/agreement.py",
    "transport/connect.py",
    "transport/credentials.py",
    "transport/redis_py/given_client.py",
    "web/key_file.py",
    "workers/eviction.py",
    "workers/strategies.py",
)


def text_of(node: ast.expr) -> str:
    """Return the text of a string with a placeholder for each value in it; "" for other expressions."""
    match node:
        case ast.Constant(value=str(text)):
            return re.sub(r"%[.\d]*[sdgrf]", PLACEHOLDER, text)
        case ast.JoinedStr(values=parts):
            return "".join(text_of(part) or PLACEHOLDER for part in parts)
    return ""


@cache
def texts(name: str) -> tuple[str, ...]:
    """Return all strings of a module, or of the package."""
    paths = sorted((ROOT / "redismem").rglob("*.py")) if not name else [ROOT / "redismem" / name]
    nodes = (node for path in paths for node in ast.walk(ast.parse(path.read_text())))
    return tuple(text for node in nodes if isinstance(node, ast.expr) and (text := text_of(node)))


def rows(page: str, column: int, head: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the first cell of each row of the tables with this head, and the quotes in a column."""
    for table in re.findall(rf"^\| {head} \|.*\n\|[-|]+\n((?:\|.*\n?)+)", page, re.MULTILINE):
        for line in table.splitlines():
            cells = line.strip("|").split(" | ")
            yield cells[0].strip(" `"), re.findall(r"`([^`]+)`", cells[column])


def missing_errors(page: str) -> set[str]:
    """Return the public errors that have no row with a quoted text."""
    public = {name for name, value in vars(errors).items() if inspect.isclass(value) and issubclass(value, Exception)}
    return public - {"RedismemError"} - {name for name, quotes in rows(page, 1, "error") if quotes}


def unknown_quotes(page: str) -> Iterator[str]:
    """Yield quoted texts of errors and log lines that the package does not have."""
    quotes = [quote for _, quotes in rows(page, 1, "error") for quote in quotes]
    quotes += [quote for _, quotes in rows(page, 0, "the log says") for quote in quotes]
    assert len(quotes) > 80
    for quote in quotes:
        wanted = quote.removeprefix(PLACEHOLDER).removesuffix(PLACEHOLDER).strip()
        if not any(wanted in text for text in texts("")):
            yield quote


def unquoted_warnings(page: str) -> Iterator[str]:
    """Yield texts that a process logs at its start, and that the page does not quote."""
    quotes = [quote for _, quotes in rows(page, 0, "the log says") for quote in quotes]
    parts = [quote.strip(f"{PLACEHOLDER} ") for quote in quotes]
    for name in STARTING:
        for node in ast.walk(ast.parse((ROOT / "redismem" / name).read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in REPORTS:
                text = text_of(node.args[0])
                if len(text) > 30 and not any(part in text for part in parts):
                    yield text


def test_every_public_error_is_explained() -> None:
    assert missing_errors(PAGE) == set()
    wrong = PAGE.replace("| `IdReused` | `the append id was", "| `IdReused` | the append id was")
    wrong = wrong.replace("`, `the turn id was", "").replace("`, `the id was", "")
    assert missing_errors(wrong) == {"IdReused"}


def test_every_quoted_text_is_one_of_the_package() -> None:
    assert list(unknown_quotes(PAGE)) == []
    wrong = PAGE.replace("`the Redis URL is empty`", "`the URL of Redis is empty`")
    assert list(unknown_quotes(wrong)) == ["the URL of Redis is empty"]


def test_every_warning_at_the_start_is_explained() -> None:
    assert list(unquoted_warnings(PAGE)) == []
    (missing,) = unquoted_warnings(PAGE.replace("`recent_limit equals the threshold`", "`no threshold`"))
    assert missing.startswith("recent_limit equals the threshold")
