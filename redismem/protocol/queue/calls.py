"""Calls of the workers: claim, extend, commit, release; queue_eviction, claim_eviction, evict; sweep. No I/O.

docs/queues.md explains the protocol and each check. A lease only decides which worker works on a session. The fence,
which each write checks, decides whether the write is accepted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from redismem.context.context import Context
from redismem.context.info import Policy, SessionEntry
from redismem.context.results import Summary
from redismem.events import Op
from redismem.messages.message import Message
from redismem.originals.fields import merged_number
from redismem.protocol import layout, replies
from redismem.protocol.call import Argument, Call, Command, context_reads, independent, script_call
from redismem.protocol.clock import Clock, time_argument
from redismem.protocol.ids import nonce
from redismem.protocol.keys import Keys, SessionKeys, ShardKeys
from redismem.protocol.layout import ClaimOutcome, CommitOutcome, EvictionReason, Failure, ReleaseOutcome
from redismem.protocol.namespace.calls import entries, name_of
from redismem.protocol.owners import decode_owner
from redismem.protocol.policy import decode_policy
from redismem.protocol.session.edits import View
from redismem.protocol.session.leaving import plan_leaving
from redismem.settings.settings import Settings

T = TypeVar("T")
LONGEST_DEAD_MS = 86_400_000
"""The longest wait before the sweep retries a dead session."""


@dataclass(frozen=True, slots=True)
class Job:
    """A claimed session: its fence, the number of attempts including this one, the server's time, and its content.

    `due_ms` is the time from which the session was due. `failure` is the last failure since the last commit.
    """

    fence: str
    attempts: int
    now_ms: int
    context: Context
    due_ms: int = 0
    failure: Failure | None = None
    sketch: bytes | None = None
    """The stored sketch. b"" means that there is no sketch, and None that the state was not read."""
    elements: Sequence[bytes] = ()
    """The window, as stored."""
    with_originals: bool = False
    """True if the originals reach up to the window."""
    owner: str | None = None
    policy: Policy = field(default_factory=Policy)

    @property
    def keep_place_backoff_ms(self) -> int:
        """The backoff that puts the session back at its position in the queue: 0 or negative."""
        return min(0, self.due_ms - self.now_ms)


def due_sessions(shards: Sequence[ShardKeys], now_ms: int, limit: int, *, leases: bool = True) -> Call[list[str]]:
    """Build a call that reads overdue sessions, and with `leases` sessions whose lease has expired.

    It reads at most `limit` of each per shard.
    """
    commands = tuple(
        ("ZRANGEBYSCORE", queue, "-inf", now_ms, "LIMIT", 0, limit)
        for shard in shards
        for queue in ((shard.overdue, shard.leased) if leases else (shard.overdue,))
    )
    return independent(commands, _session_ids, Op.DUE, absent=())


def _session_ids(*answers: Any) -> list[str]:
    return [name_of(session) for answer in answers for session in answer]


def due_evictions(shards: Sequence[ShardKeys], now_ms: int, limit: int) -> Call[list[str]]:
    """Build a call that reads sessions whose eviction is due, at most `limit` per shard."""
    commands = tuple(("ZRANGEBYSCORE", shard.evictions, 0, now_ms, "LIMIT", 0, limit) for shard in shards)
    return independent(commands, _session_ids, Op.DUE_EVICTIONS, absent=())


def expiring_sessions(shards: Sequence[ShardKeys], before_ms: int, limit: int) -> Call[list[str]]:
    """Build a call that reads `limit` sessions per shard that workers watch, and that expire before `before_ms`.

    These have an own timeout, or are exempt. The eviction queue contains their expiry, negative.
    """
    commands = tuple(("ZRANGEBYSCORE", shard.evictions, -before_ms, "(0", "LIMIT", 0, limit) for shard in shards)
    return independent(commands, _session_ids, Op.DUE_EVICTIONS, absent=())


def oldest_sessions(keys: Keys, limit: int) -> Call[list[list[SessionEntry]]]:
    """Build a call that reads the `limit` least recently active sessions of every shard."""
    return idle_sessions([ActiveCursor(shard) for shard in keys.shards()], "+inf", limit)


class ActiveCursor(NamedTuple):
    """A position in a shard's active index: behind `skipped_count` sessions of the millisecond `since_ms`."""

    shard: ShardKeys
    since_ms: int = 0
    skipped_count: int = 0

    def after(self, entries: Sequence[SessionEntry]) -> ActiveCursor:
        """Return the position after these entries, which were read from this position on."""
        last_ms, before_count = entries[-1].active_ms, self.skipped_count
        count = sum(entry.active_ms == last_ms for entry in entries)
        return ActiveCursor(self.shard, last_ms, count + before_count * (last_ms == self.since_ms))


