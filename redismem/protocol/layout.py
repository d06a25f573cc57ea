"""The stored layout of a session, and the words of script replies: fields, counters, queue states, outcomes. No I/O.

The scripts repeat these names as text; a test compares them with this file and with `lua/README.md`, which says what
each field means. PARAM, SUMMARY, PINNED and LEFT_IDS are prefixes of field names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from redismem.errors import UnsupportedFormat
from redismem.messages.values import Undecodable

LAYOUT_VERSION = 1
NONE = "-"
"""The value of a script argument that is absent."""

EPOCH = b"epoch"
OWNER = b"owner"
ZONE = b"zone"
COUNTERS = b"counters"
NEWEST_IDS = b"ids_a"
OLDER_IDS = (b"ids_b", b"ids_c", b"ids_d")
RESENT = b"resent"
OTHERS = b"others"
LEFT_IDS = b"ids:"
QUEUED = b"queued"
FENCE = b"fence"
EVICTOR = b"evictor"
ATTEMPTS = b"attempts"
FAILURE = b"failure"
DEATHS = b"deaths"
COMMITTED = b"committed"
SUMMARIES_COUNT = b"summaries_count"
WITH_ORIGINALS = b"with_originals"
DROPPED_SEQ = b"dropped_seq"
PRUNED = b"pruned"
EDITED = b"edited"
REMOVED = b"removed"
PINS = b"pins"
SKETCH = b"sketch"
WAITING = b"waiting"
LAST_INTENT = b"last_intent"
LAST_RESULT = b"last_result"
PLAN = b"plan"
INSTRUCTION = b"instruction"
TITLE = b"title"
LARGE_BYTES = b"large_bytes"
TURN = b"turn"
STOP = b"stop"
DOUBT = b"doubt"
LARGE_ABOVE_BYTES = 4096
"""A message whose element is larger counts as large: its bytes are in LARGE_BYTES."""
PARAM = b"param:"
SUMMARY = b"summary:"
PINNED = b"pinned:"

TURN_STATUSES = {"r": "running", "d": "done", "s": "stopped", "f": "failed", "l": "lost"}
"""The letter of each status, with which the field `turn` begins."""

# Most states have only these fields, because no param or value is set and no message is summarised yet.
BARE = frozenset(
    (COUNTERS, EPOCH, OWNER, ZONE, TITLE, QUEUED, RESENT, PINS, LARGE_BYTES, TURN, STOP, DOUBT, NEWEST_IDS, *OLDER_IDS)
)


class QueueState(StrEnum):
    """The queue of a session that waits for a summary, as named by its field `queued`."""

    OVERDUE = "overdue"
    LEASED = "leased"
    DEAD = "dead"


INDEXES = ("active", *QueueState, "evictions")
"""The keys of a shard that list sessions by activity or for workers, in the order of the scripts' KEYS."""


class EvictionReason(StrEnum):
    """The reason of an eviction: the session is past its timeout, or the namespace has too many sessions."""

    IDLE = "idle"
    LIMIT = "limit"


class ClaimOutcome(StrEnum):
    """The outcomes of a claim.

    A job; in no queue; due later; leased to another worker; no session; no work; too many attempts.
    """

    JOB = "job"
    NONE = "none"
    NOTDUE = "notdue"
    LEASED = "leased"
    GONE = "gone"
    NOOP = "noop"
    DEAD = "dead"


class CommitOutcome(StrEnum):
    """The outcomes of a commit.

    Done; done before; no such session; another worker has the lease; the window has changed.
    """

    OK = "ok"
    ALREADY = "already"
    GONE = "gone"
    FENCED = "fenced"
    STALE = "stale"


TURN_OUTCOMES = ("", "done", "stopped", "failed", "lost")
"""The outcome of an ended turn, by its number in the low bits of the flags of its record."""
TURN_HAS_REPLY = 8
"""The flag of an ended turn whose last message is the reply."""


