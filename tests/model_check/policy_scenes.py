"""Scenes of sessions with a policy: kept whole, exempt from the limit, with a time of their own."""

from __future__ import annotations

from model_check.edit_scenes import afresh
from model_check.machine import POLICIES
from model_check.model import INDEXES
from model_check.scenes import torn_and_swept
from model_check.work_machine import WorkMachine
from model_check.work_scenes import bring_into, variants
from redismem.context.info import Policy


def used_under_a_policy(machine: WorkMachine, name: str, policy: Policy) -> None:
    """Each use moves the expiry by the session's own time; a long window is overdue only without `keep_whole`."""
    afresh(machine, name, 0, 1)
    machine.set_policy(name, policy)
    machine.agrees()
    for _ in range(2):
        machine.time_passes(60_000)
        machine.append(name)
        machine.agrees()
    machine.append_batch(name, 6)
    machine.append_batch(name, 6)
    machine.agrees()


def given_a_policy_in_a_queue(machine: WorkMachine, name: str, policy: Policy, index: str) -> None:
    """A session gets a policy while it waits for a worker, and gets rid of it again."""
    afresh(machine, name, 0, 1)
    bring_into(machine, name, index)
    for each in (policy, POLICIES[0]):
        machine.set_policy(name, each)
        machine.agrees()


def chosen_under_a_policy(machine: WorkMachine, name: str, policy: Policy) -> None:
    """The limit spares an exempt session, even if polled just before; idleness chooses none before its time."""
    afresh(machine, name, 0, 1)
    machine.observe()
    machine.set_policy(name, policy)
    machine.queue_eviction(3, "limit")
    machine.agrees()
    for reason in ("limit", "idle"):
        machine.time_passes(1000)
        machine.touch(name)
        machine.observe()
        machine.queue_eviction(3, reason)
        machine.agrees()


def ruled_by_a_policy(machine: WorkMachine, name: str) -> None:
    """A session is kept whole, then exempt with a time of its own, then has no policy."""
    none, whole, exempt, short = POLICIES
    machine.set_policy(name, whole)
    bring_into(machine, name, "leased")
    machine.set_policy(name, whole)
    machine.commit_a_cover(0, 12, False, 4, True)
    machine.append(name)
    machine.claims_overdue(name)
    for policy in (exempt, short):
        machine.set_policy(name, policy)
        machine.observe()
        machine.queue_eviction(3, "limit")
        machine.queue_eviction(3, "idle")
        machine.touch(name)
        machine.time_passes(1000)
        machine.append(name)
        machine.agrees()
        machine.claim_eviction(name)
        machine.sweep({name})
    machine.set_policy(name, none)
    machine.claims_overdue(name)


def chosen_torn_and_swept(machine: WorkMachine, name: str, policy: Policy) -> None:
    """A session with a policy loses its entry among the evictions after it was chosen: the sweep watches it again."""
    machine.append_pinned(name, 1)
    machine.set_policy(name, policy)
    torn_and_swept(machine, name, "evictions")
    machine.agrees()


def cleared_from_an_index(machine: WorkMachine, name: str, index: str) -> None:
    """No index of the shard lists a session that was cleared."""
    bring_into(machine, name, index)
    machine.clear(name)
    machine.agrees()


RULED = (
    *variants(used_under_a_policy, policy=POLICIES),
    *variants(given_a_policy_in_a_queue, policy=POLICIES, index=("overdue", "leased", "dead")),
    *variants(chosen_under_a_policy, policy=POLICIES),
    ruled_by_a_policy,
    *variants(chosen_torn_and_swept, policy=POLICIES),
    *variants(cleared_from_an_index, index=INDEXES),
)
