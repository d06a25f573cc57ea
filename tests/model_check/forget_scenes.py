"""Scenes of users who forget messages, in the window and behind summaries."""

from __future__ import annotations

from model_check.edit_scenes import afresh, look_before_a_fold
from model_check.work_machine import WorkMachine
from model_check.work_scenes import BOTH, Scene, variants


def forgotten_behind_a_summary(machine: WorkMachine, name: str, keep: bool, drops: bool) -> None:
    """Messages go from summaries, blocks and pins, one after the other, and each call is sent twice."""
    afresh(machine, name, 2, 6)
    machine.works(name, keep, 1)
    machine.append_batch(name, 6)
    machine.works(name, keep, 0)
    machine.agrees()
    machine.forget(name, 11, 2, drops, True)
    machine.agrees()
    for which in (12, 13, 4, 2, 3):
        machine.forget(name, which, 1, drops, which % 2 == 0)
        machine.agrees()
    machine.append_batch(name, 6)
    machine.works(name, keep, 1)
    machine.agrees()


def forgotten_block(machine: WorkMachine, name: str) -> None:
    """All messages of a block go, so that no block is left."""
    afresh(machine, name, 0, 6)
    machine.works(name, True, 0)
    left_count = machine.model.sessions[name].first_seq - 1
    machine.forget(name, machine.model.sessions[name].total - left_count, left_count, False, True)
    machine.agrees()
    machine.append_batch(name, 5)
    machine.works(name, True, 0)
    machine.agrees()


def forgotten_one_by_one(machine: WorkMachine, name: str) -> None:
    """Single gaps become one, from both sides; a pinned message leaves the same gap."""
    afresh(machine, name, 1, 5)
    for which in (2, 4, 3, 5, 0):
        machine.forget(name, which, 1, False, False)
        machine.agrees()
    machine.append(name)
    machine.agrees()


def forgotten_behind_a_writer(machine: WorkMachine, name: str, how: str) -> None:
    """Another writer or a worker changes the session between the read and the removal."""
    afresh(machine, name, 1, 6)
    machine.works(name, True, 0)
    machine.append_batch(name, 6)
    machine.works(name, True, 0)
    machine.append_batch(name, 3)
    machine.look(name)
    late = machine.views[-1]
    if how == "commit":
        machine.works(name, True, 0)
    elif how == "append":
        machine.append(name)
    elif how == "prune":
        machine.prune(name, 1, False)
    else:
        machine.replace_as_seen(0, 0, False)
    machine.views.append(late)
    machine.forget_as_seen(0, 0, 2, False, False)
    machine.agrees()
    machine.views.append(late)
    machine.forget_as_seen(0, 12, 3, True, False)
    machine.agrees()


def forgotten_behind_a_fold(machine: WorkMachine, name: str) -> None:
    """Summaries are folded between the read and the removal, which moves neither the window nor the version."""
    late = look_before_a_fold(machine, name)
    machine.forget_as_seen(0, late.view.context.last_seq - 2, 1, True, False)
    machine.agrees()


FORGETS: tuple[Scene, ...] = (
    *variants(forgotten_behind_a_summary, keep=BOTH, drops=BOTH),
    *variants(forgotten_behind_a_writer, how=("append", "commit", "prune", "replace")),
    *(forgotten_one_by_one, forgotten_block, forgotten_behind_a_fold),
)
