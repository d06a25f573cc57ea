"""The pages are true: their commands run, their examples run, and what they name exists.

A command is run against a real server. What is not run stands in NOT_RUN or PARSED, with the reason.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from repository import test_architecture
from support.environments import APART

from redismem import Settings
from redismem.adapters import sessions
from redismem.blocking import memory as blocking
from redismem.cli import main
from redismem.cli.app import parse
from redismem.inspection import invariants
from redismem.protocol import scripts

ROOT = Path(__file__).parents[2]
READMES = [ROOT / folder / "README.md" for folder in ("lua", "tests", "examples")]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *READMES])
LINKING = [*PAGES, ROOT / "benchmarks" / "README.md"]
EXAMPLE_URL = "redis://127.0.0.1:6379/0"
NOT_RUN = {
    "pip": "it fetches from the network",
    "docker": "it needs Docker, and fetches an image",
    "npm": "it fetches from the network: `test_typescript` runs these",
    "npx": "it fetches from the network: `test_typescript` runs it",
    "curl": "it asks a server: `test_access` asks one the same",
}
# Checked by the command line's own parser alone.
PARSED = {
    "worker": "--once",
    "serve": "--help",
    "tune": "--help",
}  # without this option they run for ever, or for minutes
ENDLESS = {*PARSED, "--watch"}
TARGETS = set(re.findall(r"^([a-z-]+):(?: |$)", (ROOT / "Makefile").read_text(), re.MULTILINE))
OLD_NAMES = {ROOT / "UPGRADING.md", ROOT / "CHANGELOG.md"}
SERVER_VARIABLES = {f"REDISMEM_SERVER_{name}" for name in ("KEYS", "KEYS_FILE", "RATE", "BURST")}
OTHER_VARIABLES = {"REDISMEM_URL", "REDISMEM_BENCH_URL", *SERVER_VARIABLES}


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(text: str, *languages: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [body for language, body in found if language in languages]


def prose(text: str) -> str:
    return re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)


def commands(text: str) -> list[list[str]]:
    """The words of each command: what follows `$ ` in console blocks, every line of sh blocks."""
    lines = [
        line.removeprefix("$ ") for body in blocks(text, "console") for line in body.splitlines() if line[:2] == "$ "
    ]
    lines += [line for body in blocks(text, "sh") for line in body.splitlines()]
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def run(words: list[str], url: str) -> None:
    """Runs a command, or checks what can be checked of it. Raises AssertionError."""
    match words:
        case ["redismem", name, *options] if PARSED.get(name, "--count") not in options and {name, *options} & ENDLESS:
            parse(words[1:])
        case ["redismem", "bench", *options]:
            assert main(["bench", *options, "--seconds", "0.1"]) in (0, 1), words  # turns may fail on a busy machine
        case ["redismem", *arguments]:
            assert main(arguments) == 0, words
        case ["make", *arguments]:
            # The targets set up, test and build what runs here: make only says what it would do.
            done = subprocess.run(["make", "-n", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            files = re.findall(r"tests/[\w/]+\.py", " ".join(arguments))
            assert all((ROOT / file).is_file() for file in files), f"not all of these are there: {files}"
        case ["python", "-m", module, *_]:
            subprocess.run([sys.executable, "-m", module, "--help"], cwd=ROOT, capture_output=True, check=True)
        case ["python", "turn.py"]:
            pass  # `test_the_first_turn_works_as_it_stands` compares what it prints
        case ["redis-cli", *arguments]:
            if shutil.which("redis-cli"):  # it comes with the server in most packages, not in all
                subprocess.run(["redis-cli", "-u", url, *arguments], capture_output=True, check=True)
        case ["export", assignment]:
            name, _, value = assignment.partition("=")
            os.environ[name] = value.replace(EXAMPLE_URL, url)
        case _:
            assert words[0] in NOT_RUN, f"nothing is known of {words}"


@pytest.fixture
def place(redis_server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A server with what the examples speak of: a session in the namespace shop, and a file of transcripts."""
    monkeypatch.setenv("REDISMEM_URL", redis_server.url)
    monkeypatch.chdir(tmp_path)
    line = {"session_id": "s-1", "messages": [{"role": "user", "content": f"{number}"} for number in range(12)]}
    (tmp_path / "chats.jsonl").write_text(json.dumps(line) + "\n")
    with blocking.Memory.connect(redis_server.url) as memory:  # commands refuse a namespace that was never used
        memory.session("user-42").append({"role": "user", "content": "Where is my order?"})
        memory.session("user-42").clear()
    with blocking.Memory.connect(redis_server.url, namespace="shop") as memory:
        memory.session("user-42").append({"role": "user", "content": "Where is my order?"})
        yield redis_server.url
        memory.session("user-42").clear()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_command_runs(page: Path, place: str) -> None:
    for words in commands(page.read_text()):
        run(words, place)


