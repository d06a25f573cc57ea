"""Items true before 1970, with negative milliseconds, behave like any other item."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

from support.clock import ProjectClock

from redismem.project.project import Project

LONG_AGO, BEGIN = datetime(1960, 1, 1, tzinfo=UTC), datetime(1970, 1, 1, tzinfo=UTC)


async def test_what_began_before_1970_is_exported_and_cleared(apollo: Project, clock: ProjectClock) -> None:
    made = await apollo.decisions.create("old", at=LONG_AGO)
    files = await apollo.export_files()
    assert [each["id"] for each in json.loads(files["decisions.json"])["decisions"]] == [made.id]
    assert await apollo.decisions.clear() == 1
    assert await apollo.decisions.count() == 0
    await apollo.import_files(files)
    assert await apollo.decisions.get(made.id) == made


async def test_what_was_due_before_1970_is_overdue(apollo: Project, clock: ProjectClock) -> None:
    task = await apollo.tasks.create("old", due_date=LONG_AGO)
    assert [each.id for each in await apollo.tasks.overdue()] == [task.id]
    assert [each.id for each in await apollo.tasks.list(due_before=LONG_AGO + timedelta(days=1))] == [task.id]
    assert (await apollo.statistics()).overdue_count == 1


async def test_what_ended_when_1970_began_has_ended(apollo: Project, clock: ProjectClock) -> None:
    await apollo.decisions.create("old", at=LONG_AGO, valid_until=BEGIN)
    assert len(await apollo.decisions.valid_at(BEGIN)) == 0
    assert len(await apollo.decisions.valid_at(BEGIN - timedelta(days=1))) == 1
