"""The blocking project: each method runs the coroutine of the async method with the same name."""

from __future__ import annotations

from typing import Generic, TypeVar

from redismem.blocking.model import asked_in_thread, close_model
from redismem.concurrency.run_sync import blocking
from redismem.project import project
from redismem.project.kinds import collection, conversations, decisions, entities, tasks

__all__ = ["Conversations", "Decisions", "Entities", "Project", "Tasks", "close_model"]


Twin = TypeVar("Twin")


class _Items(Generic[Twin]):
    """The items of one kind, without `await`."""

    __slots__ = ("_twin",)

    def __init__(self, twin: Twin) -> None:
        self._twin = twin

    exists = blocking(collection.Collection.exists)
    versions = blocking(collection.Collection.versions)
    delete = blocking(collection.Collection.delete)
    erase = blocking(collection.Collection.erase)
    clear = blocking(collection.Collection.clear)


class Decisions(_Items[decisions.Decisions]):
    """The decisions of a project, without `await`."""

    __slots__ = ()

    get = blocking(decisions.Decisions.get)
    valid_at = blocking(decisions.Decisions.valid_at)
    create = blocking(decisions.Decisions.create)
    update = blocking(decisions.Decisions.update)
    accept = blocking(decisions.Decisions.accept)
    reject = blocking(decisions.Decisions.reject)
    deprecate = blocking(decisions.Decisions.deprecate)
    supersede = blocking(decisions.Decisions.supersede)
    history = blocking(decisions.Decisions.history)
    active = blocking(decisions.Decisions.active)
    list = blocking(decisions.Decisions.list)
    count = blocking(decisions.Decisions.count)
    link_task = blocking(decisions.Decisions.link_task)
    unlink_task = blocking(decisions.Decisions.unlink_task)
    link_decision = blocking(decisions.Decisions.link_decision)
    unlink_decision = blocking(decisions.Decisions.unlink_decision)


class Tasks(_Items[tasks.Tasks]):
    """The tasks of a project, without `await`."""

    __slots__ = ()

    get = blocking(tasks.Tasks.get)
    valid_at = blocking(tasks.Tasks.valid_at)
    create = blocking(tasks.Tasks.create)
    update = blocking(tasks.Tasks.update)
    plan = blocking(tasks.Tasks.plan)
    start = blocking(tasks.Tasks.start)
    complete = blocking(tasks.Tasks.complete)
    cancel = blocking(tasks.Tasks.cancel)
    reopen = blocking(tasks.Tasks.reopen)
    block = blocking(tasks.Tasks.block)
    unblock = blocking(tasks.Tasks.unblock)
    can_start = blocking(tasks.Tasks.can_start)
    add_dependency = blocking(tasks.Tasks.add_dependency)
    remove_dependency = blocking(tasks.Tasks.remove_dependency)
    dependency_graph = blocking(tasks.Tasks.dependency_graph)
    link_decision = blocking(tasks.Tasks.link_decision)
    unlink_decision = blocking(tasks.Tasks.unlink_decision)
    active = blocking(tasks.Tasks.active)
    blocked = blocking(tasks.Tasks.blocked)
    in_progress = blocking(tasks.Tasks.in_progress)
    overdue = blocking(tasks.Tasks.overdue)
    list = blocking(tasks.Tasks.list)
    count = blocking(tasks.Tasks.count)


class Entities(_Items[entities.Entities]):
    """The entities of a project, without `await`."""

    __slots__ = ()

    get = blocking(entities.Entities.get)
    valid_at = blocking(entities.Entities.valid_at)
    create = blocking(entities.Entities.create)
    update = blocking(entities.Entities.update)
    find_by_name = blocking(entities.Entities.find_by_name)
    find_or_create = blocking(entities.Entities.find_or_create)
    add_mention = blocking(entities.Entities.add_mention)
    set_property = blocking(entities.Entities.set_property)
    remove_property = blocking(entities.Entities.remove_property)
    link = blocking(entities.Entities.link)
    unlink = blocking(entities.Entities.unlink)
    merge = blocking(entities.Entities.merge)
    people = blocking(entities.Entities.people)
    technologies = blocking(entities.Entities.technologies)
    components = blocking(entities.Entities.components)
    most_mentioned = blocking(entities.Entities.most_mentioned)
    list = blocking(entities.Entities.list)
    count = blocking(entities.Entities.count)


class Conversations(_Items[conversations.Conversations]):
    """The conversations of a project, without `await`; the subclass in `blocking.memory` adds `session`."""

    __slots__ = ()

    def session_id(self, id: str) -> str:
        """Return the id of the session that holds the messages of a conversation.

        Raises:
            InvalidItem: The id is invalid.
        """
        return self._twin.session_id(id)

    get = blocking(conversations.Conversations.get)
    delete = blocking(conversations.Conversations.delete)
    erase = blocking(conversations.Conversations.erase)
    valid_at = blocking(conversations.Conversations.valid_at)
    clear = blocking(conversations.Conversations.clear)
    start = blocking(conversations.Conversations.start)
    add = blocking(conversations.Conversations.add)
    end = blocking(conversations.Conversations.end)
    recent = blocking(conversations.Conversations.recent)
    list = blocking(conversations.Conversations.list)
    count = blocking(conversations.Conversations.count)


class Project:
    """A project without `await`; the subclass in `blocking.memory` adds the sessions of its conversations."""

    __slots__ = ("_twin", "conversations", "decisions", "entities", "tasks")

    def __init__(self, twin: project.Project) -> None:
        self._twin = twin
        twin.asking = asked_in_thread
        self.decisions = Decisions(twin.decisions)
        self.tasks = Tasks(twin.tasks)
        self.entities = Entities(twin.entities)
        self.conversations = Conversations(twin.conversations)

    def check_tokens(self, max_tokens: int) -> None:
        """Check a token budget.

        Raises:
            InvalidItem: The budget is below 50 tokens.
        """
        self._twin.check_tokens(max_tokens)

    context = blocking(project.Project.context)
    background = blocking(project.Project.background)
    search = blocking(project.Project.search)
    by_tag = blocking(project.Project.by_tag)
    extract = blocking(project.Project.extract)
    extract_due = blocking(project.Project.extract_due)
    statistics = blocking(project.Project.statistics)
    life = blocking(project.Project.life)
    consolidate = blocking(project.Project.consolidate)
    export_files = blocking(project.Project.export_files)
    import_files = blocking(project.Project.import_files)

    @property
    def twin(self) -> project.Project:
        """The async project that runs the calls."""
        return self._twin

    @property
    def name(self) -> str:
        """The project's name, unchanged."""
        return self._twin.name
