"""The tools for conversations: append, context, recall, state, clear."""

from __future__ import annotations

from typing import Annotated, Any

from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field

from redismem import UNSET, Session
from redismem.adapters.sessions import Owner, resolve_owner
from redismem.mcp.access import Access, Scope, settle_write
from redismem.mcp.events import EventStore
from redismem.mcp.results import (
    Appended,
    Cleared,
    Limit,
    Name,
    NewMessage,
    RecalledMessages,
    SessionContext,
    SessionState,
    StateUpdated,
    Tokens,
)

SessionId = Annotated[Name, Field(description="The id of the conversation, such as user-42. It is begun if missing.")]
KnownId = Annotated[Name, Field(description="The id of the conversation.")]
RetryId = Annotated[
    str,
    Field(
        max_length=256,
        description="An id of your own for this call. Repeat a failed call with the same id: it takes effect once.",
    ),
]
Batch = Annotated[list[NewMessage], Field(min_length=1, max_length=100, description="Oldest first.")]
ParamName = Annotated[str, Field(max_length=256)]


class SessionTools:
    """The tools for conversations. Their docstrings are their descriptions, which a model reads."""

    def __init__(
        self, access: Access, hidden: frozenset[str], events: EventStore | None, owner: Owner[str] = None
    ) -> None:
        self._access = access
        self._hidden = hidden
        self._events = events
        self._owner = owner

    def _open_session(self, session_id: str, scope: Scope) -> Session:
        """Return a session, which belongs to the owner of the server; one of another owner refuses the call."""
        return self._access(scope).session(session_id, owner=resolve_owner(self._owner, session_id))

    async def append_messages(self, session_id: SessionId, messages: Batch, id: RetryId = "") -> Appended:
        """Append messages to a conversation, all or none. Begins the conversation if it does not exist."""
        session = self._open_session(session_id, "write")
        payloads = [message.model_dump(exclude_unset=True) for message in messages]
        receipt = await settle_write(session.append(*payloads, id=id or None))
        return Appended.of(session_id, receipt)

    async def read_context(self, session_id: KnownId, max_tokens: Tokens = 8_000) -> SessionContext:
        """Read what the next answer of a conversation needs: summaries of old messages, the newest messages, the state.

        Summaries and pinned messages always come whole. An unknown conversation has 0 messages.
        """
        session = self._open_session(session_id, "read")
        return SessionContext.of(await session.read(max_tokens=max_tokens), self._hidden)

    async def recall_messages(
        self,
        session_id: KnownId,
        query: Annotated[str, Field(min_length=1, max_length=2_000, description="The question, or its main words.")],
        limit: Limit = 8,
        max_tokens: Tokens = 4_000,
    ) -> RecalledMessages:
        """Find old messages of a conversation that a summary has replaced, by words and, if set up, by meaning.

        Returns the best matches and their neighbours, oldest first. read_context has the newest messages already.
        """
        session = self._open_session(session_id, "read")
        return RecalledMessages.of(await session.recall(query, limit, max_tokens))

    async def get_state(self, session_id: KnownId) -> SessionState:
        """Get the state of a conversation: its params, and the param whose value the agent waits for."""
        return SessionState.of(await self._open_session(session_id, "read").state(), self._hidden)

    async def update_state(
        self,
        session_id: SessionId,
        set: Annotated[
            dict[ParamName, Any] | None, Field(max_length=256, description="Params to set, by name.")
        ] = None,
        remove: Annotated[list[ParamName] | None, Field(max_length=256, description="Params to remove.")] = None,
        waiting_for_param: Annotated[
            ParamName | None,
            Field(description="The param whose value the user was asked for; null: not waiting; omitted: unchanged."),
        ] = "",
        id: RetryId = "",
    ) -> StateUpdated:
        """Set and remove params of a conversation, and say which param it waits for, all or none.

        Params that are not named stay as they are. Begins the conversation if it does not exist.
        """
        merge: dict[str, Any] = {**(set or {}), **dict.fromkeys(remove or (), UNSET)}
        if len(merge) < len(set or ()) + len(remove or ()):
            raise ToolError("a param is named twice: give each one in set or in remove, once")
        changes: dict[str, Any] = {"merge": merge} if merge else {}
        if waiting_for_param != "":
            changes["waiting"] = waiting_for_param
        if not changes:
            raise ToolError("nothing to change: give set, remove or waiting_for_param")
        await settle_write(self._open_session(session_id, "write").update(id=id or None, **changes))
        return StateUpdated(session_id=session_id)

    async def clear_session(self, session_id: KnownId) -> Cleared:
        """Remove one conversation for good: its messages, summaries, old messages and state. Cannot be undone.

        Call it only if the user asks for it. It removes exactly the conversation with this id, no other.
        """
        session = self._open_session(session_id, "write")
        existed = await settle_write(session.clear())
        if self._events is not None:
            await settle_write(self._events.clear())
        return Cleared(session_id=session_id, existed=existed)
