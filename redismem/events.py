"""Events and log attributes. A hook gets an event after each call; log records carry similar attributes.

Both identify a session by its hash. They contain no message text, no value and no session id in clear.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple, Self, TypedDict, Unpack


class Outage(StrEnum):
    """The fallback's treatment of a call."""

    REFUSED = "refused"
    """The call is refused while Redis is down."""
    ACCEPTED = "accepted"
    """The call is accepted while Redis is down, and replayed afterwards."""
    SERVED = "served"
    """The call is answered by this process while Redis is down."""
    WAITS = "waits"
    """The call is refused while Redis is down. Once Redis is back, it waits for the replay of the session's backlog."""


class Traits(NamedTuple):
    """The attributes of an operation, see `Op`."""

    outage: Outage = Outage.REFUSED
    removes: bool = False
    appends: bool = False
    is_turn: bool = False
    may_find_nothing: bool = False
    method: str = ""
    is_read: bool = False
    patience: int = 0


_NO_TRAITS = Traits()
NEW_WORK, PAID_FOR = 1, 50
"""The patience of calls that begin work, and of those that end it."""


class Op(StrEnum):
    """An operation, the `op` of an event: one call to Redis, or one piece of work.

    A session's method makes one call, whose operation has the method's name. Exceptions: `params()` and the other reads
    of the state make a `state`, `merge()` and the other setters an `update`, `undo()` a `pop`, `unpin()` a `replace`.
    Some methods make several calls: `messages()` makes one `messages` per page and one `pinned`; `tail()` makes a
    `read`, and one `messages` per page of originals; `clear()` makes two if the session has an owner; `prune()`,
    `archive()`, `pop()`, `rewrite()`, `replace()` and `forget()` first make a `read_window`; a read with
    `renew=True` may make a `touch` behind it.

    A call that is refused before it is sent, such as an append of an invalid message, has no event. An `embed` asks the
    embedder for the vector of a question.
    """

    outage: Outage
    """The fallback's treatment of the call."""
    removes: bool
    """True if the call may remove or change messages, which makes the fallback's cached context stale."""
    appends: bool
    """True if the event counts the messages, bytes and tokens of an append."""
    is_turn: bool
    """True if the metrics of turns count the call."""
    may_find_nothing: bool
    """True if an empty value means that nothing was found, as in a read of an unknown session."""
    method: str
    """The method that a refusal names while Redis is down; "" means that the text says "this call"."""
    is_read: bool
    """True if the call only reads. An unreadable session or record then stays as it is: CorruptSession is raised."""
    patience: int
    """An overloaded process refuses the call if it must wait this many times as long as new work may; 0 means never.

    Calls that begin work go first, those that may end paid work later, and those that stop, remove or check never.
    """

    def __new__(cls, word: str, traits: Traits = _NO_TRAITS) -> Self:
        op = str.__new__(cls, word)
        op._value_ = word
        op.outage, op.removes, op.appends, op.is_turn, op.may_find_nothing, op.method = traits[:6]
        op.is_read, op.patience = traits.is_read, traits.patience
        return op

    __repr__ = str.__repr__

    # Calls of a session
    APPEND = "append", Traits(Outage.ACCEPTED, appends=True, is_turn=True, patience=PAID_FOR)
    APPEND_AND_READ = "append_and_read", Traits(Outage.ACCEPTED, appends=True, is_turn=True, patience=NEW_WORK)
    READ = "read", Traits(Outage.SERVED, may_find_nothing=True, is_read=True, patience=NEW_WORK)
    MESSAGES = "messages", Traits(Outage.SERVED, is_read=True, patience=NEW_WORK)
    STATE = "state", Traits(Outage.SERVED, is_read=True, patience=PAID_FOR)
    INFO = "info", Traits(Outage.SERVED, is_read=True)
    EXISTS = "exists", Traits(Outage.WAITS, method="exists", is_read=True)
    TOUCH = "touch", Traits(Outage.WAITS, method="touch", patience=PAID_FOR)
    SET_POLICY = "set_policy", Traits(Outage.WAITS, method="set_policy", patience=PAID_FOR)
    UPDATE = "update", Traits(Outage.ACCEPTED, patience=PAID_FOR)
    READ_EPOCH = "read_epoch", Traits(Outage.WAITS, method="clear")
    CLEAR = "clear", Traits(Outage.WAITS, removes=True, method="clear")
    READ_WINDOW = (
        "read_window",
        Traits(Outage.WAITS, method="archive, pop, undo, rewrite, replace, unpin, prune or forget"),
    )
    PRUNE = "prune", Traits(removes=True, may_find_nothing=True, method="prune")
    ARCHIVE = "archive", Traits(removes=True, method="archive")
    MOVE_BODIES = "move_bodies", Traits(removes=True)
    READ_BODIES = "read_bodies"
    POP = "pop", Traits(removes=True, method="pop")
    REWRITE = "rewrite", Traits(removes=True, method="rewrite")
    REPLACE = "replace", Traits(removes=True, method="replace")
    FORGET = "forget", Traits(removes=True, method="forget")
    PINNED = "pinned", Traits(Outage.WAITS, method="messages", is_read=True)
    RECALL = "recall", Traits(method="recall", is_read=True)
    BLOCK = "block"
    QUARANTINE_BLOCK = "quarantine_block"
    QUARANTINE = "quarantine", Traits(removes=True)
    EMBED = "embed"

    # Calls of turns
    BEGIN_TURN = "begin_turn", Traits(Outage.WAITS, appends=True, is_turn=True, method="turn", patience=NEW_WORK)
    WRITE_TURNS = "write_turns"
    APPEND_TURN = "append_turn", Traits(Outage.WAITS, appends=True, method="turn")
    STOP_TURN = "stop_turn", Traits(method="stop")
    CLAIM_TURN = "claim_turn"
    LEAVE_LINE = "leave_line"
    READ_TURN = "read_turn", Traits(method="follow", is_read=True)
    LOOK_UP_TURN = "look_up_turn", Traits(method="turn_of or stop", is_read=True)
    DUE_TURNS = "due_turns"

    # Calls of a memory
    PING = "ping", Traits(method="ping")
    COUNT = "count"
    SESSIONS = "sessions"
    SERVER_TIME = "server_time"
    TAKE = "take", Traits(method="take")
    RECORDED = "recorded"
    RECORD = "record"

    # Calls of workers
    HOLD = "hold"
    PROVIDER = "provider"
    PAUSE = "pause"
    DUE = "due"
    CLAIM = "claim"
    EXTEND = "extend"
    COMMIT = "commit"
    RELEASE = "release"
    COUNTS = "counts"
    OLDEST = "oldest"
    QUEUE_EVICTION = "queue_eviction"
    DUE_EVICTIONS = "due_evictions"
    CLAIM_EVICTION = "claim_eviction"
    EVICT = "evict", Traits(removes=True)
    SCAN = "scan"
    SWEEP = "sweep"
    DICTIONARIES = "dictionaries"
    VECTORS = "vectors"
    SET_VECTORS = "set_vectors"

    # A worker's whole piece of work, including the code of a strategy or an `on_evict`
    SUMMARY = "summary"
    EMBEDDING = "embedding"
    EVICTION = "eviction"
    DRAIN = "drain"
    ENFORCE = "enforce"
    SWEEP_ROUND = "sweep_round"

    # Calls that a store makes by itself
    BREAKER = "breaker"
    NEAR_LIMIT = "near_limit"
    REPLAY = "replay", Traits(appends=True)

    # Calls of a project
    PROJECT_READ = "project_read"
    PROJECT_CHANGE = "project_change"
    PROJECT_FIND = "project_find"
    PROJECT_WORDS = "project_words"
    PROJECT_COUNT = "project_count"
    PROJECT_RECORD = "project_record"

    # Calls of a record
    RECORD_GET = "record_get", Traits(method="get", is_read=True, patience=PAID_FOR)
    RECORD_READ = "record_read", Traits(method="newest or page", is_read=True, patience=PAID_FOR)
    RECORD_WALK = "record_walk", Traits(method="walk", is_read=True, patience=PAID_FOR)
    RECORD_WRITE = "record_write", Traits(method="write", patience=PAID_FOR)
    RECORD_TOUCH = "record_touch", Traits(method="touch")
    RECORD_DROP = "record_drop", Traits(method="drop")
    RECORD_CLEAR = "record_clear", Traits(method="clear")
    RECORD_LIST = "record_list", Traits(method="records", patience=PAID_FOR)
    RECORD_SWEEP = "record_sweep"
    RECORD_QUARANTINE = "record_quarantine"

    # Calls of operators' commands
    LOOK = "look"
    DEPTHS = "depths"
    MEMBERS = "members"
    REQUEUE = "requeue"
    RECORDED_SHARDS = "recorded_shards"
    RESTORE = "restore"
    DROP = "drop"


