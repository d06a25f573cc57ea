"""`redismem demo --project`: a week of a project, from its first conversation to the next prompt, with time travel."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from redismem.cli.place import open_memory
from redismem.cli.terminal import console, print_json
from redismem.project.project import Project

Report = Callable[[str, str], None]
"""A function that is called with the weekday and the text of each step."""


class Week:
    """The last seven days of a project, whose steps are entered with their times, reported and checked."""

    def __init__(self, apollo: Project, report: Report) -> None:
        self._apollo = apollo
        self._report = report
        self._start = datetime.now(UTC).replace(microsecond=0) - timedelta(days=7)
        self.failures: list[str] = []

    def day(self, number: int) -> datetime:
        return self._start + timedelta(days=number)

    def step(self, day: int, text: str, is_so: bool = True) -> None:
        """Report a step, and record a failure unless `is_so` is true."""
        self._report(f"{self.day(day):%A}", text)
        if not is_so:
            self.failures.append(text)

    async def play(self) -> str:
        """Play the whole week and return the project context for the next prompt."""
        apollo = self._apollo
        talk = await apollo.conversations.start("planning")
        await apollo.conversations.add(talk.id, {"role": "user", "content": "Let us use Postgres. Ada moves the data."})
        self.step(0, "a conversation starts: a session linked to the project")
        old = await apollo.decisions.create("Use Postgres", rationale="known to all", tags=["db"], at=self.day(0))
        await apollo.decisions.accept(old.id, "all agree", at=self.day(1))
        ada = await apollo.entities.find_or_create("Ada", "person", "leads the move", at=self.day(0))
        await apollo.entities.add_mention(ada.id, "moves the data", talk.id, at=self.day(0))
        move = await apollo.tasks.create("Move the data", priority="high", assignee="Ada", at=self.day(1))
        self.step(1, "the decision for Postgres is accepted and leads to a task", move.status == "backlog")
        await apollo.decisions.link_task(old.id, move.id, at=self.day(1))
        blocked = await apollo.tasks.block(move.id, "a review", at=self.day(2))
        self.step(2, "the task is blocked by a review", blocked.status == "blocked")
        new = await apollo.decisions.supersede(
            old.id, title="Use Redis", rationale="one round trip a turn", reason="too slow", tags=["db"], at=self.day(4)
        )
        self.step(4, "the decision for Redis supersedes it, in one step", new.supersedes == old.id)
        free = await apollo.tasks.unblock(move.id, "reviewed")
        self.step(6, "the task is unblocked and back in its previous status", free.status == "backlog")
        ended = await apollo.conversations.end(talk.id, "Redis it is.", [old.id, move.id, ada.id])
        self.step(6, "the conversation ends with a summary and its items", ended.message_count == 1)
        return await self._back_in_time(old.id, new.id)

    async def _back_in_time(self, old_id: str, new_id: str) -> str:
        apollo = self._apollo
        was = await apollo.decisions.get(old_id, at=self.day(3))
        self.step(3, f"as of that day “{was.title}” is valid and {was.status}", was.status == "accepted")
        was_known = await apollo.decisions.exists(old_id, at=self.day(3), known_at=self.day(3))
        self.step(3, "known on that day: nothing, as everything was entered later", not was_known)
        chain = [decision.id for decision in await apollo.decisions.history(old_id)]
        self.step(7, "the history leads from Postgres to Redis", chain == [old_id, new_id])
        text = (await apollo.context(["ada", "redis"])).format(max_tokens=400)
        self.step(7, "the context for the next prompt:", "Use Redis" in text and "Use Postgres" not in text)
        return text


async def play_week(url: str | None, namespace: str, as_json: bool) -> int:
    """Play the week in a new project, print its steps and clear the project. Return the exit code.

    Uses an embedded store unless `url` names a Redis.
    """
    out = console()
    steps: list[dict[str, str]] = []

    def report(day: str, text: str) -> None:
        steps.append({"day": day, "what": text})
        if not as_json:
            out.print(f"[bold]{day:<10}[/bold] {text}")

    async with open_memory(url, namespace) as (memory, _):
        apollo = memory.project(f"demo-{memory.new_session_id()[-12:]}")
        week = Week(apollo, report)
        try:
            text = await week.play()
        finally:
            for store in (apollo.decisions, apollo.tasks, apollo.entities, apollo.conversations):
                await store.clear()
    document: dict[str, Any] = {"steps": steps, "context": text, "failures": week.failures, "good": not week.failures}
    if as_json:
        print_json(document)
    else:
        from rich.text import Text

        out.print(Text("\n" + text + "\n"))
        out.print("All steps checked." if not week.failures else f"failed: {'; '.join(week.failures)}")
    return 1 if week.failures else 0
