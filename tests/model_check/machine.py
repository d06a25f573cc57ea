"""The queue protocol, played by chance.

Users and workers do what they do in any order, and as late as they like. The store itself loses keys, is killed, or is
replaced by one that lags behind.
"""

from __future__ import annotations

import copy
from typing import TypeVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from model_check import scenes, work_scenes
from model_check.comparison import NAMES
from model_check.steps import LEASE_MS, SETTINGS, Steps, volume
from model_check.work_scenes import Scene
from redismem import TooLarge
from redismem.protocol import queue_calls
from redismem.protocol.layout import EvictionReason
from redismem.workers.summaries import plan

T = TypeVar("T")
names = st.sampled_from(NAMES)
places = st.integers(0, 20)


def newest(found: list[T], place: int) -> T:
    """Gives the newest of them at place 0, the one before at 1, and round again."""
    return found[-1 - place % len(found)]


class Machine(Steps):
    """The rules; each can be called too, as the scenes do."""

    # The user's side.

    @rule(name=names)
    def append(self, name: str) -> None:
        self.append_as(name, 1, f"id {next(self.numbers)}")

    @rule(name=names, count=st.integers(2, 6))
    def append_batch(self, name: str, count: int) -> None:
        self.append_as(name, count, f"id {next(self.numbers)}")

    @precondition(lambda self: self.model.sessions)
    @rule(name=names, place=places)
    def append_duplicate(self, name: str, place: int) -> None:
        session = self.model.sessions.get(name)
        ids = [] if session is None else [id for id, _ in session.appends if id.startswith("id ")]
        if ids:
            self.append_as(name, 2, newest(ids, place))

    @rule(name=names, others=st.integers(0, 7))
    def append_overtaken(self, name: str, others: int) -> None:
        """An append without an id is given up and sent again; its first sending arrives last, after others too."""
        payloads, contents = self.messages(1)
        call, id = self.calls[name].append(payloads, {"now_ms": self.now}), f"no id {next(self.numbers)}"
        for sent in (call.again(), call):
            expected = self.model.append(name, id, next(self.numbers), contents, self.now)
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
        self.model.write(name, next(self.numbers), [], {f"p{value % 2}": value}, self.now)

    @rule(name=names)
    def touch(self, name: str) -> None:
        self.same("touch", self.run_call(self.calls[name].touch(self.now)), self.model.touch(name, self.now))

    @precondition(lambda self: self.model.sessions)
    @rule(name=names)
    def look(self, name: str) -> None:
        found = self.run_call(self.calls[name].window())
        if found is not None:
            self.views.append((name, self.model.sessions[name].life, *found))

    @precondition(lambda self: self.views)
    @rule(place=places, keep=st.integers(0, 4), again=st.booleans())
    def prune_as_seen(self, place: int, keep: int, again: bool) -> None:
        name, life, epoch, window = newest(self.views, place)
        call = self.calls[name].prune(epoch, window, keep)
        if call is not None:
            dropped = self.run_call(call)
            first_seq = window[0].seq
            self.same(f"prune {dropped > 0}", dropped, self.model.prune(name, life, first_seq, len(window) - keep))
            if again:
                session = self.model.sessions.get(name)
                same = dropped > 0 and session is not None and session.life == life
                self.same("prune, repeated", self.run_call(call), dropped if same else 0)

    @precondition(lambda self: self.model.sessions)
    @rule(name=names, keep=st.integers(0, 5), again=st.booleans())
    def prune(self, name: str, keep: int, again: bool) -> None:
        self.look(name)
        if name in self.model.sessions:
            self.prune_as_seen(0, keep, again)

    @rule(name=names)
    def clear(self, name: str) -> None:
        session = self.model.sessions.get(name)
        cleared = self.run_call(self.calls[name].clear("" if session is None else session.epoch))
        self.same("clear", cleared, self.model.remove(name, None if session is None else session.life))

    @precondition(lambda self: self.views)
    @rule(place=places)
    def clear_late(self, place: int) -> None:
        name, life, epoch, _ = newest(self.views, place)
        self.same("late clear", self.run_call(self.calls[name].clear(epoch)), self.model.remove(name, life))

    # The workers' side.

    @rule(ms=st.sampled_from([1, 500, 1000, LEASE_MS - 1, LEASE_MS, LEASE_MS + 1, 300_000, 2_000_000]))
    def time_passes(self, ms: int) -> None:
        self.pass_time(ms)

    @rule()
    def peek(self) -> None:
        indexes = self.model.indexes
        due = [name for queue in ("overdue", "leased") for name, at in indexes[queue].items() if at <= self.now]
        found = self.run_call(queue_calls.due(self.store.keys.shards(), self.now, 20))
        self.same("peek", sorted(found), sorted(due))

    @rule(name=names)
    def claims_one(self, name: str) -> None:
        self.claim(name)

    @rule(name=names)
    def claims_overdue(self, name: str) -> None:
        self.make_overdue(name)
        self.claim(name)

    @rule(name=names, keep=st.booleans(), more=st.integers(0, 4))
    def works(self, name: str, keep: bool, more: int) -> None:
        """A worker does all it does with a session that is due, while the user goes on."""
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
        call = self.queue_calls[claim.name].extend(claim.job.fence, self.now)
        self.same("extend", self.run_call(call), self.model.extend(claim, self.now))

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
        self.give_back(newest(self.claims, place), backoff_ms, counts, dead == 4)

    @rule(name=names, again=st.booleans())
    def requeue(self, name: str, again: bool) -> None:
        call = self.queue_calls[name].requeue(again=again, now_ms=self.now)
        self.same("requeue", self.run_call(call), self.model.requeue(name, again, self.now))

    # Eviction.

    @rule()
    def observe(self) -> None:
        (found,) = self.run_call(queue_calls.oldest(self.store.keys, 10))
        self.observed = [(entry.session_id, entry.active_ms) for entry in found]
        assert sorted(self.observed) == sorted(self.model.indexes["active"].items())

    @precondition(lambda self: self.observed)
    @rule(count=st.integers(1, 3), reason=st.sampled_from(["idle", "limit"]))
    def queue_eviction(self, count: int, reason: str) -> None:
        (shard,) = self.store.keys.shards()
        seen = self.observed[:count]
        chosen = [(self.store.keys.session(name), active_ms) for name, active_ms in seen]
        found = self.run_call(queue_calls.queue_eviction(shard, chosen, EvictionReason(reason), self.now))
        self.same(f"queue_eviction {found > 0}", found, self.model.queue_eviction(seen, reason, self.now))

    @precondition(lambda self: self.model.indexes["evictions"])
    @rule(name=names)
    def claim_eviction(self, name: str) -> None:
        held = self.run_call(self.queue_calls[name].claim_eviction(self.now))
        self.same("claim_eviction", held, self.model.claim_eviction(name, self.now))
        if held:
            session = self.model.sessions[name]
            self.in_hand.append((name, session.life, session.epoch, session.total))

    @precondition(lambda self: self.in_hand)
    @rule(place=places)
    def evict(self, place: int) -> None:
        name, life, epoch, total = newest(self.in_hand, place)
        call = self.queue_calls[name].evict(epoch, total)
        self.same("evict", self.run_call(call), self.model.evict(name, life, total))

    # The store itself.

    @rule(some=st.sets(names, min_size=1))
    def sweep(self, some: set[str]) -> None:
        (shard,) = self.store.keys.shards()
        swept = sorted(some)
        call = queue_calls.sweep(shard, [self.store.keys.session(name) for name in swept], self.now)
        self.same("sweep", self.run_call(call), self.model.sweep(swept, self.now))

    @rule(name=names)
    def expire(self, name: str) -> None:
        self.vanish(name)

    @rule()
    def remember(self) -> None:
        keys = self.send(("KEYS", "*"))[0]
        stored = [(key, *self.send(("PEXPIRETIME", key), ("DUMP", key))) for key in keys]
        self.snapshot = (stored, copy.deepcopy(self.model), self.fence_count)

    @precondition(lambda self: self.snapshot is not None)
    @rule()
    def roll_back(self) -> None:
        """A replica that had not got the latest is promoted: what the clients know is ahead of what is stored."""
        assert self.snapshot is not None
        stored, model, self.fence_count = self.snapshot
        self.send(("FLUSHALL",))
        for key, expires_ms, dump in stored:
            assert self.send(("RESTORE", key, max(0, expires_ms), dump, "ABSTTL")) == [b"OK"]
        self.model = copy.deepcopy(model)
        self.pass_time(0)

    @rule()
    def scripts_forgotten(self) -> None:
        self.send(("SCRIPT", "FLUSH"))

    @precondition(lambda self: self.restarts_left)
    @rule(really=st.booleans())
    def killed(self, really: bool) -> None:
        if really and self.restarts_left:
            self.restarts_left -= 1
            volume["restarts"] += 1
            self.server.kill()
            self.server.start()
            self.connect()

    # Whole scenes, where chance alone would take too long to get there.

    @rule(name=names, scene=st.sampled_from(scenes.USERS))
    def scene_of_users(self, name: str, scene: Scene) -> None:
        scene(self, name)

    @rule(name=names, scene=st.sampled_from(work_scenes.LEASES))
    def scene_of_leases(self, name: str, scene: Scene) -> None:
        scene(self, name)

    @rule(name=names, scene=st.sampled_from(work_scenes.DEAD))
    def scene_of_dead(self, name: str, scene: Scene) -> None:
        scene(self, name)

    @rule(name=names, scene=st.sampled_from(work_scenes.ORIGINALS))
    def scene_of_originals(self, name: str, scene: Scene) -> None:
        scene(self, name)

    @rule(name=names, scene=st.sampled_from(scenes.EVICTIONS))
    def scene_of_evictions(self, name: str, scene: Scene) -> None:
        scene(self, name)

    @rule(name=names, scene=st.sampled_from(scenes.LOSSES))
    def scene_of_losses(self, name: str, scene: Scene) -> None:
        scene(self, name)
