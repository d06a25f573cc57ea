"""Scenes of workers: leases that run out, sessions that nobody gets done with, originals that are kept."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from model_check.model import QUEUES
from model_check.steps import LEASE_MS, SETTINGS
from model_check.work_machine import WorkMachine

Scene = Callable[[WorkMachine, str], None]
BOTH = (True, False)


def each(scene: Callable[..., None], **choices: Iterable[Any]) -> list[Scene]:
    """Gives the scene with each combination of the choices."""
    return [partial(scene, **dict(zip(choices, some, strict=True))) for some in itertools.product(*choices.values())]


def overdue_afresh(machine: WorkMachine, name: str) -> None:
    """Begins the session anew, overdue: without attempts, failures and deaths of before."""
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
    """No lease of the session that is gone may keep the new one from being claimed, nor write into it."""
    machine.make_overdue(name)
    late = machine.claim(name)
    machine.vanish(name)
    machine.make_overdue(name)
    if late is not None:
        assert machine.commit_cover(late, 3, True, False) == "gone"
        assert machine.give_back(late) == "fenced"
    assert machine.claim(name) is not None


def superseded(machine: WorkMachine, name: str, released: bool) -> None:
    """A worker that was slow comes back after another has taken over, and after that one has committed."""
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
    """A session that no worker gets done with ends among the dead, after no more attempts than allowed."""
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
    """A dead session is tried again by itself, with one attempt each time, and each time after twice as long."""
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
    """After the last attempt there is one claim more, for what cannot fail. Its commit ends all that was counted."""
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
    """The provider is down: the session keeps its place in the queue, and all its attempts."""
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
    """What went wrong is forgotten when nothing is to be summarised any more."""
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
    """A session that has filled more than half of its window comes before all others, whatever it waited for."""
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
    """One of several who saw the same has its way; who comes late changes nothing."""
    del name
    for place, paused in ((0, True), (0, True), (8, True), (8, False), (0, False), (0, False), (0, True)):
        machine.note("p", place, paused, True)
        machine.agrees()


# Originals.


def expired_with_originals(machine: WorkMachine, name: str, keep: bool) -> None:
    """Originals outlive their session, and must not be taken for the next one's."""
    machine.make_overdue(name)
    machine.works(name, True, 0)
    machine.vanish(name)
    machine.make_overdue(name)
    machine.works(name, True, 0)
    machine.agrees()
    machine.append_batch(name, 4)
    machine.works(name, keep, 0)


def expired_with_more_originals(machine: WorkMachine, name: str) -> None:
    """The next session has fewer originals than the one before had: those left over must not be taken for its own."""
    for _ in range(5):
        machine.append_batch(name, 5)
        machine.works(name, True, 0)
    machine.vanish(name)
    machine.make_overdue(name)
    machine.works(name, True, 0)
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
        machine.evict(0)
    elif then == "prune":
        machine.prune(name, 1, True)
    else:
        machine.prune_as_seen(0, 1, True)


def block_in_quarantine(machine: WorkMachine, name: str, late: bool) -> None:
    """Foreign bytes stand in a block of originals, or did when it was read."""
    overdue_afresh(machine, name)
    machine.works(name, True, 0)
    machine.quarantine_block(0, True, late)
    machine.agrees()


def summarised_again_and_again(machine: WorkMachine, name: str, kept: tuple[bool, ...]) -> None:
    """Summaries add up until they are folded, with originals and without."""
    for keep in kept:
        if name not in machine.model.indexes["overdue"]:
            machine.append_batch(name, 5)
            machine.agrees()
        machine.works(name, keep, 3 if len(kept) == 4 else 0)
        machine.agrees()


def one_summary(machine: WorkMachine, name: str, keep: bool) -> None:
    """Each summary takes in the one before; one that is sent again, or comes late, changes nothing."""
    machine.make_overdue(name)
    machine.works(name, keep, 0)
    for again in BOTH:
        machine.claims_overdue(name)
        if any(claim.summaries for claim in machine.claims):
            machine.commit_a_cover_and_a_fold(0, 3, keep, again)
        machine.agrees()


def bring_into(machine: WorkMachine, name: str, index: str) -> None:
    """Gets a session into an index."""
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
    *(*each(superseded, released=BOTH), extended_in_time, expired_while_leased),
    *each(pruned_while_leased, keep=(0, 1, 2, 3, 4)),
)
DEAD = (
    *(*each(poison, crash=BOTH), *each(retried_or_dropped, again=BOTH), *each(dead_and_tried_again, crash=BOTH)),
    *(*each(written_instead, crash=BOTH), *each(asked_in_vain, times=(1, 2, 5)), half_full, failed_and_pruned),
    paused_by_one,
)
ORIGINALS = (
    *each(one_summary, keep=BOTH),
    *(*each(expired_with_originals, keep=BOTH), expired_with_more_originals),
    *each(block_in_quarantine, late=BOTH),
    *each(works_with_originals, then=("evict", "prune", "prune as seen before")),
    *each(summarised_again_and_again, kept=((True, False, True, False), (False, True, False, True))),
    *each(summarised_again_and_again, kept=((True,) * 3, (False,) * 3, (True, False, False, True, True))),
)
