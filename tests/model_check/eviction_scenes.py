"""Scenes of evictions: sessions are chosen, handed over and removed while users write and the store loses keys."""

from __future__ import annotations

from model_check.edit_scenes import afresh, edit
from model_check.steps import LEASE_MS, Seen
from model_check.work_machine import WorkMachine
from model_check.work_scenes import BOTH, variants


def evicted_unless_touched(machine: WorkMachine, name: str, touched: str, when: int) -> None:
    """A session is observed, chosen, claimed and evicted, with or without a touch in between."""
    if name not in machine.model.sessions:
        machine.append(name)
    machine.pass_time(1000)
    machine.observe()
    for at, step in enumerate(("choose", "take in hand", "evict")):
        if when == at:
            _touch(machine, name, touched)
        if machine.observed and step == "choose":
            machine.queue_eviction(3, "limit")
        elif machine.observed and step == "take in hand":
            machine.claim_eviction(name)
    machine.claim_eviction(name)
    if machine.in_hand:
        machine.evict(0)


def _touch(machine: WorkMachine, name: str, how: str) -> None:
    if how == "touch":
        machine.touch(name)
    elif how == "state":
        machine.change_state(name, 1)
    elif how == "recreate":
        machine.clear(name)
    if how in ("append", "recreate"):
        machine.append(name)


def evicted_later(machine: WorkMachine, name: str, count: int, cleared: bool) -> None:
    """A slow worker comes back with its transcript and finds another session that looks the same."""
    machine.clear(name)
    for _ in range(2):
        machine.append_batch(name, count)
        machine.observe()
        machine.queue_eviction(3, "limit")
        machine.claim_eviction(name)
        if cleared:
            machine.clear(name)
    if cleared:
        machine.append_batch(name, count)
        machine.observe()
        machine.queue_eviction(3, "limit")
    machine.in_hand.append(machine.in_hand[-2])
    machine.evict(0)


def written_between_transcript_and_eviction(machine: WorkMachine, name: str, how: str, later_ms: int) -> None:
    """The session is chosen again after a write. Only the version, the seqs or the time shows the stale transcript."""
    afresh(machine, name, 1, 3)
    taken_in_hand(machine, name)
    late = machine.in_hand[-1]
    machine.pass_time(later_ms)
    if how == "append":
        machine.append(name)
    elif how == "state":
        machine.change_state(name, 7)
    else:
        edit(machine, name, how, 0)
    machine.agrees()
    evicted_late(machine, late)


def taken_in_hand(machine: WorkMachine, name: str) -> None:
    """Choose the session for eviction, and claim it with its transcript."""
    machine.observe()
    machine.queue_eviction(3, "limit")
    machine.claim_eviction(name)


def evicted_late(machine: WorkMachine, late: Seen) -> None:
    """Choose the session again, then evict it with the stale transcript."""
    machine.observe()
    machine.queue_eviction(3, "limit")
    machine.in_hand.append(late)
    machine.evict(0)
    machine.agrees()


def evicted_after_a_failover(machine: WorkMachine, name: str, refilled: bool) -> None:
    """A failover loses messages of the transcript, and new messages get their seqs without being in it."""
    afresh(machine, name, 0, 2)
    machine.agrees()
    machine.remember()
    machine.append_batch(name, 2)
    taken_in_hand(machine, name)
    late = machine.in_hand[-1]
    machine.roll_back()
    if refilled:
        machine.append_batch(name, 2)
    evicted_late(machine, late)


def evicted_empty(machine: WorkMachine, name: str) -> None:
    """The transcript holds no message of the window."""
    afresh(machine, name, 0, 2)
    machine.prune(name, 0, False)
    taken_in_hand(machine, name)
    machine.evict(0)
    machine.agrees()


def claimed_again(machine: WorkMachine, name: str, meanwhile: str) -> None:
    """The reply of a claim is lost: sent again, the claim has the lease that it got, unless the session was touched."""
    afresh(machine, name, 0, 2)
    machine.observe()
    machine.queue_eviction(3, "limit")
    call = machine.queue_calls[name].claim_eviction()
    machine.take_in_hand(name, call)
    machine.agrees()
    if meanwhile == "touch":
        machine.touch(name)
        machine.pass_time(1)
        machine.observe()
        machine.queue_eviction(3, "idle")  # due an hour later
    else:
        machine.pass_time(LEASE_MS - (meanwhile == "nothing"))
    machine.take_in_hand(name, call, "claim_eviction again")
    machine.agrees()
    machine.claim_eviction(name)
    machine.evict(0)
    machine.agrees()


EVICTIONS = (
    *variants(evicted_unless_touched, touched=("", "append", "state", "touch", "recreate"), when=(0, 1, 2)),
    *variants(evicted_later, count=(1, 2, 3), cleared=BOTH),
    *variants(
        written_between_transcript_and_eviction, how=("append", "state", "pop", "replace", "unpin"), later_ms=(0, 9)
    ),
    *variants(claimed_again, meanwhile=("nothing", "the end of the lease", "touch")),
    *(*variants(evicted_after_a_failover, refilled=BOTH), evicted_empty),
)
