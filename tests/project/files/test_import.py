"""An import is applied completely or not at all, wherever it is killed, and none of its scripts takes long."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from inspection.test_projects import create_project, find_violations
from support.clock import ProjectClock
from support.commands import wait_for_exit
from support.pods import start_pod
from support.redis_server import RedisServer
from support.stores import Store

from redismem import Conflict, Memory, Message, Settings
from redismem.events import Op
from redismem.inspection.projects import check_projects
from redismem.project.project import Project
from redismem.protocol.project import imports
from redismem.protocol.project.imports import PIECE_COUNT
from redismem.protocol.project.keys import ProjectKeys

PATIENT = Settings(deadline_s=60, reply_timeout_s=20)


def write_files(folder: Path, files: dict[str, str]) -> None:
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)


def without_project_name(files: dict[str, str]) -> dict[str, Any]:
    return {name: {**json.loads(text), "project": ""} for name, text in files.items()}


async def test_wherever_it_is_killed_and_redis_with_it_all_or_nothing_is_there(tmp_path: Path, namespace: str) -> None:
    server = RedisServer(tmp_path, aof=True, options=("--appendfsync", "no")).start()
    try:
        async with Memory.connect(server.url, namespace=namespace, settings=PATIENT, clock=ProjectClock()) as memory:
            apollo = await create_project(memory)
            before = await apollo.export_files()
            write_files(tmp_path / "before", before)
            await apollo.decisions.clear()
            for number in range(12):
                await apollo.tasks.create(f"task {number} " + " ".join(f"word{number}x{at}" for at in range(10)))
            await apollo.entities.create("Fresh")
            after = await apollo.export_files()
            write_files(tmp_path / "after", after)
            count = import_each_killed_later(server.url, namespace, tmp_path)
            names = [f"p{number}" for number in range(count)]
            left = [await memory.store.run(imports.list_pieces(ProjectKeys(memory.store.keys, name))) for name in names]
            server.kill()
            server.start()
            outcomes = [without_project_name(await memory.project(name).export_files()) for name in names]
            is_after = [outcome == without_project_name(after) for outcome in outcomes]
            assert all(
                outcome == without_project_name(before)
                for outcome, yes in zip(outcomes, is_after, strict=True)
                if not yes
            )
            assert is_after == sorted(is_after), "from one step on it counts"
            assert len([each for each in left if each]) > 2, "some were killed while they were carried out"
            assert not is_after[0]
            assert is_after[-1]
            assert [each async for each in check_projects(memory.store)] == []
    finally:
        server.stop()


def import_each_killed_later(url: str, namespace: str, folder: Path) -> int:
    with start_pod("import", url, namespace, folder) as pod:
        return int(wait_for_exit(pod).out)


async def test_readers_see_all_of_it_or_nothing(store: Store, namespace: str, clock: ProjectClock) -> None:
    """Another process reads after each call of the import."""
    async with store.memory(namespace) as memory, store.memory(namespace) as other:
        source = await create_project(memory)
        files = await source.export_files()
        await memory.project("target").tasks.create("only this")
        whole = (await source.context()).summary
        seen = []
        inner = memory.store.run

        async def run(call: Any, **options: Any) -> Any:
            value = await inner(call, **options)
            seen.append((await other.project("target").context()).summary)
            return value

        memory.store.run = run  # type: ignore[method-assign]
        await memory.project("target").import_files(files, replace=True)
        first = seen[0]
        assert {*seen} == {first, whole}
        assert seen == sorted(seen, key=lambda each: each == whole)


async def test_no_script_has_much_to_do(store: Store, namespace: str, clock: ProjectClock) -> None:
    async with store.memory(namespace) as memory:
        big = memory.project("big")
        text = " ".join(f"word{number}" for number in range(2_000))
        for number in range(12):
            made = await big.tasks.create(f"task {number}", description=text[number * 50 : number * 50 + 12_000])
            for priority in ("low", "high", "low"):
                await big.tasks.update(made.id, priority=priority)
        files = await big.export_files()
        sizes: list[int] = []
        inner = memory.store.run

        async def run(call: Any, **options: Any) -> Any:
            if call.script is not None:
                sizes.append(sum(map(len, call.commands)))
            return await inner(call, **options)

        memory.store.run = run  # type: ignore[method-assign]
        other = memory.project("other")
        await other.import_files(files)
        assert len(sizes) > 5
        await memory.project("small").tasks.create("only this")
        await other.import_files(await memory.project("small").export_files(), replace=True)
        assert await other.tasks.count() == 1
        assert max(sizes) < 5 * PIECE_COUNT
        assert await find_violations(memory) == []


MESSAGES: list[Any] = [
    {"role": "user", "content": "Let us use Redis. \ud83d"},
    {"role": "system", "content": "Be kind."},
    {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "{}"}}]},
    {"role": "tool", "tool_call_id": "1", "content": "done"},
    Message("user", "later", metadata={"a": [1, 2.5, None]}, id="mine", name="Ada"),
]


async def test_messages_come_back_as_they_were(memory: Memory, clock: ProjectClock) -> None:
    apollo: Project = memory.project("apollo")
    talk = await apollo.conversations.start("talk")
    await apollo.conversations.add(talk.id, *MESSAGES)
    await apollo.conversations.add(talk.id, {"role": "user", "content": "pinned"})
    await apollo.conversations.end(talk.id)
    empty = await apollo.conversations.start("nothing said")
    files = await apollo.export_files()
    other = memory.project("other")
    assert (await other.import_files(files)).added == 2
    assert without_project_name(await other.export_files()) == without_project_name(files)
    ours, theirs = apollo.conversations.session(talk.id), other.conversations.session(talk.id)
    mine, copied = await ours.messages(), await theirs.messages()
    assert [(each.to_openai(), each.beside, each.pinned) for each in mine] == [
        (each.to_openai(), each.beside, each.pinned) for each in copied
    ]
    assert not await other.conversations.session(empty.id).exists()
    assert (await other.import_files(files)).unchanged == 2
    assert len(await theirs.messages()) == 6
    await theirs.pop(2)
    await other.import_files(files)
    assert len(await theirs.messages()) == 6, "a session goes on where it has the first of them"
    await theirs.append({"role": "user", "content": "more"})
    await other.import_files(files)
    assert len(await theirs.messages()) == 7, "one that has gone on stays as it is"
    await memory.project("third").tasks.create("only this")
    await other.import_files(await memory.project("third").export_files(), replace=True)
    assert not await theirs.exists()


async def test_a_word_that_an_unchanged_item_has_too_is_still_found(memory: Memory, clock: ProjectClock) -> None:
    source, target = memory.project("source"), memory.project("target")
    changed = await source.tasks.create("apple pie", tags=["fruit"])
    unchanged = await source.tasks.create("apple tree", tags=["fruit"])
    await target.import_files(await source.export_files())
    clock.tick()
    await source.tasks.update(changed.id, title="pear cake", tags=[])
    await target.import_files(await source.export_files())
    assert [task.id for task in await target.tasks.list(text="appl")] == [unchanged.id]
    assert [task.id for task in await target.tasks.list(tags=["fruit"])] == [unchanged.id]
    assert await find_violations(memory) == []


async def test_a_refused_import_leaves_no_conversation(store: Store, namespace: str, clock: ProjectClock) -> None:
    """Another process changes the project after the import has written the messages of its conversations."""
    async with store.memory(namespace) as memory, store.memory(namespace) as other:
        talk = await memory.project("source").conversations.start("talk")
        await memory.project("source").conversations.add(talk.id, *MESSAGES)
        files = await memory.project("source").export_files()
        target = memory.project("target")
        inner = memory.store.run

        async def run(call: Any, **options: Any) -> Any:
            value = await inner(call, **options)
            if call.op == Op.APPEND:
                await other.project("target").tasks.create("in between")
            return value

        memory.store.run = run  # type: ignore[method-assign]
        with pytest.raises(Conflict):
            await target.import_files(files)
        assert not await target.conversations.session(talk.id).exists()
        assert [task.title for task in await target.tasks.list()] == ["in between"]
        assert await memory.project("source").conversations.session(talk.id).exists()
