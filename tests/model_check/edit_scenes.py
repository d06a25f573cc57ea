"""Scenes of users who edit sessions while workers summarise them."""

from __future__ import annotations

from model_check.steps import SETTINGS, Seen
from model_check.work_machine import WorkMachine
from model_check.work_scenes import BOTH, Scene, variants


def afresh(machine: WorkMachine, name: str, pinned: int, count: int) -> None:
    """Start the session again with `pinned` pinned messages, then `count` ordinary ones."""
    machine.clear(name)
    if pinned:
        machine.append_pinned(name, pinned)
    machine.append_batch(name, count)


def edit(machine: WorkMachine, name: str, how: str, which: int, again: bool = False) -> None:
    """Edit the session as it is now. `which` counts messages from the newest."""
    machine.look(name)
    if how == "pop":
        machine.pop_as_seen(0, which + 1, again)
    elif how == "undo":
        machine.undo_as_seen(0, again)
    elif how == "rewrite":
        machine.rewrite_as_seen(0, which + 1, 1, 0, again)
    elif how == "replace":
        machine.replace_as_seen(0, which, again)
    elif how == "forget":
        machine.forget_as_seen(0, which, 1, True, again)
    else:
        machine.unpin_as_seen(0, which, again)


def edited_while_leased(machine: WorkMachine, name: str, how: str) -> None:
    """A summary covers messages that were edited after its claim, so its commit is stale."""
    afresh(machine, name, 2, 5)
    claim = machine.claim(name)
    edit(machine, name, how, 4 if how == "replace" else 0)
    machine.agrees()
    if claim is not None:
        assert machine.commit_cover(claim, 3, True, False) == "stale"
        machine.agrees()
        machine.give_back(claim, counts=False)


def pinned_leave_the_window(machine: WorkMachine, name: str, keep: bool, how: str) -> None:
    """Pinned messages leave by a commit or a prune. They are edited before and after, and each edit is sent twice."""
    afresh(machine, name, 2, 5)
    edit(machine, name, "replace", 5, True)
    machine.append_pinned(name, 1)
    if how == "prune":
        machine.prune(name, 2, True)
    else:
        machine.works(name, keep, 1)
    machine.agrees()
    edit(machine, name, "replace", len(machine.model.sessions[name].window) + 1, True)
    machine.agrees()
    edit(machine, name, "unpin", 1, True)
    machine.agrees()
    machine.append_batch(name, 4)
    machine.works(name, keep, 0)
    edit(machine, name, "unpin", 0, False)


def moved_between_reading_and_changing(machine: WorkMachine, name: str, how: str) -> None:
    """A pinned message leaves the window between a user's read and edit."""
    afresh(machine, name, 1, 5)
    machine.look(name)
    seen = machine.views[-1]
    machine.works(name, False, 0)
    machine.views.append(seen)
    if how == "unpin":
        machine.unpin_as_seen(0, 0, True)
    else:
        machine.replace_as_seen(0, 5, True)


def no_more_than_allowed(machine: WorkMachine, name: str) -> None:
    afresh(machine, name, 2, 1)
    machine.append_pinned(name, 2)
    machine.append_pinned(name, 1)
    machine.append_pinned(name, 1)
    edit(machine, name, "replace", 1)
    edit(machine, name, "unpin", 0)
    machine.append_pinned(name, 1)
    machine.append_pinned(name, 1)


def unpinned_until_overdue(machine: WorkMachine, name: str) -> None:
    afresh(machine, name, 2, 3)
    for _ in range(2):
        assert machine.claim(name) is None
        edit(machine, name, "unpin", 0)
        machine.agrees()
    assert machine.claim(name) is not None


def unpinned_into_a_full_window(machine: WorkMachine, name: str) -> None:
    afresh(machine, name, 1, 6)
    machine.append_batch(name, SETTINGS.max_window_count - 6)
    edit(machine, name, "unpin", 0)


def popped_again_and_again(machine: WorkMachine, name: str) -> None:
    """Pops never reuse a seq, and their gaps never fill the window."""
    afresh(machine, name, 0, 2)
    for _ in range(SETTINGS.max_window_count):
        edit(machine, name, "pop", 0, True)
        machine.append(name)
        machine.append_duplicate(name, 1)
        machine.agrees()
    machine.append_batch(name, 5)
    machine.works(name, True, 0)
    machine.agrees()
    edit(machine, name, "undo", 0)


def popped_behind_a_writer(machine: WorkMachine, name: str, again: bool) -> None:
    """One user pops and appends as many messages; the stale pop and prune of another user must change nothing."""
    afresh(machine, name, 1, 3)
    machine.look(name)
    late = machine.views[-1]
    edit(machine, name, "pop", 1, again)
    machine.append(name)
    machine.views.append(late)
    machine.pop_as_seen(0, 1, False)
    machine.views.append(late)
    machine.prune_as_seen(0, 1, False)
    machine.views.append(late)
    machine.replace_as_seen(0, 0, False)
    machine.clear(name)
    machine.append_batch(name, 4)
    machine.views.append(late)
    machine.pop_as_seen(0, 1, False)


