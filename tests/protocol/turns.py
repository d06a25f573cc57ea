"""What users and workers do to sessions, in any order and as late as they like."""

from __future__ import annotations

from typing import TypeVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule
from protocol.actions import LEASE_MS, NAMES, SETTINGS, Actions

from redismem import TooLarge
from redismem.protocol import queue_calls
from redismem.protocol.queue_calls import QueueCalls
from redismem.workers.summaries import plan

T = TypeVar("T")
names = st.sampled_from(NAMES)
places = st.integers(0, 20)


def newest(found: list[T], place: int) -> T:
    return found[-1 - place % len(found)]


class Turns(Actions):
    # The user's side.

    @rule(name=names)
    def append(self, name: str) -> None:
        self.append_as(name, 1, f"id {next(self.numbers)}")

    @rule(name=names, count=st.integers(2, 6))
    def append_batch(self, name: str, count: int) -> None:
        self.append_as(name, count, f"id {next(self.numbers)}")

    @precondition(lambda self: self.shard.sessions)
    @rule(name=names, place=places)
    def append_duplicate(self, name: str, place: int) -> None:
        told = self.shard.sessions.get(name)
        ids = [] if told is None else [id for id, _ in told.appends if id.startswith("id ")]
        if ids:
            self.append_as(name, 2, newest(ids, place))

    @rule(name=names, others=st.integers(0, 7))
    def append_overtaken(self, name: str, others: int) -> None:
        """Without an id: its first sending was given up, and arrives after the second one, and after others."""
        payloads, contents = self.messages(1)
        call, id = self.calls[name].append(payloads, now_ms=self.now), f"no id {next(self.numbers)}"
        for sent in (call.again(), call):
            expected = self.shard.append(name, id, next(self.numbers), contents, self.now)
            if expected is None:
                with pytest.raises(TooLarge):
                    self.run_call(sent)
                return
            self.same("append, overtaken", self.run_call(sent), expected)
            for _ in range(others if sent is not call else 0):
                self.append(name)

    @rule(name=names, value=st.integers(0, 9))
    def change_state(self, name: str, value: int) -> None:
        calls = self.calls[name]
        self.run_call(calls.update(self.now, merge={f"p{value % 2}": value}))
        self.shard.write(name, next(self.numbers), [], {f"p{value % 2}": value}, self.now)

    @rule(name=names)
    def touch(self, name: str) -> None:
        self.same("touch", self.run_call(self.calls[name].touch(self.now)), self.shard.touch(name, self.now))

    @precondition(lambda self: self.shard.sessions)
    @rule(name=names)
    def look(self, name: str) -> None:
        found = self.run_call(self.calls[name].window())
        if found is not None:
            self.views.append((name, self.shard.sessions[name].life, *found))

    @precondition(lambda self: self.views)
    @rule(place=places, keep=st.integers(0, 4), again=st.booleans())
    def prune_as_seen(self, place: int, keep: int, again: bool) -> None:
        name, life, epoch, window = newest(self.views, place)
        call = self.calls[name].prune(epoch, window, keep)
        if call is not None:
            dropped = self.run_call(call)
            first_seq = window[0].seq
            self.same(f"prune {dropped > 0}", dropped, self.shard.prune(name, life, first_seq, len(window) - keep))
            if again:
                told = self.shard.sessions.get(name)
                same = dropped > 0 and told is not None and told.life == life
                self.same("prune, repeated", self.run_call(call), dropped if same else 0)

    @precondition(lambda self: self.shard.sessions)
    @rule(name=names, keep=st.integers(0, 5), again=st.booleans())
    def prune(self, name: str, keep: int, again: bool) -> None:
        self.look(name)
        if name in self.shard.sessions:
            self.prune_as_seen(0, keep, again)

    @rule(name=names)
    def clear(self, name: str) -> None:
        told = self.shard.sessions.get(name)
        cleared = self.run_call(self.calls[name].clear("" if told is None else told.epoch))
        self.same("clear", cleared, self.shard.remove(name, None if told is None else told.life))

    @precondition(lambda self: self.views)
    @rule(place=places)
    def clear_late(self, place: int) -> None:
        name, life, epoch, _ = newest(self.views, place)
        self.same("late clear", self.run_call(self.calls[name].clear(epoch)), self.shard.remove(name, life))

    # The workers' side.

    @rule(ms=st.sampled_from([1, 500, 1000, LEASE_MS - 1, LEASE_MS, LEASE_MS + 1, 300_000, 2_000_000]))
    def time_passes(self, ms: int) -> None:
        self.pass_time(ms)

    @rule()
    def peek(self) -> None:
        indexes = self.shard.indexes
        due = [name for queue in ("overdue", "leased") for name, at in indexes[queue].items() if at <= self.now]
        found = self.run_call(queue_calls.due(self.memory.store.keys.shards(), self.now, 20))
        self.same("peek", sorted(found), sorted(due))

    @rule(name=names)
    def claims_one(self, name: str) -> None:
        self.claim(name)

    @rule(name=names)
    def claims_overdue(self, name: str) -> None:
        self.overdue(name)
        self.claim(name)

    @rule(name=names, keep=st.booleans(), more=st.integers(0, 4))
    def works(self, name: str, keep: bool, more: int) -> None:
        """All that a worker does with a session that is due, while the user goes on."""
        claim = self.claim(name)
        if claim is None:
            return
        todo = plan(claim.job.context, self.now, SETTINGS)
        for _ in range(more):
            self.append(name)
        if todo.covered:
            assert len(claim.window) - len(todo.covered) == SETTINGS.recent_limit
            self.commit_cover(claim, len(todo.covered), True, keep)
        else:
            assert len(claim.summaries) - len(todo.folded) == SETTINGS.summaries_limit // 2
            self.commit_fold(claim, len(todo.folded), keep)

    @precondition(lambda self: self.claims)
    @rule(place=places)
    def extend(self, place: int) -> None:
        claim = newest(self.claims, place)
        call = QueueCalls(self.memory.store.keys.session(claim.name), SETTINGS).extend(claim.job.fence, self.now)
        self.same("extend", self.run_call(call), self.shard.extend(claim, self.now))

    @precondition(lambda self: self.claims)
    @rule(place=places, count=st.integers(1, 12), keep=st.booleans(), more=st.integers(0, 4), again=st.booleans())
    def commit_a_cover(self, place: int, count: int, keep: bool, more: int, again: bool) -> None:
        claim = newest(self.claims, place)
        for _ in range(more):
            self.append(claim.name)
        if self.commit_cover(claim, count, True, keep) == "ok" and again:
            assert self.commit_cover(claim, count, True, keep) == "already"

    @precondition(lambda self: self.claims)
    @rule(place=places, count=st.integers(1, 12), keep=st.booleans())
    def commit_without_summary(self, place: int, count: int, keep: bool) -> None:
        self.commit_cover(newest(self.claims, place), count, False, keep)

    @precondition(lambda self: any(claim.summaries for claim in self.claims))
    @rule(place=places, count=st.integers(1, 4), keep=st.booleans())
    def commit_a_fold(self, place: int, count: int, keep: bool) -> None:
        self.commit_fold(newest([claim for claim in self.claims if claim.summaries], place), count, keep)

    @precondition(lambda self: self.claims)
    @rule(place=places, backoff_ms=st.sampled_from([0, 700, 300_000]), counts=st.booleans(), dead=st.integers(0, 4))
    def release(self, place: int, backoff_ms: int, counts: bool, dead: int) -> None:
        self.release_as(newest(self.claims, place), backoff_ms, counts, dead == 4)

    @rule(name=names, again=st.booleans())
    def requeue(self, name: str, again: bool) -> None:
        call = QueueCalls(self.memory.store.keys.session(name), SETTINGS).requeue(again=again, now_ms=self.now)
        self.same("requeue", self.run_call(call), self.shard.requeue(name, again, self.now))

    # Eviction.

    @rule()
    def observe(self) -> None:
        (found,) = self.run_call(queue_calls.oldest(self.memory.store.keys, 10))
        self.seen = [(entry.session_id, entry.active_ms) for entry in found]
        assert sorted(self.seen) == sorted(self.shard.indexes["active"].items())

    @precondition(lambda self: self.seen)
    @rule(count=st.integers(1, 3), reason=st.sampled_from(["idle", "limit"]))
    def queue_eviction(self, count: int, reason: str) -> None:
        (shard,) = self.memory.store.keys.shards()
        seen = self.seen[:count]
        chosen = [(self.memory.store.keys.session(name), active_ms) for name, active_ms in seen]
        found = self.run_call(queue_calls.queue_eviction(shard, chosen, reason, self.now))
        self.same(f"queue_eviction {found > 0}", found, self.shard.queue_eviction(seen, reason, self.now))

    @precondition(lambda self: self.shard.indexes["evictions"])
    @rule(name=names)
    def claim_eviction(self, name: str) -> None:
        held = self.run_call(QueueCalls(self.memory.store.keys.session(name), SETTINGS).claim_eviction(self.now))
        self.same("claim_eviction", held, self.shard.claim_eviction(name, self.now))
        if held:
            told = self.shard.sessions[name]
            self.in_hand.append((name, told.life, told.epoch, told.total))

    @precondition(lambda self: self.in_hand)
    @rule(place=places)
    def evict(self, place: int) -> None:
        name, life, epoch, total = newest(self.in_hand, place)
        call = QueueCalls(self.memory.store.keys.session(name), SETTINGS).evict(epoch, total)
        self.same("evict", self.run_call(call), self.shard.evict(name, life, total))

    @precondition(lambda self: self.shard.sessions)
    @rule(name=names, touched=st.sampled_from(["", "append", "state", "touch", "recreate"]), when=st.integers(0, 2))
    def evicted_unless_touched(self, name: str, touched: str, when: int) -> None:
        """Observed, chosen, taken in hand, evicted: touched in between or not."""
        touch = {
            "append": self.append,
            "state": lambda name: self.change_state(name, 1),
            "touch": self.touch,
            "recreate": lambda name: (self.clear(name), self.append(name)),
        }.get(touched, lambda _: None)
        self.pass_time(1000)
        self.observe()
        for at, step in enumerate((lambda: self.queue_eviction(3, "limit"), lambda: self.claim_eviction(name))):
            if when == at:
                touch(name)
            if self.seen:
                step()
        if when == 2:
            touch(name)
        self.claim_eviction(name)
        if self.in_hand:
            self.evict(0)
