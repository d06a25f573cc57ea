"""The documents of the routes of records: the conversations of frameworks."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel

Framework = Literal["claude-agent-sdk", "google-adk", "langgraph", "pydantic-ai", "strands"]
OWNER_TEXT = "The owner of the record. A record of another owner, or of none, is neither listed nor opened."


class RecordRow(BaseModel):
    """A conversation of a framework. Null means unknown; times are by the framework's clock.

    `fault` says why messages are missing: the record is damaged, encrypted, or too large for a list. The `kind` of a
    damaged one may be null.
    """

    kind: Framework | None
    id: str
    name: str
    owner: str | None
    title: str | None
    messages_count: int | None
    created_ms: int | None
    updated_ms: int | None
    last_role: str | None
    last_text: str
    fault: str | None


class RecordList(BaseModel):
    """Rows by id. A page may be short, or empty, and still have a cursor."""

    records: list[RecordRow]
    cursor: str | None


class RecordMessage(BaseModel):
    """A message in the format of OpenAI's chat completions. Its seq counts what is shown, from 1."""

    seq: int
    time_ms: int | None
    message: dict[str, Any]


class RecordDocument(RecordRow):
    """A conversation with its newest messages, oldest first; `is_whole` is false if earlier ones are left out."""

    messages: list[RecordMessage]
    is_whole: bool
