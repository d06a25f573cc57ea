"""Export and import: an exact round trip, all or nothing, and invalid files are refused before any write."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest
from inspection.test_projects import create_project, find_violations
from support.project_scenes import read_project

from redismem import Conflict, InvalidItem, Memory, TooLarge
from redismem.project.files import export
from redismem.project.files.export import Imported
from redismem.project.files.json import FILES, text_of_entry
from redismem.project.project import Project
from redismem.protocol.project.imports import STAGED_MS


def plain(stored: dict[bytes, Any], name: bytes) -> dict[bytes, Any]:
    """Return the stored data without nonces and without the project's name."""
    hidden = (b":items", b":versions")
    return {
        key.replace(b":@" + name, b""): each for key, each in stored.items() if not any(part in key for part in hidden)
    }


async def test_an_export_comes_back_exactly(memory: Memory, raw: Any) -> None:
    apollo = await create_project(memory)
    talk = await apollo.conversations.start("talk")
    await apollo.conversations.end(talk.id, "all said")
    files = await apollo.export_files()
    assert list(files) == list(FILES)
    other = memory.project("other")
    count = sum(len(json.loads(text)[name.removesuffix(".json")]) for name, text in files.items())
    assert await other.import_files(files) == Imported(count, 0, 0, 0)
    written = await other.export_files()
    again = {name: text.replace('"project": "other"', '"project": "apollo"') for name, text in written.items()}
    assert again == files
    assert plain(await read_project(other, raw), b"other") == plain(await read_project(apollo, raw), b"apollo")
    assert await find_violations(memory) == []
    for decision in await apollo.decisions.list(include_superseded=True):
        assert await other.decisions.get(decision.id) == decision
        for version in await apollo.decisions.versions(decision.id):
            then = {"at": version.at, "known_at": version.known_at}
            there = await other.decisions.exists(decision.id, **then)
            assert there == await apollo.decisions.exists(decision.id, **then)
    assert await other.import_files(files) == Imported(0, 0, count, 0)
    assert await other.import_files(files, replace=True) == Imported(0, 0, count, 0)


