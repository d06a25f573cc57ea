"""Random rules about owners: sessions change hands, and a process reads all sessions of an owner ever again."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from model_check.comparison import NAMES
from model_check.kept import KNOWN
from model_check.machine import names
from model_check.owners import OWNERS, modelled_index, read_index, without_quarantined
from model_check.steps import volume
from model_check.work_machine import WorkMachine
from redismem.concurrency.run_sync import run_without_loop
from redismem.recall.owner.cached import CachedOwner
from redismem.recall.owner.loading import OwnerLoader


class OwnerMachine(WorkMachine):
    """The rules of users, workers, the store and owners. At first, one owner has all sessions but `a`."""

    def __init__(self) -> None:
        super().__init__()
        self.cached: dict[str, CachedOwner] = {}
        """The sessions of each owner, as a process has read them."""
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

    @rule(name=st.sampled_from((*NAMES, "new")), owner=st.sampled_from(OWNERS))
    def recall(self, name: str, owner: str) -> None:
        """A process that has read an owner's sessions before reads them for a search in one of them."""
        self.store.dictionaries.update(KNOWN)
        volume["owner recalls"] += 1
        cached = run_without_loop(OwnerLoader(self.store, owner, name, self.cached.get(owner)).load())
        self.cached[owner] = cached
        found, expected = (
            {each for each in without_quarantined(self.model, signed) if each.name != name}
            for signed in (read_index(cached), modelled_index(self.model, owner))
        )
        assert found == expected, f"what {owner} has said"

    def settle(self) -> None:
        """Assert that each owner's sessions are read as they are."""
        super().settle()
        for owner in OWNERS:
            self.recall("new", owner)
            self.recall("a", owner)


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
