"""Random rules for users, in any order and by views of any age."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from model_check.comparison import NAMES
from model_check.session import GAP, Entry
from model_check.steps import SETTINGS, Seen, Steps, entry_of
from redismem import Conflict, InvalidMessage, Policy, Receipt, TooLarge
from redismem.concurrency.run_sync import run_without_loop
from redismem.context.context import Context
from redismem.protocol.call import Call
from redismem.protocol.policy import encode_policy
from redismem.protocol.server_errors import ServerError
from redismem.protocol.session import edits, leaving
from redismem.protocol.session.clear import clear, clear_life
from redismem.protocol.session.edits import View

T = TypeVar("T")
names = st.sampled_from(NAMES)
places = st.integers(0, 20)


def newest(entries: list[T], place: int) -> T:
    """Return the newest entry for place 0, the one before for 1, and so on, cyclically."""
    return entries[-1 - place % len(entries)]


def entry_at(context: Context, seq: int) -> Entry:
    """Return the entry that the context shows for a seq."""
    messages = (*context.pinned, *context.messages)
    return next((entry_of(message) for message in messages if message.seq == seq), GAP)


POLICIES = (Policy(), Policy(keep_whole=True), Policy(exempt=True, idle_timeout_s=7200), Policy(idle_timeout_s=900))


class Machine(Steps):
    """The rules of users. Scenes call them as methods, too."""

    @rule(name=names)
    def append(self, name: str) -> None:
        self.append_as(name, 1, f"id {next(self.numbers)}")

    @rule(name=names, count=st.integers(2, 6))
    def append_batch(self, name: str, count: int) -> None:
        self.append_as(name, count, f"id {next(self.numbers)}")

    def append_alike(self, name: str, count: int) -> None:
        """Append messages of equal content in one append, so that they are stored as equal bytes."""
        self.alike = self.messages(1)
        self.append_the_same(name, count)

    def append_the_same(self, name: str, count: int) -> None:
        """Append the message of the last `append_alike` again."""
        messages, entries = self.alike
        id = f"id {next(self.numbers)}"
        expected = self.model.append(name, id, next(self.numbers), entries * count, self.now)
        self.same("append, alike", self.run_call(self.calls[name].append(messages * count, {"id": id})), expected)

    @precondition(lambda self: self.model.sessions)
    @rule(name=names, place=places)
    def append_duplicate(self, name: str, place: int) -> None:
        if not (ids := self.ids_of(name)):
            return
        if self.model.made_by(name, id := newest(ids, place)) == "change":
            self.refused(self.calls[name].append(self.messages(1)[0], {"id": id}))
        else:
            self.append_as(name, 2, id)

    @rule(name=names, named=st.booleans(), others=st.integers(0, 20))
    def append_overtaken(self, name: str, named: bool, others: int) -> None:
        """An append is retried, and its first attempt arrives last, after other appends, and changes nothing."""
        messages, entries = self.messages(1)
        id = f"id {next(self.numbers)}"
        call = self.calls[name].append(messages, {"id": id} if named else {})
        expected = self.model.append(name, id if named else f"no {id}", next(self.numbers), entries, self.now)
        if expected is None:
            return
        self.same("append, overtaken", self.run_call(call.again()), expected)
        for _ in range(others):
            self.append(name)
        with pytest.raises(ServerError, match="OVERTAKEN"):
            run_without_loop(self.store.once(call))

    @rule(name=names, named=st.booleans())
    def append_sent_again(self, name: str, named: bool) -> None:
        """An append is retried after a lost reply: the retry returns the first receipt and is no duplicate."""
        messages, entries = self.messages(2)
        id = f"id {next(self.numbers)}"
        call = self.calls[name].append(messages, {"id": id} if named else {})
        expected = self.model.append(name, id if named else f"no {id}", next(self.numbers), entries, self.now)
        if expected is not None:
            self.same("append, sent", self.run_call(call), expected)
            self.same("append, sent again", self.run_call(call.again()), expected)

    @rule(name=names, seen=st.sampled_from(["now", "another seq", "another life", "another life alone"]))
    def append_expecting(self, name: str, seen: str) -> None:
        """An append expects the session as it is, or as it never was: another seq, or this seq in another life."""
        session = self.model.sessions.get(name)
        total, epoch = (0, "") if session is None else (session.total, self.epoch_of(name))
        receipt = Receipt(total, total, total, False, False, epoch=epoch)
        if seen != "now":
            receipt = replace(receipt, last_seq=total + 1) if seen == "another seq" else replace(receipt, epoch="1-ab")
            receipt.degraded = seen == "another life alone"
            with pytest.raises(Conflict) as refused:
                self.run_call(self.calls[name].append(self.messages(1)[0], {"expect": receipt}))
            self.same("cleared", refused.value.cleared, seen != "another seq")
            self.same("last seq", refused.value.last_seq, total)
            return
        messages, entries = self.messages(1)
        id = f"id {next(self.numbers)}"
        expected = self.model.append(name, id, next(self.numbers), entries, self.now)
        call = self.calls[name].append(messages, {"id": id, "expect": receipt})
        if expected is None:
            with pytest.raises(TooLarge):
                self.run_call(call)
        else:
            self.same("append, expected", self.run_call(call), expected)
            self.lives_in(name, self.epoch_of(name))

    def epoch_of(self, name: str) -> str:
        return self.run_call(self.calls[name].epoch())

    @rule(name=names, value=st.integers(0, 9))
    def change_state(self, name: str, value: int) -> None:
        self.change_as(name, f"id {next(self.numbers)}", value)

    @precondition(lambda self: self.model.sessions)
    @rule(name=names, place=places, value=st.integers(0, 9))
    def change_duplicate(self, name: str, place: int, value: int) -> None:
        if not (ids := self.ids_of(name)):
            return
        if self.model.made_by(name, id := newest(ids, place)) == "append":
            self.refused(self.calls[name].update(id, merge={"p0": value}))
        else:
            self.change_as(name, id, value)

    def refused(self, call: Call[Any]) -> None:
        """Assert that an append with the id of a state change, or the reverse, is refused."""
        with pytest.raises(InvalidMessage):
            self.run_call(call)

    @rule(name=names, value=st.integers(0, 9))
    def change_overtaken(self, name: str, value: int) -> None:
        """A state change is retried after a lost reply, and after another writer has changed the param."""
        change, id = {f"p{value % 2}": value}, f"no id {next(self.numbers)}"
        call = self.calls[name].update(merge=change)
        for sent in (call, call.again()):
            self.run_call(sent)
            self.model.append(name, id, next(self.numbers), [], self.now, change)
            self.change_state(name, value + 2)

    def change_as(self, name: str, id: str, value: int) -> None:
        change = {f"p{value % 2}": value}
        self.run_call(self.calls[name].update(id, merge=change))
        self.model.append(name, id, next(self.numbers), [], self.now, change)

    def ids_of(self, name: str) -> list[str]:
        """Return the ids that callers gave."""
        session = self.model.sessions.get(name)
        return [] if session is None else [id for id, _ in session.appends if id.startswith("id ")]

    @rule(name=names)
    def touch(self, name: str) -> None:
        self.same("touch", self.run_call(self.calls[name].touch()), self.model.touch(name, self.now))

    @rule(name=names, policy=st.sampled_from(POLICIES))
    def set_policy(self, name: str, policy: Policy) -> None:
        given = self.run_call(self.calls[name].set_policy(policy))
        self.same("set_policy", given, self.model.set_policy(name, encode_policy(policy), self.now))

    def view(self, name: str) -> View | None:
        return self.run_call(edits.window(self.calls[name]))

    @precondition(lambda self: self.model.sessions)
    @rule(name=names)
    def look(self, name: str) -> None:
        view = self.view(name)
        if view is not None:
            session = self.model.sessions[name]
            self.reads_as_modelled(view.context, session)
            self.views.append(Seen(name, session.life, session.version, view))

    @precondition(lambda self: self.views)
    @rule(place=places, keep=st.integers(0, 4), again=st.booleans())
    def prune_as_seen(self, place: int, keep: int, again: bool) -> None:
        name, life, version, view = newest(self.views, place)
        context = view.context
        going = leaving.select_pruned(context, keep)
        if going:
            decode = partial(leaving.decode_pruned, going)
            call = edits.edit(self.calls[name], view, leaving.prune(view, going), decode)
            dropped = self.run_call(call)
            count = leaving.plan_leaving(context, view.elements, going).next_seq - context.first_seq
            newest_gone = entry_at(context, context.first_seq + count - 1)
            number = next(self.numbers)
            pruned = self.model.prune(name, life, version, context.first_seq, count, newest_gone, number)
            self.same(f"prune {dropped > 0}", dropped, len(going) if pruned else 0)
            if again:
                session = self.model.sessions.get(name)
                same = dropped > 0 and session is not None and session.life == life
                self.same("prune, repeated", self.run_call(call), dropped if same else 0)

    @precondition(lambda self: self.model.sessions)
    @rule(name=names, keep=st.integers(0, 5), again=st.booleans())
    def prune(self, name: str, keep: int, again: bool) -> None:
        self.look(name)
        if name in self.model.sessions:
            self.prune_as_seen(0, keep, again)

    @rule(name=names)
    def clear(self, name: str) -> None:
        session, keys = self.model.sessions.get(name), self.calls[name].keys
        call = clear(keys, SETTINGS)
        cleared = self.run_call(call)
        self.clears.append((call, name, None if session is None else session.life, cleared))
        self.same("clear", cleared, self.model.remove(name, None if session is None else session.life))

    @precondition(lambda self: self.clears)
    @rule(place=places)
    def clear_again(self, place: int) -> None:
        """A clear that is sent again removes nothing but what is left of an expired session, if it found none."""
        call, name, life, cleared = newest(self.clears, place)
        removed = self.model.remove(name, life)
        self.same("clear, repeated", self.run_call(call), removed if life is None else cleared)

    @precondition(lambda self: self.views)
    @rule(place=places)
    def clear_late(self, place: int) -> None:
        name, life, _, view = newest(self.views, place)
        call = clear_life(self.calls[name].keys, view.context.epoch)
        self.same("late clear", self.run_call(call), self.model.remove(name, life))
