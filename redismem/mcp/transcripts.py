"""The resources: sessions and records, each as a list, and as a transcript of one, a page at a time."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any
from urllib.parse import quote

from mcp.server.mcpserver.exceptions import ResourceError

from redismem import Message
from redismem.adapters.sessions import Owner, resolve_owner
from redismem.mcp.access import Access
from redismem.mcp.results import StoredMessage
from redismem.record import Transcript

_SESSIONS_COUNT = 100
_MESSAGES_COUNT = 50
_PAGE_BYTES = 256 * 1024


class Transcripts:
    """The resources of the sessions. A client follows their links from page to page."""

    def __init__(self, access: Access, owner: Owner[str] = None) -> None:
        self._access = access
        self._owner = owner

    async def sessions(self, cursor: str = "") -> str:
        """The live conversations, latest active first, 100 per page. `next` links to the next page."""
        try:
            page = await self._access("read").sessions(_SESSIONS_COUNT, cursor or None)
        except ValueError:
            raise ResourceError("the cursor does not come from a page of this list") from None
        listed = [
            {"session_id": each.session_id, "uri": _uri(each.session_id), "active_ms": each.active_ms}
            for each in page.sessions
        ]
        following = None if page.cursor is None else f"redismem://sessions?cursor={quote(page.cursor, safe='')}"
        return json.dumps({"sessions": listed, "next": following})

    async def session(self, session_id: str, before: int = 0) -> str:
        """The messages of a conversation, at most 50 per page, the newest page first. `older` links to the page before.

        Includes messages that summaries have replaced, as long as the conversation keeps them.
        """
        if before < 0:
            raise ResourceError("before is a seq: an integer of 1 or more")
        session = self._access("read").session(session_id, owner=resolve_owner(self._owner, session_id))
        messages = await session.messages(_MESSAGES_COUNT, before or None, include_originals=True)
        shown = _newest(messages)
        more = len(shown) < len(messages) or len(messages) == _MESSAGES_COUNT
        older = f"{_uri(session_id)}?before={messages[-len(shown)].seq}" if more else None
        return json.dumps({"session_id": session_id, "messages": shown, "older": older})

    async def records(self, kind: str = "", cursor: str = "") -> str:
        """The conversations that agent frameworks keep, by id, 100 per page. `next` links to the next page.

        `kind` is claude-agent-sdk, google-adk, langgraph, pydantic-ai or strands; without it all of them are listed.
        """
        transcripts, owner = self._access("read").transcripts, self._owner_of_records()
        try:
            page = await transcripts.list(kind=_kind(kind), owner=owner, limit=_SESSIONS_COUNT, cursor=cursor or None)
        except ValueError as refused:
            raise ResourceError(str(refused)) from None
        listed = [_row(each) | {"uri": _record_uri(each)} for each in page.transcripts]
        query = f"kind={quote(kind)}&" if kind else ""
        following = None if page.cursor is None else f"redismem://records?{query}cursor={quote(page.cursor, safe='')}"
        return json.dumps({"records": listed, "next": following})

    async def record(self, kind: str, id: str) -> str:
        """The newest messages of a framework's conversation, at most 50. `is_whole` says whether these are all."""
        transcripts, owner = self._access("read").transcripts, self._owner_of_records()
        try:
            found = await transcripts.read(_kind(kind), id, owner=owner, limit=_MESSAGES_COUNT)
        except ValueError as refused:
            raise ResourceError(str(refused)) from None
        if found is None:
            raise ResourceError(f"record {id}: there is no such conversation of {kind}")
        shown = _newest(list(found.messages))
        is_whole = found.is_whole and len(shown) == len(found.messages)
        return json.dumps({**_row(found), "messages": shown, "is_whole": is_whole})

    def _owner_of_records(self) -> str | None:
        """Return the owner of all that the server reaches. Raises ResourceError if it serves several persons."""
        if callable(self._owner):
            raise ResourceError("this server serves several persons, and knows only whose a session is")
        return self._owner


def _kind(kind: str) -> Any:
    return kind or None


def _row(transcript: Transcript) -> dict[str, Any]:
    row = asdict(replace(transcript, messages=()))
    return {name: value for name, value in row.items() if name not in ("messages", "is_whole")}


def _record_uri(transcript: Transcript) -> str | None:
    kind = transcript.kind
    return None if kind is None else f"redismem://record/{kind}/{quote(transcript.id, safe='')}"


def _newest(messages: list[Message]) -> list[dict[str, Any]]:
    """Return the newest messages that fit into a page: at least one, oldest first."""
    shown: list[dict[str, Any]] = []
    left_bytes = _PAGE_BYTES
    for message in reversed(messages):
        document = StoredMessage.of(message).model_dump(mode="json")
        left_bytes -= len(json.dumps(document))
        if shown and left_bytes < 0:
            break
        shown.append(document)
    return shown[::-1]


def _uri(session_id: str) -> str:
    return f"redismem://session/{quote(session_id, safe='')}"
