"""The tools for projects: record and find decisions, tasks and entities, and the project's context."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field

from redismem.mcp.access import Access, Scope, settle_write
from redismem.mcp.results import (
    DecisionResult,
    EntityResult,
    Items,
    Limit,
    Name,
    ProjectSummary,
    TaskResult,
    Text,
    Texts,
    Tokens,
)
from redismem.project.items.schema import EntityType, Priority, TaskStatus
from redismem.project.project import Project
from redismem.project.recording import record_decision, record_entity, record_task, set_task_status

ProjectName = Annotated[Name, Field(description="The name of the project: letters, digits, '.', '_' and '-'.")]
Title = Annotated[Text, Field(min_length=1, description="One line that says it all.")]
Tags = Annotated[list[Name] | None, Field(max_length=100)]
_TERMS_COUNT = 20


class ProjectTools:
    """The tools for projects. Their docstrings are their descriptions, which a model reads."""

    def __init__(self, access: Access, hidden: frozenset[str]) -> None:
        self._access = access
        self._hidden = hidden

    def _project(self, scope: Scope, name: str) -> Project:
        project = self._access(scope).project(name)
        project.hidden_properties = self._hidden
        return project

    async def project_context(
        self,
        project: ProjectName,
        topic: Annotated[str, Field(max_length=2_000, description="Words of the question: picks the entities.")] = "",
        max_tokens: Tokens = 1_500,
    ) -> ProjectSummary:
        """Read what is known of a project, as a short text: its newest decisions, open tasks and matching entities."""
        context = await self._project("read", project).context(topic.split()[:_TERMS_COUNT])
        return ProjectSummary(project=project, text=context.format(max_tokens))

    async def find_items(
        self,
        project: ProjectName,
        text: Annotated[str, Field(max_length=2_000, description="Words or beginnings of words; all must match.")] = "",
        kind: Literal["all", "decisions", "tasks", "entities"] = "all",
        status: Annotated[str, Field(max_length=64, description="Of decisions or tasks, such as accepted.")] = "",
        limit: Limit = 20,
        cursor: Annotated[str, Field(max_length=2_000, description="The cursor of the page before.")] = "",
    ) -> Items:
        """Find decisions, tasks or entities of a project, with their ids and all their fields.

        With kind all, text is needed, and items in every status are found. With one kind, ended items are left out
        unless a status asks for them, and pages are continued by their cursor.
        """
        store = self._project("read", project)
        if kind == "all":
            if not text.strip() or status or cursor:
                raise ToolError("kind all needs text, and takes neither status nor cursor: name one kind")
            found = await store.search(text, limit=limit)
            return self._items(decisions=found.decisions, tasks=found.tasks, entities=found.entities)
        if status and kind == "entities":
            raise ToolError("entities have no status")
        criteria: dict[str, Any] = {"text": text} if text.strip() else {}
        if status:
            criteria["status"] = status
        page = await getattr(store, kind).list(limit=limit, cursor=cursor or None, **criteria)
        return self._items(page.cursor, **{kind: page})

    def _items(self, cursor: str | None = None, **found: Iterable[Any]) -> Items:
        return Items(
            decisions=[DecisionResult.of(each) for each in found.get("decisions", ())],
            tasks=[TaskResult.of(each) for each in found.get("tasks", ())],
            entities=[EntityResult.of(each, self._hidden) for each in found.get("entities", ())],
            cursor=cursor,
        )

    async def record_decision(
        self,
        project: ProjectName,
        title: Title,
        rationale: Annotated[Text, Field(description="The reasons.")] = "",
        description: Text = "",
        alternatives: Annotated[Texts | None, Field(description="What was considered and not chosen.")] = None,
        consequences: Texts | None = None,
        tags: Tags = None,
        status: Literal["proposed", "accepted"] = "accepted",
        supersedes: Annotated[str, Field(max_length=64, description="The id of the decision that this one ends.")] = "",
    ) -> DecisionResult:
        """Record a decision with its reasons, or replace an earlier decision by it.

        If a decision in force has exactly this title, returns that one and records nothing.
        """
        store = self._project("write", project)
        made = record_decision(
            store.decisions,
            title,
            supersedes,
            status=status,
            rationale=rationale,
            description=description,
            alternatives=alternatives or [],
            consequences=consequences or [],
            tags=tags or [],
        )
        decision, _ = await settle_write(made)
        return DecisionResult.of(decision)

    async def record_task(
        self,
        project: ProjectName,
        title: Title,
        description: Text = "",
        priority: Priority = "medium",
        assignee: Annotated[str, Field(max_length=256, description="Who does it.")] = "",
        tags: Tags = None,
        status: Literal["backlog", "planned", "in_progress"] = "backlog",
    ) -> TaskResult:
        """Record a task. If an open task has exactly this title, returns that one and records nothing."""
        store = self._project("write", project)
        made = record_task(
            store.tasks,
            title,
            status=status,
            description=description,
            priority=priority,
            assignee=assignee or None,
            tags=tags or [],
        )
        task, _ = await settle_write(made)
        return TaskResult.of(task)

    async def set_task_status(
        self,
        project: ProjectName,
        task_id: Annotated[str, Field(max_length=64, description="The id that record_task or find_items returned.")],
        status: TaskStatus,
        reason: Text = "",
        blocked_by: Annotated[str, Field(max_length=2_000, description="With blocked: a text, or a task's id.")] = "",
    ) -> TaskResult:
        """Move a task to another status. Only a task in_progress can be completed."""
        tasks = self._project("write", project).tasks
        return TaskResult.of(await settle_write(set_task_status(tasks, task_id, status, reason, blocked_by)))

    async def record_entity(
        self,
        project: ProjectName,
        name: Annotated[Name, Field(description="The name of the person or thing; unique in the project in any case.")],
        type: EntityType = "other",
        description: Text = "",
        properties: Annotated[dict[Name, Any] | None, Field(max_length=100, description="Facts, by name.")] = None,
        mention: Annotated[Text, Field(description="What was said of it now.")] = "",
        tags: Tags = None,
    ) -> EntityResult:
        """Record a person or thing of a project, and what was said of it. Fills in missing fields of a known one.

        Fields that have a value already stay as they are. Each call with a mention counts one mention more.
        """
        entities = self._project("write", project).entities
        fields: Any = {"type": type, "description": description, "properties": properties or {}, "tags": tags or []}
        entity, _ = await settle_write(record_entity(entities, name, **fields))
        if mention:
            entity = await settle_write(entities.add_mention(entity.id, mention))
        return EntityResult.of(entity, self._hidden)
