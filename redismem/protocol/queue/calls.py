"""Calls of the workers: claim, extend, commit, release; queue_eviction, claim_eviction, evict; sweep. No I/O.

The protocol, and what each check is for, stands in the scripts' headers. Leases decide only who works; the fence,
checked when something is written, decides what counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, NamedTuple

from redismem.context import Context, Summary
from redismem.events import Op
from redismem.info import SessionEntry
from redismem.messages.message import Message
from redismem.protocol import layout, replies, scripts
from redismem.protocol.call import Call, context_reads, evalsha, independent
from redismem.protocol.clock import Clock, time_argument
from redismem.protocol.ids import nonce
from redismem.protocol.keys import Keys, SessionKeys, ShardKeys
from redismem.protocol.layout import ClaimOutcome, CommitOutcome, EvictionReason, Failure, ReleaseOutcome
from redismem.protocol.namespace.calls import entries, name_of
from redismem.protocol.session.edits import View, leaving, moved
from redismem.settings.settings import Settings

QUEUES = layout.INDEXES[1:]
_COVERED = 15  # the place in the command of a commit where its numbers stand
LONGEST_DEAD_MS = 86_400_000
"""A dead session is tried again after this time at the latest."""


@dataclass(frozen=True, slots=True)
class Job:
    """A claimed session: its fence, the attempts with this one, the server's time, and the session as it was then.

    `due_ms`: since when it was due. `failure`: what went wrong since the last commit.
    """

    fence: str
    attempts: int
    now_ms: int
    context: Context
    due_ms: int = 0
    failure: Failure | None = None
    sketch: bytes | None = None
    """How often each word of the session is said, as it is stored, b"" if it is not; None: it was not read."""
    elements: Sequence[bytes] = ()
    """The window as it is stored."""
    with_originals: bool = False
    """Whether the originals reach up to it."""

    @property
    def as_before_ms(self) -> int:
        """The pause of a session that is given back to its place in the queue: below 0."""
        return min(0, self.due_ms - self.now_ms)

    def of(self, view: View) -> Job:
        """The same of a session that was read apart."""
        with_originals = layout.WITH_ORIGINALS in view.fields
        sketch = view.fields.get(layout.SKETCH, b"")
        return replace(self, context=view.context, sketch=sketch, elements=view.elements, with_originals=with_originals)


def due(shards: Sequence[ShardKeys], now_ms: int, limit: int, *, leases: bool = True) -> Call[list[str]]:
    """Sessions overdue now, and with `leases` those whose lease ran out; `limit` of each a shard."""
    commands = tuple(
        ("ZRANGEBYSCORE", queue, "-inf", now_ms, "LIMIT", 0, limit)
        for shard in shards
        for queue in ((shard.overdue, shard.leased) if leases else (shard.overdue,))
    )
    return independent(commands, _session_ids, Op.DUE, absent=())


def _session_ids(*answers: Any) -> list[str]:
    return [name_of(session) for answer in answers for session in answer]


def due_evictions(shards: Sequence[ShardKeys], now_ms: int, limit: int) -> Call[list[str]]:
    """Sessions to evict now, `limit` a shard."""
    commands = tuple(("ZRANGEBYSCORE", shard.evictions, "-inf", now_ms, "LIMIT", 0, limit) for shard in shards)
    return independent(commands, _session_ids, Op.DUE_EVICTIONS, absent=())


def oldest(keys: Keys, limit: int) -> Call[list[list[SessionEntry]]]:
    """The least recently active `limit` of every shard."""
    return idle([Look(shard) for shard in keys.shards()], "+inf", limit)


class Look(NamedTuple):
    """Where to look on among the sessions of a shard: at those active since then, but for so many of that moment."""

    shard: ShardKeys
    since_ms: int = 0
    skipped_count: int = 0

    def after(self, found: Sequence[SessionEntry]) -> Look:
        """The look that goes on behind what this one has found."""
        last_ms, before_count = found[-1].active_ms, self.skipped_count
        count = sum(entry.active_ms == last_ms for entry in found)
        return Look(self.shard, last_ms, count + before_count * (last_ms == self.since_ms))


def idle(looks: Sequence[Look], below_ms: int | str, limit: int) -> Call[list[list[SessionEntry]]]:
    """The next `limit` sessions of each shard that were last active before `below_ms`, least recently active first."""
    words = "ZRANGEBYSCORE", "WITHSCORES", "LIMIT"
    commands = tuple(
        (words[0], look.shard.active, look.since_ms, f"({below_ms}", *words[1:], look.skipped_count, limit)
        for look in looks
    )
    return independent(commands, lambda *answers: [list(entries(answer)) for answer in answers], Op.OLDEST, absent=())


def queue_eviction(
    shard: ShardKeys, seen: Sequence[tuple[SessionKeys, int]], reason: EvictionReason, clock: Clock | None, kept: bool
) -> Call[tuple[int, int]]:
    """Puts these sessions of one shard, with their activity as seen, on the queue: (so many, so many had expired).

    `kept`: somebody is to have their transcripts first, and for that they live for a day more.
    """
    script = scripts.load("queue_eviction")
    stored = (key for keys, _ in seen for key in (keys.messages, keys.state, keys.originals, keys.vectors))
    activity = (part for keys, active_ms in seen for part in (keys.session, active_ms))
    arguments = (time_argument(clock), reason, int(kept), *activity)
    command = evalsha(script, (*shard.indexes, *stored), arguments)
    return Call(None, (command,), tuple, script, op=Op.QUEUE_EVICTION)


def scan(shard: ShardKeys, cursor: int, limit: int) -> Call[tuple[int, list[str]]]:
    """The next cursor (0: all seen) and about `limit` sessions of the active index, and those first in the queues."""
    queued = (shard.overdue, shard.leased, shard.dead, shard.evictions)
    commands = (
        ("ZSCAN", shard.active, cursor, "COUNT", limit),
        *(("ZRANGE", queue, 0, limit - 1) for queue in queued),
    )

    def decode(scanned: Any, *firsts: Any) -> tuple[int, list[str]]:
        next_cursor, found = scanned
        names = [entry.session_id for entry in entries(found)]
        names += [name_of(session) for first in firsts for session in first]
        return int(next_cursor), sorted(set(names))

    return Call(None, commands, decode, op=Op.SCAN)


def sweep(
    shard: ShardKeys, swept: Sequence[SessionKeys], settings: Settings, clock: Clock | None
) -> Call[tuple[int, int]]:
    """Looks after these sessions of one shard: (entries removed, sessions mended, or tried again when dead)."""
    script = scripts.load("sweep")
    waits_ms = (int(settings.max_backoff_s * 1000), LONGEST_DEAD_MS)
    arguments = (time_argument(clock), settings.max_attempts, *waits_ms, *(keys.session for keys in swept))
    command = evalsha(script, (*shard.indexes, *(keys.state for keys in swept)), arguments)
    return Call(None, (command,), lambda reply: (reply[0], reply[1]), script, op=Op.SWEEP)


def covered_sizes(commit: Call[Any]) -> tuple[int, int]:
    """Messages that a commit covers, and their tokens: read out of its command by those who want to know."""
    count, uncounted_count, tokens = commit.commands[0][_COVERED : _COVERED + 3]
    return int(count) - int(uncounted_count), int(tokens)


@dataclass(frozen=True, slots=True)
class QueueCalls:
    """The calls about one session that workers make. A `clock` counts instead of the server's; each raises InvalidTime
    for what it may not give.
    """

    keys: SessionKeys
    settings: Settings
    clock: Clock | None = None

    def _call(self, op: Op, keys: Sequence[bytes], arguments: Sequence[bytes | str | int], decode: Any) -> Call[Any]:
        script = scripts.load(op.value)
        return Call(self.keys.session_id, (evalsha(script, keys, arguments),), decode, script, op=op)

    def claim(self, *, reads: bool = True) -> Call[Job | ClaimOutcome]:
        """The job, or why there is none. Raises CorruptSession, UnsupportedFormat.

        Without `reads` the job's context is empty, and the claim is no transaction.
        """
        keys, settings, shard = self.keys, self.settings, self.keys.shard
        script = scripts.load("claim")
        command = evalsha(
            script,
            (keys.messages, keys.state, shard.overdue, shard.leased, shard.dead, shard.fences),
            (
                keys.session,
                time_argument(self.clock),
                nonce(),
                int(settings.lease_s * 1000),
                settings.overdue_count,
                settings.overdue_tokens,
                settings.recent_limit,
                settings.summaries_limit,
                settings.claims_limit,
            ),
        )

        def decode(reply: Any, stored: Any = (), elements: Any = ()) -> Job | ClaimOutcome:
            word, fence, attempts, claimed_ms, *due = reply
            outcome = ClaimOutcome(word.decode())
            if outcome is not ClaimOutcome.JOB:
                return outcome
            fields = replies.fields(stored)
            context = replies.context(keys.session_id, settings.recent_limit, fields, elements)
            failure = layout.failure(fields.get(layout.FAILURE))
            sketch = fields.get(layout.SKETCH, b"") if stored else None
            due_ms, is_kept = int(float(due[0])), layout.WITH_ORIGINALS in fields
            return Job(fence.decode(), attempts, claimed_ms, context, due_ms, failure, sketch, elements, is_kept)

        commands = (command, *context_reads(keys)) if reads else (command,)
        return Call(keys.session_id, commands, decode, script, op=Op.CLAIM)

    def extend(self, fence: str) -> Call[bool]:
        """False: the lease is another's, or gone."""
        keys = self.keys
        arguments = (keys.session, time_argument(self.clock), fence, int(self.settings.lease_s * 1000))
        return self._call(Op.EXTEND, (keys.state, keys.shard.leased), arguments, bool)

    def commit(
        self,
        job: Job,
        covered: Sequence[Message],
        summary: Summary | None,
        folded: Sequence[Summary] = (),
        originals: Mapping[bytes, bytes] = MappingProxyType({}),
        sketch: bytes | None = None,
    ) -> Call[CommitOutcome]:
        """What came of it; but for OK and ALREADY, nothing has changed. `originals`: their fields; none: not kept.

        Without a `sketch` the stored one stays.
        """
        keys, settings, shard = self.keys, self.settings, self.keys.shard
        context = job.context
        count, pinned = leaving(context, covered) if covered else (0, [])
        arguments = (
            keys.session,
            time_argument(self.clock),
            job.fence,
            context.epoch,
            context.first_seq,
            context.window_version or layout.NONE,
            count,
            count - len(covered),
            sum(message.tokens for message in covered),
            settings.overdue_count,
            settings.overdue_tokens,
            settings.recent_limit,
            settings.summaries_limit,
            layout.NONE if summary is None else _field(summary),
            layout.NONE if summary is None else summary.encode(),
            layout.NONE if sketch is None else sketch,
            len(moving := moved(context, pinned)),
            2 * len(originals),
            *moving,
            *(part for field in originals.items() for part in field),
            *(_field(old) for old in folded),
        )
        keys_in_order = (keys.messages, keys.state, keys.originals, keys.vectors, shard.overdue, shard.leased)
        return self._call(Op.COMMIT, keys_in_order, arguments, lambda reply: CommitOutcome(reply.decode()))

    def release(
        self,
        fence: str,
        backoff_ms: int,
        *,
        counts: bool,
        dead: bool,
        reason: str = layout.NONE,
    ) -> Call[ReleaseOutcome]:
        """`dead`: whatever the attempts. `reason`: of a failure, as `layout.REASON` has it."""
        keys, shard = self.keys, self.keys.shard
        claims_limit = 0 if dead else self.settings.claims_limit
        arguments = (keys.session, time_argument(self.clock), fence, backoff_ms, int(counts), claims_limit, reason)
        keys_in_order = (keys.state, shard.overdue, shard.leased, shard.dead)
        return self._call(Op.RELEASE, keys_in_order, arguments, lambda reply: ReleaseOutcome(reply.decode()))

    def requeue(self, *, again: bool) -> Call[bool]:
        """Off the dead list; `again`: onto the overdue one. False: it was not on the list."""
        keys, shard = self.keys, self.keys.shard
        arguments = (keys.session, time_argument(self.clock), int(again))
        return self._call(Op.REQUEUE, (keys.state, shard.overdue, shard.dead), arguments, bool)

    def claim_eviction(self) -> Call[bool]:
        """True: this worker may evict the session."""
        keys = self.keys
        arguments = (keys.session, time_argument(self.clock), int(self.settings.lease_s * 1000))
        return self._call(Op.CLAIM_EVICTION, (keys.state, keys.shard.evictions), arguments, bool)

    def evict(self, transcript: View | None) -> Call[bool]:
        """False: touched since, or not as in the transcript; None: there is no transcript to be as."""
        keys = self.keys
        appends = "*" if transcript is None else transcript.fields.get(layout.NEWEST_IDS, layout.NONE)
        keys_in_order = (keys.messages, keys.state, keys.originals, keys.vectors, *keys.shard.indexes)
        return self._call(Op.EVICT, keys_in_order, (keys.session, appends), bool)


def _field(summary: Summary) -> bytes:
    return layout.SUMMARY + str(summary.first_seq).encode()
