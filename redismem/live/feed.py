"""The feed of a session: what other processes say in its turns. All listeners of this process share it."""

from __future__ import annotations

import asyncio
import logging
from time import monotonic

from redismem.errors import RedismemError
from redismem.events import facts
from redismem.live.ending import end_if_dead
from redismem.live.log import Log
from redismem.protocol.ids import session_hash
from redismem.protocol.keys import SessionKeys
from redismem.protocol.live.calls import TurnRead, read_turn
from redismem.protocol.live.turns import TurnField
from redismem.store.store import Store
from redismem.transport.subscriptions.subscriptions import Subscriptions

log = logging.getLogger("redismem")

_SILENCE_S = 2.0
_SOON_S = 0.02
_OVERLAP_BYTES = 64


class Feed:
    """The running or last turn of a session, as Redis pushes it, or else as polls find it.

    Subscribe, then read, then take the pushes: nothing is missed. A push that begins behind the end of the log asks for
    a read. Of one that begins before it, only the new part counts; if its old part differs, the log is read anew.
    """

    def __init__(self, store: Store, subscriptions: Subscriptions, keys: SessionKeys) -> None:
        self._store, self._subscriptions, self.keys = store, subscriptions, keys
        self.field: TurnField | None = None
        self.log: Log | None = None
        """The log of the turn in `field`. Another turn has another object."""
        self.listeners_count = 0
        self._changed = asyncio.Event()
        self._asked = asyncio.Event()
        self._joiners: list[asyncio.Future[None]] = []
        """The listeners that wait for a read which begins after they have come."""
        self._grown_s = monotonic()
        self._task = asyncio.get_running_loop().create_task(self._keep())
        self._task.add_done_callback(self._note_end)

    async def join(self) -> None:
        """Wait for a read that begins now or later: it knows the turns that have begun before.

        Raises the errors of a read, and RuntimeError if the memory is closed.
        """
        joiner: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._joiners.append(joiner)
        self._asked.set()
        await joiner

    async def log_after(self, known: Log) -> Log | None:
        """Wait for the log that replaces this one, and return it; `None` if the session has another turn, or none.

        A log that ended, and that nothing replaces, has no end event: it is the last part of a log that has expired.
        """
        while True:
            changed = self._changed
            if self.field is None or self.field.generation != known.generation:
                return None
            if self.log is not known and self.log is not None:
                return self.log
            if self.log is known and not known.is_replaced:
                return None
            await changed.wait()

    def end(self) -> None:
        """Follow the session no longer."""
        self._task.cancel()
        self._subscriptions.remove(self.keys.live, self)
        self.field = None
        self._leave_log()

    def on_message(self, payload: bytes) -> None:
        """Take a push: generation and offset, a line feed, and what was added to the log."""
        head, _, added = payload.partition(b"\n")
        generation, _, offset_text = head.partition(b" ")
        known = self.log
        if known is None or known.generation.encode() != generation or not offset_text.isdigit():
            self._asked.set()  # of a turn that no read has found yet
            return
        offset, size = int(offset_text), len(known.content)
        if offset > size:
            self._asked.set()
        elif known.content[offset : offset + len(added)] == added[: size - offset]:
            self._extend(known, added[size - offset :])
        else:
            self._leave_log()
            self._asked.set()

    def on_gap(self) -> None:
        """Read, because pushes may have been missed."""
        self._asked.set()

    async def _keep(self) -> None:
        await self._subscriptions.add(self.keys.live, self)
        is_well = True
        while True:
            self._asked.clear()
            joiners_count = len(self._joiners)
            try:
                while not await self._read():
                    pass
                self._answer(joiners_count, None)
                await self._end_if_dead()
                is_well = True
            except RedismemError as error:
                self._answer(joiners_count, error)
                if is_well and not joiners_count:
                    session, kind = session_hash(self.keys.session_id), type(error).__name__
                    extra = facts(op="read_turn", session=session, error=kind)
                    log.warning("session %s: its turn cannot be followed now: %s", session, error.text, extra=extra)
                is_well = False
            await self._pause()

    def _answer(self, joiners_count: int, error: BaseException | None) -> None:
        joiners = self._joiners[:joiners_count]
        del self._joiners[:joiners_count]
        for joiner in joiners:
            if joiner.done():  # it has left
                continue
            if error is None:
                joiner.set_result(None)
            else:
                joiner.set_exception(error)

    def _note_end(self, task: asyncio.Task[None]) -> None:
        """Let nobody wait for a feed that has ended."""
        failure = None if task.cancelled() else task.exception()
        self._answer(len(self._joiners), failure or RuntimeError("this memory is closed"))
        if failure is not None:
            kind, session = type(failure).__name__, session_hash(self.keys.session_id)
            log.error("session %s: its feed ended: %s", session, kind, extra=facts(op="read_turn", error=kind))
        self.field = None
        self._leave_log()

    async def _pause(self) -> None:
        seconds = _SILENCE_S if self._subscriptions.is_on(self.keys.live) else self._store.settings.live_poll_s
        if self._is_running:
            seconds = min(seconds, max(_SOON_S, self._due_s - monotonic()))
        try:
            async with asyncio.timeout(seconds):
                await self._asked.wait()
        except TimeoutError:
            pass

    @property
    def _is_running(self) -> bool:
        return self.field is not None and self.field.is_running

    @property
    def _due_s(self) -> float:
        """The time at which the lease of the turn is over, if nothing is heard of it."""
        return self._grown_s + self._store.settings.live_lease_s

    async def _read(self) -> bool:
        """Read what is new. False means that the log must be read from its beginning."""
        offset = 0 if self.log is None else max(0, len(self.log.content) - _OVERLAP_BYTES)
        return self._take(await self._store.run(read_turn(self.keys, offset)), offset)

    def _take(self, read: TurnRead, offset: int) -> bool:
        known, field = self.log, read.turn
        if field is None:
            self.field = None
            self._leave_log()
            return True
        if known is not None and known.generation == field.generation:
            told = bytes(known.content[offset:])
            if not read.log.startswith(told) and not (field.is_running and told.startswith(read.log)):
                self._leave_log()  # Redis lost what was told, and has other events now
            else:
                self._extend(known, read.log[len(told) :])
        elif known is not None:
            self._leave_log()
        if self.log is None and offset:
            return False
        self.field = field
        if self.log is None:
            self.log = Log(field.generation)
            self._extend(self.log, read.log)
            self._wake()
        if not field.is_running:
            self.log.end()
        return True

    def _leave_log(self) -> None:
        known, self.log = self.log, None
        if known is not None and not known.has_ended:
            known.end(is_replaced=True)
        self._wake()

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
        self._grown_s = monotonic()

    def _extend(self, known: Log, added: bytes) -> None:
        if added:
            self._grown_s = monotonic()
            known.extend(added)
            if known.ends_turn(len(known.content)):
                known.end()

    async def _end_if_dead(self) -> None:
        """End a turn whose process has died, once nothing was heard of it for a lease."""
        if self._is_running and self._due_s <= monotonic():
            left_ms = await end_if_dead(self._store, self.keys)
            if left_ms:
                self._grown_s = monotonic() - self._store.settings.live_lease_s + left_ms / 1000
            else:
                self._asked.set()