def replaced_behind_a_reader(machine: WorkMachine, name: str, how: str) -> None:
    """A message that is not the newest is replaced, which makes another user's view stale."""
    afresh(machine, name, 1, 5)
    machine.look(name)
    late = machine.views[-1]
    edit(machine, name, "replace", 1)
    machine.views.append(late)
    if how == "pop":
        machine.pop_as_seen(0, 2, False)
    elif how == "prune":
        machine.prune_as_seen(0, 2, False)
    else:
        machine.replace_as_seen(0, 1, False)


def moved_on_before_the_pop(machine: WorkMachine, name: str, how: str) -> None:
    """A prune and a commit change neither the last seq nor the version; an append changes the last seq alone."""
    afresh(machine, name, 1, 5)
    machine.look(name)
    seen = machine.views[-1]
    if how == "prune":
        machine.prune(name, 1, False)
    elif how == "append":
        machine.append(name)
    else:
        machine.works(name, False, 0)
    machine.views.append(seen)
    machine.pop_as_seen(0, 3, False)
    machine.agrees()
    edit(machine, name, "pop", 0)


def renewed_with_originals(machine: WorkMachine, name: str, how: str) -> None:
    """Each operation that extends a session's expiry extends its originals' expiry."""
    machine.make_overdue(name)
    machine.works(name, True, 0)
    machine.pass_time(2_000_000)
    if how == "append":
        machine.append(name)
    elif how == "touch":
        machine.touch(name)
    else:
        edit(machine, name, how, 0)
    machine.agrees()


def pruned_behind_a_prune(machine: WorkMachine, name: str) -> None:
    """Another user's prune moves only the window, and all messages are equal, so only the position tells."""
    machine.clear(name)
    machine.append_alike(name, 6)
    machine.look(name)
    seen = machine.views[-1]
    machine.prune(name, 4, False)
    machine.views.append(seen)
    machine.prune_as_seen(0, 4, False)
    machine.agrees()


def changed_while_chosen(machine: WorkMachine, name: str, how: str) -> None:
    """A prune or a commit is no user activity: the session stays chosen for eviction."""
    afresh(machine, name, 0, 5)
    machine.observe()
    machine.queue_eviction(3, "limit")
    if how == "prune":
        machine.prune(name, 4, False)
    else:
        machine.works(name, False, 0)
    machine.agrees()


def as_seen(machine: WorkMachine, how: str, which: int = 0) -> None:
    """Edit the session by its last view."""
    if how == "pop":
        machine.pop_as_seen(0, 2, False)
    elif how == "prune":
        machine.prune_as_seen(0, 0, False)
    elif how == "rewrite":
        machine.rewrite_as_seen(0, 2, 1, 0, False)
    elif how == "replace":
        machine.replace_as_seen(0, which, False)
    elif how == "forget":
        machine.forget_as_seen(0, 0, 2, False, False)
    else:
        machine.unpin_as_seen(0, 0, False)
    machine.agrees()


def changed_after_the_end(machine: WorkMachine, name: str, how: str) -> None:
    """The session expires before the edit arrives."""
    afresh(machine, name, 0, 2)
    machine.look(name)
    machine.vanish(name)
    as_seen(machine, how)


def lost_in_a_failover(machine: WorkMachine, name: str, how: str, refilled: bool) -> None:
    """A failover loses messages, and others get their seqs: a stale edit must not hit the new messages."""
    afresh(machine, name, 0, 2)
    machine.agrees()
    machine.remember()
    machine.append_batch(name, 2)
    machine.look(name)
    machine.roll_back()
    if refilled:
        machine.append_batch(name, 2)
    as_seen(machine, how)


def back_in_the_window(machine: WorkMachine, name: str, how: str) -> None:
    """A failover loses the commit that moved a pinned message, after a user has seen it moved."""
    afresh(machine, name, 1, 5)
    machine.agrees()
    machine.remember()
    machine.works(name, False, 0)
    machine.look(name)
    machine.roll_back()
    as_seen(machine, how, 2)


def pinned_behind_what_is_summarised(machine: WorkMachine, name: str) -> None:
    """Pinned messages that stay in the window do not make the session overdue again."""
    afresh(machine, name, 0, 5)
    machine.append_pinned(name, 3)
    machine.works(name, False, 0)
    machine.agrees()


def rewritten_behind_a_writer(machine: WorkMachine, name: str, how: str) -> None:
    """Whatever another writer or a worker changes since the read, a rewrite as of the read changes nothing."""
    afresh(machine, name, 1, 5)
    machine.look(name)
    late = machine.views[-1]
    if how == "append":
        machine.append(name)
    elif how == "replace":
        edit(machine, name, "replace", 1)
    else:
        machine.works(name, False, 0)
    machine.views.append(late)
    machine.rewrite_as_seen(0, 3, 2, 1, False)
    machine.agrees()
    edit(machine, name, "rewrite", 2, True)
    machine.agrees()
    machine.rewrite(name, 6, 0, True)
    machine.agrees()
    machine.append_duplicate(name, 1)


