"""Rooms, arrows, doors: who may import whom, and where each third-party library comes in.

A new module gets a place in LEVELS, a new library a place in DOORS. Nothing else decides.
"""

import ast
import graphlib
import sys
from importlib.util import resolve_name
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# A room imports from its own level and from those above it, never from below.
LEVELS = (
    "errors settings keys layout values messages",
    "scripts calls changes queues replies reading namespaces attempts window context",
    "transport",
    "memory session blocking models strategies __init__",
    "worker eviction checking",
    "scheduler",
    "project web adapters",
    "cli __main__",
)
LEVEL_OF = {room: level for level, rooms in enumerate(LEVELS) for room in rooms.split()}
# Memory.connect is where a memory and its workers are put together.
ARROWS_BACK = {("memory", "scheduler")}
# `import redismem` stays small.
FRONT_DOOR = {"errors", "settings", "messages", "context", "memory", "session"}
DOORS = {
    "redis": "transport",
    "hiredis": "transport",
    "fakeredis": "transport",
    "msgspec": "messages values",
    "pydantic": "settings web",
    "pydantic_settings": "settings",
    "httpx": "models",
    "apscheduler": "scheduler",
    "cyclopts": "cli",
    "rich": "cli",
    "uvloop": "cli",
}
PYTHON_LINES = 300
LUA_LINES = 60


def modules(package: Path) -> list[tuple[str, str, ast.Module]]:
    """Path, room and syntax tree of every module. A room is what lies directly in redismem/."""
    found = []
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).with_suffix("").parts
        found.append((str(path.relative_to(package)), parts[0], ast.parse(path.read_text(), str(path))))
    return found


def imports(package: Path, path: str, tree: ast.Module) -> set[tuple[str, str]]:
    """(library, "") or ("redismem", room) for all that a module imports, wherever in it."""
    here = ".".join(["redismem", *Path(path).parent.parts])
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            source = resolve_name("." * node.level + (node.module or ""), here)
            names += [f"{source}.{alias.name}" for alias in node.names]
    found = set()
    for library, *inner in (name.split(".") for name in names):
        room = inner[0] if inner else ""
        is_room = room in LEVEL_OF or (package / room).is_dir() or (package / f"{room}.py").exists()
        found.add((library, (room if room and is_room else "__init__") if library == "redismem" else ""))
    return found


def check_rooms(package: Path) -> list[str]:
    return [
        f"{path}: {room} is in no room yet. Put it into a room: LEVELS in tests/test_architecture.py"
        for path, room, _ in modules(package)
        if room not in LEVEL_OF
    ]


def check_arrows(package: Path) -> list[str]:
    wrong = []
    graph: dict[str, set[str]] = {}
    for path, room, tree in modules(package):
        wanted = {other for library, other in imports(package, path, tree) if library == "redismem"} - {room}
        wanted -= {other for user, other in ARROWS_BACK if user == room}
        graph.setdefault(room, set()).update(wanted)
        wrong += [
            f"{path}: {room} must not import {other}, which comes after it"
            for other in sorted(wanted)
            if room in LEVEL_OF and LEVEL_OF.get(other, 0) > LEVEL_OF[room]
        ]
        if room == "__init__":
            wrong += [f"{path}: must not import {other}" for other in sorted(wanted - FRONT_DOOR)]
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        wrong.append(f"rooms import each other in a circle: {' -> '.join(error.args[1])}")
    return wrong


def check_doors(package: Path) -> list[str]:
    wrong = []
    for path, room, tree in modules(package):
        libraries = {library for library, _ in imports(package, path, tree)}
        for library in sorted(libraries - {"redismem"} - sys.stdlib_module_names):
            if library not in DOORS:
                wrong.append(f"{path}: {library} has no door yet: DOORS in tests/test_architecture.py")
            elif room not in DOORS[library].split():
                wrong.append(f"{path}: {library} may only be imported in {DOORS[library]}")
    return wrong


