"""`redismem project …`."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from inspection.test_projects import create_project

from redismem import Memory
from redismem.blocking import memory as blocking
from redismem.project.project import Project


@pytest.fixture
def ids(redis_server: Any, namespace: str) -> dict[str, str]:
    """Create a project with every kind of item in the namespace of `redis_options`, and return its ids."""

    async def made() -> dict[str, str]:
        async with Memory.connect(redis_server.url, namespace=namespace) as memory:
            apollo = await create_project(memory)
            chain = await apollo.decisions.history((await apollo.decisions.list())[0].id)
            return {"old": chain[0].id, "new": chain[1].id}

    return asyncio.run(made())


def run(command: Any, redis_options: list[str], *words: Any) -> Any:
    path = {"show": ("show", "project"), "list": ("list", "projects")}.get(words[0], ("project", words[0]))
    return command(*path, *words[1:], *redis_options)


def test_the_tables(command: Any, redis_options: list[str], ids: dict[str, str]) -> None:
    assert "apollo" in run(command, redis_options, "list").out
    table = run(command, redis_options, "decisions", "apollo").out
    assert "Use Redis" in table
    assert "Use Postgres" not in table
    assert "Use Postgres" in run(command, redis_options, "decisions", "apollo", "--status", "superseded").out
    assert "Use Postgres" in run(command, redis_options, "decisions", "apollo", "--at", "2100-01-01T00:00:01").out
    assert "Ada" in run(command, redis_options, "tasks", "apollo", "--assignee", "ADA").out
    assert "1 task" in run(command, redis_options, "tasks", "apollo", "--text", "mov").out
    assert "2 entities" in run(command, redis_options, "entities", "apollo").out
    shown = run(command, redis_options, "show", "apollo").out
    assert "1 superseded" in shown
    assert "2, 1 blocked" in shown


def test_a_project_named_like_a_total_keeps_its_own_line(
    command: Any, redis_options: list[str], redis_server: Any
) -> None:
    with blocking.Memory.connect(redis_server.url, namespace=redis_options[-1]) as memory:
        memory.project("tasks").tasks.create("Move")
    shown = run(command, redis_options, "show", "tasks").out
    assert " ".join(shown.splitlines()[0].split()) == "tasks 1 task"
    with blocking.Memory.connect(redis_server.url, namespace=redis_options[-1]) as memory:
        memory.project("tasks").tasks.create("Sweep")
        memory.project("tasks").entities.find_or_create("Ada", "person")
        memory.project("tasks").entities.find_or_create("Redis", "technology")
    shown = run(command, redis_options, "show", "tasks").out
    assert " ".join(shown.splitlines()[0].split()) == "tasks 2 tasks, 2 entities"


def test_the_board_and_the_chain(command: Any, redis_options: list[str], ids: dict[str, str]) -> None:
    board = run(command, redis_options, "tasks", "apollo", "--board")
    assert board.code == 0
    assert "in progress" in board.out
    assert "M Move" in board.out
    tree = run(command, redis_options, "history", "apollo", ids["new"]).out
    assert tree.index("Use Postgres") < tree.index("superseded") < tree.index("Use Redis")
    assert "└──" in tree


def test_json_is_one_document(command: Any, redis_options: list[str], ids: dict[str, str]) -> None:
    found = run(command, redis_options, "history", "apollo", ids["old"], "--json").document
    assert [each["id"] for each in found] == [ids["old"], ids["new"]]
    assert found[0]["history"][-1]["status"] == "superseded"
    assert run(command, redis_options, "show", "apollo", "--json").document["totals"]["task"] == 2
    assert [
        task["title"]
        for task in run(command, redis_options, "tasks", "apollo", "--board", "--json").document["in_progress"]
    ] == ["Move"]
    assert run(command, redis_options, "list", "--json").document["projects"] == ["apollo"]
    for what in ("decisions", "tasks", "entities"):
        assert run(command, redis_options, what, "apollo", "--json").document
    assert run(command, redis_options, "consolidate", "apollo", "--dry-run", "--json").document["dry_run"] is True


def test_files_go_out_and_come_in(command: Any, redis_options: list[str], ids: dict[str, str], tmp_path: Path) -> None:
    assert run(command, redis_options, "export", "apollo", tmp_path / "x").code == 0
    names = sorted(path.name for path in (tmp_path / "x").iterdir())
    assert names == ["conversations.json", "decisions.json", "entities.json", "tasks.json"]
    copied = run(command, redis_options, "import", "other", tmp_path / "x")
    assert copied.out.startswith("8 added, 0 replaced")
    assert "an export of project apollo, not other" in copied.err
    assert run(command, redis_options, "import", "apollo", tmp_path / "x").err == ""
    assert "Use Redis" in run(command, redis_options, "decisions", "other").out
    assert "8 unchanged" in run(command, redis_options, "import", "other", tmp_path / "x", "--replace", "--yes").out
    (tmp_path / "x" / "tasks.json").write_text("{")
    broken = run(command, redis_options, "import", "third", tmp_path / "x")
    assert broken.code == 2
    assert "tasks.json is no JSON: line 1, column 2" in broken.error_line
    assert run(command, redis_options, "import", "third", tmp_path).code == 2
    with blocking.Memory.connect(redis_options[1], namespace=redis_options[-1]) as memory:
        old = memory.project("apollo").tasks.create("Old")
        memory.project("apollo").tasks.cancel(old.id)
    consolidate = ("consolidate", "apollo", "--days", "0")
    assert "dry run" in run(command, redis_options, *consolidate, "--dry-run").out
    assert "confirm with --yes" in run(command, redis_options, *consolidate).error_line
    assert "done: 1 item archived" in run(command, redis_options, *consolidate, "--yes").out


def test_an_export_of_an_empty_project_keeps_the_existing_files(
    command: Any, redis_options: list[str], ids: dict[str, str], tmp_path: Path
) -> None:
    told = run(command, redis_options, "export", "apollo", tmp_path)
    assert f"8 items of project apollo, namespace {redis_options[-1]} on redis://" in told.out
    assert "decisions.json 2, tasks.json 3, entities.json 3, conversations.json 0" in told.out
    good = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert len(good) == 4, "and nothing beside them"
    refused = run(command, redis_options, "export", "apolo", tmp_path).error_line
    assert f"namespace {redis_options[-1]} on redis://" in refused
    assert "has no project apolo" in refused
    elsewhere = [*redis_options[:2], "--namespace", f"{redis_options[-1]}2"]
    assert run(command, elsewhere, "export", "apollo", tmp_path).code == 2
    for file, text in good.items():
        document = json.loads(text)
        (tmp_path / file).write_text(json.dumps(document | {file.removesuffix(".json"): []}))
    assert "has no item" in run(command, redis_options, "import", "apollo", tmp_path, "--replace", "--yes").error_line
    asyncio.run(clear_project(redis_options))
    assert "is empty" in run(command, redis_options, "export", "apollo", tmp_path).error_line
    assert run(command, redis_options, "show", "apollo").code == 0


async def clear_project(redis_options: list[str]) -> None:
    async with Memory.connect(redis_options[1], namespace=redis_options[-1]) as memory:
        apollo = memory.project("apollo")
        for store in (apollo.decisions, apollo.tasks, apollo.entities):
            await store.clear()


def test_an_export_notes_missing_messages(command: Any, redis_options: list[str], tmp_path: Path) -> None:
    async def talked() -> None:
        async with Memory.connect(redis_options[1], namespace=redis_options[-1]) as memory:
            talks = memory.project("apollo").conversations
            for title in ("gone", "there", "empty", "deleted"):
                talk = await talks.start(title)
                if title != "empty":
                    await talks.add(talk.id, {"role": "user", "content": "Hello."})
                await talks.end(talk.id)
                if title == "gone":
                    await talks.session(talk.id).clear()
                elif title == "deleted":
                    await talks.delete(talk.id)

    asyncio.run(talked())
    told = run(command, redis_options, "export", "apollo", tmp_path).out
    assert "without the messages of 1 conversation: the sessions no longer exist" in told


def test_an_export_writes_all_files_or_none(
    command: Any, redis_options: list[str], ids: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("mine")
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        refused = run(command, redis_options, "export", "apollo", folder)
        assert refused.code == 2
        assert f"cannot write to the folder {folder}" in refused.error_line
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    half = tmp_path / "half"
    (half / "tasks.json").mkdir(parents=True)  # the second of the files fails
    (half / "decisions.json").write_text("before")
    assert run(command, redis_options, "export", "apollo", half).code == 2
    assert [path.name for path in half.iterdir() if path.is_file()] == ["decisions.json"]
    assert (half / "decisions.json").read_text() == "before"


def test_an_export_is_private_and_follows_no_link(
    command: Any, redis_options: list[str], ids: dict[str, str], tmp_path: Path
) -> None:
    def mode(path: Path) -> int:
        return path.stat().st_mode & 0o777

    victim = tmp_path / "victim"
    victim.write_text("mine")
    folder = tmp_path / "new" / "x"
    assert run(command, redis_options, "export", "apollo", folder).code == 0
    assert [mode(path) for path in (folder.parent, folder)] == [0o700, 0o700]
    for name in Project.FILES:
        assert mode(folder / name) == 0o600
        (folder / f".{name}.new").symlink_to(victim)
        (folder / name).unlink()
        (folder / name).symlink_to(victim)
    assert run(command, redis_options, "export", "apollo", folder).code == 2, "the files are there"
    assert run(command, redis_options, "export", "apollo", folder, "--yes").code == 0
    assert victim.read_text() == "mine"
    assert [(folder / name).is_symlink() for name in Project.FILES] == [False] * 4


def test_an_import_into_the_embedded_store_is_refused(
    command: Any, redis_options: list[str], ids: dict[str, str], tmp_path: Path
) -> None:
    assert run(command, redis_options, "export", "apollo", tmp_path).code == 0
    refused = command("project", "import", "apollo", tmp_path)
    assert refused.code == 2
    assert "needs a store that outlives this command" in refused.error_line


def test_an_unknown_project_name_is_an_error(command: Any, redis_options: list[str], ids: dict[str, str]) -> None:
    for words in (("show",), ("decisions", "--json"), ("tasks",), ("entities",), ("consolidate",)):
        refused = run(command, redis_options, words[0], "nobody", *words[1:])
        assert refused.code == 1
        assert "has no project nobody" in refused.error_line
    assert run(command, redis_options, "decisions", "apollo", "--text", "nothing").code == 0
    assert "--days" in run(command, redis_options, "consolidate", "apollo", "--days", "-1").error_line


def test_an_invalid_query_is_one_line(command: Any, redis_options: list[str], ids: dict[str, str]) -> None:
    for words in (("decisions", "a b"), ("decisions", "apollo", "--at", "soon"), ("history", "apollo", "x")):
        refused = run(command, redis_options, *words)
        assert refused.code == 2
        assert refused.error_line
