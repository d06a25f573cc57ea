"""Scenes of users who archive the oldest messages of a session while others append, edit, summarise and evict."""

from __future__ import annotations

from model_check.edit_scenes import afresh, edit
from model_check.work_machine import WorkMachine
from model_check.work_scenes import BOTH, Scene, variants


def archived_again_and_again(machine: WorkMachine, name: str, keep: bool) -> None:
    """Blocks are begun, extended and followed by a summary with and without originals; each archive is sent twice."""
    afresh(machine, name, 1, 6)
    machine.archive(name, 2, True)
    machine.agrees()
    machine.append_batch(name, 6)
    machine.archive(name, 6, True)
    machine.agrees()
    machine.append_batch(name, 6)
    machine.works(name, keep, 0)
    machine.agrees()
    machine.append_batch(name, 4)
    machine.archive(name, 3, True)
    machine.agrees()
    machine.forget(name, 12, 3, True, True)
    machine.agrees()
    machine.rewrite(name, 14, 1, True)
    machine.agrees()


def archived_in_a_second_life(machine: WorkMachine, name: str) -> None:
    """The originals of an expired session are not those of the session that begins with its id."""
    machine.clear(name)
    for _ in range(3):  # into a second block
        machine.append_batch(name, 6)
        machine.archive(name, 6, False)
    machine.agrees()
    machine.vanish(name)
    machine.append_batch(name, 5)
    machine.archive(name, 2, False)
    machine.agrees()


def archived_behind_a_writer(machine: WorkMachine, name: str, how: str) -> None:
    """Nothing is archived that left the window, was edited or was cleared since the read. An append is no obstacle."""
    machine.clear(name)
    machine.append_alike(name, 6)
    machine.look(name)
    late = machine.views[-1]
    if how == "archive":
        machine.archive(name, 2, False)
    elif how == "prune":
        machine.prune(name, 2, False)
    elif how == "append":
        machine.append(name)
    elif how == "clear":
        machine.agrees()
        machine.clear(name)
        machine.append_the_same(name, 6)
    else:
        edit(machine, name, how, 5)
    machine.views.append(late)
    machine.archive_as_seen(0, 2, False)
    machine.agrees()


def archived_while_leased(machine: WorkMachine, name: str) -> None:
    """A summary of messages that were archived after its claim is refused, and the messages stay in the originals."""
    afresh(machine, name, 1, 6)
    claim = machine.claim(name)
    machine.archive(name, 4, True)
    assert claim is not None
    assert machine.commit_cover(claim, 3, True, True) == "stale"
    machine.agrees()
    machine.give_back(claim, counts=False)


def archived_while_chosen(machine: WorkMachine, name: str) -> None:
    """An archive is no use of the session, which stays chosen; the transcript from before it is refused."""
    afresh(machine, name, 0, 5)
    machine.observe()
    machine.queue_eviction(3, "limit")
    machine.archive(name, 2, False)
    machine.agrees()


def archived_beside_gaps(machine: WorkMachine, name: str) -> None:
    """Gaps and pinned messages leave with the messages around them, and count neither before nor after."""
    afresh(machine, name, 0, 2)
    for _ in range(3):
        machine.append_pinned(name, 1)
        machine.append_batch(name, 2)
        edit(machine, name, "pop", 0)
    machine.archive(name, 3, True)
    machine.agrees()
    edit(machine, name, "unpin", 0)
    edit(machine, name, "replace", 0)
    machine.agrees()


def four_blocks_become_one(machine: WorkMachine, name: str, by: str) -> None:
    """The message that fills the fourth block leaves the window by an archive or a commit; then one goes, then half."""
    machine.clear(name)
    for _ in range(10):
        machine.append_batch(name, 6)
        machine.archive(name, 6, False)
    machine.agrees()
    machine.append_batch(name, 8)
    if by == "archive":
        machine.archive(name, 6, True)
    else:
        machine.works(name, True, 0)
    machine.agrees()
    machine.forget(name, 30, 2, True, True)
    machine.agrees()
    machine.rewrite(name, 28, 1, True)
    machine.agrees()
    machine.append_batch(name, 6)
    machine.archive(name, 6, True)
    machine.agrees()


def rewritten_between_blocks(machine: WorkMachine, name: str) -> None:
    """A rewrite from the second of three blocks on cuts it, and removes the third."""
    machine.clear(name)
    for _ in range(6):
        machine.append_batch(name, 6)
        machine.archive(name, 6, False)
    machine.agrees()
    machine.rewrite(name, 18, 1, True)
    machine.agrees()


def archived_after_a_failover(machine: WorkMachine, name: str) -> None:
    """A failover loses messages, and others get their seqs: these were not read, so they stay in the window."""
    afresh(machine, name, 0, 2)
    machine.agrees()
    machine.remember()
    machine.append_batch(name, 2)
    machine.look(name)
    machine.roll_back()
    machine.append_batch(name, 2)
    machine.archive_as_seen(0, 4, False)
    machine.agrees()


ARCHIVES: tuple[Scene, ...] = (
    *variants(archived_again_and_again, keep=BOTH),
    *variants(archived_behind_a_writer, how=("archive", "prune", "append", "clear", "replace", "pop")),
    *(archived_in_a_second_life, archived_while_leased, archived_while_chosen, archived_beside_gaps),
    *(archived_after_a_failover, rewritten_between_blocks),
    *variants(four_blocks_become_one, by=("archive", "commit")),
)