def idle_sessions(cursors: Sequence[ActiveCursor], below_ms: int | str, limit: int) -> Call[list[list[SessionEntry]]]:
    """Build a call that reads the next `limit` sessions of each cursor.

    The sessions were last active before `below_ms`, and come least recent first.
    """
    words = "ZRANGEBYSCORE", "WITHSCORES", "LIMIT"
    commands = tuple(
        (words[0], cursor.shard.active, cursor.since_ms, f"({below_ms}", *words[1:], cursor.skipped_count, limit)
        for cursor in cursors
    )
    return independent(commands, lambda *answers: [list(entries(answer)) for answer in answers], Op.OLDEST, absent=())


def queue_eviction(
    shard: ShardKeys,
    seen: Sequence[tuple[SessionKeys, int | str]],
    reason: EvictionReason,
    clock: Clock | None,
    kept: bool,
    soon_ms: int = 0,
) -> Call[tuple[int, int]]:
    """Build a call that queues sessions of one shard for eviction. It returns (queued count, expired count).

    `seen` pairs each session with its activity as seen. `kept` extends their lives by a day, so that `on_evict` can
    receive their transcripts. Idle sessions are queued if they expire within `soon_ms`.
    """
    return script_call(
        Op.QUEUE_EVICTION,
        shard,
        tuple,
        {"now_ms": time_argument(clock), "reason": reason, "kept": kept, "soon_ms": soon_ms},
        more_keys=[key for keys, _ in seen for key in (keys.messages, keys.state, keys.originals, keys.turned)],
        more=[part for keys, active_ms in seen for part in (keys.session, active_ms)],
    )


class Scanned(NamedTuple):
    """One step of the scans of a shard: the cursors of the next step, and the sessions of this one."""

    cursors: tuple[int, int]
    session_ids: list[str]


def scan_queue(cursors: Mapping[ShardKeys, tuple[int, int]], limit: int) -> Call[dict[ShardKeys, Scanned]]:
    """Build a call that makes one step of the scans of each of these shards.

    It reads sessions from the active index, from the heads of the queues, and from the index of owners, for entries
    that no other index has any more. The cursors are those of the active index and of the owners; 0 is at the beginning
    or the end. A single shard is read in one transaction, so that no session is between two indexes meanwhile.
    """
    commands: list[Command] = []
    for shard, (active, owners) in cursors.items():
        queued = (shard.overdue, shard.leased, shard.dead, shard.evictions, shard.turns)
        commands += (
            ("ZSCAN", shard.active, active, "COUNT", limit),
            ("ZSCAN", shard.owners, owners, "COUNT", limit),
            *(("ZRANGEBYSCORE", queue, 0, "+inf", "LIMIT", 0, limit) for queue in queued),
        )

    def decode(*answers: Any) -> dict[ShardKeys, Scanned]:
        step = len(commands) // len(cursors)
        return {shard: _decode_scan(*answers[at * step : (at + 1) * step]) for at, shard in enumerate(cursors)}

    return Call(None, tuple(commands), decode, is_independent=len(cursors) > 1, op=Op.SCAN)


def _decode_scan(active: Any, owners: Any, *firsts: Any) -> Scanned:
    names = {entry.session_id for _, members in (active, owners) for entry in entries(members)}
    names.update(name_of(session) for first in firsts for session in first)
    return Scanned((int(active[0]), int(owners[0])), sorted(names))


def sweep(
    shard: ShardKeys, swept: Sequence[SessionKeys], settings: Settings, clock: Clock | None
) -> Call[tuple[int, int]]:
    """Build a call that sweeps sessions of one shard.

    It returns (count removed from the indexes, count repaired or retried).
    """
    named = {
        "now_ms": time_argument(clock),
        "max_attempts": settings.max_attempts,
        "first_ms": int(settings.max_backoff_s * 1000),
        "longest_ms": LONGEST_DEAD_MS,
    }
    states, sessions = [keys.state for keys in swept], [keys.session for keys in swept]
    return script_call(Op.SWEEP, shard, tuple, named, more_keys=states, more=sessions)


