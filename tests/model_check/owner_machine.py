"""Random rules about owners: sessions change hands, indexes are built and checked, and processes die in between."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from model_check.comparison import NAMES
from model_check.kept import KNOWN
from model_check.machine import names
from model_check.owners import OWNERS, Signed, decode_index, modelled_index, modelled_words, without_quarantined
from model_check.steps import SETTINGS, volume
from model_check.work_machine import WorkMachine
from redismem.concurrency.run_sync import run_without_loop
from redismem.inspection.invariants import Violation
from redismem.inspection.owners import check_owners
from redismem.protocol.call import Call
from redismem.protocol.owner import calls
from redismem.protocol.owner.calls import LONGEST_MS, SOON_MS
from redismem.protocol.owner.entries import ANNOUNCED_PART, VERSION_FIELD
from redismem.recall.owner.upkeep import OwnerIndex
from redismem.store.store import Store
from redismem.workers.owner_indexes import OwnerChecks

T = TypeVar("T")


class OwnerMachine(WorkMachine):
    """The rules of users, workers, the store and owners. At first, one owner has all sessions but `a`."""

    def __init__(self) -> None:
        super().__init__()
        self.versions: dict[tuple[str, bytes], set[Signed]] = {}
        """The content of each version of an index that was read."""
        self.belong("b", "ann")
        self.belong("c", "ann")

    @rule(name=names, owner=st.sampled_from((None, *OWNERS)))
    def belong(self, name: str, owner: str | None) -> None:
        """Let the next life of a session belong to another owner, whose handles its present life would refuse."""
        if name in self.model.sessions:
            self.clear(name)
        self.calls[name] = self.store.session_calls(name, owner)
        self.model.owners = {other: each for other, each in self.model.owners.items() if other != name}
        if owner is not None:
            self.model.owners[name] = owner
        self.sweep_unowned()

    def vanish(self, name: str) -> None:
        super().vanish(name)
        self.sweep_unowned()

    @invariant()
    def agrees(self) -> None:
        self.sweep_unowned()
        super().agrees()

    def sweep_unowned(self) -> None:
        """Sweep the sessions that are gone, had an owner, and have none in their next life.

        An append without an owner has not the key of the index of owners. If it begins a session whose entry has not
        been swept yet, `check` reports the entry until the next sweep.
        """
        (shard,) = self.store.keys.shards()
        for name in {*NAMES} - self.model.sessions.keys() - self.model.owners.keys():
            if self.send(("ZSCORE", shard.owners, name)) != [None]:
                self.sweep({name})

    @rule(name=names, owner=st.sampled_from(OWNERS), with_window=st.booleans())
    def update_index(self, name: str, owner: str, with_window: bool) -> None:
        self.store.dictionaries.update(KNOWN)
        run_without_loop(OwnerIndex(self.store, owner).update(name, with_window=with_window))

    @rule(owner=st.sampled_from(OWNERS))
    def note_index(self, owner: str) -> None:
        """A search has found a session that is gone, so a worker must check the index."""
        run_without_loop(OwnerIndex(self.store, owner).note())

    @rule(name=names, how=st.sampled_from(["clear", "pop", "prune", "forget", "append"]))
    def dies_in_a_change(self, name: str, how: str) -> None:
        self.dies = True
        change(self, name, how)
        self.dies = False

    @rule(name=names, how=st.sampled_from(["clear", "pop", "forget", "append"]), after=st.integers(0, 12))
    def check_interrupted(self, name: str, how: str, after: int) -> None:
        """A worker checks the indexes that are due. Before one of its calls, another process changes a session."""
        self.check_due(Interrupted(self, after, lambda: self.dies_in_a_change(name, how)))

    @rule()
    def check(self) -> None:
        self.check_due(self.store)

    def check_due(self, store: Store) -> None:
        """Check the indexes that are due, as a worker does."""
        store.dictionaries.update(KNOWN)
        for owner, due_ms in self.due_indexes():
            volume["owner checks"] += 1
            run_without_loop(OwnerChecks(store).check(owner, due_ms, self.now))

    def due_indexes(self) -> list[tuple[str, int]]:
        shards = self.run_call(calls.due_indexes(self.store.keys.prefixes(), self.now, 10))
        return [pair for shard in shards for pair in shard or ()]

    def read_index(self, owner: str) -> set[Signed]:
        """Return an owner's index. A version never has two contents."""
        stored = self.run_call(calls.read_index(calls.owner_keys(self.store.keys, owner)))
        signed = decode_index(stored)
        announced = any(name.startswith(b"%d:" % ANNOUNCED_PART) for name in stored)
        assert bool(stored) == bool(signed) or announced, f"the index of {owner} is empty, and is there"
        if stored:
            assert VERSION_FIELD in stored, f"the index of {owner} has no version"
            assert self.versions.setdefault((owner, stored[VERSION_FIELD]), signed) == signed, (
                "a change keeps its version"
            )
        return without_quarantined(self.model, signed)

    # What holds once the workers have checked the indexes.

    def mends(self, after_ms: int = SOON_MS + 1) -> None:
        """Assert that a worker mends the indexes within a minute: they have no words that were removed."""
        self.pass_time(after_ms)
        self.check()
        assert self.due_indexes() == [], "checked, and due all the same"
        for owner in OWNERS:
            for name, epoch, number, hashes in self.read_index(owner):
                assert epoch not in self.model.removed, f"the index of {owner} has a removed session {name}"
                session = self.model.sessions.get(name)
                if session is not None and (session.epoch, session.owner) == (epoch, owner):
                    words = modelled_words(session, self.model.originals.get(name, {}), with_pinned=True)
                    assert hashes <= words.get(number, set()), f"the index of {owner} has words that {name} has not"

    def indexed(self) -> None:
        """Assert that the indexes equal the sessions, once all have been indexed and checked."""
        for name, session in self.model.sessions.items():
            if session.owner is not None:
                self.update_index(name, session.owner, True)
        for owner in OWNERS:
            run_without_loop(OwnerChecks(self.store).check(owner, self._due_ms(owner), self.now))
            expected = modelled_index(self.model, owner)
            assert self.read_index(owner) == expected, f"the index of {owner}"
            if expected:
                self.outlives(owner, *(each.name for each in expected))
        assert self.model.quarantined or run_without_loop(self._index_violations()) == []

    def outlives(self, owner: str, *names: str) -> None:
        """Assert that the index expires, a day after these sessions or later."""
        lives_ms = max(self.model.sessions[name].expires_ms for name in names) + LONGEST_MS
        (expires_ms,) = self.send(("PEXPIRETIME", calls.owner_keys(self.store.keys, owner).index))
        assert expires_ms >= lives_ms, f"the index of {owner} expires at {expires_ms}, and should at {lives_ms}"

    def settle(self) -> None:
        """Assert that the indexes end equal to the sessions, and go with them."""
        super().settle()
        if any(self.send(("EXISTS", self.store.keys.prefixes()[0] + b":indexes"))) or any(
            session.owner for session in self.model.sessions.values()
        ):
            self.mends()
            self.indexed()
            for name in list(self.model.sessions):
                self.vanish(name)
            self.now += LONGEST_MS
            self.check()
            assert self.send(("KEYS", "*:index*")) == [[]], "the index of an owner without sessions is there"

    def _due_ms(self, owner: str) -> int:
        (due_ms,) = self.send(("ZSCORE", calls.owner_keys(self.store.keys, owner).indexes, owner))
        return int(due_ms or 0)

    async def _index_violations(self) -> list[Violation]:
        return [violation async for violation in check_owners(self.store)]


class Interrupted(Store):
    """The store of a worker. Before its call number `after`, something else happens."""

    def __init__(self, machine: OwnerMachine, after: int, meanwhile: Callable[[], None]) -> None:
        super().__init__(machine.lane, "m", SETTINGS, lambda: machine.now)
        self._after = after
        self._meanwhile = meanwhile

    def run(self, call: Call[T], *, quarantine: bool = False, begun_s: float | None = None) -> Coroutine[Any, Any, T]:
        self._after -= 1
        if self._after == -1:
            self._meanwhile()
        return super().run(call, quarantine=quarantine, begun_s=begun_s)


def change(machine: OwnerMachine, name: str, how: str) -> None:
    """Change the messages of a session, or remove it."""
    if how == "clear":
        machine.clear(name)
    elif how == "pop":
        machine.pop(name, 1, False)
    elif how == "prune":
        machine.prune(name, 1, False)
    elif how == "forget":
        machine.forget(name, 2, 2, True, False)
    else:
        machine.append(name)
