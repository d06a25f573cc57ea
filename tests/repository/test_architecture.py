"""Rooms, arrows, doors: who may import whom, and where each third-party library comes in.

A new room gets a place in FLOORS, a new library a place in DOORS. Nothing else decides.
"""

import ast
import graphlib
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from importlib.util import resolve_name
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]

# Floors, from the ground up. A room is a folder, or a module that lies directly in redismem/. It imports rooms of the
# floors below, and of its own floor as long as that makes no circle.
FLOORS = (
    "errors events",
    "settings concurrency messages",
    "formats",
    "text context",
    "slots models originals",
    "protocol",
    "transport",
    "store",
    "recall live",
    "session record",
    "project",
    "workers inspection",
    "memory",
    "__init__ blocking metrics web adapters mcp",
    "cli",
    "__main__",
)
FLOOR_OF = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms.split()}
# Some rooms have no business in others though they lie above them.
NEVER = {
    "session": "inspection",
    "record": "inspection",
    "workers": "inspection",
    "memory": "inspection",
    "web": "protocol transport workers",
    "adapters": "protocol transport workers",
    "mcp": "protocol transport workers",
    "cli": "protocol",
}
# `import redismem` stays small.
FRONT_DOOR = {"live", "errors", "settings", "messages", "context", "memory", "session"}
DOORS = {
    "redis": "transport",
    "hiredis": "transport",
    "fakeredis": "transport",
    "msgspec": "messages originals record slots web",
    "zstandard": "messages originals",
    "pydantic": "settings web mcp adapters",
    "pydantic_core": "text",
    "httpx": "models",
    "numpy": "recall",
    "tokenizers": "recall",
    "safetensors": "recall",
    "apscheduler": "workers",
    "cyclopts": "cli",
    "rich": "cli",
    "uvloop": "cli",
    "fastapi": "web",
    "starlette": "web",
    "uvicorn": "web",
    "prometheus_client": "metrics",
    "opentelemetry": "web",
    "mcp": "mcp",
    "anyio": "mcp",
    "sse_starlette": "mcp",
    "agents": "adapters",
    "agent_framework": "adapters",
    "llama_index": "adapters",
    "langchain_core": "adapters",
    "langgraph": "adapters",
    "pydantic_ai": "adapters",
    "strands": "adapters",
    "claude_agent_sdk": "adapters",
    "a2a": "adapters",
    "google": "adapters",
    "crewai": "adapters",
    "chainlit": "adapters",
}
Check = Callable[[Path], list[str]]


class Module(NamedTuple):
    """A module of the package. Its room is what lies directly in redismem/."""

    path: str
    room: str
    names: tuple[str, ...]
    """The full names of all that it imports, wherever in it, for types alone as well."""


@cache
def read_module(path: str, text: str) -> Module:
    """Parse a module once for all checks. Their trees would take hundreds of megabytes."""
    nodes = list(ast.walk(ast.parse(text, path)))
    here = ".".join(["redismem", *Path(path).parent.parts])
    return Module(
        path,
        Path(path).with_suffix("").parts[0],
        tuple(imported_names(nodes, here)),
    )


def modules(package: Path) -> list[Module]:
    return [read_module(str(path.relative_to(package)), path.read_text()) for path in sorted(package.rglob("*.py"))]


def imported_names(nodes: Iterable[ast.AST], here: str) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            source = resolve_name("." * node.level + (node.module or ""), here)
            yield from (f"{source}.{alias.name}" for alias in node.names)


def imports(package: Path, module: Module) -> set[tuple[str, str]]:
    """(library, "") or ("redismem", room) for all that a module imports."""
    found = set()
    for library, *inner in (name.split(".") for name in module.names):
        room = inner[0] if inner else ""
        is_room = room in FLOOR_OF or (package / room).is_dir() or (package / f"{room}.py").exists()
        found.add((library, (room if room and is_room else "__init__") if library == "redismem" else ""))
    return found


