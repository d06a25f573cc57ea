"""Random rules for users who pin, unpin, pop, undo and replace, by a view that may be stale."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from model_check.kept import block_change, cut_in, kept_blocks, leaving_fields
from model_check.machine import Machine, entry_at, names, newest, places
from model_check.session import GAP, Entry, SeenSession
from model_check.steps import SETTINGS, Seen, entry_of
from redismem import TooLarge
from redismem.errors import NotInWindow
from redismem.messages.message import Message
from redismem.protocol import layout
from redismem.protocol.call import Call
from redismem.protocol.session import ending, forget, leaving, replacing
from redismem.protocol.session.edits import edit
from redismem.protocol.session.replacing import Replacement
from redismem.session import edits


class EditMachine(Machine):
    """The rules of users who edit sessions."""

    @rule(name=names, count=st.integers(1, 2))
    def append_pinned(self, name: str, count: int) -> None:
        self.append_as(name, count, f"id {next(self.numbers)}", "pinned")

    @precondition(lambda self: self.views)
    @rule(place=places, count=st.integers(1, 6), again=st.booleans())
    def archive_as_seen(self, place: int, count: int, again: bool) -> None:
        name, life, version, view = newest(self.views, place)
        context, calls = view.context, self.calls[name]
        going = context.messages[:count]
        if not going:
            return
        next_seq = leaving.plan_leaving(context, view.elements, going).next_seq
        last, seqs_count = entry_at(context, next_seq - 1), next_seq - context.first_seq
        fields = leaving_fields(self.run_call, calls.keys, view, going, layout.WITH_ORIGINALS in view.fields)
        number = next(self.numbers)
        expected = self.model.archive(name, life, version, context.first_seq, seqs_count, last, number)
        self._edit("archive", name, edit(calls, view, leaving.archive(view, going, fields), bool), expected, again)

    @precondition(lambda self: self.model.sessions)
    @rule(name=names, count=st.integers(1, 6), again=st.booleans())
    def archive(self, name: str, count: int, again: bool) -> None:
        self.look(name)
        if name in self.model.sessions:
            self.archive_as_seen(0, count, again)

    @precondition(lambda self: self.views)
    @rule(place=places, count=st.integers(1, 5), again=st.booleans())
    def pop_as_seen(self, place: int, count: int, again: bool) -> None:
        seen = newest(self.views, place)
        try:
            self._pop(seen, edits.select_newest(seen.view.context, count, 1000), again)
        except NotInWindow:
            assert count > len(seen.view.context.messages)

    @precondition(lambda self: self.views)
    @rule(place=places, again=st.booleans())
    def undo_as_seen(self, place: int, again: bool) -> None:
        seen = newest(self.views, place)
        try:
            self._pop(seen, edits.select_last_turn(seen.view.context, 1000), again)
        except NotInWindow:
            assert all(message.role != "user" for message in seen.view.context.messages)

    @precondition(lambda self: self.model.sessions)
    @rule(name=names, count=st.integers(1, 4), again=st.booleans())
    def pop(self, name: str, count: int, again: bool) -> None:
        self.look(name)
        if name in self.model.sessions:
            self.pop_as_seen(0, count, again)

    def _pop(self, seen: Seen, popped: list[Message], again: bool) -> None:
        if not popped:
            return
        name, context, number = seen.name, seen.view.context, next(self.numbers)
        call = edit(self.calls[name], seen.view, ending.pop(seen.view, popped), bool)
        total, seqs = context.last_seq, [message.seq for message in popped]
        last = entry_at(context, total)
        expected = self.model.pop(name, seen.life, seen.version, context.first_seq, total, last, seqs, number, self.now)
        self._edit("pop", name, call, expected, again)

    @precondition(lambda self: self.views)
    @rule(place=places, back=st.integers(0, 20), count=st.integers(0, 4), pinned=st.integers(0, 2), again=st.booleans())
    def rewrite_as_seen(self, place: int, back: int, count: int, pinned: int, again: bool) -> None:
        """Rewrite the last `back` seqs."""
        seen = newest(self.views, place)
        name, context = seen.name, seen.view.context
        from_seq = max(1, context.last_seq + 1 - back)
        messages, entries = self.messages(count)
        pins, pinned_entries = self.messages(pinned, "pinned")
        id, number = f"id {next(self.numbers)}", next(self.numbers)
        calls, given = self.calls[name], [*pins, *messages]
        view_of = SeenSession(
            *(seen.life, seen.version, context.first_seq, context.last_seq),
            *(entry_at(context, context.last_seq), context.summary_version),
        )
        try:
            cut = cut_in(self.run_call, calls.keys, seen.view, from_seq, SETTINGS.max_window_count)
        except (NotInWindow, TooLarge):
            self._refused_to_restore(name, view_of, from_seq)
            return
        expected = self.model.rewrite(name, id, view_of, from_seq, pinned_entries + entries, number, self.now)
        new = ending.encode(calls, given, id)
        plan = ending.rewrite(seen.view, from_seq, new, cut)
        call = edit(calls, seen.view, plan, partial(ending.decode_receipt, calls.keys.session_id, new))
        if expected is None:
            with pytest.raises(TooLarge):
                self.run_call(call)
            return
        receipt = self.run_call(call)
        self.same("rewrite", receipt is not None, expected is not False)
        assert receipt == (expected or None)
        if again and expected:
            self.agrees()
            if len(self.model.sessions[name].window) < SETTINGS.max_window_count:
                self.append(name)
            self.same("rewrite, repeated", self.run_call(call.again()), expected)

    def _refused_to_restore(self, name: str, seen: SeenSession, from_seq: int) -> None:
        """A view that is still current is refused only if messages that must come back are not there."""
        session = self.model.sessions.get(name)
        if session is not None and session.is_as_seen(seen) and session.committed_fence == seen.committed:
            self.same("rewrite, restored", False, self.model.is_restorable(name, from_seq))

    @precondition(lambda self: self.model.sessions)
    @rule(name=names, back=st.integers(0, 20), count=st.integers(0, 4), again=st.booleans())
    def rewrite(self, name: str, back: int, count: int, again: bool) -> None:
        self.look(name)
        if name in self.model.sessions:
            self.rewrite_as_seen(0, back, count, 0, again)

    @precondition(lambda self: self.views)
    @rule(place=places, which=places, again=st.booleans())
    def replace_as_seen(self, place: int, which: int, again: bool) -> None:
        seen = newest(self.views, place)
        context = seen.view.context
        messages = [*context.pinned, *context.messages]
        if messages:
            old = newest(messages, which)
            (new,), _ = self.messages(1)
            changed = replacing.replacement(self.calls[seen.name], old, new)
            self._replace("replace", seen, old, entry_of(new.mark_replaced().with_pin(old.pinned)), changed, again)

    @precondition(lambda self: any(seen.view.context.pinned for seen in self.views))
    @rule(place=places, which=places, again=st.booleans())
    def unpin_as_seen(self, place: int, which: int, again: bool) -> None:
        seen = newest([seen for seen in self.views if seen.view.context.pinned], place)
        old = newest(seen.view.context.pinned, which)
        self._replace("unpin", seen, old, entry_of(old.with_pin(False)), replacing.unpin(old), again)

    def _replace(self, what: str, seen: Seen, old: Message, new: Entry, changed: Replacement, again: bool) -> None:
        calls = self.calls[seen.name]
        kept = block_change(self.run_call, calls.keys, seen.view, old, changed)
        call = edit(calls, seen.view, replacing.replace(seen.view, old, changed, kept), bool)
        number = next(self.numbers)
        context = seen.view.context
        was_inside = old.seq >= context.first_seq
        together = [old.seq] if was_inside else seen.view.pinned_elements(seen.view.pinned_field(old.seq))
        visible = (*context.pinned, *context.messages)
        read = {message.seq: entry_of(message) for message in visible if message.seq in together}
        place = seen.view.place(old.seq)
        expected = self.model.replace(
            *(seen.name, seen.life, old.seq, read, context.first_seq, place, new, number, self.now)
        )
        self._edit(what, seen.name, call, expected, again)

    @precondition(lambda self: self.views)
    @rule(place=places, which=places, count=st.integers(1, 3), drops=st.booleans(), again=st.booleans())
    def forget_as_seen(self, place: int, which: int, count: int, drops: bool, again: bool) -> None:
        """Forget `count` seqs in a row, of which the last is the `which`-th from the end; summaries go or change."""
        seen = newest(self.views, place)
        name, context, calls = seen.name, seen.view.context, self.calls[seen.name]
        seqs = {max(1, context.last_seq - which - each) for each in range(count)}
        blocks = kept_blocks(self.run_call, calls.keys, seen.view, seqs)
        selected = forget.select(seen.view, blocks, seqs)
        covering = forget.covering(seen.view, blocks, seqs, selected)
        if not selected and not covering:
            return
        number = next(self.numbers)
        summaries = {old: None if drops else replace(old, text=f"again {number}") for old in covering}
        read = {seq: entry_at(context, seq) for seq in selected if seq >= context.first_seq}
        view_of = SeenSession(seen.life, seen.version, context.first_seq, 0, GAP, context.summary_version)
        expected = self.model.forget(name, view_of, selected, read, summaries, number)
        plan = forget.forget(seen.view, selected, blocks, summaries)
        self._edit("forget", name, edit(calls, seen.view, plan, bool), expected, again)

    @precondition(lambda self: self.model.sessions)
    @rule(name=names, which=places, count=st.integers(1, 3), drops=st.booleans(), again=st.booleans())
    def forget(self, name: str, which: int, count: int, drops: bool, again: bool) -> None:
        self.look(name)
        if name in self.model.sessions:
            self.forget_as_seen(0, which, count, drops, again)

    def _edit(self, what: str, name: str, call: Call[Any], expected: bool | None, again: bool) -> None:
        """Run an edit. With `again`, run it a second time after another append, as after a lost reply."""
        if expected is None:
            with pytest.raises(TooLarge):
                self.run_call(call)
            return
        self.same(what, bool(self.run_call(call)), expected)
        if again and expected:
            self.agrees()
            if len(self.model.sessions[name].window) < SETTINGS.max_window_count:
                self.append(name)
            self.same(f"{what}, repeated", bool(self.run_call(call)), True)
