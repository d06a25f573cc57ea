"""Single steps: run a call on the real server and on the model, and compare the results."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections import Counter
from typing import Any, NamedTuple, TypeVar

import pytest
from hypothesis.stateful import RuleBasedStateMachine, invariant
from support.redis_server import RedisServer

from model_check.comparison import NAMES, compare, read_shard
from model_check.kept import KNOWN, original_fields
from model_check.session import Entry, SessionModel
from model_check.work_model import Claim, WorkModel
from redismem import Settings, TooLarge
from redismem.concurrency.run_sync import run_without_loop
from redismem.context.context import Context
from redismem.context.results import Summary
from redismem.inspection import check
from redismem.inspection.invariants import Violation
from redismem.messages.encoding import encode_message
from redismem.messages.message import STAMP_BYTES, Message
from redismem.protocol.call import Call, Command
from redismem.protocol.queue import calls as queue_calls
from redismem.protocol.queue.calls import Job
from redismem.protocol.session.clear import clear_life
from redismem.protocol.session.edits import View
from redismem.protocol.session.leaving import plan_leaving
from redismem.store.store import Store
from redismem.transport.lane.blocking import BlockingLane
from redismem.transport.url import Address

SETTINGS = Settings(
    shards=1,
    threshold=4,
    recent_limit=2,
    summaries_limit=2,
    max_attempts=3,
    max_window_count=12,
    max_pinned_count=3,
    idle_timeout_s=3600,
    reply_timeout_s=60,
    deadline_s=120,
)
T = TypeVar("T")
LEASE_MS = int(SETTINGS.lease_s * 1000)

volume: Counter[str] = Counter()
"""Counts over all examples: examples, steps, calls, restarts, and the outcomes of each script."""


class Seen(NamedTuple):
    """A session as a caller read it. For an eviction, `version` is the number of the last write."""

    name: str
    life: int
    version: int
    view: View


def entry_of(message: Message) -> Entry:
    """Return the model's entry of a message."""
    element, tokens = encode_message(message)
    return Entry(message.content, tokens, "pinned" if message.pinned else "counted", len(element) + STAMP_BYTES)


