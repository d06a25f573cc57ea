"""One machine after another through each directed rule, so that no run depends on chance to meet what matters."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

from protocol.actions import LEASE_MS
from protocol.machine import FINDERS, Machine
from protocol.told import INDEXES

Scene = Callable[[Machine], object]


def nothing_there(machine: Machine) -> None:
    machine.touch("a")
    machine.clear("a")
    machine.claims_one("a")
    machine.requeue("a", True)
    machine.sweep({"a"})


def duplicates(machine: Machine) -> None:
    for _ in range(3):
        machine.append("a")
    machine.append_duplicate("a", 0)
    machine.append_duplicate("a", 2)
    machine.append_batch("a", 6)
    machine.append_batch("a", 6)


def known_however_often_the_fields_have_gone_round(machine: Machine) -> None:
    for number in range(22):
        machine.append_batch("a", 1 + number % 3)
        machine.prune("a", 1, False)
    for place in range(17):
        machine.append_duplicate("a", place)
        machine.prune("a", 1, False)


def overtaken(machine: Machine) -> None:
    machine.append_overtaken("a", 0)
    machine.append_overtaken("a", 7)


def cleared_late(machine: Machine) -> None:
    for _ in range(2):
        machine.append_batch("a", 3)
        machine.look("a")
        machine.clear_late(0)
    machine.append("a")
    machine.clear_late(0)


def pruned_until_nothing_waits(machine: Machine) -> None:
    machine.append_batch("a", 6)
    machine.prune("a", 2, True)
    machine.claims_one("a")
    machine.append_batch("a", 6)
    machine.claims_one("a")


def given_back(machine: Machine) -> None:
    for counts, dead in ((False, 0), (True, 0), (True, 4)):
        machine.claims_overdue("a")
        machine.extend(0)
        machine.release(0, 700, counts, dead)
        machine.agrees()
        machine.claims_one("a")
        machine.time_passes(700)


def chosen_and_touched(machine: Machine) -> None:
    machine.append("a")
    machine.observe()
    machine.time_passes(1000)
    machine.touch("a")
    machine.queue_eviction(3, "idle")
    machine.observe()
    machine.queue_eviction(3, "idle")
    machine.queue_eviction(3, "limit")
    machine.touch("a")


def chosen_and_appended(machine: Machine) -> None:
    machine.append("a")
    machine.observe()
    machine.queue_eviction(3, "limit")
    machine.append("a")


def committed_without_summary(machine: Machine) -> None:
    machine.claims_overdue("a")
    machine.commit_without_summary(0, 2, True)
    machine.extend(0)
    machine.claims_overdue("a")
    machine.commit_a_cover(0, 12, False, 4, True)
    machine.killed(True)


def _scenes() -> Iterator[Scene]:
    yield from (nothing_there, duplicates, cleared_late, pruned_until_nothing_waits, given_back, chosen_and_touched)
    yield from (known_however_often_the_fields_have_gone_round, overtaken, chosen_and_appended)
    yield from (committed_without_summary, lambda machine: machine.extended_in_time("a"))
    yield lambda machine: machine.failover_loses_a_session("a")
    yield lambda machine: machine.failover_race("a", 5)
    yield lambda machine: machine.expired_while_leased("a")
    for truth in (True, False):
        yield lambda machine, truth=truth: machine.superseded("a", truth)
        yield lambda machine, truth=truth: machine.poison("a", truth)
        yield lambda machine, truth=truth: machine.retried_or_dropped("a", truth)
        yield lambda machine, truth=truth: machine.expired_with_originals("a", truth)
        yield lambda machine, truth=truth: machine.evicted_later("a", 2, truth)
        yield lambda machine, truth=truth: machine.summarised_again_and_again("a", [truth, not truth] * 2)
    for then in ("evict", "prune", "prune as seen before"):
        yield lambda machine, then=then: machine.works_with_originals("a", then)
    for where in FINDERS:
        yield lambda machine, where=where: machine.expired_and_found("a", where)
    for index in INDEXES:
        yield lambda machine, index=index: machine.torn_and_swept("a", index)
    for touched, when in itertools.product(("", "append", "state", "touch", "recreate"), range(3)):
        yield lambda machine, touched=touched, when=when: (
            machine.append("a"),
            machine.evicted_unless_touched("a", touched, when),
        )
    for how in ("type", "number", "epoch", "short"):
        yield lambda machine, how=how: machine.corrupted("a", how, True)
    yield lambda machine: machine.corrupted("a", "number", False)
    yield lambda machine: machine.pruned_in_another_life("a", 3)
    yield lambda machine: machine.pruned_while_leased("a", 3)
    yield lambda machine: machine.time_passes(LEASE_MS)


SCENES = tuple(_scenes())


def tour(machine: type[Machine]) -> None:
    """Raises what the first scene finds in which something is wrong."""
    for scene in SCENES:
        playing = machine()
        try:
            scene(playing)
            playing.agrees()
        except BaseException:
            playing.wire.close()
            raise
        playing.teardown()