@dataclass(frozen=True, slots=True)
class QueueCalls:
    """Builds the workers' calls about one session. A `clock` replaces the server's.

    Every method but `evict` raises InvalidTime if the clock returned an invalid time.
    """

    keys: SessionKeys
    settings: Settings
    clock: Clock | None = None

    def _call(
        self,
        op: Op,
        decode: Callable[..., T],
        *,
        more: Sequence[Argument] = (),
        after: Sequence[Command] = (),
        **named: Any,
    ) -> Call[T]:
        """Build a call of a script that takes the session and the time, and these arguments by name."""
        named["now_ms"] = time_argument(self.clock)
        return script_call(op, self.keys, decode, named, more=more, after=after)

    @property
    def _limits(self) -> dict[str, Any]:
        """The arguments that say when a session needs a summary."""
        settings = self.settings
        return {
            "threshold": settings.overdue_count,
            "token_limit": settings.overdue_tokens,
            "recent_limit": settings.recent_limit,
            "summaries_limit": settings.summaries_limit,
        }

    @property
    def _lease_ms(self) -> int:
        return int(self.settings.lease_s * 1000)

    def claim(self) -> Call[Job | ClaimOutcome]:
        """Build a claim. It returns a job, or the outcome if there is no job.

        Decoding raises:
            CorruptSession: the session cannot be read.
            UnsupportedFormat: another release wrote the session.
        """
        keys, settings = self.keys, self.settings

        def decode(reply: Any, stored: Any, elements: Any) -> Job | ClaimOutcome:
            word, fence, attempts, claimed_ms, *due = reply
            outcome = ClaimOutcome(word.decode())
            if outcome is not ClaimOutcome.JOB:
                return outcome
            if not (fields := replies.fields(stored)):
                return ClaimOutcome.GONE  # meanwhile, if the commands were sent one by one
            return Job(
                fence.decode(),
                attempts,
                claimed_ms,
                replies.context(keys.session_id, settings.recent_limit, fields, elements),
                due_ms=int(float(due[0])),
                failure=layout.failure(fields.get(layout.FAILURE)),
                sketch=fields.get(layout.SKETCH, b""),
                elements=elements,
                with_originals=layout.WITH_ORIGINALS in fields,
                owner=decode_owner(fields.get(layout.OWNER)),
                policy=decode_policy(
                    layout.counters(fields[layout.COUNTERS]).policy, layout.decode_zone(fields.get(layout.ZONE))
                ),
            )

        claim = self._call(
            Op.CLAIM,
            decode,
            after=context_reads(keys),
            nonce=nonce(),
            lease_ms=self._lease_ms,
            max_attempts=settings.claims_limit,
            **self._limits,
        )
        # Sent again, the claim returns the same job. If its reads come later, a commit detects changes in between.
        claim.is_separable = True
        return claim

    def extend(self, fence: str) -> Call[bool]:
        """Build a call that extends a lease. False means that the lease belongs to another worker, or has ended."""
        return self._call(Op.EXTEND, bool, fence=fence, lease_ms=self._lease_ms)

    def commit(
        self,
        job: Job,
        covered: Sequence[Message],
        summary: Summary | None,
        folded: Sequence[Summary] = (),
        originals: Mapping[bytes, bytes] = MappingProxyType({}),
        sketch: bytes | None = None,
    ) -> Call[CommitOutcome]:
        """Build a commit. Outcomes other than OK and ALREADY mean that nothing has changed.

        `originals` are the fields of the originals; empty means that originals are not kept. Without a `sketch`, the
        stored one stays.
        """
        context = job.context
        leaving = plan_leaving(context, job.elements, covered)
        pinned_field, pinned = next(iter(leaving.pinned.items()), (None, b""))
        kept = [part for field in originals.items() for part in field]
        return self._call(
            Op.COMMIT,
            lambda reply: CommitOutcome(reply.decode()),
            fence=job.fence,
            epoch=context.epoch,
            first_seq=context.first_seq,
            edited=context.window_version or None,
            next_seq=leaving.next_seq,
            count=leaving.element_count,
            uncounted_count=leaving.element_count - len(covered),
            tokens=sum(message.tokens for message in covered),
            summary_field=None if summary is None else _summary_field(summary),
            summary=None if summary is None else summary.encode(),
            sketch=sketch,
            merged=merged_number(originals),
            pinned_field=pinned_field,
            pinned=pinned,
            more_large=-leaving.large_bytes,
            kept_count=len(kept),
            more=(*kept, *map(_summary_field, folded)),
            **self._limits,
        )

    def release(
        self, fence: str, backoff_ms: int, *, counts: bool, dead: bool, reason: str | None = None
    ) -> Call[ReleaseOutcome]:
        """Build a release. `dead` makes the session dead after any number of attempts. `reason` must match `REASON`."""
        return self._call(
            Op.RELEASE,
            lambda reply: ReleaseOutcome(reply.decode()),
            fence=fence,
            backoff_ms=backoff_ms,
            counts=counts,
            max_attempts=0 if dead else self.settings.claims_limit,
            reason=reason,
        )

    def requeue(self, *, again: bool) -> Call[bool]:
        """Build a call that takes the session off the dead list.

        With `again`, the session goes into the overdue queue. The call returns False if the session was not listed.
        """
        return self._call(Op.REQUEUE, bool, again=again)

    def claim_eviction(self) -> Call[bool]:
        """Build a call that claims an eviction. True means that this worker may evict the session."""
        return self._call(Op.CLAIM_EVICTION, bool, lease_ms=self._lease_ms, nonce=nonce())

    def evict(self, transcript: View | None) -> Call[bool]:
        """Build an eviction. False means that the session was touched, or differs from the transcript.

        Without a transcript the contents are not compared.
        """
        appends = b"*" if transcript is None else transcript.fields.get(layout.NEWEST_IDS)
        return script_call(Op.EVICT, self.keys, bool, {"appends": appends})


def _summary_field(summary: Summary) -> bytes:
    return layout.SUMMARY + str(summary.first_seq).encode()
