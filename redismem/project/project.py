"""A project: its decisions, tasks, entities and conversations."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import ClassVar

from redismem.messages.coercion import Shape
from redismem.messages.message import Message
from redismem.models.draft import ChatModel
from redismem.project.background import (
    Found,
    ProjectContext,
    build_background,
    build_context,
    check_tokens,
    find_everywhere,
)
from redismem.project.consolidation import Consolidation, consolidate
from redismem.project.extraction.extraction import Ask, Extraction, Extractions, Outcome, ask_within_timeout
from redismem.project.files.export import Imported, export_files, import_files
from redismem.project.files.json import FILES
from redismem.project.items.items import Items
from redismem.project.kinds.conversations import Conversations
from redismem.project.kinds.decisions import Decisions
from redismem.project.kinds.entities import Entities
from redismem.project.kinds.tasks import Tasks
from redismem.project.queries.query import page_limit
from redismem.project.statistics import Life, Statistics, read_life, read_statistics
from redismem.protocol.project.keys import ProjectKeys
from redismem.session.background import PROJECT_TOKENS
from redismem.session.session import Session
from redismem.settings.settings import Settings
from redismem.store.store import Store


class Project:
    """What stays true of a project, beside its conversations. A handle: make one when it is needed, or keep it."""

    FILES: ClassVar = tuple(FILES)
    """The names of the files of an export."""

    def __init__(self, store: Store, name: str, sessions: Callable[[str], Session] | None = None) -> None:
        """`Memory.project` makes one."""
        self._items = Items(store, ProjectKeys(store.keys, name))
        self._store = store
        self.asking: Callable[[ChatModel, Settings], Ask] = ask_within_timeout
        """How a model is asked: in the running event loop."""
        self.hidden_properties: Collection[str] = ()
        """Names of entities' properties that neither a context nor a background has."""
        self.conversations = Conversations(self._items, sessions or self._session)
        self.extractions = Extractions(self._items, sessions or self._session, self.conversations.session_id)
        self.decisions = Decisions(self._items)
        self.tasks = Tasks(self._items)
        self.entities = Entities(self._items)

    async def context(self, terms: Iterable[str] = ()) -> ProjectContext:
        """What a prompt should know: active decisions, open tasks, the entities that the terms begin, numbers.

        One round trip, two with terms. Raises InvalidItem for more than 20 words, StoreUnavailable.
        """
        return await build_context(self._items, terms, self.hidden_properties)

    async def background(self, messages: Sequence[Message | Shape], max_tokens: int = PROJECT_TOKENS) -> str:
        """The text of the context whose terms are the first 20 words of these messages: what a turn gets of a project.

        "" if nothing stands in it, or it cannot be read now, which is logged: the turn goes on without it.
        """
        return await build_background(self._items, messages, max_tokens, self.hidden_properties)

    def check_tokens(self, max_tokens: int) -> None:
        """Raises InvalidItem for fewer tokens than the text of a context needs: 50."""
        check_tokens(max_tokens)

    async def search(self, text: str, *, limit: int = 20) -> Found:
        """What has all these words or beginnings of words, of every kind, at most so many of each, whatever its status.

        Raises InvalidItem, StoreUnavailable.
        """
        return await find_everywhere(self._items, page_limit(limit), text=text)

    async def by_tag(self, tag: str, *, limit: int = 20) -> Found:
        """What has this tag, of every kind, at most so many of each, whatever its status. Raises as `search` does."""
        return await find_everywhere(self._items, page_limit(limit), tags=[tag])

    async def extract(self, conversation_id: str, model: ChatModel | None) -> Extraction:
        """Has a model read a conversation now, and makes items of what it says: once, however often it is asked for.

        New decisions are proposed, new tasks are in the backlog, entities of a known name get a mention. What is no
        answer of the schema, or names an id that was not shown, is refused whole, and tried again later. Without a
        model nothing is extracted, and the outcome is `offline`. Raises ItemNotFound, StoreUnavailable.
        """
        return await self.extractions.extract(conversation_id, self._asks(model), at_once=True)

    async def extract_due(self, model: ChatModel | None, *, limit: int = 10) -> Sequence[Extraction]:
        """Extracts the conversations that wait, and those whose worker has not come back in time: workers do it too.

        It ends early when nobody gets an answer from the model.
        """
        done: list[Extraction] = []
        for waiting in await self.extractions.due(page_limit(limit)):
            done.append(await self.extractions.extract(waiting, self._asks(model), at_once=False))
            if done[-1].outcome is Outcome.UNANSWERED:
                break
        return done

    def _asks(self, model: ChatModel | None) -> Ask | None:
        return None if model is None else self.asking(model, self._store.settings)

    async def statistics(self) -> Statistics:
        """The project in numbers. It goes through the completed tasks one by one. Raises StoreUnavailable."""
        return await read_statistics(self._items)

    async def life(self) -> Life | None:
        """When the first of its decisions, tasks and entities was true, and when one was changed last; None: none is.

        One round trip. Raises StoreUnavailable.
        """
        return await read_life(self._items)

    async def consolidate(self, *, older_than_days: float = 90, dry_run: bool = True) -> Consolidation:
        """Archives what was superseded or cancelled so long ago, merges entities whose names differ in signs alone.

        A dry run, which is the default, says what it would do. Archived items are found with `include_archived`, by
        their ids and as of then. Nothing that is valid is archived. Raises InvalidItem, StoreUnavailable.
        """
        return await consolidate(self._items, older_than_days, dry_run)

    async def export_files(self) -> dict[str, str]:
        """decisions.json, tasks.json, entities.json and conversations.json: every item with all of its versions.

        Of conversations also the messages that are there, those kept behind a summary too, and summaries. It is all as
        of one moment. Raises Conflict if others kept writing, StoreUnavailable.
        """
        return await export_files(self._items, self.conversations)

    async def import_files(self, files: Mapping[str, str], *, replace: bool = False) -> Imported:
        """Puts an export in, all of it or nothing: into what is there, or in its place.

        Into what is there, an item in both gets the longer history. It is written in pieces that nobody sees, and
        counts from one step on: who asks the project anything then waits until the pieces are carried out. Messages are
        written if a conversation has none, or the first of them. What takes the place of all that is there is a
        whole export: all four files, with an item at least. Raises InvalidItem for files that are no export, or
        do not agree with themselves; Conflict if histories or names exclude each other, or the project changed
        meanwhile; TooLarge, StoreUnavailable.
        """
        return await import_files(self._items, self.conversations, files, replace)

    def _session(self, session_id: str) -> Session:
        return Session(self._store, self._store.session_calls(session_id))

    @property
    def name(self) -> str:
        """Its name, as it was given."""
        return self._items.keys.name
