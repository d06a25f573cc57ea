"""Read the sessions of an owner, as far as they have changed since this process last read them.

One round trip lists the sessions and reads the states of known ones. If any has changed, others read it: its state, the
signatures of its originals, and the messages of its window, which get their signatures here.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from redismem.concurrency.offload import LARGE_BYTES, run_apart
from redismem.originals.blocks import block_number
from redismem.protocol.keys import is_session_id
from redismem.protocol.owner import calls
from redismem.protocol.owner.calls import Asked, Contained, OwnedState, Stored, decode_state
from redismem.protocol.owners import encode_owner
from redismem.recall.owner.cached import CachedOwner, OwnedSession
from redismem.store.store import Store

BLOCKS_LIMIT = 1_024
"""The number of newest blocks of an owner that are searched: 16,384 messages."""
WINDOWS_BYTES = 2 * 1024 * 1024
"""The approximate size of the windows that one search reads. A later one reads the next ones."""
_ROUNDS_LIMIT = 3
_MUCH_BYTES = LARGE_BYTES // 8  # signatures of this much text take about a millisecond
_MANY_BLOCKS = 64


class OwnerLoader:
    """Reads the sessions of one owner, for a search in the session `own_id`, whose window is not searched."""

    def __init__(self, store: Store, owner: str, own_id: str, before: CachedOwner | None) -> None:
        self._store = store
        self._owner = owner
        self._field = encode_owner(owner)
        self._own_id = own_id
        self._before = CachedOwner({}) if before is None else before
        self._keys: Mapping[str, bytes] = {}
        self._left_bytes = WINDOWS_BYTES

    async def load(self) -> CachedOwner:
        """Return the index of the owner as it is now: the earlier one, if nothing has changed.

        Raises StoreUnavailable.
        """
        before, own_id = self._before, self._own_id
        stored = await self._read_states()
        own = decode_state(own_id, self._field, stored.pop(own_id))
        if before.stored == stored and self._is_own_same(own) and self._has_none_removed(stored):
            return before
        states = {} if own is None else {own_id: own}
        for session_id, fields in stored.items():
            state = before.states.get(session_id)
            if state is None or state.stored != fields:
                state = decode_state(session_id, self._field, fields)
            if state is not None:
                states[session_id] = state
        sessions = await self._load_sessions(states)
        index = before
        if sessions != before.sessions:
            count = sum(len(session.signatures) for session in sessions.values())
            build = partial(CachedOwner, sessions)
            index = await run_apart(self._store.transport, build, is_much=count > _MANY_BLOCKS)
        keys = {session_id: self._keys[session_id] for session_id in stored}
        index.note(own_id, keys, stored, states)
        return index

    async def _read_states(self) -> dict[str, Stored]:
        """Read the state of each session that is listed for the owner, and of the one that asks."""
        run, keys = self._store.run, self._store.keys
        known = dict(self._before.keys) | {self._own_id: keys.session(self._own_id).state}
        listed, stored = await run(calls.list_sessions(keys, self._owner, known))
        names = {*listed, self._own_id}
        if new := {name: keys.session(name).state for name in names - stored.keys() if is_session_id(name)}:
            fields = await run(calls.read_states([*new.values()]))
            stored |= zip(new, fields, strict=True)
        self._keys = known | new
        return {name: fields for name, fields in stored.items() if name in names}

    def _has_none_removed(self, stored: Mapping[str, Stored]) -> bool:
        """False if the session that asked last was removed since: it is in the earlier index, and never in `stored`."""
        return self._before.sessions.keys() <= {*stored, self._own_id}

    def _is_own_same(self, own: OwnedState | None) -> bool:
        """True if the earlier index has the originals of the session that asks, and no window is left to read."""
        if self._before.is_cut:
            return False
        known = self._before.sessions.get(self._own_id)
        if own is None or not own.originals or known is None:
            return known is None and (own is None or not own.originals)
        return known.covers(own, max(0, own.originals.stop - BLOCKS_LIMIT), with_window=False)

    def _choose(self, states: Mapping[str, OwnedState]) -> dict[str, int]:
        """Return the sessions to search, the newest ones first, with the first block of each."""
        chosen, left = dict[str, int](), BLOCKS_LIMIT
        for state in sorted(states.values(), key=self._order, reverse=True):
            is_own = state.session_id == self._own_id
            stop = state.originals.stop if is_own else block_number(state.last_seq) + 1
            first = 0 if state.has_originals else block_number(state.first_seq)
            if first < stop and left > 0:
                chosen[state.session_id] = max(first, stop - left)
                left -= stop - chosen[state.session_id]
        return chosen

    def _order(self, state: OwnedState) -> tuple[bool, int, str]:
        return state.session_id == self._own_id, state.active_ms, state.session_id

    async def _load_sessions(self, states: dict[str, OwnedState]) -> dict[str, OwnedSession]:
        """Return what is searched of each session. States that change meanwhile are replaced."""
        sessions: dict[str, OwnedSession] = {}
        changed = dict[str, OwnedSession]()
        for session_id, first in self._choose(states).items():
            state, with_window = states[session_id], session_id != self._own_id
            known = self._before.sessions.get(session_id)
            if known is not None and known.covers(state, first, with_window=with_window):
                sessions[session_id] = known
                continue
            takes_window = with_window and self._takes(state)
            is_cut = known is not None and not known.has_window and not takes_window
            if known is not None and is_cut and known.covers(state, first, with_window=False):
                sessions[session_id] = known
            else:
                changed[session_id] = OwnedSession(state, first, has_window=takes_window)
        for _ in range(_ROUNDS_LIMIT):
            if not changed:
                break
            asked = [self._ask(session) for session in changed.values()]
            contained = await self._store.run(calls.read_contents(asked))
            found = dict(zip(changed, contained, strict=True))
            again = self._find_overtaken(changed, found, states)
            whole = {name: session for name, session in changed.items() if name not in again and name in states}
            size = sum(len(element) for each in found.values() for element in each.elements)
            size += sum(len(signature or b"") for each in found.values() for signature in each.signatures.values())
            await run_apart(self._store.transport, partial(self._add, whole, found), is_much=size > _MUCH_BYTES)
            sessions |= whole
            changed = again
        return sessions

    def _takes(self, state: OwnedState) -> bool:
        """True if this search may read the window of the session."""
        if state.window_bytes > self._left_bytes:
            return not state.has_window
        self._left_bytes -= state.window_bytes
        return True

    def _ask(self, session: OwnedSession) -> Asked:
        before = self._earlier(session)
        known = 0 if before is None else max(session.first_number, min(before.full_stop, session.full_stop))
        signed = range(max(known, session.first_number), session.state.originals.stop)
        with_window = session.has_window and session.state.has_window
        return Asked(self._store.keys.session(session.state.session_id), signed, (), with_window)

    def _earlier(self, session: OwnedSession) -> OwnedSession | None:
        """Return an earlier state of the session in which the same blocks were the same; None without one."""
        before = self._before.sessions.get(session.state.session_id)
        is_same = before is not None and before.state.life == session.state.life
        return before if is_same and before is not None and before.first_number <= session.first_number else None

    def _find_overtaken(
        self, read: Mapping[str, OwnedSession], found: Mapping[str, Contained], states: dict[str, OwnedState]
    ) -> dict[str, OwnedSession]:
        """Return the sessions that changed while they were read, in their new states. Removed ones leave `states`."""
        again: dict[str, OwnedSession] = {}
        for name, session in read.items():
            now = decode_state(name, self._field, found[name].stored)
            if now is None:
                states.pop(name)
            elif not now.is_as(session.state, with_window=session.has_window):
                states[name] = now
                again[name] = OwnedSession(now, session.first_number, has_window=session.has_window)
        return again

    def _add(self, sessions: Mapping[str, OwnedSession], found: Mapping[str, Contained]) -> None:
        for name, session in sessions.items():
            session.add(found[name], self._earlier(session))
