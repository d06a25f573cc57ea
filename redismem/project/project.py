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
from redismem.project.items.items import ChangeId, Items
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
    """The handle of a project, whose items outlive its conversations. Create a handle when needed, or keep it."""

    FILES: ClassVar = tuple(FILES)
    """The names of the files of an export."""

    def __init__(
        self, store: Store, name: str, sessions: Callable[..., Session] | None = None, *, change_id: ChangeId = ""
    ) -> None:
        """Use `Memory.project` instead of this constructor."""
        self._items = Items(store, ProjectKeys(store.keys, name), change_id=change_id)
        self._store = store
        self.asking: Callable[[ChatModel, Settings], Ask] = ask_within_timeout
        """A function that builds the `Ask` for a model, which calls it in the running event loop."""
        self.hidden_properties: Collection[str] = ()
        """Entity properties to leave out of contexts and backgrounds."""
        self.conversations = Conversations(self._items, sessions or self._session)
        self.extractions = Extractions(self._items, sessions or self._session, self.conversations.session_id)
        self.decisions = Decisions(self._items)
        self.tasks = Tasks(self._items)
        self.entities = Entities(self._items)

    async def context(self, terms: Iterable[str] = ()) -> ProjectContext:
        """Return the context for a prompt: active decisions, open tasks, entities that match the terms, and counts.

        An entity matches if one of its words begins with a term. Takes one round trip; with terms, two. Raises
        StoreUnavailable, and InvalidItem if the terms have more than 20 words.
        """
        return await build_context(self._items, terms, self.hidden_properties)

    async def background(self, messages: Sequence[Message | Shape], max_tokens: int = PROJECT_TOKENS) -> str:
        """Return the text of the context for a turn, with the first 20 words of these messages as terms.

        Returns "" if the project is empty. If it cannot be read, logs a warning and returns "", so the turn continues.
        """
        return await build_background(self._items, messages, max_tokens, self.hidden_properties)

    def check_tokens(self, max_tokens: int) -> None:
        """Raise InvalidItem if a budget is less than 50 tokens, the minimum for the text of a context."""
        check_tokens(max_tokens)

    async def search(self, text: str, *, limit: int = 20) -> Found:
        """Find items of every kind with all these words or prefixes, at most `limit` per kind, in any status.

        Raises InvalidItem, StoreUnavailable.
        """
        return await find_everywhere(self._items, page_limit(limit), text=text)

    async def by_tag(self, tag: str, *, limit: int = 20) -> Found:
        """Find items of every kind with this tag, at most `limit` per kind, in any status. Raises like `search`."""
        return await find_everywhere(self._items, page_limit(limit), tags=[tag])

    async def extract(self, conversation_id: str, model: ChatModel | None) -> Extraction:
        """Extract items from a conversation with a model now; repeated calls extract only once.

        A new decision is proposed, a new task is in the backlog, an entity with a known name gets a mention. If an
        answer violates the schema, or names an id that the model was not shown, it is rejected as a whole and the
        extraction is retried later. Without a model nothing is extracted, and the outcome is `offline`. Raises
        ItemNotFound, StoreUnavailable.
        """
        return await self.extractions.extract(conversation_id, self._asks(model), at_once=True)

    async def extract_due(self, model: ChatModel | None, *, limit: int = 10) -> Sequence[Extraction]:
        """Extract from waiting conversations, and from conversations whose worker's lease has expired.

        Stops early if the model is unavailable.
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
        """Return counts of the project. Reads the completed tasks one by one. Raises StoreUnavailable."""
        return await read_statistics(self._items)

    async def life(self) -> Life | None:
        """Return the time span of the project's decisions, tasks and entities; `None` if there are none.

        It begins when the earliest item became true, and ends at the last change of any item. Takes one round trip.
        Raises StoreUnavailable.
        """
        return await read_life(self._items)

    async def consolidate(self, *, older_than_days: float = 90, dry_run: bool = True) -> Consolidation:
        """Archive items superseded or cancelled long ago, and merge entities whose names differ only in case or signs.

        A dry run, the default, only reports. An archived item can still be read by its id, with `include_archived`, and
        as of an earlier moment. Valid items are never archived. Raises InvalidItem, StoreUnavailable.
        """
        return await consolidate(self._items, older_than_days, dry_run)

    async def export_files(self) -> dict[str, str]:
        """Export decisions.json, tasks.json, entities.json and conversations.json: every item with all its versions.

        Conversations include their summaries and stored messages, also kept originals. All files show the same moment.
        Raises StoreUnavailable, and Conflict if the project kept changing.
        """
        return await export_files(self._items, self.conversations)

    async def import_files(self, files: Mapping[str, str], *, replace: bool = False) -> Imported:
        """Import an export, completely or not at all: merge it into the project, or with `replace` replace the project.

        In a merge, an item that is in both gets the longer history. The import is staged invisibly and committed in one
        step; a reader after the commit waits until the pieces are applied. Messages are written if a conversation has
        no messages, or only the first of them. A replacement needs all four files and at least one item.

        Raises InvalidItem if the files are no export or are inconsistent; Conflict if histories or names clash, or the
        project changed in the meantime; TooLarge, StoreUnavailable.
        """
        return await import_files(self._items, self.conversations, files, replace)

    def _session(self, session_id: str, *, owner: str | None = None) -> Session:
        return Session(self._store, self._store.session_calls(session_id, owner))

    @property
    def name(self) -> str:
        """The project's name, as it was given."""
        return self._items.keys.name