class ReleaseOutcome(StrEnum):
    """The outcomes of a release.

    Due again; dead after too many attempts; another worker has the lease.
    """

    OK = "ok"
    DEAD = "dead"
    FENCED = "fenced"


class Failure(NamedTuple):
    """The decoded field `failure` of a state."""

    since_ms: int
    """The time of the first failure since the last commit."""
    last_ms: int
    reason: str


class Counters(NamedTuple):
    """The decoded field `counters` of a state: one field for all numbers, because each field costs server time."""

    first_seq: int
    message_count: int
    tokens: int
    active_ms: int
    expires_ms: int
    evicting: str | None
    """The reason of the eviction, idle or limit; None means that the session is not on the eviction queue."""
    uncounted: int = 0
    """The elements of the window that are pinned or gaps."""
    hidden: int = 0
    """The seqs of the window that have no element of their own: a gap stands for one or more seqs."""

    policy: str = ""
    """The policy without its mark: b if bodies have left the window, w for kept whole, x for exempt, then its own time
    to live in ms."""

    @property
    def element_count(self) -> int:
        """The number of elements in the window."""
        return self.message_count - self.first_seq + 1 - self.hidden

    @property
    def has_bodies(self) -> bool:
        """True if bodies of messages have left the window, so the originals may contain them."""
        return self.policy.startswith("b")

    @property
    def window_count(self) -> int:
        """The number of messages in the window, without pinned ones and gaps."""
        return self.element_count - self.uncounted


_MARK = b"v%d" % LAYOUT_VERSION
NUMBER = rb"[0-9]{1,19}"
"""Pattern of a count in Redis, at most 2**63 - 1. It is bounded because int() refuses thousands of digits."""
_MORE = rb"(?:\+(%b))?(?:-(%b))?(?:~(?=[bwx0-9])(b?w?x?(?:%b)?))?(?: ([a-zA-Z]+))?" % (NUMBER, NUMBER, NUMBER)
_NUMBERS = re.compile(_MARK + rb" (%b)" % NUMBER * 5 + _MORE)
_PINS = re.compile(rb"(%b) (%b)" % (NUMBER, NUMBER))
_VERSION = re.compile(rb"v(%b)" % NUMBER)


def counters(field: bytes) -> Counters:
    """Decode the field `counters`.

    Raises:
        Undecodable: the field contains no counters.
        UnsupportedFormat: another layout version wrote them.
    """
    match = _NUMBERS.fullmatch(field)
    if match is None:
        raise _unreadable_counters(field)
    *numbers, uncounted, hidden, policy, evicting = match.groups()
    first, count, tokens, active, expires = map(int, numbers)
    reason = None if evicting is None else evicting.decode()
    counted = int(uncounted or 0), int(hidden or 0)
    return Counters(first, count, tokens, active, expires, reason, *counted, (policy or b"").decode())


_FAILURE = re.compile(rb"(%b) (%b) ([ -~]{1,120})" % (NUMBER, NUMBER))
REASON = re.compile("[ -~]{1,120}")
"""Pattern of a stored reason of a failure."""


def failure(field: bytes | None) -> Failure | None:
    """Decode the field `failure`.

    Returns None if the field is missing or unreadable, so that the session stays usable.
    """
    match = _FAILURE.fullmatch(field or b"")
    return None if match is None else Failure(int(match[1]), int(match[2]), match[3].decode())


NO_COUNTERS = _MARK + b" 1 0 0 0 0"
"""The field `counters` of a session without messages."""


def encode_counters(counters: Counters) -> bytes:
    """Encode the field `counters`."""
    evicting = b"" if counters.evicting is None else b" " + counters.evicting.encode()
    elements = encode_elements(counters.uncounted, counters.hidden)
    return _MARK + b" %d %d %d %d %d" % counters[:5] + elements + encode_policy(counters.policy) + evicting