class Event(NamedTuple):
    """One call to Redis that has ended, or one piece of a worker's work."""

    op: str
    """The operation: an `Op`."""
    outcome: str
    """The outcome. "ok"; "duplicate": the append's id was known before the call; "created": a write created a record;
    "degraded": this process served it while Redis was down; "conflict": `expect` did not hold; "nothing": there is no
    such session, or it is not in the state that the call requires. A claim, commit, release or summary has the outcomes
    of `redismem/workers/outcomes.py`. A failed call has the name of its error's class, such as StoreUnavailable,
    TooLarge, CancelledError.
    """
    duration_ms: float
    """The time from start to end, with all retries and the pauses between them."""
    namespace: str
    session: str | None = None
    """The session's hash, as in the logs; None if the call is not about one session."""
    sent_count: int = 0
    """The number of times the call was sent: 1, more with retries, 0 if the first check of the namespace failed.

    Retries by the caller's own client are not counted. A worker's piece of work has 0, because its calls have their own
    events.
    """
    message_count: int = 0
    """The number of messages that the call returned (`messages`), dropped (`prune`), appended or covered (`commit`)."""
    message_bytes: int = 0
    """The stored size of the messages of an append."""
    tokens: int = 0
    """Tokens of the messages of an append or a commit."""
    window_count: int | None = None
    """The number of messages in the window after the call; None if the reply does not contain it."""


