"""The queue protocol, played by chance and by directed rules, where chance alone would take too long to get there."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st
from hypothesis.stateful import rule
from protocol.actions import LEASE_MS, SETTINGS
from protocol.faults import Faults
from protocol.told import INDEXES, QUEUES
from protocol.turns import names

FINDERS = (
    *(("dead", by) for by in ("claim", "queue_eviction", "requeue")),
    *(("evictions", by) for by in ("claim_eviction", "sweep")),
    ("overdue", "claim"),
    ("leased", "claim"),
)
"""An index, and who comes across a session there."""


class Machine(Faults):
    """The turns, and what goes wrong."""

    @rule(name=names, index=st.sampled_from(INDEXES))
    def torn_and_swept(self, name: str, index: str) -> None:
        """An index loses an entry, and another has one too many, as a store that drops keys would have it."""
        (shard,) = self.memory.store.keys.shards()
        self.bring_into(name, index)
        self.wire.send(("ZREM", getattr(shard, index), name))
        self.shard.indexes[index].pop(name, None)
        self.sweep({name})
        self.agrees()
        for queue in QUEUES:
            if name not in self.shard.indexes[queue]:
                self.wire.send(("ZADD", getattr(shard, queue), self.now, name))
                self.shard.indexes[queue][name] = self.now
        self.sweep({name})

    def bring_into(self, name: str, index: str) -> None:
        """Gets a session into an index."""
        if index == "dead":
            self.poison(name, True)
        elif index in QUEUES or name not in self.shard.sessions:
            self.overdue(name)
        if index == "leased":
            self.claim(name)
        elif index == "evictions":
            self.observe()
            self.queue_eviction(3, "limit")

    @rule(name=names, where=st.sampled_from(FINDERS))
    def expired_and_found(self, name: str, where: tuple[str, str]) -> None:
        """Whoever comes across a session that has expired cleans up behind it."""
        index, by = where
        self.bring_into(name, index)
        self.observe()
        self.vanish(name)
        found: dict[str, Callable[[], object]] = {
            "claim": lambda: self.claim(name),
            "queue_eviction": lambda: self.queue_eviction(3, "idle"),
            "claim_eviction": lambda: self.claim_eviction(name),
            "sweep": lambda: self.sweep({name}),
            "requeue": lambda: self.requeue(name, True),
        }
        found[by]()

    @rule(name=names, keep=st.booleans())
    def expired_with_originals(self, name: str, keep: bool) -> None:
        """Originals outlive their session, and must not be taken for the next one's."""
        self.overdue(name)
        self.works(name, True, 0)
        self.vanish(name)
        self.overdue(name)
        self.works(name, True, 0)
        self.agrees()
        self.append_batch(name, 4)
        self.works(name, keep, 0)

    @rule(name=names, count=st.integers(1, 3), cleared=st.booleans())
    def evicted_later(self, name: str, count: int, cleared: bool) -> None:
        """A worker that hands over a transcript is slow, and finds a session that only looks the same."""
        self.clear(name)
        for _ in range(2):
            self.append_batch(name, count)
            self.observe()
            self.queue_eviction(3, "limit")
            self.claim_eviction(name)
            if cleared:
                self.clear(name)
        if cleared:
            self.append_batch(name, count)
            self.observe()
            self.queue_eviction(3, "limit")
        self.in_hand.append(self.in_hand[-2])
        self.evict(0)

    @rule(name=names, then=st.sampled_from(["evict", "prune", "prune as seen before"]))
    def works_with_originals(self, name: str, then: str) -> None:
        self.overdue(name)
        self.look(name)
        self.works(name, True, 0)
        self.agrees()
        if then == "evict":
            self.bring_into(name, "evictions")
            self.claim_eviction(name)
            self.claim_eviction(name)
            self.evict(0)
        elif then == "prune":
            self.prune(name, 1, True)
        else:
            self.prune_as_seen(0, 1, True)

    @rule(name=names)
    def extended_in_time(self, name: str) -> None:
        self.overdue(name)
        self.claim(name)
        self.pass_time(LEASE_MS - 1)
        self.extend(0)
        self.pass_time(LEASE_MS - 1)
        assert self.claim(name) is None

    @rule(name=names, count=st.integers(2, 4))
    def pruned_in_another_life(self, name: str, count: int) -> None:
        self.clear(name)
        self.append_batch(name, count)
        self.look(name)
        self.clear(name)
        self.append_batch(name, count)
        self.prune_as_seen(0, 1, False)
        self.prune(name, 1, True)

    @rule(name=names)
    def expired_while_leased(self, name: str) -> None:
        """No lease of the session that is gone may keep the new one from being claimed, nor write into it."""
        self.overdue(name)
        late = self.claim(name)
        self.vanish(name)
        self.overdue(name)
        if late is not None:
            assert self.commit_cover(late, 3, True, False) == "gone"
            assert self.release_as(late, 0, True, False) == "fenced"
        assert self.claim(name) is not None

    @rule(name=names, release=st.booleans())
    def superseded(self, name: str, release: bool) -> None:
        """A worker that was slow comes back after another has taken over, and after that one has committed."""
        self.overdue(name)
        late = self.claim(name)
        self.pass_time(LEASE_MS)
        faster = self.claim(name)
        if late is None or faster is None:
            return
        assert self.commit_cover(late, 3, True, False) == "fenced"
        assert self.release_as(late, 0, True, False) == "fenced"
        if release:
            assert self.release_as(faster, 700, True, False) in ("ok", "dead")
            self.claim(name)
        else:
            assert self.commit_cover(faster, 3, True, True) == "ok"
            assert self.commit_cover(faster, 3, True, True) == "already"
        assert self.commit_cover(late, 3, True, False) == "fenced"

    @rule(name=names, crash=st.booleans())
    def poison(self, name: str, crash: bool) -> None:
        """A session that no worker gets done with ends among the dead, after no more attempts than allowed."""
        self.overdue(name)
        for _ in range(SETTINGS.max_attempts + 1):
            claim = self.claim(name)
            if claim is not None and not crash:
                self.release_as(claim, 0, True, False)
            self.agrees()
            self.pass_time(LEASE_MS)
        assert self.shard.sessions[name].queued == "dead"

    @rule(name=names, again=st.booleans())
    def retried_or_dropped(self, name: str, again: bool) -> None:
        self.poison(name, True)
        self.requeue(name, again)
        self.agrees()
        assert (self.claim(name) is not None) == again
        self.append(name)

    @rule(name=names, keep=st.integers(0, 4))
    def pruned_while_leased(self, name: str, keep: int) -> None:
        self.overdue(name)
        claim = self.claim(name)
        self.prune(name, keep, False)
        if claim is not None:
            assert self.commit_cover(claim, 2, True, False) == "stale"
            self.agrees()
            self.release_as(claim, 0, False, False)

    @rule(name=names, kept=st.lists(st.booleans(), min_size=3, max_size=5))
    def summarised_again_and_again(self, name: str, kept: list[bool]) -> None:
        """Summaries add up until they are folded, with originals and without."""
        for keep in kept:
            if name not in self.shard.indexes["overdue"]:
                self.append_batch(name, 5)
                self.agrees()
            self.works(name, keep, 3 if len(kept) == 4 else 0)
            self.agrees()

    @rule(name=names, count=st.integers(5, 6))
    def failover_race(self, name: str, count: int) -> None:
        """A claim is lost with its master; its worker must not commit over messages that it has never seen."""
        if len(self.shard.sessions[name].window) if name in self.shard.sessions else 0:
            self.clear(name)
        self.append_batch(name, count)
        self.agrees()
        self.remember()
        late = self.claim(name)
        self.roll_back()
        self.prune(name, 1, False)
        self.append_batch(name, count)
        self.claim(name)
        if late is not None:
            self.commit_cover(late, 3, True, False)
            self.release_as(late, 0, True, False)

    @rule(name=names)
    def failover_loses_a_session(self, name: str) -> None:
        self.clear(name)
        self.remember()
        self.append(name)
        self.look(name)
        self.roll_back()
        self.append(name)
        self.clear_late(0)
