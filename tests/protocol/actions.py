"""What the rules of the machine are made of: a call on the real server, and the same thing said to the model.

After each step the whole shard is read, held against the model field by field, and against the invariants.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter
from typing import Any

import pytest
from hypothesis.stateful import RuleBasedStateMachine, invariant
from protocol.told import INDEXES, Claim, Shard, Told
from protocol.wire import Wire, finished
from support.redis_server import RedisServer

from redismem import Settings, TooLarge
from redismem.context import Summary
from redismem.inspection import check, invariants
from redismem.memory import Memory
from redismem.messages import Message, decode_messages, encode_message
from redismem.protocol import queue_calls
from redismem.protocol.call import Call
from redismem.protocol.queue_calls import Job, QueueCalls
from redismem.protocol.session_calls import SessionCalls
from redismem.store.store import Store

SETTINGS = Settings(
    shards=1, threshold=4, recent_limit=2, summaries_limit=2, max_attempts=3, max_window_count=12, idle_timeout_s=3600
)
KEEPING = SETTINGS.model_copy(update={"keep_originals": True})
LEASE_MS = int(SETTINGS.lease_s * 1000)
NAMES = ("a", "b", "c")
OURS = {
    b"counters",
    b"epoch",
    b"queued",
    b"fence",
    b"attempts",
    b"committed",
    b"summaries_count",
    b"with_originals",
    b"dropped_seq",
}

volume: Counter[str] = Counter()
"""Over all examples: examples, steps, calls, restarts, and how often each script gave which outcome."""


class Actions(RuleBasedStateMachine):
    """`server` has an append-only file; all of it is this machine's."""

    server: RedisServer
    restarts_limit = 1
    """of one example"""

    def __init__(self) -> None:
        super().__init__()
        self.wire = Wire(self.server.port)
        self.wire.send(("FLUSHALL",))
        self.memory = Memory(Store(self.wire, "m", SETTINGS))
        self.calls = {name: SessionCalls(self.memory.store.keys.session(name), SETTINGS) for name in NAMES}
        self.shard = Shard(SETTINGS)
        self.now = time.time_ns() // 1_000_000
        self.numbers = itertools.count(1)
        self.claims: list[Claim] = []
        self.views: list[tuple[str, int, str, list[Message]]] = []
        self.seen: list[tuple[str, int]] = []
        self.in_hand: list[tuple[str, int, str, int]] = []
        self.fences: set[str] = set()
        self.fence_count = 0
        self.snapshot: tuple[Any, ...] | None = None
        self.restarts_left = self.restarts_limit
        volume["examples"] += 1

    # How calls are made, and what is always looked at.

    def run_call(self, call: Call[Any]) -> Any:
        volume["calls"] += 1
        return finished(self.memory.store.run(call))

    def same(self, what: str, given: object, expected: object) -> None:
        volume[f"{what} {given}" if isinstance(given, str | bool) else what] += 1
        assert given == expected, f"{what}: {given}, expected {expected}"

    def new_fence(self, fence: str) -> None:
        """Fences and epochs: never twice, and from a counter that only grows."""
        count = int(fence.partition("-")[0])
        assert fence not in self.fences
        assert count > self.fence_count
        self.fences.add(fence)
        self.fence_count = count

    def lives_in(self, told: Told, epoch: str) -> None:
        if not told.epoch:
            told.epoch = epoch
            self.new_fence(epoch)
        assert told.epoch == epoch

    @invariant()
    def agrees(self) -> None:
        volume["steps"] += 1
        keys = self.memory.store.keys
        (shard,) = keys.shards()
        reading = check.together([check.stored(keys.session(name)) for name in NAMES])
        commands = (
            *reading.commands,
            *(("LRANGE", keys.session(name).originals, 0, -1) for name in NAMES),
            *(("ZRANGE", getattr(shard, index), 0, -1, "WITHSCORES") for index in INDEXES),
        )
        answers = finished(self.wire.run(commands, 1))
        stored = reading.decode(*answers[: len(reading.commands)])
        originals, indexes = answers[-len(NAMES) - len(INDEXES) : -len(INDEXES)], answers[-len(INDEXES) :]
        for name, seen, kept in zip(NAMES, stored, originals, strict=True):
            self.agrees_about(name, seen, kept)
        for index, entries in zip(INDEXES, indexes, strict=True):
            pairs = iter(entries)
            found = {member.decode(): int(score) for member, score in zip(pairs, pairs, strict=True)}
            assert found == self.shard.indexes[index], f"{index}: {found}, expected {self.shard.indexes[index]}"

    def agrees_about(self, name: str, seen: invariants.Stored, kept: list[bytes]) -> None:
        assert list(invariants.violations(name, seen, SETTINGS)) == []
        told = self.shard.sessions.get(name)
        kept_contents = [message.content for message in decode_messages(kept, 1, "")]
        assert kept_contents == self.shard.originals.get(name, [])
        if told is None:
            assert (seen.fields, seen.elements) == ({}, [])
            return
        assert seen.fields, f"session {name} is gone"
        self.lives_in(told, seen.fields[b"epoch"].decode())
        tokens = sum(tokens for _, tokens in told.window)
        counters = (told.first_seq, told.total, tokens, told.active_ms, told.expires_ms, told.evicting)
        expected: dict[str, Any] = {
            "counters": " ".join(["v1", *(str(number) for number in counters if number is not None)]),
            "epoch": told.epoch,
            "queued": told.queued,
            "fence": told.fence if told.holder is not None else None,
            "attempts": told.attempts,
            "committed": told.committed_fence or None,
            "summaries_count": len(told.summaries) if told.committed else None,
            "with_originals": 1 if told.with_originals else None,
            "dropped_seq": told.dropped_seq,
        }
        expected |= {f"param:{param}": chr(value) for param, value in told.params.items()}
        wanted = {field.encode(): str(value).encode() for field, value in expected.items() if value is not None}
        wanted |= {b"summary:%d" % summary.first_seq: summary.encode() for summary in told.summaries}
        given = {field: value for field, value in seen.fields.items() if field in OURS or b":" in field}
        assert given == wanted, f"session {name}: {set(given.items()) ^ set(wanted.items())}"
        assert [message.content for message in decode_messages(seen.elements, 1, "")] == [
            content for content, _ in told.window
        ]
        covered = [seq for summary in told.summaries for seq in range(summary.first_seq, summary.last_seq + 1)]
        assert sorted([*covered, *told.unsummarised]) == list(range(1, told.first_seq))

    def teardown(self) -> None:
        """Once all faults end and time passes, every session is within its threshold, or dead (I13)."""
        try:
            for _ in range(40):
                self.pass_time(LEASE_MS + 1)
                due = self.run_call(queue_calls.due(self.memory.store.keys.shards(), self.now, 20))
                for name in due:
                    self.claim(name)
                    if self.claims and self.claims[-1].name == name:
                        self.finish(self.claims[-1])
                if not self.shard.indexes["overdue"] and not self.shard.indexes["leased"]:
                    break
            self.agrees()
            for name, told in self.shard.sessions.items():
                left = told.queued == "dead" or told.dropped_seq is not None
                assert left or not self.shard.waits(told), f"{name} still waits"
            assert self.shard.indexes["overdue"] == self.shard.indexes["leased"] == {}
            assert finished(self.whole_check()) == []
        finally:
            self.wire.close()

    async def whole_check(self) -> list[invariants.Violation]:
        return [violation async for violation in check.check(self.memory.store, NAMES)]

    def finish(self, claim: Claim) -> None:
        """What a worker does with what it claimed."""
        pending = len(claim.window) - SETTINGS.recent_limit
        if len(claim.window) > SETTINGS.threshold:
            self.commit_cover(claim, pending, True, False)
        else:
            self.commit_fold(claim, len(claim.summaries) - SETTINGS.summaries_limit // 2, False)

    def pass_time(self, ms: int) -> None:
        """The clock goes on, and what has expired by then is gone: the server's own clock stays behind."""
        self.now += ms
        for name, told in list(self.shard.sessions.items()):
            if told.expires_ms <= self.now:
                self.vanish(name)

    def vanish(self, name: str) -> None:
        keys = self.memory.store.keys.session(name)
        self.wire.send(("DEL", keys.state, keys.messages))
        self.shard.expire(name)

    def messages(self, count: int) -> tuple[list[dict[str, Any]], list[tuple[str, int]]]:
        payloads = []
        for _ in range(count):
            number = next(self.numbers)
            payloads.append({"role": "user", "content": f"{number}" + "x" * (number % 7 * 5)})
        return payloads, [(payload["content"], encode_message(payload)[1]) for payload in payloads]

    def append_as(self, name: str, count: int, id: str) -> None:
        payloads, contents = self.messages(count)
        expected = self.shard.append(name, id, next(self.numbers), contents, self.now)
        call = self.calls[name].append_and_read(payloads, id=id, now_ms=self.now)
        if expected is None:
            with pytest.raises(TooLarge):
                self.run_call(call)
            return
        context = self.run_call(call)
        self.same("append, duplicate" if expected.duplicate else "append", context.receipt, expected)
        told = self.shard.sessions[name]
        self.lives_in(told, context.epoch)
        assert [message.content for message in context.messages] == [content for content, _ in told.window]

    def claim(self, name: str) -> Claim | None:
        job = self.run_call(QueueCalls(self.memory.store.keys.session(name), SETTINGS).claim(self.now))
        self.same("claim", "job" if isinstance(job, Job) else job, self.shard.claim(name, self.now))
        if not isinstance(job, Job):
            return None
        self.new_fence(job.fence)
        told = self.shard.sessions[name]
        claim = Claim(name, next(self.numbers), told.life, job, told.first_seq, told.window, list(told.summaries))
        self.shard.claimed(claim, self.now)
        assert (job.attempts, job.now_ms, job.context.epoch) == (told.attempts, self.now, told.epoch)
        assert [message.content for message in job.context.messages] == [content for content, _ in told.window]
        assert job.context.summaries == told.summaries
        self.claims.append(claim)
        return claim

    def commit_cover(self, claim: Claim, count: int, summarised: bool, keep: bool) -> str:
        covered = claim.job.context.messages[: max(1, min(count, len(claim.window)))]
        summary = self.summary(claim, covered[0].seq, covered[-1].seq) if summarised and covered else None
        return self.commit(claim, covered, [], summary, keep)

    def commit_fold(self, claim: Claim, count: int, keep: bool) -> str:
        folded = claim.summaries[: max(1, count)]
        summary = self.summary(claim, folded[0].first_seq, folded[-1].last_seq) if folded else None
        return self.commit(claim, [], folded, summary, keep) if folded else "nothing"

    def summary(self, claim: Claim, first_seq: int, last_seq: int) -> Summary:
        id = f"{claim.job.context.epoch}:{first_seq}-{last_seq}"
        return Summary(id, f"summary {next(self.numbers)}", first_seq, last_seq, 1, 2, "m", 3, self.now, ("x",))

    def commit(
        self, claim: Claim, covered: list[Message], folded: list[Summary], summary: Summary | None, keep: bool
    ) -> str:
        calls = QueueCalls(self.memory.store.keys.session(claim.name), KEEPING if keep else SETTINGS)
        outcome: str = self.run_call(calls.commit(claim.job, covered, summary, folded, self.now))
        self.same("commit", outcome, self.shard.commit(claim, len(covered), folded, summary, keep, self.now))
        return outcome

    def release_as(self, claim: Claim, backoff_ms: int, counts: bool, dead: bool) -> str:
        calls = QueueCalls(self.memory.store.keys.session(claim.name), SETTINGS)
        call = calls.release(claim.job.fence, backoff_ms, counts=counts, dead=dead, now_ms=self.now)
        outcome: str = self.run_call(call)
        self.same("release", outcome, self.shard.release(claim, backoff_ms, counts, dead, self.now))
        return outcome

    def overdue(self, name: str) -> None:
        """Gets a session into the overdue queue, due, and with too long a window, whatever it was before."""
        told = self.shard.sessions.get(name)
        if told is not None and (told.queued != "overdue" or len(told.window) > SETTINGS.max_window_count - 3):
            self.run_call(self.calls[name].clear(told.epoch))
            self.shard.remove(name, told.life)
        while name not in self.shard.sessions or len(self.shard.sessions[name].window) <= SETTINGS.threshold:
            self.append_as(name, 3, f"id {next(self.numbers)}")
        self.agrees()
        self.run_call(self.calls[name].touch(self.now))
        self.shard.touch(name, self.now)
        self.pass_time(max(0, self.shard.indexes["overdue"][name] - self.now))
