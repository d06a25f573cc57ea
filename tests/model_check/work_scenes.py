"""Scenes of workers: expired leases, sessions that no worker can summarise, and originals."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from model_check.model import QUEUES
from model_check.steps import LEASE_MS, SETTINGS
from model_check.work_machine import WorkMachine

Scene = Callable[[Any, str], None]
BOTH = (True, False)


def variants(scene: Callable[..., None], **choices: Iterable[Any]) -> list[Scene]:
    """Return the scene with each combination of the choices."""
    combinations = itertools.product(*choices.values())
    return [partial(scene, **dict(zip(choices, values, strict=True))) for values in combinations]


def overdue_afresh(machine: WorkMachine, name: str) -> None:
    """Start the session again, overdue and without earlier attempts, failures and deaths."""
    machine.clear(name)
    machine.make_overdue(name)


# Leases and fences.


def extended_in_time(machine: WorkMachine, name: str) -> None:
    machine.make_overdue(name)
    if machine.claim(name) is not None:
        machine.pass_time(LEASE_MS - 1)
        machine.extend(0)
        machine.pass_time(LEASE_MS - 1)
        assert machine.claim(name) is None


def expired_while_leased(machine: WorkMachine, name: str) -> None:
    """The lease of an expired session must neither block claims of its successor nor write into it."""
    machine.make_overdue(name)
    late = machine.claim(name)
    machine.vanish(name)
    machine.make_overdue(name)
    if late is not None:
        assert machine.commit_cover(late, 3, True, False) == "gone"
        assert machine.give_back(late) == "fenced"
    assert machine.claim(name) is not None


def claimed_again(machine: WorkMachine, name: str, meanwhile: str) -> None:
    """The reply of a claim is lost: sent again, the claim has the lease that it got, for as long as that lasts."""
    overdue_afresh(machine, name)
    lost = machine.claim(name)
    assert lost is not None
    if meanwhile == "prune":
        machine.prune(name, 1, False)
        assert machine.claim(name, lost) is None
        return
    machine.pass_time(LEASE_MS - (meanwhile == "nothing"))
    other = machine.claim(name) if meanwhile == "another claim" else None
    again = machine.claim(name, lost)
    if other is not None:
        assert again is None
        assert machine.commit_cover(other, 3, True, False) == "ok"
    else:
        assert again is not None
        assert (again.job.fence == lost.job.fence) == (meanwhile == "nothing")
        assert machine.commit_cover(again, 3, True, False) == "ok"


def superseded(machine: WorkMachine, name: str, released: bool) -> None:
    """A slow worker comes back after another worker has taken over, and again after that worker has committed."""
    machine.make_overdue(name)
    late = machine.claim(name)
    machine.pass_time(LEASE_MS)
    faster = machine.claim(name)
    if late is None or faster is None:
        return
    assert machine.commit_cover(late, 3, True, False) == "fenced"
    assert machine.give_back(late) == "fenced"
    if released:
        assert machine.give_back(faster, 700) in ("ok", "dead")
        machine.claim(name)
    else:
        assert machine.commit_cover(faster, 3, True, True) == "ok"
        assert machine.commit_cover(faster, 3, True, True) == "already"
    assert machine.commit_cover(late, 3, True, False) == "fenced"


def pruned_while_leased(machine: WorkMachine, name: str, keep: int) -> None:
    machine.make_overdue(name)
    claim = machine.claim(name)
    machine.prune(name, keep, False)
    if claim is not None:
        assert machine.commit_cover(claim, 2, True, False) == "stale"
        machine.agrees()
        machine.give_back(claim, counts=False)


# The dead.


def poison(machine: WorkMachine, name: str, crash: bool) -> None:
    """A session that no worker can summarise dies after the allowed number of attempts."""
    overdue_afresh(machine, name)
    for _ in range(SETTINGS.claims_limit + 1):
        claim = machine.claim(name)
        if claim is not None and not crash:
            machine.give_back(claim, reason="openai answered 400")
        machine.agrees()
        machine.pass_time(LEASE_MS)
    assert machine.model.sessions[name].queued == "dead"


def retried_or_dropped(machine: WorkMachine, name: str, again: bool) -> None:
    poison(machine, name, True)
    machine.requeue(name, again)
    machine.agrees()
    assert (machine.claim(name) is not None) == again
    machine.pop(name, 1, False)
    machine.agrees()
    machine.append(name)


def dead_and_tried_again(machine: WorkMachine, name: str, crash: bool) -> None:
    """The sweep retries a dead session, with one attempt each time and twice the wait after each death."""
    poison(machine, name, crash)
    for deaths in (1, 2, 3):
        session = machine.model.sessions[name]
        assert (session.queued, session.deaths) == ("dead", deaths)
        wait_ms = machine.model.indexes["dead"][name] + 300_000 * 2 ** (deaths - 1) - machine.now
        machine.touch(name)
        machine.pass_time(wait_ms - 1)
        machine.sweep({name})
        assert machine.claim(name) is None
        machine.pass_time(1)
        machine.sweep({name})
        machine.agrees()
        claim = machine.claim(name)
        assert claim is not None
        assert claim.job.attempts == SETTINGS.max_attempts
        if deaths < 3:
            assert machine.give_back(claim, dead=True, reason="openai answered 400") == "dead"
        else:
            assert machine.commit_cover(claim, 2, True, False) == "ok"
            assert (session.deaths, session.failure) == (None, None)


def written_instead(machine: WorkMachine, name: str, crash: bool) -> None:
    """After the last attempt the extractive summariser gets one more claim, and its commit resets the counts."""
    overdue_afresh(machine, name)
    for _ in range(SETTINGS.max_attempts):
        claim = machine.claim(name)
        if claim is not None and not crash:
            assert machine.give_back(claim, reason="the summary is empty") == "ok"
        machine.pass_time(LEASE_MS)
    claim = machine.claim(name)
    assert claim is not None
    assert claim.job.attempts == SETTINGS.claims_limit
    assert machine.commit_cover(claim, 3, True, False) == "ok"


def asked_in_vain(machine: WorkMachine, name: str, times: int) -> None:
    """While the provider is down, the session keeps its place in the queue and all its attempts."""
    overdue_afresh(machine, name)
    due_ms = machine.model.indexes["overdue"][name]
    for _ in range(times):
        machine.pass_time(900)
        claim = machine.claim(name)
        assert claim is not None
        backoff_ms = claim.job.due_ms - claim.job.now_ms
        assert machine.give_back(claim, backoff_ms, counts=False, reason="openai answered 503") == "ok"
        assert machine.model.indexes["overdue"][name] == due_ms
    claim = machine.claim(name)
    assert claim is not None
    assert claim.job.attempts == 1
    failure = claim.job.failure
    assert failure is not None
    assert failure.last_ms - failure.since_ms == 900 * (times - 1)


def failed_and_pruned(machine: WorkMachine, name: str) -> None:
    """A session without messages to summarise forgets its failure."""
    overdue_afresh(machine, name)
    claim = machine.claim(name)
    assert claim is not None
    machine.give_back(claim, dead=True, reason="ValueError")
    machine.pass_time(300_000)
    machine.sweep({name})
    machine.prune(name, 1, False)
    assert machine.claim(name) is None
    assert machine.model.sessions[name].failure is None


def half_full(machine: WorkMachine, name: str) -> None:
    """A session with a window more than half full comes before all other sessions, even during its backoff."""
    overdue_afresh(machine, name)
    claim = machine.claim(name)
    assert claim is not None
    machine.give_back(claim, 300_000, reason="openai answered 400")
    assert machine.claim(name) is None
    while 2 * len(machine.model.sessions[name].window) <= SETTINGS.max_window_count:
        machine.append(name)
        machine.agrees()
    claim = machine.claim(name)
    assert claim is not None
    assert claim.job.due_ms == 0


def paused_by_one(machine: WorkMachine, name: str) -> None:
    """Several workers see one pause: the first to answer replaces it, and the late ones change nothing."""
    del name
    for place, paused in ((0, True), (0, True), (8, True), (8, False), (0, False), (0, False), (0, True)):
        machine.note("p", place, paused, True)
        machine.agrees()


# Originals.


def expired_with_originals(machine: WorkMachine, name: str, keep: bool) -> None:
    """Originals may outlive their session, but must not become originals of the next session."""
    machine.make_overdue(name)
    machine.works(name, True, 0)
    machine.vanish(name)
    machine.make_overdue(name)
    machine.works(name, True, 0)
    machine.agrees()
    machine.append_batch(name, 4)
    machine.works(name, keep, 0)


def expired_with_more_originals(machine: WorkMachine, name: str) -> None:
    """The next session has fewer originals than its predecessor, whose remaining blocks must not become its own."""
    for _ in range(5):
        machine.append_batch(name, 5)
        machine.works(name, True, 0)
    machine.vanish(name)
    machine.make_overdue(name)
    machine.works(name, True, 0)
    machine.agrees()


def changed_behind_an_archive(machine: WorkMachine, name: str) -> None:
    """A client that has not seen the first originals changes the state: they live as long as the session."""
    machine.clear(name)
    for _ in range(3):
        machine.append(name)
    machine.archive(name, 1, False)
    machine.pass_time(2000)
    machine.change_state(name, 1)
    machine.agrees()


def works_with_originals(machine: WorkMachine, name: str, then: str) -> None:
    machine.make_overdue(name)
    machine.look(name)
    machine.works(name, True, 0)
    machine.agrees()
    if then == "evict":
        bring_into(machine, name, "evictions")
        machine.claim_eviction(name)
        machine.claim_eviction(name)
        if machine.in_hand:  # else the session is exempt
            machine.evict(0)
    elif then == "prune":
        machine.prune(name, 1, True)
    else:
        machine.prune_as_seen(0, 1, True)


def block_in_quarantine(machine: WorkMachine, name: str, late: bool) -> None:
    """A block of originals holds foreign bytes, or held them when it was read."""
    overdue_afresh(machine, name)
    machine.works(name, True, 0)
    machine.quarantine_block(0, True, late)
    machine.agrees()


def summarised_again_and_again(machine: WorkMachine, name: str, kept: tuple[bool, ...]) -> None:
    """Summaries accumulate until they are folded, with and without originals."""
    for keep in kept:
        if name not in machine.model.indexes["overdue"]:
            machine.append_batch(name, 5)
            machine.agrees()
        machine.works(name, keep, 3 if len(kept) == 4 else 0)
        machine.agrees()


def one_summary(machine: WorkMachine, name: str, keep: bool) -> None:
    """Each summary folds the one before; a retried or late commit changes nothing."""
    machine.make_overdue(name)
    machine.works(name, keep, 0)
    for again in BOTH:
        machine.claims_overdue(name)
        if any(claim.summaries for claim in machine.claims):
            machine.commit_a_cover_and_a_fold(0, 3, keep, again)
        machine.agrees()


def bring_into(machine: WorkMachine, name: str, index: str) -> None:
    """Bring a session into an index."""
    if index == "dead":
        poison(machine, name, True)
    elif index in QUEUES or name not in machine.model.sessions:
        machine.make_overdue(name)
    if index == "leased":
        machine.claim(name)
    elif index == "evictions":
        machine.observe()
        machine.queue_eviction(3, "limit")


LEASES = (
    *(*variants(superseded, released=BOTH), extended_in_time, expired_while_leased),
    *variants(claimed_again, meanwhile=("nothing", "the end of the lease", "another claim", "prune")),
    *variants(pruned_while_leased, keep=(0, 1, 2, 3, 4)),
)
DEAD = (
    *(
        *variants(poison, crash=BOTH),
        *variants(retried_or_dropped, again=BOTH),
        *variants(dead_and_tried_again, crash=BOTH),
    ),
    *(*variants(written_instead, crash=BOTH), *variants(asked_in_vain, times=(1, 2, 5)), half_full, failed_and_pruned),
    paused_by_one,
)
ORIGINALS = (
    *variants(one_summary, keep=BOTH),
    *(*variants(expired_with_originals, keep=BOTH), expired_with_more_originals, changed_behind_an_archive),
    *variants(block_in_quarantine, late=BOTH),
    *variants(works_with_originals, then=("evict", "prune", "prune as seen before")),
    *variants(summarised_again_and_again, kept=((True, False, True, False), (False, True, False, True))),
    *variants(summarised_again_and_again, kept=((True,) * 3, (False,) * 3, (True, False, False, True, True))),
)
