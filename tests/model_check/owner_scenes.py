"""Scenes of owners: recall over their sessions while these are edited, removed and change hands."""

from __future__ import annotations

from model_check.owner_machine import OwnerMachine, change
from model_check.work_scenes import Scene, variants

HOW = ("clear", "pop", "prune", "forget", "append")


def owned(machine: OwnerMachine, name: str) -> str:
    """Begin two sessions of one owner, read them, and return the other's name."""
    other = "b" if name != "b" else "c"
    for each in (name, other):
        machine.clear(each)
        machine.belong(each, "ann")
        machine.append_batch(each, 6)
        machine.works(each, True, 0)
        machine.recall(each, "ann")
    return other


def recalled_through_changes(machine: OwnerMachine, name: str, how: str) -> None:
    """A process that has read both sessions finds what changes in either."""
    other = owned(machine, name)
    for each in (name, other):
        change(machine, each, how)
        machine.recall("new", "ann")
        machine.recall(each, "ann")


def changed_hands(machine: OwnerMachine, name: str, cleared: bool) -> None:
    """A session belongs to another owner in its next life."""
    owned(machine, name)
    machine.clear(name) if cleared else machine.vanish(name)
    machine.belong(name, "bob")
    machine.append_batch(name, 3)
    for owner in ("ann", "bob"):
        machine.recall("new", owner)


def begun_without_owner(machine: OwnerMachine, name: str) -> None:
    """A session expires, and its next life belongs to nobody."""
    owned(machine, name)
    machine.vanish(name)
    machine.belong(name, None)
    machine.append(name)
    machine.agrees()
    machine.recall("new", "ann")


OWNED: tuple[Scene, ...] = (
    *variants(recalled_through_changes, how=HOW),
    *variants(changed_hands, cleared=(True, False)),
    begun_without_owner,
)
