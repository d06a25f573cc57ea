"""Competing processes: one wins, the others get an error, and nothing is half done, even if Redis is killed."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.forks import Fork
from support.pods import start_pod
from support.redis_server import RedisServer

from redismem import Memory, Settings
from redismem.inspection.projects import check_projects

COUNT = 3
ROUNDS = 4
LOSSES = {"Conflict", "InvalidTransition", "InvalidItem"}


class Racers:
    """Processes that work on a project at the same time."""

    def __init__(self, running: Sequence[Fork], namespace: str = "") -> None:
        self._running = running
        self._namespace = namespace

    def within(self, namespace: str) -> Racers:
        """Return the same processes for another namespace."""
        return Racers(self._running, namespace)

    def tell(self, number: int, store: str, verb: str, *arguments: Any, **named: Any) -> None:
        stdin = self._running[number % len(self._running)].stdin
        assert stdin is not None
        stdin.write(json.dumps([self._namespace, store, verb, arguments, named]) + "\n")
        stdin.flush()

    def read_answer(self, number: int) -> Any:
        stdout = self._running[number % len(self._running)].stdout
        assert stdout is not None
        return json.loads(stdout.readline())

    def race(self, *orders: Sequence[Any], **named: Any) -> list[Any]:
        """Give each process an order, and return their answers."""
        for number, order in enumerate(orders):
            self.tell(number, *order, **named)
        return [self.read_answer(number) for number in range(len(orders))]


@contextlib.contextmanager
def start_racers(url: str, count: int) -> Iterator[Racers]:
    """Start processes, wait until they are ready, and kill them after the test."""
    with contextlib.ExitStack() as stack:
        running = []
        for _ in range(count):
            running.append(stack.enter_context(start_pod("race", url)))
            stack.callback(running[-1].kill)
        racers = Racers(running)
        assert [racers.read_answer(number) for number in range(count)] == ["ready"] * count
        yield racers


@pytest.fixture(scope="module")
def ready(redis_server: RedisServer) -> Iterator[Racers]:
    with start_racers(redis_server.url, COUNT) as found:
        yield found


@pytest.fixture
def racing(ready: Racers, namespace: str) -> Racers:
    return ready.within(namespace)


async def agrees(memory: Memory) -> None:
    assert [each async for each in check_projects(memory.store)] == []


def winners(said: list[Any]) -> list[Any]:
    assert {outcome for outcome, _ in said} <= {"ok"} | LOSSES
    return [made for outcome, made in said if outcome == "ok"]


async def test_one_supersedes(racing: Racers, direct_memory: Memory) -> None:
    apollo = direct_memory.project("apollo")
    for number in range(ROUNDS):
        old = await apollo.decisions.create(f"old {number}")
        orders = [("decisions", "supersede", old.id)] * COUNT
        (winner,) = winners(racing.race(*orders, title=f"new {number}"))
        assert (await apollo.decisions.get(old.id)).superseded_by == winner
        assert len(await apollo.decisions.list(text=f"new {number}", include_superseded=True)) == 1
    await agrees(direct_memory)


async def test_one_is_created_and_all_find_it(racing: Racers, direct_memory: Memory) -> None:
    apollo = direct_memory.project("apollo")
    for number in range(ROUNDS):
        names = [f"Entity {number}", f"ENTITY {number}", f"entity {number}"]
        said = racing.race(*(("entities", "find_or_create", name) for name in names))
        assert {outcome for outcome, _ in said} == {"ok"}
        assert len({made for _, made in said}) == 1
    assert await apollo.entities.count() == ROUNDS
    await agrees(direct_memory)


async def test_one_unblocks(racing: Racers, direct_memory: Memory) -> None:
    apollo = direct_memory.project("apollo")
    for number in range(ROUNDS):
        task = await apollo.tasks.create(f"task {number}", status="planned")
        await apollo.tasks.block(task.id, "a review")
        assert len(winners(racing.race(*[("tasks", "unblock", task.id)] * COUNT))) == 1
        after = await apollo.tasks.get(task.id)
        assert ([entry.status for entry in after.history], after.version) == (["planned", "blocked", "planned"], 3)
    await agrees(direct_memory)


async def test_one_merges(racing: Racers, direct_memory: Memory) -> None:
    """Three duplicates, each merged into the next: no cycle, and no mention is lost or doubled."""
    apollo = direct_memory.project("apollo")
    for number in range(ROUNDS):
        ids = [(await apollo.entities.create(f"e{number} {place}")).id for place in range(COUNT)]
        for place, entity_id in enumerate(ids):
            await apollo.entities.add_mention(entity_id, str(place))
        pairs = list(itertools.pairwise([*ids, ids[0]]))
        winners(racing.race(*(("entities", "merge", one, other) for one, other in pairs)))
        left = await apollo.entities.list(text=f"e{number}")
        assert sum(each.mention_count for each in left) == COUNT
        assert sorted(each.context for entity in left for each in entity.mentions) == ["0", "1", "2"]
        assert len(left) >= 1
    await agrees(direct_memory)


async def test_links_are_whole(racing: Racers, direct_memory: Memory) -> None:
    apollo = direct_memory.project("apollo")
    decisions = [(await apollo.decisions.create(f"d{number}")).id for number in range(2)]
    task = await apollo.tasks.create("t")
    for number in range(ROUNDS):
        verb = "link_task" if number % 2 == 0 else "unlink_task"
        orders = [("decisions", verb, decisions[place % 2], task.id) for place in range(COUNT)]
        assert len(winners(racing.race(*orders))) >= 1
    await agrees(direct_memory)


async def test_one_of_those_who_import_wins_or_all_find_the_same(
    racing: Racers, direct_memory: Memory, tmp_path: Path
) -> None:
    other = direct_memory.project("source")
    for number in range(20):
        await other.decisions.create(f"imported {number}", tags=["x"])
    files = await other.export_files()
    for _ in range(3):
        said = racing.race(*[("project", "import_files", files)] * COUNT, replace=True)
        assert {outcome for outcome, _ in said} <= {"ok", "Conflict"}
        assert "ok" in {outcome for outcome, _ in said}
        assert await direct_memory.project("apollo").decisions.count() == 20
    await agrees(direct_memory)


async def test_two_make_no_cycle(racing: Racers, direct_memory: Memory) -> None:
    apollo = direct_memory.project("apollo")
    for number in range(ROUNDS):
        ids = [(await apollo.tasks.create(f"t{number}")).id for _ in range(COUNT)]
        pairs = itertools.pairwise([*ids, ids[0]])
        assert len(winners(racing.race(*(("tasks", "add_dependency", one, other) for one, other in pairs)))) < COUNT
        graph = await apollo.tasks.dependency_graph()
        for one in ids:
            assert one not in graph[one]
    await agrees(direct_memory)


async def test_what_was_acknowledged_outlives_a_kill(tmp_path: Path, namespace: str) -> None:
    """Redis is killed while processes write: every acknowledged write exists, and nothing is half done."""
    server = RedisServer(tmp_path, aof=True, options=("--appendfsync", "no")).start()
    settings = Settings(deadline_s=60, reply_timeout_s=20)
    try:
        with start_racers(server.url, COUNT) as ready:
            racing = ready.within(namespace)
            made: list[str] = []
            for kills in range(2):
                for place in range(COUNT):
                    racing.tell(place, "decisions", "create", f"round {kills}", tags=["x"])
                made += [racing.read_answer(place)[1] for place in range(COUNT)]
                old = made[-COUNT:]
                for place in range(COUNT):
                    for turn in range(6):
                        racing.tell(place, "decisions", "update", old[place], description=f"turn {turn}")
                    racing.tell(place, "decisions", "supersede", old[place], title=f"after {kills}")
                    racing.tell(place, "entities", "find_or_create", f"Entity {kills}")
                racing.read_answer(0)
                server.kill()
                server.start()
                said = [racing.read_answer(place) for place in range(COUNT) for _ in range(8 - (place == 0))]
                assert {outcome for outcome, _ in said} == {"ok"}
        async with Memory.connect(server.url, namespace=namespace, settings=settings) as memory:
            apollo = memory.project("apollo")
            await agrees(memory)
            for decision_id in made:
                decision = await apollo.decisions.get(decision_id)
                assert (decision.status, decision.description, decision.version) == ("superseded", "turn 5", 8)
            assert await apollo.decisions.count(text="after") == 2 * COUNT
            assert await apollo.entities.count() == 2
    finally:
        server.stop()
