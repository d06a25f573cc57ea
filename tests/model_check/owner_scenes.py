"""Scenes of owners: their indexes while sessions are edited, removed and change hands, and processes die."""

from __future__ import annotations

from model_check.machine import POLICIES
from model_check.owner_machine import OwnerMachine, change
from model_check.work_scenes import Scene, variants
from redismem.protocol.owner.calls import SOON_MS

HOW = ("clear", "pop", "prune", "forget")


def owned(machine: OwnerMachine, name: str) -> str:
    """Begin two sessions of one owner, index them, and return the other's name."""
    other = "b" if name != "b" else "c"
    for each in (name, other):
        machine.clear(each)
        machine.belong(each, "ann")
        machine.append_batch(each, 6)
        machine.works(each, True, 0)
        machine.update_index(each, "ann", True)
    machine.indexed()
    return other


def indexed_through_changes(machine: OwnerMachine, name: str, how: str) -> None:
    """The index follows the changes of both sessions."""
    other = owned(machine, name)
    for each in (name, other):
        change(machine, each, how)
        machine.mends()
    machine.indexed()


def died_in_a_change(machine: OwnerMachine, name: str, how: str) -> None:
    """A process dies after a change, and a worker checks the index a minute after the first such change."""
    other = owned(machine, name)
    machine.pass_time(SOON_MS + 1)
    machine.check()
    machine.dies_in_a_change(name, how)
    machine.pass_time(SOON_MS // 2)
    change(machine, other, "pop")
    machine.mends(SOON_MS // 2 + 1)


def died_during_a_check(machine: OwnerMachine, name: str, how: str, after: int) -> None:
    """Another process changes a session while a worker checks the index, and dies."""
    owned(machine, name)
    machine.note_index("ann")
    machine.pass_time(SOON_MS)
    machine.check_interrupted(name, how, after)
    machine.mends()


def changed_hands(machine: OwnerMachine, name: str, cleared: bool) -> None:
    """A session belongs to another owner in its next life."""
    owned(machine, name)
    machine.clear(name) if cleared else machine.vanish(name)
    machine.belong(name, "bob")
    machine.append_batch(name, 3)
    machine.update_index(name, "bob", True)
    machine.mends()
    machine.indexed()


def begun_without_owner(machine: OwnerMachine, name: str) -> None:
    """A session expires, and its next life belongs to nobody."""
    owned(machine, name)
    machine.vanish(name)
    machine.belong(name, None)
    machine.append(name)
    machine.agrees()
    machine.mends()
    machine.indexed()


def outlived(machine: OwnerMachine, name: str) -> None:
    """An index expires after the last of its sessions, whichever was updated last."""
    other = owned(machine, name)
    machine.set_policy(name, POLICIES[2])
    for each in (name, other):
        machine.append(each)
        machine.update_index(each, "ann", True)
    machine.outlives("ann", name, other)


OWNED: tuple[Scene, ...] = (
    *variants(indexed_through_changes, how=HOW),
    *variants(died_in_a_change, how=HOW),
    *variants(died_during_a_check, how=("clear", "forget"), after=range(5)),
    *variants(changed_hands, cleared=(True, False)),
    begun_without_owner,
    outlived,
)