@pytest.mark.parametrize(
    "line",
    [
        "redismem nothing",
        "redismem status --nothing",
        "redismem worker --nothing",
        "make nothing",
        "rm -r x",
        "make unit ARGS=tests/nothing.py",
    ],
)
def test_a_command_that_does_not_work_is_noticed(line: str, place: str) -> None:
    ((words,),) = [commands(f"```console\n$ {line}\nits output\n```\n")]
    with pytest.raises(Exception, match=r"nothing|rm"):
        run(words, place)


def test_what_is_not_run_is_in_the_pages() -> None:
    told = [words for page in PAGES for words in commands(page.read_text())]
    assert {words[0] for words in told} >= {*NOT_RUN, "redismem", "make", "export"}
    assert {words[1] for words in told if words[0] == "redismem"} >= {
        *PARSED,
        "doctor",
        "demo",
        "list",
        "show",
        "repair",
    }


@pytest.mark.filterwarnings("ignore:RunnableWithMessageHistory is deprecated")
@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page.read_text(), "python")], ids=name_of)
def test_every_example_runs(page: Path, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one namespace a page; `await` may stand outside of a function.

    The first example of an adapter is a program: it runs as printed, without names that the page does not define.
    """

    async def keep_transcript(session_id: str, context: object) -> None: ...

    names: dict[str, Any] = {"url": place, "keep_transcript": keep_transcript}
    opened: dict[Any, Any] = {}
    monkeypatch.setattr(sessions, "_by_url", opened)
    names["call_my_model"] = lambda messages: str(len(messages))
    if page.stem in APART:
        pytest.importorskip(page.stem)
    program, *bodies = blocks(page.read_text(), "python")
    if page.parent.name == "adapters":
        exec(compile(program, name_of(page), "exec"), own := {"__name__": "__main__"})
        names = own | names
    else:
        bodies.insert(0, program)
    for body in bodies:
        code = compile(body.replace(EXAMPLE_URL, place), name_of(page), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        if code.co_flags & inspect.CO_COROUTINE:
            asyncio.run(eval(code, names))
        else:
            exec(code, names)
    # An open socket would fail whichever test runs when it is collected.
    for memory in [value for value in names.values() if isinstance(value, blocking.Memory)]:
        memory.close()
    for shared in opened.values():  # an application keeps the store of its framework open
        asyncio.run(shared.memory.aclose())


def slugs(text: str) -> set[str]:
    """The anchors of a page's headings, as those who show Markdown make them."""
    headings = re.findall(r"^#+ +(.*)$", prose(text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(page: Path, text: str) -> Iterator[str]:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(text)):
        if re.match(r"[a-z]+://", target):
            continue
        file, _, anchor = target.partition("#")
        path = (page.parent / file).resolve() if file else page
        if not path.exists():
            yield f"{target}: there is no such file"
        elif anchor and anchor not in slugs(path.read_text() if file else text):
            yield f"{target}: there is no such heading"


@cache
def known_files_and_tests() -> tuple[set[str], set[str]]:
    """The names of all files, and of all tests."""
    files = {path.name for path in ROOT.rglob("*.*") if ".venv" not in path.parts}
    texts = (path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    return files, {name for text in texts for name in re.findall(r"def (test_\w+)\(", text)}


def unknown_names(text: str) -> Iterator[str]:
    """Yield names in backticks that look like a file, test, make target or command, but do not exist."""
    files, tests = known_files_and_tests()
    for name in re.findall(r"`([^`\n]+)`", prose(text)):
        if re.fullmatch(r"[\w.-]+/[\w./-]*|[\w.-]+\.(?:py|lua|md|toml|yml|lock)", name):
            known = (ROOT / name).exists() or name in files or any(ROOT.glob(f"*/*/{name}"))
        elif re.fullmatch(r"test_\w+", name):
            known = name in tests
        elif found := re.match(r"make ([a-z-]+)", name):
            known = found[1] in TARGETS
        elif found := re.fullmatch(r"python -m ((?:benchmarks|examples)\.\w+)(?: .*)?", name):
            known = (ROOT / f"{found[1].replace('.', '/')}.py").exists()
        else:
            continue
        if not known:
            yield name


def test_every_link_leads_somewhere() -> None:
    assert [(name_of(page), link) for page in LINKING for link in broken_links(page, page.read_text())] == []


def test_every_file_test_and_target_that_is_named_exists() -> None:
    pages = [page for page in PAGES if page not in OLD_NAMES]
    assert [(name_of(page), name) for page in pages for name in unknown_names(page.read_text())] == []


def test_every_variable_that_is_named_is_a_setting() -> None:
    known = {f"REDISMEM_{name.upper()}" for name in Settings.model_fields} | OTHER_VARIABLES
    pages = [page for page in PAGES if page not in OLD_NAMES]
    named = [(name_of(page), set(re.findall(r"REDISMEM_[A-Z][A-Z_]*[A-Z]", page.read_text()))) for page in pages]
    assert [(page, names - known) for page, names in named if not names <= known] == []


def test_what_is_not_there_is_noticed() -> None:
    page, text = (
        ROOT / "README.md",
        "# A head, of `it`\n[a](docs/none.md) [b](#a-head) [c](#a-head-of-it) [d](LICENSE)\n",
    )
    assert [link.partition(":")[0] for link in broken_links(page, text)] == ["docs/none.md", "#a-head"]
    text = "`redismem/none.py` `none.lua` `lua/x/` `test_none_of_it` `make none` `python -m examples.x a`"
    assert list(unknown_names(text)) == re.findall(r"`([^`]+)`", text)


def test_the_checks_of_the_queues_are_marked_in_the_scripts() -> None:
    page = (ROOT / "docs" / "queues.md").read_text()
    rows = re.findall(r"^\| (\w+) \| `(\[.+?\])` \|", page, re.MULTILINE)
    assert len(rows) > 15
    assert [row for row in rows if f" -- {row[1]}\n" not in scripts.load(row[0]).source.decode()] == []


def faults_without_a_test(text: str) -> Iterator[str]:
    """Rows of tables of faults that name no test that there is, and do not say why not."""
    for fault, test in re.findall(r"^\| (.+?) \| .+ \| ([^|]+) \|$", text, re.MULTILINE):
        if test in ("test", "---") or re.match(r"not tested: \w", test):
            continue
        named = re.findall(r"`([\w/.]+)::(test_\w+)`", test)
        sources = [(ROOT / path, name) for path, name in named]
        if not named or not all(path.is_file() and f"def {name}(" in path.read_text() for path, name in sources):
            yield fault


def test_every_fault_names_the_test_that_shows_it() -> None:
    page = (ROOT / "docs" / "faults.md").read_text()
    assert list(faults_without_a_test(page)) == []
    assert len(re.findall(r"^\| .+::test_", page, re.MULTILINE)) > 40
    here = "`tests/repository/test_docs.py::test_every_fault_names_the_test_that_shows_it`"
    rows = {"a": here, "b": "", "c": "not tested:", "d": here.replace("every", "no"), "e": "not tested: why", "f": "x"}
    text = "".join(f"| {fault} | it does | {test or '-'} |\n" for fault, test in rows.items())
    assert list(faults_without_a_test(text)) == ["b", "c", "d", "f"]


def test_the_invariants_are_those_that_are_checked() -> None:
    page = (ROOT / "docs" / "queues.md").read_text()
    told = re.findall(r"^\| (I\d+) \|", page, re.MULTILINE)
    assert told == sorted(re.findall(r"\bI\d+\b", str(invariants.__doc__)), key=lambda name: int(name[1:]))


def missing_in_architecture(page: str) -> Iterator[str]:
    """Rooms without a heading, floors that are not drawn as they are, libraries without a door."""
    rooms = {path.name for path in (ROOT / "redismem").glob("*") if path.is_dir() or path.suffix == ".py"}
    rooms -= {"__init__.py", "__main__.py", "__pycache__"}
    headings = "\n".join(re.findall(r"^### .*$", page, re.MULTILINE))
    named = {f"`redismem/{room}`" if room.endswith(".py") else f"`redismem/{room}/`" for room in rooms} | {"`lua/`"}
    yield from sorted(name for name in named if name not in headings)
    drawn = {int(floor): set(names.split()) for floor, names in re.findall(r"^ ?(\d+)  (.*?)   ", page, re.MULTILINE)}
    modules = {room.removesuffix(".py") for room in rooms} | {"__init__", "__main__"}
    for floor, names in enumerate(test_architecture.FLOORS, 1):
        if drawn.get(floor) != set(names.split()) & modules:
            yield f"floor {floor}"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    doors = page.partition("## Doors")[2].partition("## Where")[0].lower()
    libraries = {re.split(r"[^a-z-]", requirement)[0] for requirement in project["dependencies"]}
    yield from sorted(library for library in libraries if library not in doors)


def test_every_room_floor_and_library_has_its_place_in_the_architecture() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    assert list(missing_in_architecture(page)) == []
    wrong = (
        page.replace("### `redismem/recall/`", "### Search").replace(" 8  store ", " 8  stores ").replace("httpx", "")
    )
    assert list(missing_in_architecture(wrong)) == ["`redismem/recall/`", "floor 8", "httpx"]


def test_the_words_of_the_glossary_stand_in_order_once_each() -> None:
    words = re.findall(r"^\| ([\w ]+) \| ", (ROOT / "docs" / "glossary.md").read_text(), re.MULTILINE)[1:]
    assert words == sorted(set(words), key=lambda word: word.replace("_", " "))


def test_the_workflows_test_what_the_project_claims() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    told = re.findall(r"Python :: (3\.\d+)", " ".join(project["project"]["classifiers"]))
    workflow = (ROOT / ".github" / "workflows" / "test.yml").read_text()
    assert json.loads(re.findall(r"python: (\[.*\])", workflow)[0]) == told
    assert f"Python {told[0]} to {told[-1]}" in (ROOT / "README.md").read_text()
    for path in (ROOT / ".github" / "workflows").iterdir():
        assert set(re.findall(r"\bmake ([a-z-]+)$", path.read_text(), re.MULTILINE)) <= TARGETS
        assert "://" not in path.read_text()


def test_what_the_sdist_and_make_clean_name_is_there() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    included = project["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    assert [name for name in included if not (ROOT / name.lstrip("/")).exists()] == []
    assert {f"/{name_of(page)}" for page in ROOT.glob("*.md")} <= set(included)
    (swept,) = re.findall(r"@find (.*?) -name __pycache__", (ROOT / "Makefile").read_text())
    assert [name for name in swept.split() if not (ROOT / name).is_dir()] == []