async def test_a_long_conversation_is_written_in_a_thread(apollo: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten thousand messages would hold up all turns for a fifth of a second."""
    written_in = dict[int, bool]()

    def seen(entry: dict[str, Any]) -> str:
        written_in[len(entry["messages"])] = threading.get_ident() == mine
        return text_of_entry(entry)

    mine = threading.get_ident()
    monkeypatch.setattr(export, "text_of_entry", seen)
    for count in (1, 100):
        talk = await apollo.conversations.start("talk")
        await apollo.conversations.add(talk.id, *({"role": "user", "content": "Hello"} for _ in range(count)))
    files = await apollo.export_files()
    assert files["conversations.json"].count("Hello") == 101
    assert written_in == {1: True, 100: False}


async def test_people_can_read_it(memory: Memory) -> None:
    apollo = await create_project(memory)
    (new, old) = json.loads((await apollo.export_files())["decisions.json"])["decisions"][::-1]
    old, new = (old, new) if "superseded_by" in old else (new, old)
    assert (old["title"], old["status"], new["status"]) == ("Use Postgres", "superseded", "accepted")
    assert old["valid_until"].startswith("2100-01-01T00:00:02")
    assert [version["version"] for version in old["versions"]] == [1, 2, 3, 4]


async def test_a_merge_takes_the_longer_history_and_a_replacement_what_it_is_given(memory: Memory) -> None:
    apollo = await create_project(memory)
    before = await apollo.export_files()
    task = (await apollo.tasks.list(text="move"))[0]
    await apollo.tasks.complete(task.id)
    added = await apollo.entities.create("Added")
    after = await apollo.export_files()
    told = await apollo.import_files(before)
    assert (told.added, told.lengthened, told.erased) == (0, 0, 0)
    assert await apollo.export_files() == after
    told = await apollo.import_files(before, replace=True)
    assert (told.added, told.lengthened, told.erased) == (0, 2, 1)
    assert await apollo.export_files() == before
    assert not await apollo.entities.exists(added.id)
    told = await apollo.import_files(after)
    assert (told.added, told.lengthened, told.erased) == (1, 2, 0)
    assert await apollo.export_files() == after
    assert await find_violations(memory) == []


async def test_histories_that_exclude_each_other_are_a_conflict(memory: Memory, raw: Any) -> None:
    apollo = await create_project(memory)
    files = await apollo.export_files()
    other = memory.project("other")
    await other.import_files(files)
    task = (await apollo.tasks.list(text="move"))[0]
    await apollo.tasks.update(task.id, title="one")
    await other.tasks.update(task.id, title="another")
    before = await read_project(other, raw)
    with pytest.raises(Conflict, match="another history"):
        await other.import_files(await apollo.export_files())
    await other.entities.create("Fresh")
    third = memory.project("third")
    await third.entities.create("FRESH")
    with pytest.raises(Conflict, match="same name"):
        await other.import_files(await third.export_files())
    await other.entities.delete((await other.entities.list(text="fresh"))[0].id)
    await other.import_files(await apollo.export_files(), replace=True)
    assert (await other.tasks.get(task.id)).title == "one"
    assert len(before) > 10


async def test_a_replacement_is_a_whole_export(memory: Memory, raw: Any) -> None:
    apollo = await create_project(memory)
    files = await apollo.export_files()
    other = memory.project("other")
    await other.decisions.create("Use files")
    theirs = await other.export_files()
    empty = await memory.project("empty").export_files()
    before = await read_project(apollo, raw)
    for text, wrong in {
        "tasks.json, entities.json, conversations.json missing": {"decisions.json": files["decisions.json"]},
        "of several projects": files | {"decisions.json": theirs["decisions.json"]},
        "no items": empty,
    }.items():
        with pytest.raises(InvalidItem, match=text):
            await apollo.import_files(wrong, replace=True)
    assert await read_project(apollo, raw) == before
    assert await memory.project("empty").import_files(empty, replace=True) == Imported(0, 0, 0, 0)
    assert (await apollo.import_files(theirs, replace=True)).erased == 8


@pytest.mark.parametrize("files", ["x", None, ["tasks.json"], {"tasks.json": b"{}"}, {"tasks.json": None}])
async def test_an_import_is_texts_by_their_names(memory: Memory, files: Any) -> None:
    with pytest.raises(InvalidItem, match="must map file names to texts"):
        await memory.project("apollo").import_files(files)


def change_documents(change: Callable[[Any], Any]) -> Callable[[dict[str, str]], dict[str, str]]:
    def make(files: dict[str, str]) -> dict[str, str]:
        documents = {name: json.loads(text) for name, text in files.items()}
        change(documents)
        return {name: json.dumps(document) for name, document in documents.items()}

    return make


def superseded_decision(documents: Any) -> Any:
    return next(each for each in documents["decisions.json"]["decisions"] if "superseded_by" in each)


def first(**fields: Any) -> Callable[[dict[str, str]], dict[str, str]]:
    """Change fields of the first version of a decision."""
    return change_documents(lambda documents: superseded_decision(documents)["versions"][0]["sets"].update(fields))


def version(**parts: Any) -> Callable[[dict[str, str]], dict[str, str]]:
    return change_documents(lambda documents: superseded_decision(documents)["versions"][0].update(parts))


def a_task(**parts: Any) -> Callable[[dict[str, str]], dict[str, str]]:
    return change_documents(lambda documents: documents["tasks.json"]["tasks"][0].update(parts))


def half_a_link(documents: Any) -> None:
    superseded_decision(documents)["versions"][-1]["sets"]["superseded_by"] = "d-" + "0" * 18


def two_of_one_name(documents: Any) -> None:
    entities = documents["entities.json"]["entities"]
    redis = next(each for each in entities if each["name"] == "Redis")
    entities.append(redis | {"id": "e-" + "0" * 18, "versions": redis["versions"][:1]})


def a_redis(part: str, **fields: Any) -> Callable[[dict[str, str]], dict[str, str]]:
    """Change the last version of an entity."""

    def change(documents: Any) -> None:
        found = next(each for each in documents["entities.json"]["entities"] if each["name"] == "Redis")
        found["versions"][-1].setdefault(part, {}).update(fields)

    return change_documents(change)


def twice(documents: Any) -> None:
    tasks = documents["tasks.json"]["tasks"]
    tasks.append(tasks[0])


def a_talk(entries: Any) -> Callable[[dict[str, str]], dict[str, str]]:
    """A conversation with these messages."""
    versions = [{"version": 1, "at": "2100-01-01T00:00:00+00:00", "known_at": "2100-01-01T00:00:00+00:00"}]
    talk = {"id": "c-" + "0" * 18, "versions": versions, "messages": entries}
    return change_documents(lambda documents: documents["conversations.json"]["conversations"].append(talk))


WRONG: dict[str, Callable[[dict[str, str]], dict[str, str]]] = {
    "an id twice": change_documents(twice),
    "a mention that is none": a_redis("adds", mentions=[["x"]]),
    "a mention at no time": a_redis("adds", mentions=[["x", "now", ""]]),
    "a relation that is none": a_redis("adds", relations=[5]),
    "a relation to nothing": a_redis("adds", relations=[["uses", "d-" + "0" * 18, True]]),
    "a count that is none": a_redis("adds", mention_count="many"),
    "something added to a name": a_redis("adds", name="x"),
    "something taken out of a name": a_redis("drops", name=["x"]),
    "properties that are none": a_redis("sets", properties=[1]),
    "deleted that is neither": a_redis("sets", deleted=1),
    "tags as nobody stores them": a_redis("sets", tags=["B", "a"]),
    "an endless reason": version(reason="x" * 1_001),
    "messages that are none": a_talk({"a": 1}),
    "a message that is none": a_talk([{"message": "hello"}]),
    "a message with more": a_talk([{"message": {"role": "user"}, "secret": 1}]),
    "a message with odd things beside": a_talk([{"message": {"role": "user"}, "beside": {"id": 5}}]),
    "a message that is too long": a_talk([{"message": {"role": "user", "content": "x" * 9_000_000}}]),
    "another file": lambda files: files | {"other.json": "{}"},
    "no JSON": lambda files: files | {"tasks.json": "{"},
    "deep JSON": lambda files: files | {"tasks.json": "[" * 100_000},
    "a list": lambda files: files | {"tasks.json": "[]"},
    "another format": change_documents(lambda documents: documents["tasks.json"].update(format=2)),
    "no versions": a_task(versions=[]),
    "versions that are none": a_task(versions=5),
    "an id of another kind": a_task(id="d-000000000000000000"),
    "a version that is missing": change_documents(lambda documents: superseded_decision(documents)["versions"].pop(1)),
    "an unknown field": first(secret=1),
    "an unknown part": version(secret=1),
    "a field of another type": first(title=5),
    "a way that is none": first(status="rejected"),
    "a status that is none": first(status="odd"),
    "a time that is none": version(at="tomorrow"),
    "half a link": change_documents(half_a_link),
    "two of one name": change_documents(two_of_one_name),
}


@pytest.mark.parametrize("wrong", WRONG)
async def test_what_is_no_export_is_refused_and_nothing_is_written(memory: Memory, raw: Any, wrong: str) -> None:
    apollo = await create_project(memory)
    files = WRONG[wrong](await apollo.export_files())
    other: Project = memory.project("other")
    for replace in (False, True):
        with pytest.raises((InvalidItem, Conflict, TooLarge)):
            await other.import_files(files, replace=replace)
        assert await read_project(other, raw) == {}
    assert not await other.conversations.session("c-" + "0" * 18).exists()


async def test_an_import_that_somebody_overtakes_writes_nothing(memory: Memory, raw: Any) -> None:
    apollo = await create_project(memory)
    files = await apollo.export_files()
    other = memory.project("other")
    inner = memory.store.run

    async def run(call: Any, **options: Any) -> Any:
        if call.script is not None and call.script.name == "import":
            memory.store.run = inner  # type: ignore[method-assign]
            await memory.project("other").tasks.create("in between")
        return await inner(call, **options)

    memory.store.run = run  # type: ignore[method-assign]
    with pytest.raises(Conflict):
        await other.import_files(files, replace=True)
    assert [task.title for task in await other.tasks.list()] == ["in between"]
    assert await other.decisions.count() == 0
    (staged,) = [key async for key in raw.scan_iter(other._items.keys.staging("*"))]
    assert 0 < await raw.pttl(staged) <= STAGED_MS, "it goes by itself"
