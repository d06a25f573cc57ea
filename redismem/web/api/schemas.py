"""The request and response documents of the routes."""

from __future__ import annotations

from itertools import islice
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, FailFast, Field, StrictBool, StrictStr, model_validator

from redismem.messages.zones import find_zone
from redismem.settings.environment import LONGEST_S
from redismem.web.chat.chat import RECALL_TOKENS

FAULTS_COUNT = 20
"""The maximum number of faults that the answer to a malformed body lists."""


def _refuse_unknown_zone(name: str) -> str:
    if find_zone(name) is None:
        raise ValueError("zone is an IANA name such as Europe/Zurich that this server knows")
    return name


Name = Annotated[str, Field(min_length=1, max_length=256)]
RECALL_LIMIT = 1 << 20
INSTRUCTION_CHARS = 20_000
RecallTokens = Annotated[int, Field(ge=0, le=RECALL_LIMIT, strict=True)]
Zone = Annotated[StrictStr, AfterValidator(_refuse_unknown_zone)]
ProjectName = Annotated[str, Field(pattern="^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]


class Taken(BaseModel):
    """A request body. It refuses unknown members, which would otherwise be ignored."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _drop_most_unknown(cls, given: Any) -> Any:
        # Each unknown member becomes a fault with a text, and a body can hold half a million of them.
        if not isinstance(given, dict) or len(given) <= FAULTS_COUNT:
            return given
        unknown = islice((name for name in given if name not in cls.model_fields), FAULTS_COUNT)
        names = cls.model_fields.keys() | set(unknown)
        return {name: value for name, value in given.items() if name in names}


class ProblemDocument(BaseModel):
    """An RFC 9457 problem with a stable `code`.

    A conflict of a session has `last_seq` and `cleared`; a refused status, `before` and `after`.
    """

    model_config = ConfigDict(extra="allow")
    type: str
    title: str
    status: int
    code: str
    detail: str = ""


class NewSession(BaseModel):
    session_id: str


class Match(BaseModel):
    """The newest message with the words of a search, and a part of its text."""

    seq: int
    role: str
    text: str


class ActiveSession(BaseModel):
    """A session. `failing` and `match` are present in a search for them: the reason, and the message with the words.

    With `newest`, and in a list of an owner, it has its owner, its `title`, which was set or else is the beginning of
    the first message, and role and beginning of the last message. With `newest` it also has `failing`, why its summary
    fails or why it cannot be read, and `dead`, true if its summary failed for good.
    """

    session_id: str
    active_ms: int
    owner: str | None = None
    title: str | None = None
    last_role: str | None = None
    last_text: str = ""
    failing: str | None = None
    dead: bool = False
    match: Match | None = None


class SessionList(BaseModel):
    sessions: list[ActiveSession]
    cursor: str | None


class SessionSearch(Taken):
    """The conditions of a search; sessions meet all of them. The times are RFC 3339.

    Each word of `name` is in the title, the owner or the id.
    """

    contains: Annotated[str, Field(max_length=256)] = ""
    name: Annotated[str, Field(max_length=256)] = ""
    text: Annotated[str, Field(max_length=1_000)] = ""
    failing: StrictBool = False
    owner: Name | None = None
    active_since: Annotated[str, Field(max_length=64)] | None = None
    active_before: Annotated[str, Field(max_length=64)] | None = None
    limit: Annotated[int, Field(ge=1, le=1_000, strict=True)] = 100
    cursor: Annotated[str, Field(max_length=2_000)] | None = None
    newest: StrictBool = False


OWNER = {"type": "string", "minLength": 1, "maxLength": 256}
"""The JSON schema of an owner."""
OWNER_TEXT = "The owner of a session that this begins. An existing session of another owner, or of none, is refused."


class PolicyDocument(BaseModel):
    """The rules of one session, which every process obeys whatever its settings."""

    keep_whole: bool
    idle_timeout_s: float | None
    exempt: bool
    zone: str | None


class NewPolicy(Taken):
    """The policy that replaces the present one. All members are required, so that no rule is dropped by omission."""

    keep_whole: StrictBool
    idle_timeout_s: Annotated[float, Field(strict=True, ge=0.001, le=LONGEST_S)] | None
    exempt: StrictBool
    zone: Zone | None


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
    policy: PolicyDocument
    owner: str | None
    title: str | None
    turn: str | None
    degraded: bool


class ReceiptDocument(BaseModel):
    """The receipt of an append. `degraded` means that this server accepted the append because Redis was down.

    The seqs of a degraded receipt are provisional, and the response has no ETag.
    """

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
    """The state. `hidden_params` are sensitive: their values are null. `degraded` is as in a context."""

    params: dict[str, Any]
    hidden_params: list[str]
    waiting_for_param: str | None
    last_intent: Any
    last_result: Any
    plan: Any
    instruction: str | None
    degraded: bool


class _ContextHead(BaseModel):
    session_id: str
    epoch: str
    first_seq: int
    last_seq: int
    total_messages: int
    recent_limit: int
    summary_version: str
    summaries: list[SummaryDocument]
    state: StateDocument
    degraded: bool


class RecalledNumbers(BaseModel):
    """Seq, day and session of each recalled message, and the tokens of all as they are quoted.

    `unsearched` is the number of earlier messages that were not searched, at most.
    """

    seqs: list[int]
    days: list[str]
    sessions: list[str]
    tokens: int
    unsearched: int


class ContextDocument(_ContextHead):
    """The context. `request` is the model's input in the requested format, made from the other members.

    `degraded` means that Redis was down: the context contains the messages that this server saw last, and the messages
    that it has accepted since. The seqs are provisional. `recalled` is present if an append asked for recall.
    """

    format: str
    request: dict[str, Any]
    receipt: ReceiptDocument | None
    recalled: RecalledNumbers | None = None


class MessageDocument(BaseModel):
    seq: int
    tokens: int
    stored_ms: int
    pinned: bool
    message: dict[str, Any]
    beside: dict[str, Any] | None


class FindQuery(Taken):
    """A text to find, whatever its case and white space, in the messages before a seq."""

    text: Annotated[str, Field(min_length=1, max_length=1_000, pattern=r"\S")]
    before: Annotated[int, Field(ge=1, le=1 << 53, strict=True)] | None = None


class Found(BaseModel):
    """The seqs of the messages found, ascending. `before` continues the search; null means that all were looked at."""

    seqs: list[int]
    before: int | None


class RecallQuery(Taken):
    """Text to search for. `max_tokens` limits the messages, each as long as the line in which a turn quotes it.

    `scope` is `session`, or `owner` for all conversations of the owner in the query.
    """

    query: Annotated[str, Field(max_length=100_000)]
    max_tokens: RecallTokens = RECALL_TOKENS
    scope: Literal["session", "owner"] = "session"


class RecalledMessage(MessageDocument):
    session_id: str
    day: str


class RecallDocument(BaseModel):
    """The messages that match best, by session and seq; and the tokens of all as they are quoted.

    `unsearched` is the number of earlier messages that were not searched, at most.
    """

    messages: list[RecalledMessage]
    tokens: int
    unsearched: int


class PartDocument(BaseModel):
    count: int
    tokens: int


class ContextPartsDocument(_ContextHead):
    """The counts and tokens of summaries, pinned, pending and recent messages; of these, the pinned ones are listed."""

    parts: dict[str, PartDocument]
    pinned: list[MessageDocument]


class PruneLimit(Taken):
    """The number of newest messages to keep."""

    max_messages: Annotated[int, Field(ge=0, le=1 << 53, strict=True)]


class Pruned(BaseModel):
    dropped_count: int


class ForgetSeqs(Taken):
    """The seqs of the messages to remove."""

    seqs: Annotated[list[Annotated[int, Field(ge=1, le=1 << 53, strict=True)]], Field(min_length=1, max_length=1_000)]


class SeqRange(BaseModel):
    first_seq: int
    last_seq: int


class ForgottenDocument(BaseModel):
    """The seqs that were removed, with those of the same tool calls, and the seqs that each affected summary covers.

    A summary is `rewritten` from the originals that are left, or `dropped` if there are none.
    """

    seqs: list[int]
    rewritten: list[SeqRange]
    dropped: list[SeqRange]


class ReadableDocument(BaseModel):
    """The readable parts of a session. `faults` is empty for a session without damage."""

    faults: list[str]
    summaries: list[SummaryDocument]
    messages: list[MessageDocument]


class MessageList(BaseModel):
    """Messages, oldest first. `before` requests the next page; null means there is no next page."""

    messages: list[MessageDocument]
    before: int | None


class StateChange(Taken):
    """A change of the state. An absent member stays unchanged; null removes the value. A param may have the value null,
    so `remove_params` removes params. `title` is the one that lists show: one line of 1 to 64 bytes.
    `instruction` is what the chat's model is told in this session, instead of the server's own instruction.
    """

    params: dict[Name, Any] = {}
    remove_params: Annotated[list[Name], FailFast()] = []
    waiting_for_param: Name | None = None
    last_intent: Any = None
    last_result: Any = None
    plan: Any = None
    instruction: Annotated[str, Field(min_length=1, max_length=INSTRUCTION_CHARS)] | None = None
    title: Annotated[str, Field(min_length=1, max_length=64)] | None = None


class ModelName(BaseModel):
    provider: str
    name: str


class About(BaseModel):
    """The setup that the page shows: the key's namespace and scopes, the model, and the limits of the window.

    `owner` is that of a key of one owner, or null. `model` is null if answers come from the memory alone. `project` is
    the chat's default project, or null. The page hides what users type for `sensitive_params`.
    """

    version: str
    namespace: str
    scopes: list[str]
    has_keys: bool
    owner: str | None
    model: ModelName | None
    project: str | None
    sensitive_params: list[str]
    threshold: int
    threshold_tokens: int
    recent_limit: int
