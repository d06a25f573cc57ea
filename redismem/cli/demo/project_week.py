"""`redismem demo --project`: a week of a project, from a conversation to the next prompt, and back in time."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from redismem.cli.place import open_memory
from redismem.cli.terminal import console, print_json
from redismem.project.project import Project

Told = Callable[[str, str], None]


class Week:
    """Seven days that end now, entered with their moments; each step says what it did and checks it."""

    def __init__(self, apollo: Project, told: Told) -> None:
        self._apollo = apollo
        self._told = told
        self._begun = datetime.now(UTC).replace(microsecond=0) - timedelta(days=7)
        self.failures: list[str] = []

    def day(self, number: int) -> datetime:
        return self._begun + timedelta(days=number)

    def step(self, day: int, what: str, is_so: bool = True) -> None:
        """Says what was done, and notes it if it did not come out."""
        self._told(f"{self.day(day):%A}", what)
        if not is_so:
            self.failures.append(what)

    async def play(self) -> str:
        """The whole week. Gives the text that a prompt gets."""
        apollo = self._apollo
        talk = await apollo.conversations.start("planning")
        await apollo.conversations.add(talk.id, {"role": "user", "content": "Let us use Postgres. Ada moves the data."})
        self.step(0, "a conversation begins: a session of the memory, which the project knows")
        old = await apollo.decisions.create("Use Postgres", rationale="known to all", tags=["db"], at=self.day(0))
        await apollo.decisions.accept(old.id, "all agree", at=self.day(1))
        ada = await apollo.entities.find_or_create("Ada", "person", "leads the move", at=self.day(0))
        await apollo.entities.add_mention(ada.id, "moves the data", talk.id, at=self.day(0))
        move = await apollo.tasks.create("Move the data", priority="high", assignee="Ada", at=self.day(1))
        self.step(1, "Postgres is accepted, and a task follows", move.status == "backlog")
        await apollo.decisions.link_task(old.id, move.id, at=self.day(1))
        blocked = await apollo.tasks.block(move.id, "a review", at=self.day(2))
        self.step(2, "the task waits for a review", blocked.status == "blocked")
        new = await apollo.decisions.supersede(
            old.id, title="Use Redis", rationale="one round trip a turn", reason="too slow", tags=["db"], at=self.day(4)
        )
        self.step(4, "Redis comes in the place of Postgres, in one step", new.supersedes == old.id)
        free = await apollo.tasks.unblock(move.id, "reviewed")
        self.step(6, "the task has again the status that it had before", free.status == "backlog")
        ended = await apollo.conversations.end(talk.id, "Redis it is.", [old.id, move.id, ada.id])
        self.step(6, "the conversation ends with what came of it", ended.message_count == 1)
        return await self._back_in_time(old.id, new.id)

    async def _back_in_time(self, old_id: str, new_id: str) -> str:
        apollo = self._apollo
        was = await apollo.decisions.get(old_id, at=self.day(3))
        self.step(3, f"as of then: “{was.title}” is {was.status}, and valid", was.status == "accepted")
        known = await apollo.decisions.exists(old_id, at=self.day(3), known_at=self.day(3))
        self.step(3, "what was known then: nothing, all of it was entered late", not known)
        chain = [each.id for each in await apollo.decisions.history(old_id)]
        self.step(7, "the chain leads from Postgres to Redis", chain == [old_id, new_id])
        text = (await apollo.context(["ada", "redis"])).format(max_tokens=400)
        self.step(7, "this is what the next prompt knows:", "Use Redis" in text and "Use Postgres" not in text)
        return text


async def play_week(url: str | None, namespace: str, as_json: bool) -> int:
    """Plays it, on an embedded store unless a Redis is named; there in a project of its own, which is cleared."""
    out = console()
    steps: list[dict[str, str]] = []

    def told(day: str, what: str) -> None:
        steps.append({"day": day, "what": what})
        if not as_json:
            out.print(f"[bold]{day:<10}[/bold] {what}")

    async with open_memory(url, namespace) as (memory, _):
        apollo = memory.project(f"demo-{memory.new_session_id()[-12:]}")
        week = Week(apollo, told)
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
        out.print("all of it is as it should be" if not week.failures else f"not so: {'; '.join(week.failures)}")
    return 1 if week.failures else 0
