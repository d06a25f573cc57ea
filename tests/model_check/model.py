"""The model of one shard's sessions in plain Python, without fences, scripts or Redis.

This file holds the user's operations; `work_model` adds the workers' operations. A number identifies a session's life.
`now` is always the time in milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from model_check.session import GAP, Entry, SeenSession, SessionModel
from redismem.context.results import Receipt, Summary
from redismem.originals.blocks import block_number
from redismem.settings.settings import Settings

QUEUES = ("overdue", "leased", "dead")
INDEXES = ("active", *QUEUES, "evictions")
HANDOVER_MS = 86_400_000


@dataclass
class Model:
    """The sessions, and the users' operations."""

    settings: Settings
    sessions: dict[str, SessionModel] = field(default_factory=dict)
    indexes: dict[str, dict[str, int]] = field(default_factory=lambda: {name: {} for name in INDEXES})
    originals: dict[str, dict[int, str | None]] = field(default_factory=dict)
    pauses: dict[str, bytes] = field(default_factory=dict)
    """The stored pause of each paused provider."""
    owners: dict[str, str] = field(default_factory=dict)
    """The owners of the sessions' next lives."""
    quarantined: set[tuple[str, int]] = field(default_factory=set)
    """The epochs and numbers of blocks that were quarantined. A process may still know their words."""

    def _leave(self, name: str, *indexes: str) -> None:
        for index in indexes:
            self.indexes[index].pop(name, None)

    def _queue(self, name: str, queue: str | None, due_ms: int) -> None:
        session = self.sessions[name]
        self._leave(name, *QUEUES)
        session.queued, session.holder = queue, None
        if queue is not None:
            self.indexes[queue][name] = due_ms

    def waits(self, session: SessionModel) -> bool:
        if "w" in session.policy:
            return False
        return len(session.window) > self.settings.threshold or len(session.summaries) > self.settings.summaries_limit

    def write(self, name: str, life: int, entries: list[Entry], params: dict[str, int], now: int) -> None:
        """Write messages, params or both."""
        created = name not in self.sessions
        if created:
            self._leave(name, *QUEUES, "evictions")
            for other, active_ms in list(self.indexes["active"].items()):
                if 0 <= active_ms <= now - 2 * self.settings.kept_ms - HANDOVER_MS:
                    self._leave(other, *INDEXES)
            self.sessions[name] = SessionModel(life, owner=self.owners.get(name))
        session = self.sessions[name]
        session.entries += entries
        session.pinned_once |= any(entry.kind == "pinned" for entry in entries)
        session.params |= params
        self._wake(name, now)
        self._changed(name, created, now)

    def _wake(self, name: str, now: int) -> None:
        """Make the session overdue if its window is too long."""
        session = self.sessions[name]
        half_full = 2 * len(session.window) > self.settings.max_window_count
        wanting = session.queued is None or (half_full and session.queued == "overdue")
        if len(session.window) > self.settings.threshold and wanting and "w" not in session.policy:
            self._queue(name, "overdue", 0 if half_full else now)

    def _changed(self, name: str, created: bool, now: int) -> None:
        session = self.sessions[name]
        chosen = session.evicting is not None
        is_noted = created or chosen or now - session.active_ms >= min(1000, self._kept_ms(session) / 16)
        if is_noted:
            session.active_ms = max(now, session.active_ms)
            session.expires_ms = max(now + self._kept_ms(session), 0 if chosen else session.expires_ms)
        self._untouch(name)
        if is_noted:
            self._list(name)

    def append(
        self, name: str, id: str, life: int, entries: list[Entry], now: int, params: dict[str, int] | None = None
    ) -> Receipt | None:
        """Append messages, params or both. `life` is a new number for each call.

        Returns `None` if the window or the pinned messages would exceed their limit.
        """
        session = self.sessions.get(name)
        for known, receipt in [] if session is None else session.appends[-16:]:
            if known == id:
                return replace(receipt, duplicate=True)
        before = 0 if session is None else len(session.window)
        pinned = sum(entry.kind == "pinned" for entry in entries)
        if entries and before + len(entries) - pinned > self.settings.max_window_count:
            return None
        if pinned and pinned + (0 if session is None else len(session.pinned)) > self.settings.max_pinned_count:
            return None
        self.write(name, life, entries, params or {}, now)
        total = self.sessions[name].total
        receipt = Receipt(total - len(entries) + 1, total, total, session is None, False)
        self.sessions[name].appends.append((id, receipt))
        self.sessions[name].written = life
        return receipt

    def made_by(self, name: str, id: str) -> str:
        """Return the operation that used a remembered id: append or change; "" means the id is not remembered."""
        session = self.sessions.get(name)
        receipt = dict([] if session is None else session.appends[-16:]).get(id)
        return "" if receipt is None else "append" if receipt.first_seq <= receipt.last_seq else "change"

    def touch(self, name: str, now: int) -> bool:
        session = self.sessions.get(name)
        if session is None:
            return False
        session.active_ms = now
        session.expires_ms = now + self._kept_ms(session)
        self._untouch(name)
        self._list(name)
        return True

    def set_policy(self, name: str, policy: str, now: int) -> bool:
        session = self.sessions.get(name)
        if session is None:
            return False
        session.policy = policy
        self._leave(name, "evictions")
        if "w" in policy:
            self._queue(name, None, now)
            session.attempts = session.failure = session.deaths = None
        elif session.queued is None:
            self._queue(name, "overdue", now)
        return self.touch(name, now)

    def _kept_ms(self, session: SessionModel) -> int:
        return int(session.policy.strip("wx") or self.settings.kept_ms)

    def _list(self, name: str) -> None:
        """Enter the activity of a session, and the expiry of one that workers watch."""
        session = self.sessions[name]
        self.indexes["active"][name] = -session.active_ms if "x" in session.policy else session.active_ms
        if session.policy not in ("", "w"):
            self.indexes["evictions"][name] = -session.expires_ms

    def _untouch(self, name: str) -> None:
        session = self.sessions[name]
        if session.evicting is not None:
            session.evicting = None
            self._leave(name, "evictions")

    def prune(
        self, name: str, life: int, version: int, first_seq: int, count: int, newest: Entry | None, number: int
    ) -> bool:
        """Drop the first `count` seqs of the window. `newest` is the entry that the caller saw last among them."""
        session = self.sessions.get(name)
        if session is None or (session.life, session.version, session.first_seq) != (life, version, first_seq):
            return False
        if session.entry(first_seq + count - 1) != newest:
            return False
        session.unsummarised |= set(range(first_seq, first_seq + count))
        session.leave(count)
        self.originals.pop(name, None)
        session.written = number
        session.appends.append((f"edit {number}", Receipt(0, 0, 0, False, False)))
        return True

    def archive(
        self, name: str, life: int, version: int, first_seq: int, count: int, newest: Entry | None, number: int
    ) -> bool:
        """Move the first `count` seqs of the window into the originals. `newest` is as in `prune`."""
        session = self.sessions.get(name)
        if session is None or (session.life, session.version, session.first_seq) != (life, version, first_seq):
            return False
        if session.entry(first_seq + count - 1) != newest:
            return False
        session.unsummarised |= set(range(first_seq, first_seq + count))
        self._swap(name, session, count, True)
        session.written = number
        session.appends.append((f"edit {number}", Receipt(0, 0, 0, False, False)))
        return True

    def _swap(self, name: str, session: SessionModel, count: int, keep: bool) -> None:
        first_seq = session.first_seq
        leaving = {seq: entry.content for seq, entry in enumerate(session.leave(count), first_seq)}
        if count:
            kept: dict[int, str | None] = self.originals.pop(name, {}) if keep and session.with_originals else {}
            self.originals.pop(name, None)
            session.with_originals = keep
            if keep:
                self.keep(name, kept | leaving)

    # Pops and replacements. `number` is new for each call. A replacement returns `None` if the window may not grow.

    def pop(
        self,
        name: str,
        life: int,
        version: int,
        first_seq: int,
        total: int,
        newest: Entry,
        seqs: list[int],
        number: int,
        now: int,
    ) -> bool:
        """Pop the messages of `seqs`. `newest` is the entry that the caller saw at the last seq."""
        session = self.sessions.get(name)
        if session is None or (session.life, session.version, session.total) != (life, version, total):
            return False
        if session.first_seq != first_seq or session.entry(total) != newest:
            return False
        for seq in seqs:
            session.entries[seq - 1] = GAP
        session.entries.append(GAP)
        self._wake(name, now)
        self._edited(name, number, now)
        return True

    def rewrite(
        self,
        name: str,
        id: str,
        seen: SeenSession,
        from_seq: int,
        entries: list[Entry],
        number: int,
        now: int,
    ) -> Receipt | Literal[False] | None:
        """Replace everything from a seq on, in the session as the caller saw it.

        Returns `False` if it has changed, and `None` if the window or the pinned messages would exceed their limit.
        """
        session = self.sessions.get(name)
        if session is None or session.life != seen.life:
            return False
        for known, receipt in session.appends[-16:]:
            if known == id:
                return replace(receipt, duplicate=True)
        if not session.is_as_seen(seen):
            return False
        if session.places and session.entry(seen.total) != seen.newest:
            return False
        if from_seq < session.first_seq and session.committed_fence != seen.committed:
            return False
        first_seq = session.first_seq if from_seq >= session.first_seq else session.first_after(from_seq)
        before, pinned_before = len(session.window), len(session.pinned)
        head = [session.restored(seq) if seq >= first_seq else session.entries[seq - 1] for seq in range(1, from_seq)]
        left = [*head, *[GAP] * (session.total + 1 - from_seq), *(entries or [GAP])]
        after = replace(session, entries=left, first_seq=first_seq)
        if len(after.pinned) > max(pinned_before, self.settings.max_pinned_count):
            return None
        if len(after.window) > max(before, self.settings.max_window_count):
            return None
        session.entries = left
        if from_seq < session.first_seq:
            self._cut(name, first_seq)
        session.pinned_once |= len(after.pinned) > 0
        self._wake(name, now)
        self._edited(name, number, now)
        receipt = Receipt(seen.total + 1, session.total, session.total, False, False)
        session.appends[-1] = (id, receipt)
        return receipt

    def is_restorable(self, name: str, from_seq: int) -> bool:
        """True if all messages that a summary covers before the seq can come back into the window."""
        session = self.sessions[name]
        first_seq = session.first_after(from_seq)
        if first_seq == from_seq:
            return True
        is_there = self.originals.get(name, {}).keys() >= set(range(first_seq, from_seq))
        return session.with_originals and is_there and from_seq - first_seq <= self.settings.max_window_count

    def _cut(self, name: str, first_seq: int) -> None:
        """Remove what stands behind the window from a seq on."""
        session = self.sessions[name]
        session.first_seq = first_seq
        session.groups = [group for seqs in session.groups if (group := [seq for seq in seqs if seq < first_seq])]
        session.summaries = [summary for summary in session.summaries if summary.last_seq < first_seq]
        session.unsummarised = {seq for seq in session.unsummarised if seq < first_seq}
        session.sketch, session.committed, session.committed_fence, session.has_count = b"", None, "", True
        if session.with_originals:
            kept = self.originals.pop(name, {})
            self.keep(name, {seq: content for seq, content in kept.items() if seq < first_seq})
            session.with_originals = first_seq > 1

    def keep(self, name: str, kept: dict[int, str | None]) -> None:
        """Set the originals, without blocks that have no message."""
        told = {block_number(seq) for seq, content in kept.items() if content is not None}
        if told:
            self.originals[name] = {seq: content for seq, content in kept.items() if block_number(seq) in told}

    def replace(
        self,
        name: str,
        life: int,
        seq: int,
        read: dict[int, Entry],
        first_seq: int,
        place: int,
        new: Entry,
        number: int,
        now: int,
    ) -> bool | None:
        """Replace a message. `read` holds its entry as the caller saw it, and `place` is its place in the window.

        The place changes if gaps before it have met since.

        If the message had left the window, `read` holds all entries that left together with it.
        """
        session = self.sessions.get(name)
        if session is None or (session.life, session.first_seq) != (life, first_seq):
            return False
        is_inside = seq >= session.first_seq
        (group,) = [[seq]] if is_inside else [seqs for seqs in session.groups if seq in seqs] or [[]]
        if {member: session.entry(member) for member in group} != read:
            return False
        if is_inside and place != session.place(seq):
            return False
        old = read[seq]
        if is_inside and old.kind != new.kind and len(session.window) >= self.settings.max_window_count:
            return None
        originals = self.originals.get(name, {}) if session.with_originals else {}
        if seq in originals:
            originals[seq] = new.content
            session.left[seq] = new
        session.entries[seq - 1] = new if is_inside or new.kind == "pinned" else GAP
        if session.entries[seq - 1] is GAP:
            group.remove(seq)
        self._wake(name, now)
        self._edited(name, number, now)
        return True

    def forget(
        self,
        name: str,
        seen: SeenSession,
        seqs: set[int],
        read: dict[int, Entry],
        summaries: Mapping[Summary, Summary | None],
        number: int,
    ) -> bool:
        """Remove messages. `read` holds those of the window as the caller saw them. This is no use of the session."""
        session = self.sessions.get(name)
        if session is None or (session.life, session.version, session.first_seq) != (*seen[:2], seen.first_seq):
            return False
        if session.committed_fence != seen.committed or {seq: session.entry(seq) for seq in read} != read:
            return False
        kept = self.originals.pop(name, {}) if session.with_originals else {}
        for seq in seqs:
            session.entries[seq - 1] = GAP
            if seq in kept:
                kept[seq], session.left[seq] = None, GAP
        if session.with_originals:
            self.keep(name, kept)
        groups = [[seq for seq in group if seq not in seqs] for group in session.groups]
        session.groups, session.sketch = [group for group in groups if group], b""
        if summaries:
            session.committed, session.committed_fence, session.has_count = None, "", True
        for old in (old for old, new in summaries.items() if new is None):
            session.unsummarised |= set(range(old.first_seq, old.last_seq + 1))
        changed = (summaries.get(each, each) for each in session.summaries)
        session.summaries = [each for each in changed if each is not None]
        session.version = session.written = number
        session.appends.append((f"edit {number}", Receipt(0, 0, 0, False, False)))
        return True

    def _edited(self, name: str, number: int, now: int) -> None:
        session = self.sessions[name]
        session.version = session.written = number
        session.appends.append((f"edit {number}", Receipt(0, 0, 0, False, False)))
        self._changed(name, False, now)

    def remove(self, name: str, life: int | None) -> bool:
        """Remove everything of this life; `None` removes the remains of an expired session."""
        session = self.sessions.get(name)
        if (None if session is None else session.life) != life:
            return False
        self._leave(name, *INDEXES)
        left = self.originals.pop(name, None) is not None
        return self.sessions.pop(name, None) is not None or left

    def expire(self, name: str) -> None:
        """Drop the session's keys but keep its index entries."""
        self.sessions.pop(name, None)