class Steps(RuleBasedStateMachine):
    """The steps on one server, which this machine has to itself; with restarts it needs an append-only file."""

    server: RedisServer
    restarts_limit = 1
    """The restarts of one example."""

    def __init__(self) -> None:
        super().__init__()
        self.lane = BlockingLane(Address.from_url(self.server.url), max_connections=1)
        self.store = Store(self.lane, "m", SETTINGS, lambda: self.now)
        self.send(("FLUSHALL",))
        self.calls = {name: self.store.session_calls(name) for name in NAMES}
        self.queue_calls = {name: self.store.queue_calls(name) for name in NAMES}
        self.model = WorkModel(SETTINGS)
        self.now = time.time_ns() // 1_000_000
        self.numbers = itertools.count(1)
        self.claims: list[Claim] = []
        self.views: list[Seen] = []
        """The sessions as users read them."""
        self.clears: list[tuple[Call[Any], str, int | None, Any]] = []
        """Clears, and their replies."""
        self.observed: list[tuple[str, int]] = []
        self.in_hand: list[Seen] = []
        """The sessions as workers claimed them for eviction."""
        self.fences: set[str] = set()
        self.fence_count = 0
        self.noted: dict[str, list[bytes]] = {"p": [b""], "q": [b""]}
        """The pauses of each provider that workers have seen."""
        self.snapshot: tuple[Any, ...] | None = None
        self.restarts_left = self.restarts_limit
        volume["examples"] += 1

    def connect(self) -> None:
        """Reconnect after a restart of the server."""
        self.close()
        self.lane = self.store.transport = BlockingLane(Address.from_url(self.server.url), max_connections=1)

    def send(self, *commands: Command) -> list[Any]:
        """Return the reply of each command, bypassing the store; an error takes its reply's place."""
        return run_without_loop(self.lane.run_independent(commands, 60))

    def run_call(self, call: Call[Any]) -> Any:
        volume["calls"] += 1
        return run_without_loop(self.store.run(call))

    def sent_now(self, call: Call[T]) -> Call[T]:
        """Return the call with the present time, which the server reads itself in production."""
        return call.with_named(now_ms=self.now)

    def same(self, what: str, given: object, expected: object) -> None:
        volume[f"{what} {given}" if isinstance(given, str | bool) else what] += 1
        assert given == expected, f"{what}: {given}, expected {expected}"

    def new_fence(self, fence: str) -> None:
        """Assert that fences and epochs are unique and come from a growing counter."""
        count = int(fence.partition("-")[0])
        assert fence not in self.fences
        assert count > self.fence_count
        self.fences.add(fence)
        self.fence_count = count

    def lives_in(self, name: str, epoch: str) -> None:
        session = self.model.sessions[name]
        if not session.epoch:
            session.epoch = epoch
            self.new_fence(epoch)
        assert session.epoch == epoch

    @invariant()
    def agrees(self) -> None:
        volume["steps"] += 1
        seen = run_without_loop(self.store.run(read_shard(self.store.keys)))
        for name in self.model.sessions:
            assert seen.sessions[name].fields, f"session {name} is gone"
            self.lives_in(name, seen.sessions[name].fields[b"epoch"].decode())
        compare(seen, self.model)

    def teardown(self) -> None:
        with contextlib.closing(self):
            self.settle()

    def settle(self) -> None:
        """Assert that after all faults end and time passes, every session is within its threshold or dead (I13)."""
        for _ in range(40):
            self.pass_time(LEASE_MS + 1)
            for name in self.run_call(queue_calls.due_sessions(self.store.keys.shards(), self.now, 20)):
                self.work_off(name)
            if not self.model.indexes["overdue"] and not self.model.indexes["leased"]:
                break
        self.agrees()
        for name, session in self.model.sessions.items():
            left = session.queued == "dead" or session.dropped_seq is not None
            assert left or not self.model.waits(session), f"{name} still waits"
        assert self.model.indexes["overdue"] == self.model.indexes["leased"] == {}
        assert run_without_loop(self.violations()) == []

    async def violations(self) -> list[Violation]:
        self.store.dictionaries.update(KNOWN)
        return [violation async for violation in check.check(self.store, NAMES)]

    def work_off(self, name: str) -> None:
        """Claim a session and commit a summary, as a worker does."""
        claim = self.claim(name)
        if claim is not None and len(claim.window) > SETTINGS.threshold:
            self.commit_cover(claim, len(claim.window) - SETTINGS.recent_limit, True, False)
        elif claim is not None:
            self.commit_fold(claim, len(claim.summaries) - SETTINGS.summaries_limit // 2, False)

    def close(self) -> None:
        run_without_loop(self.store.aclose())

    # Time and expiry: the server's own clock does not advance with `now`.

    def pass_time(self, ms: int) -> None:
        self.now += ms
        for name, session in list(self.model.sessions.items()):
            if session.expires_ms <= self.now:
                self.vanish(name)

    def vanish(self, name: str) -> None:
        keys = self.store.keys.session(name)
        self.send(("DEL", keys.state, keys.messages))
        self.model.expire(name)

    # Messages, claims and commits.

    def messages(self, count: int, kind: str = "counted") -> tuple[list[Message], list[Entry]]:
        """Return new messages and their entries in the model."""
        messages = []
        for _ in range(count):
            number = next(self.numbers)
            role = "system" if kind == "pinned" and number % 2 else "user" if number % 3 else "assistant"
            message = Message(role, f"{number}" + "x" * (number % 7 * 5))
            messages.append(message.with_pin(True) if kind == "pinned" else message)
        return messages, [entry_of(message) for message in messages]

    def append_as(self, name: str, count: int, id: str, kind: str = "counted") -> None:
        messages, entries = self.messages(count, kind)
        expected = self.model.append(name, id, next(self.numbers), entries, self.now)
        call = self.calls[name].append_and_read(messages, {"id": id})
        if expected is None:
            with pytest.raises(TooLarge):
                self.run_call(call)
            return
        context = self.run_call(call)
        self.same("append, duplicate" if expected.duplicate else "append", context.receipt, expected)
        if expected.duplicate:
            self.same("append, duplicate sent again", self.run_call(call.again()).receipt, expected)
        self.lives_in(name, context.epoch)
        self.reads_as_modelled(context, self.model.sessions[name])

    def reads_as_modelled(self, context: Context, session: SessionModel) -> None:
        assert [message.content for message in context.messages] == [entry.content for entry in session.window]
        pinned = {message.seq: message.content for message in context.pinned}
        assert pinned == {seq: entry.content for seq, entry in session.pinned.items()}
        assert list(pinned) == sorted(pinned)

    def claim(self, name: str, lost: Claim | None = None) -> Claim | None:
        """Claim a session; with `lost`, send that claim again, whose reply was lost."""
        call = self.queue_calls[name].claim() if lost is None else self.sent_now(lost.call)
        if lost is not None and self.model.has_lease(lost, self.now):
            return self._claim_again(lost)
        session_before = self.model.sessions.get(name)
        queued = None if session_before is None else session_before.queued
        due_ms = None if queued is None else self.model.indexes[queued].get(name)
        job = self.run_call(call)
        self.same("claim", "job" if isinstance(job, Job) else job, self.model.claim(name, self.now))
        if not isinstance(job, Job):
            return None
        self.new_fence(job.fence)
        claim = self._claim_of(next(self.numbers), call, job)
        self.model.claimed(claim, self.now)
        self._matches_claim(job, due_ms)
        self.claims.append(claim)
        return claim

    def _claim_again(self, lost: Claim) -> Claim | None:
        job = self.run_call(self.sent_now(lost.call))
        lease_began_ms = self.model.indexes["leased"][lost.name] - LEASE_MS
        outcome = "job" if isinstance(job, Job) else job
        self.same("claim again", outcome, self.model.claim(lost.name, self.now, is_own=True))
        if not isinstance(job, Job):
            return None
        assert job.fence == lost.job.fence
        self._matches_claim(job, lease_began_ms)
        self.claims.append(claim := self._claim_of(lost.worker, lost.call, job))
        return claim

    def _claim_of(self, worker: int, call: Call[Any], job: Job) -> Claim:
        name = job.context.session_id
        session = self.model.sessions[name]
        seen = session.first_seq, session.version, session.window, list(session.summaries)
        return Claim(name, worker, session.life, call, job, *seen)

    def _matches_claim(self, job: Job, due_ms: int | None) -> None:
        session = self.model.sessions[job.context.session_id]
        assert (job.attempts, job.now_ms, job.context.epoch) == (session.attempts, self.now, session.epoch)
        assert (job.due_ms, job.failure) == (due_ms, session.failure)
        self.reads_as_modelled(job.context, session)
        assert (job.context.summaries, job.sketch) == (session.summaries, session.sketch)

    def commit_cover(self, claim: Claim, count: int, summarised: bool, keep: bool) -> str:
        covered = claim.job.context.messages[: max(1, min(count, len(claim.window)))]
        summary = self.summary(claim, covered[0].seq, covered[-1].seq) if summarised and covered else None
        return self.commit(claim, covered, [], summary, keep)

    def commit_fold(self, claim: Claim, count: int, keep: bool) -> str:
        folded = claim.summaries[: max(1, count)]
        if not folded:
            return "nothing"
        return self.commit(claim, [], folded, self.summary(claim, folded[0].first_seq, folded[-1].last_seq), keep)

    def commit_both(self, claim: Claim, count: int, keep: bool) -> str:
        """Commit one summary that covers messages and folds all earlier summaries."""
        covered = claim.job.context.messages[: max(1, min(count, len(claim.window)))]
        if not covered or not claim.summaries:
            return "nothing"
        summary = self.summary(claim, claim.summaries[0].first_seq, covered[-1].seq)
        return self.commit(claim, covered, claim.summaries, summary, keep)

    def summary(self, claim: Claim, first_seq: int, last_seq: int) -> Summary:
        id = f"{claim.job.context.epoch}:{first_seq}-{last_seq}"
        return Summary(id, f"summary {next(self.numbers)}", first_seq, last_seq, 1, 2, "m", 3, self.now, ("x",))

    def commit(
        self, claim: Claim, covered: list[Message], folded: list[Summary], summary: Summary | None, keep: bool
    ) -> str:
        calls = self.queue_calls[claim.name]
        originals = original_fields(self.run_call, calls.keys, claim.job, covered) if keep and covered else {}
        sketch = b"words %d" % next(self.numbers) if covered else None
        job = claim.job
        outcome: str = self.run_call(calls.commit(job, covered, summary, folded, originals, sketch))
        count = plan_leaving(claim.job.context, claim.job.elements, covered).next_seq - claim.first_seq
        self.same("commit", outcome, self.model.commit(claim, count, folded, summary, keep, self.now, sketch))
        return outcome

    def give_back(
        self, claim: Claim, backoff_ms: int = 0, counts: bool = True, dead: bool = False, reason: str = "-"
    ) -> str:
        calls = self.queue_calls[claim.name]
        call = calls.release(claim.job.fence, backoff_ms, counts=counts, dead=dead, reason=reason)
        outcome: str = self.run_call(call)
        self.same("release", outcome, self.model.release(claim, backoff_ms, counts, dead, reason, self.now))
        return outcome

    def make_overdue(self, name: str) -> None:
        """Bring a session of any state into the overdue queue, due now and with too long a window."""
        session = self.model.sessions.get(name)
        if session is not None and (session.queued != "overdue" or len(session.window) > SETTINGS.max_window_count - 3):
            self.run_call(clear_life(self.calls[name].keys, session.epoch))
            self.model.remove(name, session.life)
        while name not in self.model.sessions or len(self.model.sessions[name].window) <= SETTINGS.threshold:
            self.append_as(name, 3, f"id {next(self.numbers)}")
        self.agrees()
        self.run_call(self.calls[name].touch())
        self.model.touch(name, self.now)
        self.pass_time(max(0, self.model.indexes["overdue"][name] - self.now))