def check_rooms(package: Path) -> list[str]:
    return [
        f"{path}: {room} is on no floor yet: FLOORS in tests/repository/test_architecture.py"
        for path, room, _ in modules(package)
        if room not in FLOOR_OF
    ]


def check_arrows(package: Path) -> list[str]:
    wrong = []
    graph: dict[str, set[str]] = {}
    for module in modules(package):
        path, room = module.path, module.room
        wanted = {other for library, other in imports(package, module) if library == "redismem"} - {room}
        graph.setdefault(room, set()).update(wanted)
        wrong += [
            f"{path}: {room} must not import {other}, which comes after it"
            for other in sorted(wanted)
            if room in FLOOR_OF and FLOOR_OF.get(other, 0) > FLOOR_OF[room]
        ]
        forbidden = wanted & set(NEVER.get(room, "").split())
        wrong += [f"{path}: {room} must never import {other}" for other in sorted(forbidden)]
        if room == "__init__":
            wrong += [f"{path}: must not import {other}" for other in sorted(wanted - FRONT_DOOR)]
    return wrong + circle("rooms", graph)


def circle(what: str, graph: dict[str, set[str]]) -> list[str]:
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return [f"{what} import each other in a circle: {' -> '.join(error.args[1])}"]
    return []


def check_circles(package: Path) -> list[str]:
    """No module needs one that needs it, be it for types alone or inside a function."""
    return circle("modules", wanted_modules(package))


def wanted_modules(package: Path) -> dict[str, set[str]]:
    """Return the names of the modules that each module imports."""
    found = {module_name(module.path): module.names for module in modules(package)}
    return {
        name: {part if part in found else part.rpartition(".")[0] for part in names} & found.keys() - {name}
        for name, names in found.items()
    }


def check_folders(package: Path) -> list[str]:
    """Refuse circles between the files and folders of one folder: sub-rooms have floors too."""
    graphs: dict[str, dict[str, set[str]]] = {}
    for name, wanted in wanted_modules(package).items():
        for other in wanted:
            here, there = name.split("."), other.split(".")
            depth = next((at for at, (a, b) in enumerate(zip(here, there, strict=False)) if a != b), 0)
            if depth:
                graph = graphs.setdefault(".".join(here[:depth]), {})
                graph.setdefault(here[depth], set()).add(there[depth])
    return [wrong for folder, graph in sorted(graphs.items()) for wrong in circle(f"in {folder}, rooms", graph)]


def module_name(path: str) -> str:
    return ".".join(["redismem", *Path(path).with_suffix("").parts]).removesuffix(".__init__")


def check_doors(package: Path) -> list[str]:
    wrong = []
    for module in modules(package):
        path, room = module.path, module.room
        libraries = {library for library, _ in imports(package, module)}
        for library in sorted(libraries - {"redismem"} - sys.stdlib_module_names):
            if library not in DOORS:
                wrong.append(f"{path}: {library} has no door yet: DOORS in tests/repository/test_architecture.py")
            elif room not in DOORS[library].split():
                wrong.append(f"{path}: {library} may only be imported in {DOORS[library]}")
    return wrong


def check_adapters(package: Path) -> list[str]:
    """An adapter imports no other adapter: each needs its framework. They share `sessions`, `runs` and `repairs`."""
    wrong = []
    for path, room, names in modules(package):
        wanted = {
            part[2]
            for part in (name.split(".") for name in names)
            if part[:2] == ["redismem", "adapters"] and len(part) > 2
        }
        if room == "adapters":
            own = path.partition("adapters/")[2].partition("/")[0].removesuffix(".py")
            wrong += [
                f"{path}: an adapter must not import the adapter {other}"
                for other in sorted(wanted - {"sessions", "runs", "repairs", own})
            ]
    return wrong


