"""The bundled chat, and the rest that fills a namespace for `redismem serve --demo`: other chats and a project."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from typing import Any

from redismem.memory.memory import Memory
from redismem.project.project import Project
from redismem.session.session import Session
from redismem.slots import Slots
from redismem.workers import strategies
from redismem.workers.outcomes import SummaryOutcome
from redismem.workers.summaries import Worker

NAMESPACE = "redismem-demo"
PROJECT = "brewline"
CHAT = "web-20817-koeln"
"""The session of the bundled chat."""
WAITING = "web-20901-lena"
"""The session whose chat waits for a param."""
_TITLE = "A cracked water tank, BL-20817"
_LIFE = timedelta(days=21)
_STATE = ("merge", "waiting", "last_intent", "last_result", "plan")


@dataclass(frozen=True, slots=True)
class DemoTurn:
    """An append of the bundled chat."""

    id: str
    note: str
    reads: bool
    messages: list[dict[str, Any]]
    change: dict[str, Any]
    """The changes of the state: `merge`, `waiting` and so on."""
    summarise: str
    """A note on the summary that is written after this turn; "" means that none is."""


def bundled_turns() -> Iterator[DemoTurn]:
    """Yield the turns of the bundled chat."""
    for line in _read("demo.jsonl").splitlines():
        row = json.loads(line)
        change = {name: row[name] for name in _STATE if name in row}
        yield DemoTurn(
            row["id"], row["note"], row.get("read", False), row["messages"], change, row.get("summarise", "")
        )


def demo_slots() -> Slots:
    """Return the slots that the demo's chat fills."""
    return Slots.from_toml(_read("slots.toml"))


async def fill(memory: Memory) -> None:
    """Add each conversation and the project, unless they are there. Raises RedismemError."""
    for line in _read("others.jsonl").splitlines():
        row = json.loads(line)
        if not await memory.session(row["session"]).exists():
            await memory.session(row["session"], owner=row["owner"]).append(*row["messages"], id="demo")
    if not await memory.session(WAITING).exists():
        await _begin_return(memory)
    if not await memory.session(CHAT).exists():
        await _play_chat(memory)
    project = memory.project(PROJECT)
    if await project.life() is None:
        await plan(project)


async def _begin_return(memory: Memory) -> None:
    session = memory.session(WAITING, owner="lena")
    step = demo_slots().step(await session.state(), "Hello! I would like to return a grinder.")
    await session.append({"role": "user", "content": step.text}, id="demo", **step.changes)
    await session.append({"role": "assistant", "content": step.say}, id="demo-reply")


async def _play_chat(memory: Memory) -> None:
    """Append the bundled turns, and summarise after the turns after which the conversation asks for it."""
    session = memory.session(CHAT, owner="mila")
    for turn in bundled_turns():
        await session.append(*turn.messages, id=turn.id, **turn.change)
        if turn.summarise:
            await summarise(memory, session)
    await session.set_title(_TITLE)


async def summarise(memory: Memory, session: Session) -> bool:
    """Summarise a session as a worker does, without a model. True if a summary was written."""
    strategy = strategies.from_settings(
        memory.settings.model_copy(update={"strategy": "summarize", "model_provider": "extractive"})
    )
    assert strategy is not None
    return await Worker(memory.store, strategy).attend(session.id) is SummaryOutcome.OK


async def plan(project: Project) -> None:
    """Enter three weeks of changes up to now, each with its time."""
    begin = datetime.now(UTC) - _LIFE

    def day(number: float) -> datetime:
        return begin + timedelta(days=number)

    parcel = await project.decisions.create(
        "Ship spare parts as parcels", rationale="One carrier for everything.", status="accepted", at=day(0)
    )
    await project.decisions.supersede(
        parcel.id,
        title="Ship spare parts by express",
        rationale="A machine without its tank makes no coffee.",
        reason="parcels took three days",
        at=day(12),
    )
    await project.decisions.create("Replace cracked tanks without asking for photos", status="accepted", at=day(5))
    tank = await project.entities.create("DUO-TANK", "technology", "The water tank of the Brewline Duo.", at=day(1))
    ada = await project.entities.create("Ada Okafor", "person", "Leads the spare parts.", at=day(1))
    await project.entities.add_mention(ada.id, "asks the maker about the cracks", "standup", at=day(9))
    await project.entities.add_mention(tank.id, "the third cracked tank this month", CHAT, at=day(20))
    await project.entities.link(ada.id, "is responsible for", tank.id, at=day(2))
    move = await project.tasks.create("Ask the maker about cracked tanks", priority="high", assignee="Ada", at=day(8))
    await project.tasks.start(move.id, at=day(9))
    await project.tasks.block(move.id, "an answer from the maker", at=day(14))
    for title, priority, status, assignee, number in _TASKS:
        details: Any = {"priority": priority, "status": status, "assignee": assignee}
        await project.tasks.create(title, at=day(number), **details)
    done = await project.tasks.create("Agree on express with the carrier", status="in_progress", at=day(6))
    await project.tasks.complete(done.id, at=day(12))


_TASKS = (
    ("Order 200 tanks", "critical", "backlog", None, 15),
    ("Write the repair guide", "medium", "backlog", None, 11),
    ("Pack tanks in a larger box", "high", "planned", "Jun", 16),
    ("Translate the repair guide", "low", "in_progress", "Jun", 17),
)


def _read(name: str) -> str:
    return (files("redismem.cli.demo") / name).read_text("utf-8")