OnEvent = Callable[[Event], None]
"""A function that is called with each event. It runs on the event loop, so it must be quick and must not block."""


class Facts(TypedDict, total=False):
    """The attributes that redismem adds to a log record. All but `op` may be missing."""

    op: str
    """The operation: an `Op`, or `settings`, `connect`, `on_event`, `provider` (paused, or answering again), `tick`
    (this process has become or ceased to be the leader of some work), `worker` (a worker process started or ended), or
    `keys` (the server has read its file of keys).
    """
    session: str
    """The session's hash."""
    namespace: str
    outcome: str
    """The outcome, in the words of `Event.outcome`."""
    error: str
    """The name of the error's class. For errors of other libraries, `exc_info` shows where it was raised."""
    reason: str
    """The cause of a failed summary, eviction or provider: a status and a code, or the kind of error, never text."""
    duration_ms: int
    message_count: int
    """The number of messages that a summary covers."""
    folded_count: int
    """The number of summaries that were folded into one."""
    session_count: int
    """The number of evicted sessions."""
    attempt: int
    """The number of the attempt at a summary, from 1."""
    backoff_ms: int
    """The delay before the next attempt, or the length of the provider's pause."""
    setting: str
    """An environment variable."""


FACTS = tuple(Facts.__annotations__)
"""The names of these attributes, in display order."""


def facts(**attributes: Unpack[Facts]) -> Facts:
    """Return the `extra` of a log record."""
    return attributes


def unquoted(error: BaseException) -> Exception:
    """Return an error for `exc_info` of a log record: the same class name and traceback, without text.

    An error from the caller's code may quote a message, and so may its cause; formatters print both.
    """
    kind = type(error)
    namesake = type(kind.__name__, (Exception,), {"__module__": kind.__module__, "__qualname__": kind.__qualname__})
    silent: Exception = namesake()
    return silent.with_traceback(error.__traceback__)