def check_conftests(package: Path) -> list[str]:
    """A conftest holds fixtures; what tests import lies in tests/support/."""
    tests = package.parent / "tests"
    naming = {path: text for path in sorted(tests.rglob("*.py")) if "conftest" in (text := path.read_text())}
    return [
        f"{path.relative_to(package.parent)}: must not import from a conftest"
        for path, text in naming.items()
        if any("conftest" in name.split(".") for name in imported_names(ast.walk(ast.parse(text)), "tests"))
    ]


CHECKS = (
    check_rooms,
    check_arrows,
    check_circles,
    check_folders,
    check_doors,
    check_adapters,
    check_conftests,
)


@pytest.mark.parametrize("check", CHECKS)
def test_the_package_keeps_its_rooms(check: Check) -> None:
    found = check(ROOT / "redismem")
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("check", "file", "source", "complaint"),
    [
        (check_rooms, "helpers.py", "", "helpers is on no floor yet"),
        (check_rooms, "misc/deep.py", "", "misc is on no floor yet"),
        (check_arrows, "messages.py", "from redismem.memory import Memory", "messages must not import memory"),
        (check_arrows, "messages.py", "from redismem import Memory", "messages must not import __init__"),
        (check_arrows, "slots.py", "def f():\n    from . import workers", "slots must not import workers"),
        (check_arrows, "models/openai.py", "from ..web.page import x", "models must not import web"),
        (check_arrows, "context.py", "from redismem.text import x", "circle"),
        (check_arrows, "__init__.py", "from redismem.protocol.scripts import load", "must not import protocol"),
        (
            check_arrows,
            "workers/summaries.py",
            "from redismem import inspection",
            "workers must never import inspection",
        ),
        (check_arrows, "cli/check.py", "from redismem.protocol import x", "cli must never import protocol"),
        (check_doors, "memory.py", "import redis.asyncio", "redis may only be imported in transport"),
        (check_doors, "store/store.py", "from httpx import get", "httpx may only be imported in models"),
        (check_doors, "store/store.py", "import requests", "requests has no door yet"),
        (
            check_adapters,
            "adapters/langchain.py",
            "from .llama_index import x",
            "must not import the adapter llama_index",
        ),
        (
            check_adapters,
            "adapters/langgraph/saver.py",
            "from redismem.adapters.langchain import x",
            "must not import the adapter langchain",
        ),
        (check_circles, "errors.py", "def f():\n    from redismem.messages import x", "circle: redismem."),
        (check_circles, "errors.py", "if TYPE_CHECKING:\n    from . import messages", "circle: redismem."),
        (check_circles, "protocol/__init__.py", "from .keys import x", "circle: redismem.protocol"),
        (check_folders, "store/fallback/view.py", "from redismem.store.store import x", "circle"),
        (check_conftests, "../tests/cli/test_app.py", "from conftest import x", "must not import from a conftest"),
        (check_conftests, "../tests/cli/test_app.py", "from .conftest import x", "must not import from a conftest"),
        (check_conftests, "../tests/test_app.py", "import cli.conftest", "must not import from a conftest"),
    ],
)
def test_each_check_can_fail(tmp_path: Path, check: Check, file: str, source: str, complaint: str) -> None:
    def write(file: str, source: str) -> None:
        path = tmp_path / "redismem" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)

    write("messages.py", "from redismem.errors import X")
    write("protocol/keys.py", "from redismem.protocol import x")
    write("protocol/ids.py", "from redismem.protocol.keys import X")
    write("store/store.py", "from redismem.store.fallback.replay import X")
    write("store/fallback/replay.py", "")
    write("text/plain.py", "from redismem.context import X")
    write("settings.py", "import os\nimport pydantic\nos.environ")
    write("cli.py", "import rich\nfrom redismem import Memory\nprint('x')")
    write("models/gemini.py", "from redismem.errors import x")
    write("models/__init__.py", "def f():\n    from redismem.models.gemini import x")
    write("../tests/test_app.py", "from support.x import y")
    assert check(tmp_path / "redismem") == []
    write(file, source)
    (found,) = check(tmp_path / "redismem")
    assert complaint in found
