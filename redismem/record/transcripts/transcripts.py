"""The handle of all transcripts of a memory, for asyncio. `blocking` runs these coroutines without an event loop."""

from __future__ import annotations

from redismem.record.transcripts.transcript import Kind, Transcript, TranscriptPage
from redismem.store.store import Store


class Transcripts:
    """The conversations that frameworks keep in records: of LangGraph, Pydantic AI, Google ADK, Strands and the Claude
    Agent SDK.

    They are for reading: only the framework writes them. No framework needs to be installed. `Memory.transcripts`
    returns this handle.
    """

    __slots__ = ("_store",)

    def __init__(self, store: Store) -> None:
        """Use `Memory.transcripts` instead of this constructor."""
        self._store = store

    async def list(
        self, *, kind: Kind | None = None, owner: str | None = None, limit: int = 100, cursor: str | None = None
    ) -> TranscriptPage:
        """Return a page of transcripts without their messages, by the ids of their records.

        A page looks at no more than 5,000 records. So it may be short, or empty, and still have a cursor. A record that
        cannot be read has a `fault`, and ends no listing.

        Args:
            kind: Only this framework: `claude-agent-sdk`, `google-adk`, `langgraph`, `pydantic-ai` or `strands`.
            owner: Only the records that were created with this owner, by an index of their owners.
            limit: The most transcripts, 1 to 1,000.
            cursor: The cursor of the previous page. `None` starts at the first page.

        Raises:
            InvalidSessionId: The owner is invalid.
            ValueError: The kind is unknown, the limit is out of range, or the cursor does not come from a page.
            StoreUnavailable: Redis does not answer before the deadline.
        """
        from redismem.record.transcripts.listing import list_transcripts  # `import redismem.record` stays small

        return await list_transcripts(self._store, kind, owner, limit, cursor)

    async def read(
        self, kind: Kind | None, id: str, *, owner: str | None = None, limit: int | None = None
    ) -> Transcript | None:
        """Return a transcript with its messages; `None` if this framework has none with this id.

        Args:
            kind: The framework, as for `list`; `None` means any.
            id: The id of the record, or the framework's name for it. With a name, the adapter has its default
                `key_prefix`.
            owner: The person whom the record must belong to. `None` opens every record.
            limit: The newest messages to return; `None` means all.

        Raises:
            OwnerMismatch: The record has another owner than the one named, or none.
            CorruptSession: The record is damaged.
            ValueError: The kind is unknown, or the limit is not positive.
            StoreUnavailable: Redis does not answer before the deadline.
        """
        from redismem.record.transcripts.listing import read_transcript

        return await read_transcript(self._store, kind, id, owner, limit)
