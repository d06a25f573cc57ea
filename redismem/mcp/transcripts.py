"""The resources: the list of sessions, and the transcript of a session, a page at a time."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

from mcp.server.mcpserver.exceptions import ResourceError

from redismem import Message
from redismem.adapters.sessions import Owner, resolve_owner
from redismem.mcp.access import Access
from redismem.mcp.results import StoredMessage

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