def encode_elements(uncounted: int, hidden: int) -> bytes:
    """Encode the part of the counters about pinned messages and gaps; b"" if there are none."""
    return (b"+%d" % uncounted if uncounted else b"") + (b"-%d" % hidden if hidden else b"")


def encode_policy(policy: str) -> bytes:
    """Encode the part of the counters about the policy; b"" if there is none."""
    return b"~" + policy.encode() if policy else b""


def decode_title(field: bytes | None) -> str | None:
    """Decode the field `title`; None means that no title was set, or that it cannot be read."""
    try:
        return None if field is None else field.decode()
    except UnicodeDecodeError:
        return None


def decode_zone(field: bytes | None) -> str | None:
    """Return the name of a zone from the field `zone`, or from its place in a reply, empty without one."""
    return field.decode("ascii", "replace") if field else None


def bounds(field: bytes) -> tuple[int, int]:
    """Decode first_seq and message_count of the field `counters`. A turn needs no other counters.

    Raises:
        Undecodable: the field contains no counters.
        UnsupportedFormat: another layout version wrote them.
    """
    try:
        mark, first_seq, message_count, _, _, _ = field.split(b" ", 5)
        if mark == _MARK:
            return int(first_seq), int(message_count)
    except ValueError:
        pass  # raised below, like a foreign mark
    raise _unreadable_counters(field)


def turn_status(field: bytes | None) -> str | None:
    """Return the status in the field `turn`; None if it is missing or unreadable."""
    return TURN_STATUSES.get((field or b"")[:1].decode("ascii", "replace"))


def total_messages(fields: Mapping[bytes, bytes], seqs_count: int) -> int:
    """Return the number of messages of a session that has given so many seqs. Raises ValueError."""
    return max(0, seqs_count - int(fields.get(REMOVED, b"0")))


def uncounted_count(field: bytes) -> int:
    """Decode the number of pinned messages and gaps in the window from the field `counters`."""
    return counters(field).uncounted if b"+" in field else 0


def large_bytes(elements: Iterable[bytes]) -> int:
    """Return the bytes of the large messages among these elements of a window."""
    return sum(len(element) for element in elements if len(element) > LARGE_ABOVE_BYTES)


def body_field(seq: int) -> bytes:
    """Return the field of the originals with the whole message of a seq, whose body has left the window."""
    return b"b%d" % seq


def pinned_field(seqs: Sequence[int]) -> bytes:
    """Return the name of the field that contains these pinned messages."""
    return PINNED + b",".join(b"%d" % seq for seq in seqs)


def pinned_seqs(field: bytes) -> list[int]:
    """Parse the seqs in the name of a field `pinned:`.

    Raises:
        ValueError: the name contains no seqs.
    """
    return [int(seq) for seq in field[len(PINNED) :].split(b",")]


def pins(field: bytes) -> tuple[int, int]:
    """Decode the field `pins`: the number of pinned messages, and their bytes.

    Raises:
        Undecodable: the field does not contain two numbers.
    """
    match = _PINS.fullmatch(field)
    if match is None:
        raise Undecodable("the field pins holds no count")
    return int(match[1]), int(match[2])


def _unreadable_counters(field: bytes) -> Undecodable | UnsupportedFormat:
    version = _VERSION.match(field)
    if version is None or version[0] == _MARK:
        return Undecodable("the state's counters cannot be read")
    return unsupported_layout(version[1].decode())


def unsupported_layout(version: str, session_id: str | None = None) -> UnsupportedFormat:
    """Create the error for a session of another layout version."""
    text = f"the session has layout version {version}, this release knows {LAYOUT_VERSION}"
    return UnsupportedFormat(text, session_id)


def turn_outcome(flags: int) -> str:
    """Return the outcome in the flags of an ended turn; `lost` for an unknown one."""
    number = flags & (TURN_HAS_REPLY - 1)
    return TURN_OUTCOMES[number] if 0 < number < len(TURN_OUTCOMES) else "lost"