def check_environment(package: Path) -> list[str]:
    def reads(node: ast.AST) -> bool:
        match node:
            case ast.Attribute(value=ast.Name(id="os"), attr="environ" | "environb" | "getenv"):
                return True
            case ast.ImportFrom(module="os", names=names):
                return any(alias.name in {"environ", "environb", "getenv"} for alias in names)
        return False

    return [
        f"{path}: only settings reads the environment"
        for path, room, tree in modules(package)
        if room != "settings" and any(reads(node) for node in ast.walk(tree))
    ]


def check_print(package: Path) -> list[str]:
    def prints(node: ast.AST) -> bool:
        match node:
            case ast.Call(func=ast.Name(id="print")):
                return True
        return False

    return [
        f"{path}: print() belongs into cli"
        for path, room, tree in modules(package)
        if room != "cli" and any(prints(node) for node in ast.walk(tree))
    ]


def lines_after_header(script: Path) -> int:
    lines = script.read_text().splitlines()
    while lines and (not lines[0].strip() or lines[0].startswith(("--", "#!"))):
        lines.pop(0)
    return len(lines)


def check_length(package: Path) -> list[str]:
    """A file that is too long usually means that something stands in the wrong room."""
    found = [(path, len(path.read_text().splitlines()), PYTHON_LINES) for path in package.rglob("*.py")]
    for path in (package.parent / "lua").rglob("*.lua"):
        found += [(path, lines_after_header(path), LUA_LINES)]
    return [f"{path.name}: {lines} lines, {most} are allowed" for path, lines, most in found if lines > most]


CHECKS = (check_rooms, check_arrows, check_doors, check_environment, check_print, check_length)


@pytest.mark.parametrize("check", CHECKS)
def test_the_package_keeps_its_rooms(check):
    found = check(ROOT / "redismem")
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("check", "file", "source", "complaint"),
    [
        (check_rooms, "helpers.py", "", "helpers is in no room yet"),
        (check_rooms, "misc/deep.py", "", "misc is in no room yet"),
        (check_arrows, "keys.py", "from redismem.memory import Memory", "keys must not import memory"),
        (check_arrows, "keys.py", "from redismem import Memory", "keys must not import __init__"),
        (check_arrows, "window.py", "def f():\n    from . import worker", "window must not import worker"),
        (check_arrows, "models/openai.py", "from ..web.page import x", "models must not import web"),
        (check_arrows, "errors.py", "from redismem.keys import x", "circle"),
        (check_arrows, "__init__.py", "from redismem.scripts import load", "must not import scripts"),
        (check_doors, "memory.py", "import redis.asyncio", "redis may only be imported in transport"),
        (check_doors, "worker.py", "from httpx import get", "httpx may only be imported in models"),
        (check_doors, "worker.py", "import requests", "requests has no door yet"),
        (check_environment, "worker.py", "import os\nx = os.environ['X']", "only settings reads"),
        (check_environment, "cli.py", "from os import getenv", "only settings reads"),
        (check_print, "worker.py", "def f():\n    print('x')", "print() belongs into cli"),
        (check_length, "worker.py", "\n" * 301, "301 lines, 300 are allowed"),
        (check_length, "../lua/session/read.lua", "-- header\n" + "local x = 1\n" * 61, "61 lines, 60 are allowed"),
    ],
)
def test_each_check_can_fail(tmp_path, check, file, source, complaint):
    def write(file: str, source: str) -> None:
        path = tmp_path / "redismem" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)

    write("keys.py", "from redismem.errors import X")
    write("settings.py", "import os\nimport pydantic\nos.environ")
    write("cli.py", "import rich\nfrom redismem import Memory\nprint('x')")
    write("../lua/session/read.lua", "-- header\n" * 99 + "local x = 1\n" * 60)
    assert check(tmp_path / "redismem") == []
    write(file, source)
    (found,) = check(tmp_path / "redismem")
    assert complaint in found
