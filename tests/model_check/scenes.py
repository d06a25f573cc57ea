"""Scripted scenes, so that no run depends on chance to reach an important situation.

The machine plays them at any moment, in any session; scenes of BEGINNINGS need a machine of their own.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.quarantined import move_session

from model_check.model import INDEXES, QUEUES
from model_check.steps import SETTINGS
from model_check.work_machine import WorkMachine
from model_check.work_scenes import BOTH, Scene, bring_into, variants
from redismem.concurrency.run_sync import run_without_loop
from redismem.errors import CorruptSession
from redismem.protocol.session.clear import clear_life
from redismem.protocol.session.edits import window

# Scenes that need a new machine.


def nothing_there(machine: WorkMachine, name: str) -> None:
    machine.touch(name)
    machine.clear(name)
    machine.claims_one(name)
    machine.requeue(name, True)
    machine.sweep({name})


def duplicates(machine: WorkMachine, name: str) -> None:
    for _ in range(3):
        machine.append(name)
    machine.append_duplicate(name, 0)
    machine.append_duplicate(name, 2)
    machine.append_batch(name, 6)
    machine.append_batch(name, 6)


def ids_remembered_after_any_number_of_rotations(machine: WorkMachine, name: str) -> None:
    for number in range(22):
        machine.append_batch(name, 1 + number % 3)
        machine.prune(name, 1, False)
    for place in range(17):
        machine.append_duplicate(name, place)
        machine.prune(name, 1, False)


def sent_again(machine: WorkMachine, name: str) -> None:
    for named in (True, False):
        machine.append_sent_again(name, named)
    machine.change_overtaken(name, 1)
    for place in range(4):
        machine.change_duplicate(name, place, 3)
        machine.append_duplicate(name, place)


def expectations(machine: WorkMachine, name: str) -> None:
    for _ in range(2):
        for seen in ("another seq", "another life", "another life alone", "now"):
            machine.append_expecting(name, seen)
    machine.clear(name)
    machine.append_expecting(name, "now")


def overtaken(machine: WorkMachine, name: str) -> None:
    machine.append_overtaken(name, False, 0)
    machine.append_overtaken(name, True, 20)


def pruned_until_nothing_waits(machine: WorkMachine, name: str) -> None:
    machine.append_batch(name, 6)
    machine.prune(name, 2, True)
    machine.claims_one(name)
    machine.append_batch(name, 6)
    machine.claims_one(name)


def given_back(machine: WorkMachine, name: str) -> None:
    for counts, dead in ((False, 0), (True, 0), (True, 4)):
        machine.claims_overdue(name)
        machine.extend(0)
        machine.release(0, 700, counts, dead, "ValueError")
        machine.agrees()
        machine.claims_one(name)
        machine.time_passes(700)


def committed_without_summary(machine: WorkMachine, name: str) -> None:
    machine.claims_overdue(name)
    machine.commit_without_summary(0, 2, True)
    machine.extend(0)
    machine.claims_overdue(name)
    machine.commit_a_cover(0, 12, False, 4, True)
    machine.killed(True)


def chosen_and_touched(machine: WorkMachine, name: str) -> None:
    machine.append(name)
    machine.observe()
    machine.time_passes(1000)
    machine.touch(name)
    machine.queue_eviction(3, "idle")
    machine.observe()
    machine.queue_eviction(3, "idle")
    machine.queue_eviction(3, "limit")
    machine.touch(name)
    machine.observe()
    machine.queue_eviction(3, "limit")
    machine.append(name)


# Users.


def cleared_late(machine: WorkMachine, name: str) -> None:
    for _ in range(2):
        machine.append_batch(name, 3)
        machine.look(name)
        machine.clear_late(0)
    machine.append(name)
    machine.clear_late(0)


def cleared_again(machine: WorkMachine, name: str, begun: bool) -> None:
    """A clear whose reply was lost is sent again, after another session of the id has begun, or before."""
    machine.append_batch(name, 2)
    for _ in range(2):
        machine.clear(name)
        if begun:
            machine.append(name)
        if machine.clears:
            machine.clear_again(0)
        machine.agrees()


def pruned_in_another_life(machine: WorkMachine, name: str, count: int) -> None:
    machine.clear(name)
    machine.append_batch(name, count)
    machine.look(name)
    machine.clear(name)
    machine.append_batch(name, count)
    machine.prune_as_seen(0, 1, False)
    machine.prune(name, 1, True)


# Losses of the store.


def torn_and_swept(machine: WorkMachine, name: str, index: str) -> None:
    """One index loses an entry and another gains one, as in a store that evicts keys; the sweep repairs both."""
    (shard,) = machine.store.keys.shards()
    bring_into(machine, name, index)
    machine.send(("ZREM", getattr(shard, index), name))
    machine.model.indexes[index].pop(name, None)
    machine.sweep({name})
    machine.agrees()
    for queue in QUEUES:
        if name not in machine.model.indexes[queue]:
            machine.send(("ZADD", getattr(shard, queue), machine.now, name))
            machine.model.indexes[queue][name] = machine.now
    machine.sweep({name})


def expired_and_found(machine: WorkMachine, name: str, index: str, by: str) -> None:
    """Each operation that meets an expired session removes its index entries."""
    bring_into(machine, name, index)
    machine.observe()
    machine.vanish(name)
    operations: dict[str, Callable[[], object]] = {
        "claim": lambda: machine.claim(name),
        "queue_eviction": lambda: machine.queue_eviction(3, "idle"),
        "claim_eviction": lambda: machine.claim_eviction(name),
        "sweep": lambda: machine.sweep({name}),
        "requeue": lambda: machine.requeue(name, True),
    }
    operations[by]()


def expired_and_cleared_again(machine: WorkMachine, name: str) -> None:
    """A clear that found no session is sent again, after one has lived: it removes what is left of that one."""
    for _ in range(2):
        machine.clear(name)
    machine.append(name)
    machine.vanish(name)
    machine.clear_again(0)
    machine.agrees()


def corrupted(machine: WorkMachine, name: str, how: str, by_worker: bool) -> None:
    """An unreadable session goes into quarantine, and leaves nothing behind that could shadow a new session."""
    session, keys, calls = machine.model.sessions.get(name), machine.store.keys.session(name), machine.calls[name]
    if session is None or not 0 < len(session.window) < SETTINGS.max_window_count:
        machine.make_overdue(name)
        session = machine.model.sessions[name]
    machine.send(
        {
            "type": ("SET", keys.messages, "x"),
            "number": ("HSET", keys.state, "counters", "v1 1 x 1 1 1"),
            "epoch": ("HDEL", keys.state, "epoch"),
            "short": ("LPOP", keys.messages),
        }[how]
    )
    with pytest.raises(CorruptSession):  # a read leaves it as it is
        run_without_loop(machine.store.run(calls.read(), quarantine=True))
    if by_worker:
        assert run_without_loop(machine.store.run(window(calls), quarantine=True)) is None
    else:
        context = run_without_loop(machine.store.run(calls.append_and_read([{"role": "user"}]), quarantine=True))
        assert context.total_messages == 1
    machine.model.remove(name, session.life)
    if not by_worker:
        machine.run_call(clear_life(calls.keys, context.epoch))
    assert not machine.run_call(calls.exists())
    machine.agrees()
    # Another caller has found the session unreadable as well, and comes late.
    machine.append(name)
    late = move_session(machine.store, name, machine.now, epoch=session.epoch)
    assert not run_without_loop(late)


def failover_race(machine: WorkMachine, name: str, count: int) -> None:
    """A failover loses a claim; its worker must not commit over messages that it has never seen."""
    if name in machine.model.sessions and machine.model.sessions[name].window:
        machine.clear(name)
    machine.append_batch(name, count)
    machine.agrees()
    machine.remember()
    late = machine.claim(name)
    machine.roll_back()
    machine.prune(name, 1, False)
    machine.append_batch(name, count)
    machine.claim(name)
    if late is not None:
        machine.commit_cover(late, 3, True, False)
        machine.give_back(late)


def failover_loses_a_session(machine: WorkMachine, name: str) -> None:
    machine.clear(name)
    machine.remember()
    machine.append(name)
    machine.look(name)
    machine.roll_back()
    machine.append(name)
    machine.clear_late(0)


BEGINNINGS: tuple[Scene, ...] = (
    *(nothing_there, duplicates, sent_again, ids_remembered_after_any_number_of_rotations, overtaken, expectations),
    *(pruned_until_nothing_waits, given_back, committed_without_summary, chosen_and_touched),
)
USERS = (cleared_late, *variants(cleared_again, begun=BOTH), *variants(pruned_in_another_life, count=(2, 3, 4)))
LOSSES = (
    *variants(torn_and_swept, index=INDEXES),
    *variants(expired_and_found, index=("dead",), by=("claim", "queue_eviction", "requeue")),
    *variants(expired_and_found, index=("evictions",), by=("claim_eviction", "sweep")),
    *variants(expired_and_found, index=("overdue", "leased"), by=("claim",)),
    expired_and_cleared_again,
    *variants(corrupted, how=("type", "number", "epoch", "short"), by_worker=BOTH),
    *variants(failover_race, count=(5, 6)),
    failover_loses_a_session,
)