def rewritten_behind_a_summary(machine: WorkMachine, name: str, keep: bool, back: int) -> None:
    """A rewrite begins before, within or after what summaries cover, and is sent twice; workers go on afterwards."""
    afresh(machine, name, 1, 6)
    machine.works(name, keep, 0)
    machine.append_pinned(name, 1)
    machine.append_batch(name, 5)
    machine.works(name, keep, 1)
    machine.agrees()
    machine.look(name)
    machine.rewrite_as_seen(0, back, 1, 1, True)
    machine.agrees()
    machine.append_batch(name, 6)
    machine.works(name, keep, 0)
    machine.agrees()


def look_before_a_fold(machine: WorkMachine, name: str) -> Seen:
    """Read a session, then fold its summaries, and return the view from before. It is the newest view again."""
    afresh(machine, name, 0, 6)
    for _ in range(2):
        claim = machine.claim(name)
        assert claim is not None
        assert machine.commit_cover(claim, 3, True, True) == "ok"
        machine.append_batch(name, 4)
    machine.look(name)
    late = machine.views[-1]
    claim = machine.claim(name)
    assert claim is not None
    assert machine.commit_fold(claim, 2, True) == "ok"
    machine.views.append(late)
    return late


def rewritten_behind_a_fold(machine: WorkMachine, name: str) -> None:
    """Summaries are folded between the read and the rewrite, which moves neither the window nor the version."""
    late = look_before_a_fold(machine, name)
    machine.rewrite_as_seen(0, late.view.context.last_seq - 4, 1, 0, False)
    machine.agrees()


def rewritten_behind_the_same(machine: WorkMachine, name: str) -> None:
    """The same message comes again in the same millisecond, so only the last seq tells that it came."""
    machine.clear(name)
    machine.append_alike(name, 3)
    machine.look(name)
    seen = machine.views[-1]
    machine.append_the_same(name, 2)
    machine.views.append(seen)
    machine.rewrite_as_seen(0, 2, 1, 0, False)
    machine.agrees()


def edited_behind_gaps(machine: WorkMachine, name: str, how: str) -> None:
    """Seqs without an element neither count as messages nor stay when their gap leaves."""
    afresh(machine, name, 0, 2)
    for _ in range(4):
        machine.append(name)
        edit(machine, name, "pop", 0)
    machine.append(name)
    if how == "prune":
        machine.prune(name, 1, False)
    else:
        edit(machine, name, how, 0)
    machine.agrees()


def rewritten_until_it_is_full(machine: WorkMachine, name: str) -> None:
    """Rewrites make a session overdue, refuse to fill its window, and pin no more than allowed."""
    afresh(machine, name, 1, 3)
    for _ in range(SETTINGS.max_window_count):
        machine.look(name)
        machine.rewrite_as_seen(0, 1, 3, 0, False)
        machine.agrees()
    for count in (1, SETTINGS.max_pinned_count, 2):
        machine.look(name)
        machine.rewrite_as_seen(0, 6, 1, count, True)
        machine.agrees()


def moved_on_since_it_was_unpinned(machine: WorkMachine, name: str) -> None:
    """A pinned message had left the window when it was read, and the window has moved on since."""
    machine.append_pinned(name, 1)
    for _ in range(2):
        machine.append_batch(name, 3)
        machine.prune(name, 1, False)
    machine.agrees()
    assert machine.views[-1].view.context.pinned
    machine.unpin_as_seen(0, 0, False)


EDITS: tuple[Scene, ...] = (
    *variants(edited_while_leased, how=("pop", "undo", "rewrite", "replace", "unpin", "forget")),
    *variants(pinned_leave_the_window, keep=BOTH, how=("commit",)),
    *variants(pinned_leave_the_window, keep=(False,), how=("prune",)),
    *variants(moved_between_reading_and_changing, how=("unpin", "replace")),
    *(no_more_than_allowed, unpinned_until_overdue, unpinned_into_a_full_window, popped_again_and_again),
    *variants(popped_behind_a_writer, again=BOTH),
    *variants(moved_on_before_the_pop, how=("commit", "prune", "append")),
    *variants(replaced_behind_a_reader, how=("pop", "prune", "replace")),
    *variants(renewed_with_originals, how=("append", "touch", "pop", "rewrite", "replace")),
    *variants(changed_while_chosen, how=("prune", "commit")),
    *(pruned_behind_a_prune, pinned_behind_what_is_summarised),
    *variants(changed_after_the_end, how=("pop", "prune", "rewrite", "replace", "forget")),
    *variants(lost_in_a_failover, how=("pop", "prune", "rewrite", "replace", "forget"), refilled=BOTH),
    *variants(rewritten_behind_a_writer, how=("append", "commit", "replace")),
    *variants(rewritten_behind_a_summary, keep=BOTH, back=(4, 7, 9, 11, 13, 20)),
    *(rewritten_until_it_is_full, rewritten_behind_a_fold, rewritten_behind_the_same, moved_on_since_it_was_unpinned),
    *variants(edited_behind_gaps, how=("prune", "replace")),
    *variants(back_in_the_window, how=("replace", "unpin")),
)
