"""The documents of the routes: what is taken, and what is given."""

from __future__ import annotations

from itertools import islice
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, FailFast, Field, model_validator

FAULTS_COUNT = 20
"""How many faults of a body are told, at most."""
Name = Annotated[str, Field(min_length=1, max_length=256)]
ProjectName = Annotated[str, Field(pattern="^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]


class Taken(BaseModel):
    """A body. A member that it does not have is refused: it would be lost in silence."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _few_unknown(cls, given: Any) -> Any:
        # Each of them becomes a fault with a text, and a body has room for half a million.
        if not isinstance(given, dict) or len(given) <= FAULTS_COUNT:
            return given
        unknown = islice((name for name in given if name not in cls.model_fields), FAULTS_COUNT)
        told = cls.model_fields.keys() | set(unknown)
        return {name: value for name, value in given.items() if name in told}


class ProblemDocument(BaseModel):
    """RFC 9457. `code` is stable. A conflict has `last_seq` as well; a refused status `before` and `after`."""

    model_config = ConfigDict(extra="allow")
    type: str
    title: str
    status: int
    code: str
    detail: str = ""


class NewSession(BaseModel):
    session_id: str


class NewestMessage(BaseModel):
    """How what was said last begins: by a user, if that is among the last few. Without a text: empty."""

    seq: int
    role: str
    text: str


class ActiveSession(BaseModel):
    """`newest` is there if it was asked for; null: nothing to show."""

    session_id: str
    active_ms: int
    newest: NewestMessage | None = None


class SessionList(BaseModel):
    sessions: list[ActiveSession]
    cursor: str | None


class SessionNumbers(BaseModel):
    session_id: str
    epoch: str
    total_messages: int
    first_seq: int
    window_count: int
    window_tokens: int
    summaries_count: int
    params_keys: list[str]
    waiting_for_param: str | None
    active_ms: int
    expires_ms: int
    queued: str | None
    pinned_count: int
    attempts: int
    failure: str | None
    failing_since_ms: int | None
    failed_ms: int | None
    degraded: bool


class ReceiptDocument(BaseModel):
    """`degraded`: Redis was away and this server has accepted it; the seqs are provisional, and there is no ETag."""

    session_id: str
    first_seq: int
    last_seq: int
    total: int
    created: bool
    duplicate: bool
    degraded: bool


class SummaryDocument(BaseModel):
    id: str
    text: str
    first_seq: int
    last_seq: int
    start_ms: int
    end_ms: int
    model: str
    tokens: int
    created_ms: int
    message_ids: list[str]


class StateDocument(BaseModel):
    """`hidden_params`: their values are sensitive and shown as null. `degraded`: Redis was away, as in a context."""

    params: dict[str, Any]
    hidden_params: list[str]
    waiting_for_param: str | None
    last_intent: Any
    last_result: Any
    plan: Any
    degraded: bool


class ContextDocument(BaseModel):
    """`request` is for the model, in the format that was asked for; the rest says what it was made from.

    `degraded`: Redis was away, and this is what this server has seen last and accepted since; seqs are provisional.
    """

    session_id: str
    epoch: str
    first_seq: int
    last_seq: int
    total_messages: int
    recent_limit: int
    summary_version: str
    summaries: list[SummaryDocument]
    state: StateDocument
    format: str
    request: dict[str, Any]
    receipt: ReceiptDocument | None
    degraded: bool


class MessageDocument(BaseModel):
    seq: int
    tokens: int
    stored_ms: int
    pinned: bool
    message: dict[str, Any]
    beside: dict[str, Any] | None


class MessageList(BaseModel):
    """Oldest first. `before` is what the next page is asked with; null: there is none."""

    messages: list[MessageDocument]
    before: int | None


class StateChange(Taken):
    """What is not named stays. null takes away, but for a param: its value may be null, `remove_params` takes it."""

    params: dict[Name, Any] = {}
    remove_params: Annotated[list[Name], FailFast()] = []
    waiting_for_param: Name | None = None
    last_intent: Any = None
    last_result: Any = None
    plan: Any = None


class ChatMessage(Taken):
    """Without a session id a new conversation begins. `project`: whose decisions, tasks and entities are background."""

    session_id: Name | None = None
    message: Annotated[str, Field(min_length=1, max_length=100_000)]
    project: ProjectName | None = None


class ChatSession(Taken):
    session_id: Name


class Cleared(BaseModel):
    """False: there was none."""

    cleared: bool


class Stopped(BaseModel):
    stopped_count: int


class QueueDepth(BaseModel):
    count: int
    first_ms: int | None


class Queues(BaseModel):
    now_ms: int
    sessions: int
    max_sessions: int
    over: int
    queues: dict[str, QueueDepth]


class DeadSessionDocument(BaseModel):
    """`state` is live, or why there are no numbers: gone, unreadable, of another layout."""

    model_config = ConfigDict(extra="allow")
    session_id: str
    log: str
    died_ms: int
    state: str


class DeadDocument(BaseModel):
    count: int
    now_ms: int
    sessions: list[DeadSessionDocument]


class DeadNamed(Taken):
    """The sessions to take off the list."""

    session_ids: Annotated[list[Name], Field(min_length=1, max_length=1_000)]


class DeadTaken(BaseModel):
    """`other_layout`: another release wrote them, so they stay on the list."""

    taken: list[str]
    not_dead: list[str]
    other_layout: list[str]


class ModelName(BaseModel):
    provider: str
    name: str


class About(BaseModel):
    """What a page must know: who asks and may do what, what answers, and when messages become a summary.

    `model` null: answers come from the memory alone. `project`: what the chat knows about if a message names none, or
    null. `sensitive_params`: what is typed for them is not shown.
    """

    version: str
    namespace: str
    scopes: list[str]
    has_keys: bool
    model: ModelName | None
    project: str | None
    sensitive_params: list[str]
    threshold: int
    threshold_tokens: int
    recent_limit: int


class LoadSlot(BaseModel):
    """Appends over `took_ms`; null: there was none."""

    end_ms: int
    took_ms: int
    turns_count: int
    failed_count: int
    evictions_count: int
    p50_ms: float | None
    p99_ms: float | None


class LoadDocument(BaseModel):
    """What this server alone has done, for all namespaces: `slots` of a few seconds, oldest first, and the whole."""

    now_ms: int
    streams_count: int
    store: str
    away_since_ms: int | None
    slots: list[LoadSlot]
    whole: LoadSlot


class Liveness(BaseModel):
    """Whether this server runs, and whether it is about to stop."""

    live: bool
    stopping: bool


class Readiness(Liveness):
    """Readable and writable: what the store lets it do. Keeping: it is not known to drop keys by itself."""

    readable: bool
    writable: bool
    keeping: bool
