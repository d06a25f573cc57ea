"""Random rules for workers, in any order and at any time between the users' rules.

The store loses keys, is killed, or fails over to a replica that lags behind.
"""

from __future__ import annotations

import copy

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from model_check.edit_machine import EditMachine
from model_check.machine import names, newest, places
from model_check.steps import LEASE_MS, SETTINGS, Seen, volume
from redismem.originals.blocks import block_number
from redismem.protocol.call import Call
from redismem.protocol.layout import EvictionReason
from redismem.protocol.quarantine import set_block_aside
from redismem.protocol.queue import calls as queue_calls
from redismem.protocol.queue import provider_pauses
from redismem.protocol.session import pages
from redismem.workers.planning import plan


class WorkMachine(EditMachine):
    """The rules of users, workers and the store."""

    @rule(ms=st.sampled_from([1, 500, 1000, LEASE_MS - 1, LEASE_MS, LEASE_MS + 1, 300_000, 2_000_000]))
    def time_passes(self, ms: int) -> None:
        self.pass_time(ms)

    @rule()
    def peek(self) -> None:
        indexes = self.model.indexes
        due = [name for queue in ("overdue", "leased") for name, at in indexes[queue].items() if at <= self.now]
        found = self.run_call(queue_calls.due_sessions(self.store.keys.shards(), self.now, 20))
        self.same("peek", sorted(found), sorted(due))

    @rule(name=names)
    def claims_one(self, name: str) -> None:
        self.claim(name)

    @rule(name=names)
    def claims_overdue(self, name: str) -> None:
        self.make_overdue(name)
        self.claim(name)

    @rule(name=names, ms=st.sampled_from([0, 1, LEASE_MS - 1, LEASE_MS]))
    def claims_again(self, name: str, ms: int) -> None:
        """The reply of a claim is lost, and the claim is sent again `ms` later."""
        lost = self.claim(name)
        self.pass_time(ms)
        if lost is not None:
            self.claim(name, lost)

    @rule(name=names, keep=st.booleans(), more=st.integers(0, 4))
    def works(self, name: str, keep: bool, more: int) -> None:
        """A worker claims a due session and commits, while the user appends `more` messages."""
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
        call = self.queue_calls[claim.name].extend(claim.job.fence)
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

    @precondition(lambda self: any(claim.summaries for claim in self.claims))
    @rule(place=places, count=st.integers(1, 12), keep=st.booleans(), again=st.booleans())
    def commit_a_cover_and_a_fold(self, place: int, count: int, keep: bool, again: bool) -> None:
        claim = newest([claim for claim in self.claims if claim.summaries], place)
        if self.commit_both(claim, count, keep) == "ok" and again:
            assert self.commit_both(claim, count, keep) == "already"

    @precondition(lambda self: any(self.model.originals.values()))
    @rule(place=places, again=st.booleans(), late=st.booleans())
    def quarantine_block(self, place: int, again: bool, late: bool) -> None:
        """Foreign bytes get into a block, and its reader quarantines it. With `late`, it was repaired in between."""
        name, seqs = newest([item for item in self.model.originals.items() if item[1]], place)
        keys, number = self.store.keys.session(name), block_number(newest(list(seqs), place))
        block = self.run_call(pages.block(keys, number))
        foreign = pages.Block(block.number, b"foreign")
        beside = [f"s{foreign.number}", *(f"v{number}" for number in foreign.numbers)]
        if not late:
            self.run_call(Call(name, (("HSET", keys.originals, block.number, foreign.stored),), int))
            self.model.quarantine_blocks(name, block.numbers)
        for sent in range(1 + again):
            given = self.run_call(set_block_aside(keys, 77, (foreign.number, foreign.stored), beside, None, 600_000))
            assert given is (not late and sent == 0), block

    @precondition(lambda self: self.claims)
    @rule(
        place=places,
        backoff_ms=st.sampled_from([-1, 0, 700, 300_000]),
        counts=st.booleans(),
        dead=st.integers(0, 4),
        reason=st.sampled_from(["-", "openai answered 503", "ValueError"]),
    )
    def release(self, place: int, backoff_ms: int, counts: bool, dead: int, reason: str) -> None:
        self.give_back(newest(self.claims, place), backoff_ms, counts, dead == 4, reason)

    @rule(name=names, again=st.booleans())
    def requeue(self, name: str, again: bool) -> None:
        call = self.queue_calls[name].requeue(again=again)
        self.same("requeue", self.run_call(call), self.model.requeue(name, again, self.now))

    @rule(provider=st.sampled_from(["p", "q"]), place=places, paused=st.booleans(), again=st.booleans())
    def note(self, provider: str, place: int, paused: bool, again: bool) -> None:
        """A worker stores that a provider is paused or answers, by a pause that it saw now or long ago."""
        seen = newest(self.noted[provider], place // 4)
        value = b"%d" % next(self.numbers) if paused else b""
        call = provider_pauses.write_pause(self.store.keys, provider, seen, value)
        for _ in range(1 + again):
            given = self.run_call(call)
            self.same(f"note {given == value}", given, self.model.note(provider, seen, value))
        self.noted[provider].append(given)
        self.same("noted", self.run_call(provider_pauses.read_pause(self.store.keys, provider)), given)

    # Eviction.

    @rule()
    def observe(self) -> None:
        (found,) = self.run_call(queue_calls.oldest_sessions(self.store.keys, 10))
        self.observed = [(entry.session_id, entry.active_ms) for entry in found]
        counted = {name: active_ms for name, active_ms in self.model.indexes["active"].items() if active_ms >= 0}
        assert sorted(self.observed) == sorted(counted.items())

    @precondition(lambda self: self.observed)
    @rule(
        count=st.integers(1, 3),
        reason=st.sampled_from(["idle", "limit"]),
        kept=st.booleans(),
        soon_ms=st.sampled_from([0, 3_600_000]),
    )
    def queue_eviction(self, count: int, reason: str, kept: bool = True, soon_ms: int = 3_600_000) -> None:
        (shard,) = self.store.keys.shards()
        seen = self.observed[:count]
        chosen = [(self.store.keys.session(name), active_ms) for name, active_ms in seen]
        call = queue_calls.queue_eviction(shard, chosen, EvictionReason(reason), self.store.clock, kept, soon_ms)
        found = self.run_call(call)
        expected = self.model.queue_eviction(seen, reason, kept, soon_ms, self.now)
        self.same(f"queue_eviction {found[0] > 0}", found, expected)

    @precondition(lambda self: self.model.indexes["evictions"])
    @rule(name=names, again_ms=st.sampled_from([None, 0, LEASE_MS - 1, LEASE_MS]))
    def claim_eviction(self, name: str, again_ms: int | None = None) -> None:
        """Claim an eviction, and again `again_ms` later if the reply is lost."""
        call = self.queue_calls[name].claim_eviction()
        self.take_in_hand(name, call)
        if again_ms is not None:
            self.pass_time(again_ms)
            self.take_in_hand(name, call, "claim_eviction again")

    def take_in_hand(self, name: str, call: Call[bool], what: str = "claim_eviction") -> None:
        held = self.run_call(self.sent_now(call))
        assert call.named is not None
        self.same(what, held, self.model.claim_eviction(name, self.now, call.named["nonce"].decode()))
        if held:
            session = self.model.sessions[name]
            view = self.view(name)
            assert view is not None
            self.in_hand.append(Seen(name, session.life, session.written, view))

    @precondition(lambda self: self.in_hand)
    @rule(place=places)
    def evict(self, place: int) -> None:
        name, _, number, view = newest(self.in_hand, place)
        evicted = self.run_call(self.queue_calls[name].evict(view))
        self.same("evict", evicted, self.model.evict(name, number))

    # The store itself.

    @rule(some=st.sets(names, min_size=1))
    def sweep(self, some: set[str]) -> None:
        (shard,) = self.store.keys.shards()
        swept = sorted(some)
        call = queue_calls.sweep(shard, [self.store.keys.session(name) for name in swept], SETTINGS, self.store.clock)
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
        """Promote a replica that lags behind, so that clients know more than Redis stores."""
        assert self.snapshot is not None
        stored, model, self.fence_count = self.snapshot
        owners = self.model.owners
        owners_then = {name: session.owner for name, session in model.sessions.items()}
        self.send(("FLUSHALL",))
        for key, expires_ms, dump in stored:
            assert self.send(("RESTORE", key, max(0, expires_ms), dump, "ABSTTL")) == [b"OK"]
        self.model = copy.deepcopy(model)
        # A session refuses handles that name another owner than it had.
        self.calls |= {name: self.store.session_calls(name, owner) for name, owner in owners_then.items()}
        self.model.owners = {name: owner for name, owner in {**owners, **owners_then}.items() if owner is not None}
        self.clears.clear()  # the notes of these clears may be lost
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
