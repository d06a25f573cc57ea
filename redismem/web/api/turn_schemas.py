"""The request and response documents of turns and of the chat."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, model_validator

from redismem.web.api.schemas import Name, ProjectName, RecalledNumbers, RecallTokens, Taken
from redismem.web.api.tool_schemas import Results, Tools


class NewTurn(Taken):
    """A message to answer: a text, or one or several messages in a model API's format.

    `when_busy` says what happens while another turn of the session runs: `refuse`, `wait` for up to 30 s, or
    `interrupt` it. `project` adds that project's background. `recall` is the tokens of earlier messages that the
    question is about, 0 for none; without it the server decides. `tools` are run by the caller: the answer may end with
    calls of them, and a turn whose messages are the results goes on.
    """

    message: (
        Annotated[str, Field(min_length=1, max_length=100_000)]
        | dict[str, Any]
        | Annotated[list[dict[str, Any]], Field(min_length=1, max_length=1_000)]
    )
    when_busy: Literal["refuse", "wait", "interrupt"] = "refuse"
    project: ProjectName | None = None
    recall: RecallTokens | None = None
    tools: Tools = Field(default=[])

    def payloads(self) -> list[dict[str, Any]]:
        """Return the messages as dicts."""
        if isinstance(self.message, str):
            return [{"role": "user", "content": self.message}]
        return [self.message] if isinstance(self.message, dict) else self.message


class TurnAccepted(BaseModel):
    """The turn that was begun, or that has this id. Location is its stream."""

    session_id: str
    turn: str


class TextEvent(BaseModel):
    """A part of the answer."""

    type: Literal["text"]
    delta: str


class ReasoningEvent(BaseModel):
    """A part of what the model thinks."""

    type: Literal["reasoning"]
    delta: str


class ToolCallEvent(BaseModel):
    """A part of a tool call. `delta` is a part of its arguments; `done` is true once they are complete."""

    type: Literal["tool_call"]
    id: str
    name: str = ""
    delta: str = ""
    done: bool = False


class ToolResultEvent(BaseModel):
    type: Literal["tool_result"]
    id: str
    content: Any


class DataEvent(BaseModel):
    """Data beside the answer. The name `recalled` has what was recalled."""

    type: Literal["data"]
    name: str
    data: Any


class NoticeEvent(BaseModel):
    """A text for the user."""

    type: Literal["notice"]
    code: str
    text: str


class StoredEvent(BaseModel):
    """Messages that are stored now: the question, or a step with tools."""

    type: Literal["message"]
    first_seq: int
    last_seq: int


class ResetEvent(BaseModel):
    """The turn follows anew: drop the events so far."""

    type: Literal["reset"]


class EndEvent(BaseModel):
    """The last event. `seq` is that of the reply; null means that there is none."""

    type: Literal["end"]
    outcome: Literal["done", "stopped", "failed", "lost"]
    reason: str | None
    seq: int | None
    usage: dict[str, Any] | None


TurnEvent = Annotated[
    TextEvent
    | ReasoningEvent
    | ToolCallEvent
    | ToolResultEvent
    | DataEvent
    | NoticeEvent
    | StoredEvent
    | ResetEvent
    | EndEvent,
    Field(discriminator="type"),
]
"""The data of a server-sent event of a turn, in the format `events`."""


class TurnStop(Taken):
    """The turn to stop: the running one, or only if it is `turn`. `reason` is stored with its reply."""

    reason: Annotated[str, Field(min_length=1, max_length=40, pattern="^[ -~]*$")] = "stopped"
    turn: Annotated[str, Field(min_length=1, max_length=256)] | None = None


class TurnStopped(BaseModel):
    stopped: bool


class ChatMessage(Taken):
    """A message for the chat. Without `session_id` it begins a session. `project` adds that project's background.

    A session that the message begins belongs to `owner`; another one is refused if it has another owner, or none. Its
    days are those of `zone`, an IANA name; a zone that the server does not know counts as UTC. `when_busy` is that of a
    turn. `tools` are run by the caller: an answer that ends with events `tool_call` goes on with a request that has
    `tool_results` instead of a message.
    """

    session_id: Name | None = None
    zone: Name | None = None
    message: Annotated[str, Field(min_length=1, max_length=100_000)] | None = None
    tool_results: Results | None = None
    tools: Tools = Field(default=[])
    when_busy: Literal["refuse", "wait", "interrupt"] = "wait"
    project: ProjectName | None = None
    owner: Name | None = None

    @model_validator(mode="after")
    def _check_message(self) -> ChatMessage:
        if (self.message is None) == (self.tool_results is None):
            raise ValueError("a request has either a message or tool_results")
        if self.tool_results is not None and self.session_id is None:
            raise ValueError("tool_results need the session of their calls")
        return self

    def payloads(self) -> list[dict[str, Any]]:
        """Return the messages to store."""
        if self.message is not None:
            return [{"role": "user", "content": self.message}]
        return [result.payload() for result in self.tool_results or ()]


class ChatStart(BaseModel):
    session_id: str
    turn: str


class ChatText(BaseModel):
    """A part of the answer."""

    text: str


class ChatToolCall(BaseModel):
    """A call of one of the caller's tools. `arguments` are JSON as text."""

    id: str
    name: str
    arguments: str


class ChatNotice(BaseModel):
    """A text for the user."""

    code: str
    text: str


class ChatEnd(BaseModel):
    """The last event. The reason `tool_calls` means that the answer goes on with the results of its calls."""

    complete: bool
    reason: str
    seq: int | None
    waiting_for: str | None


CHAT_EVENTS: dict[str, type[BaseModel]] = {
    "start": ChatStart,
    "recalled": RecalledNumbers,
    "text": ChatText,
    "tool_call": ChatToolCall,
    "notice": ChatNotice,
    "end": ChatEnd,
}
"""The data of each event of the chat's stream, by the name of the event."""


class ChatSession(Taken):
    """The session of a chat. It is refused if `owner` is named, and is not its owner."""

    session_id: Name
    owner: Name | None = None


class Cleared(BaseModel):
    """The result of a clear. `cleared` is false if the session did not exist."""

    cleared: bool


class Stopped(BaseModel):
    stopped_count: int
