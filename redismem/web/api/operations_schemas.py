"""The request and response documents of the routes for operators."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool

from redismem.web.api.schemas import Name, Taken


class QueueDepth(BaseModel):
    count: int
    first_ms: int | None


class Queues(BaseModel):
    now_ms: int
    sessions: int
    max_sessions: int
    over: int
    records: int
    queues: dict[str, QueueDepth]
    ticked_ms: int | None
    process_count: int
    degraded: bool


class FindingDocument(BaseModel):
    """The answer to one question of the doctor. `advice` is empty if there is nothing to change."""

    name: str
    verdict: Literal["ok", "warn", "fail", "n/a"]
    seen: str
    advice: str
    checked_ms: int


class ProcessDocument(BaseModel):
    """A running process with workers, and the kinds of work that it does for all."""

    name: str
    works: list[str]
    is_crowded: bool


class DoctorDocument(BaseModel):
    """All findings, worst first. `acl` is the command that grants missing rights; `ticked_ms` the last tick.

    `queues` are those that the findings are about. `queues` and `processes` are null if they could not be read.
    `quarantined` are the ids of sessions in quarantine that the finding counted.
    """

    now_ms: int
    failed_count: int
    warnings_count: int
    findings: list[FindingDocument]
    acl: str
    queues: Queues | None
    ticked_ms: int | None
    processes: list[ProcessDocument] | None
    quarantined: list[str]


class DeadSessionDocument(BaseModel):
    """A dead session. `state` is `live`, or why there are no numbers: gone, unreadable, or another layout.

    A live one has the `kind` of its failure in words, and `advice`.
    """

    model_config = ConfigDict(extra="allow")
    session_id: str
    log: str
    died_ms: int
    state: str
    kind: str = ""
    advice: str = ""


class DeadDocument(BaseModel):
    count: int
    now_ms: int
    sessions: list[DeadSessionDocument]


class DeadNamed(Taken):
    """The sessions to remove from the list."""

    session_ids: Annotated[list[Name], Field(min_length=1, max_length=1_000)]


class DeadTaken(BaseModel):
    """The sessions taken off the list. `other_layout` are sessions of another release, which stay on the list."""

    taken: list[str]
    not_dead: list[str]
    other_layout: list[str]


class QuarantineKey(BaseModel):
    """A key in quarantine. `entry_count` counts its entries; -1 means that it has a foreign type."""

    name: str
    type: str
    entry_count: int
    expires_ms: int


class QuarantineEntry(BaseModel):
    """A session or record in quarantine since `put_ms`. `log` is its name in the logs."""

    kind: Literal["session", "record"]
    id: str
    log: str
    put_ms: int
    owner: str | None
    keys: list[QuarantineKey]


class QuarantineList(BaseModel):
    """Sessions and records in quarantine, oldest first. If the search stopped early, `cursor` continues it."""

    now_ms: int
    entries: list[QuarantineEntry]
    looked_at_count: int
    cursor: str | None


class QuarantineNamed(Taken):
    """The session or record that was put into quarantine at `put_ms`."""

    kind: Literal["session", "record"] = "session"
    id: Name
    put_ms: Annotated[int, Field(ge=0, lt=1 << 53, strict=True)]


class QuarantineRestoring(QuarantineNamed):
    """`salvage` restores the readable part of one with faults; `swap` first puts the live one into quarantine."""

    salvage: StrictBool = False
    swap: StrictBool = False


class QuarantineParts(QuarantineEntry):
    """Its faults, and what a restoration would bring back; `is_live` is true if a live one has its id.

    `messages` are the first of `messages_count`, null if the key may not read them: that needs the scope read. A record
    has none.
    """

    faults: list[str]
    is_live: bool
    has_lost_owner: bool
    is_readable: bool
    messages_count: int
    summaries_count: int
    messages: list[dict[str, Any]] | None


class QuarantineRestored(BaseModel):
    """The numbers of a restoration. With `faults`, the whole session stays in quarantine beside it."""

    messages_count: int
    left_out_count: int
    summaries_count: int
    faults: list[str]
    has_lost_owner: bool


class LoadSlot(BaseModel):
    """The appends in the `took_ms` before `end_ms`. The percentiles are null if there were no appends."""

    end_ms: int
    took_ms: int
    turns_count: int
    failed_count: int
    evictions_count: int
    p50_ms: float | None
    p99_ms: float | None


class LoadDocument(BaseModel):
    """The load of this server, over all namespaces. Each of the `slots` lasts a few seconds; the oldest comes first."""

    now_ms: int
    streams_count: int
    store: str
    away_since_ms: int | None
    slots: list[LoadSlot]
    whole: LoadSlot


class Liveness(BaseModel):
    """The liveness of the server. `stopping` is true once it is about to stop."""

    live: bool
    stopping: bool


class Readiness(Liveness):
    """The readiness of the store. `keeping` is false if the store is known to evict keys when it is full."""

    readable: bool
    writable: bool
    keeping: bool
