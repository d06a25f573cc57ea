"""The distribution of tests to processes: each test runs once, and those of frameworks in the first process."""

from __future__ import annotations

import re
from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest
from support import selection

FRAMEWORKS = [f"tests/adapters/test_a.py::test_{number}" for number in range(4)] + ["tests/mcp/test_b.py::test_0"]
OTHERS = [f"tests/protocol/test_{file}.py::test_{number}" for file in "cdefg" for number in range(4)]
ALL = [*OTHERS[:10], *FRAMEWORKS, *OTHERS[10:]]

FRAMEWORK = (
    "agent_framework|agents|langchain_core|langgraph|llama_index|mcp|pydantic_ai|"
    r"redismem\.adapters(?! import sessions)"  # which serve no framework
)


def imports(text: str, modules: str) -> bool:
    """True if a file imports one of the modules when it is collected."""
    return re.search(rf"^(?:import|from) (?:{modules})\b", text, re.MULTILINE) is not None


class Process:
    """One of several processes, as xdist's scheduler sees it."""

    def __init__(self, number: int, collected: list[str]) -> None:
        self.gateway = SimpleNamespace(id=f"gw{number}")
        self.collected = collected
        self.waiting: deque[int] = deque()
        self.begun: list[str] = []
        self.shutting_down = False

    def send_runtest_some(self, indices: list[int]) -> None:
        assert not self.shutting_down
        self.waiting += indices

    def shutdown(self) -> None:
        self.shutting_down = True


def make_scheduler(*processes: Process) -> selection.FolderScheduling:
    option = SimpleNamespace(loadscopereorder=False)
    hook = SimpleNamespace(pytest_collectreport=lambda report: None)
    config: Any = SimpleNamespace(getvalue=lambda name: ["popen"] * len(processes), option=option, hook=hook)
    scheduler = selection.FolderScheduling(config)
    for each in processes:
        scheduler.add_node(each)
    for each in processes:
        scheduler.add_node_collection(each, each.collected)
    scheduler.schedule()
    return scheduler


def run_one(scheduler: selection.FolderScheduling, process: Process) -> None:
    index = process.waiting.popleft()
    process.begun.append(process.collected[index])
    scheduler.mark_test_complete(process, index)


def run_all(scheduler: selection.FolderScheduling, *processes: Process) -> None:
    while any(each.waiting for each in processes):
        for each in processes:
            if each.waiting:
                run_one(scheduler, each)
    assert all(each.shutting_down for each in processes), "a process would wait for ever"
    assert scheduler.tests_finished


@pytest.mark.parametrize("finished", [[0, 1, 2], [2, 1, 0]])
@pytest.mark.parametrize("tests", [ALL, FRAMEWORKS, OTHERS])
def test_each_test_runs_once_and_those_of_frameworks_in_the_first_process(
    tests: list[str], finished: list[int]
) -> None:
    without = [test for test in tests if test not in FRAMEWORKS]
    by_number = {number: Process(number, without if number else tests) for number in finished}
    run_all(make_scheduler(*by_number.values()), *by_number.values())
    begun = [test for each in by_number.values() for test in each.begun]
    assert sorted(begun) == sorted(tests)
    expected = [test for test in FRAMEWORKS if test in tests]
    assert by_number[0].begun[: len(expected)] == expected


def test_a_process_that_replaces_the_first_runs_what_is_left() -> None:
    first, second = Process(0, ALL), Process(1, OTHERS)
    scheduler = make_scheduler(first, second)
    run_one(scheduler, first)
    crashed = scheduler.remove_node(first)
    while second.waiting:
        run_one(scheduler, second)
    new = Process(2, ALL)
    scheduler.add_node(new)
    scheduler.add_node_collection(new, new.collected)
    scheduler.schedule()
    run_all(scheduler, new, second)
    assert crashed == FRAMEWORKS[1]
    assert sorted({*first.begun, *second.begun, *new.begun}) == sorted(ALL)


def test_processes_that_collected_other_tests_run_none() -> None:
    processes = [Process(0, ALL), Process(1, OTHERS[1:])]
    assert make_scheduler(*processes).collection is None
    assert not any(each.waiting for each in processes)


def collected_by(worker: str, monkeypatch: pytest.MonkeyPatch, **told: Any) -> list[str]:
    monkeypatch.setenv("PYTEST_XDIST_WORKER", worker)
    config: Any = SimpleNamespace(workerinput={"workercount": 3, **told})
    names = ["adapters", "adapters/test_langgraph.py", "cli/importing/test_import.py", "protocol/test_keys.py"]
    return [name for name in names if not selection.is_for_another_process(selection.TESTS / name, config)]


def test_a_later_process_leaves_frameworks_to_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    everything = collected_by("gw0", monkeypatch, leaves_to_the_first=True)
    assert len(everything) == 4
    assert collected_by("gw2", monkeypatch, leaves_to_the_first=True) == ["protocol/test_keys.py"]
    assert collected_by("gw2", monkeypatch, leaves_to_the_first=False) == everything
    assert collected_by("gw3", monkeypatch, leaves_to_the_first=True) == everything, "it replaces one that crashed"


def test_each_process_begins_with_a_share_and_ends_in_the_same_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "IS_ONE_OF_SEVERAL", True)
    monkeypatch.setenv("PYTEST_XDIST_WORKER_COUNT", "3")
    files = [selection.TESTS / "protocol" / f"test_{number}.py" for number in range(7)]
    firsts: list[Any] = []
    for number in range(3):
        monkeypatch.setenv("PYTEST_XDIST_WORKER", f"gw{number}")
        nodes: list[Any] = selection.put_own_share_first([SimpleNamespace(path=file) for file in files])
        firsts += [node.path for node in nodes[: len(files[number::3])]]
        selection.put_in_order(nodes)
        assert [node.path for node in nodes] == files
    assert sorted(firsts) == files


def test_only_files_for_the_first_process_import_frameworks() -> None:
    texts = {path: path.read_text() for path in selection.TESTS.rglob("*.py")}
    shared = [path.stem for path, text in texts.items() if path.parent.name == "support" and imports(text, FRAMEWORK)]
    modules = "|".join([FRAMEWORK, *(rf"support\.{name}" for name in shared)])
    importing = [path for path, text in texts.items() if imports(text, modules) and path.parent.name != "support"]
    assert importing, "no file imports a framework"
    others = [str(path) for path in importing if not selection.is_within(path, selection.BY_THE_FIRST)]
    assert others == [], "import them within the test, or the collection of every process takes longer"


def test_an_import_of_a_framework_is_found() -> None:
    assert imports("import json\nimport langgraph.graph\n", FRAMEWORK)
    assert imports("from redismem.adapters import openai_agents", FRAMEWORK)
    assert not imports("from redismem.adapters import sessions", FRAMEWORK)
    assert not imports("import mcpx\n\ndef test() -> None:\n    import langgraph\n", FRAMEWORK)
