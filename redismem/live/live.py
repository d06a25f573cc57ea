"""The running turns of one store in this process: its writer, its subscriptions, and the feeds of its listeners."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Coroutine
from typing import Any

from redismem.concurrency.loops import at_loop_end
from redismem.events import facts
from redismem.live.feed import Feed
from redismem.live.writer import Writer
from redismem.live.writing import Writing
from redismem.protocol.keys import SessionKeys
from redismem.store.store import Store
from redismem.transport.subscriptions.subscriptions import Subscriptions

log = logging.getLogger("redismem")


class Live:
    """The turns of one store and one event loop, while they run or are followed."""

    def __init__(self, store: Store, loop: asyncio.AbstractEventLoop) -> None:
        self.store = store
        self._loop = loop
        self.writer = Writer(store)
        self.subscriptions = Subscriptions(store.transport, store.availability.reply_timeout_s)
        self.running: dict[str, Writing] = {}
        """The running turn of each session that this process writes."""
        self._feeds: dict[str, Feed] = {}
        self._heard: set[bytes] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self._no_loop_end = at_loop_end(self._end)

    def begin(self, writing: Writing) -> None:
        """Keep a turn that this process has begun."""
        self.running[writing.keys.session_id] = writing
        writing.body = asyncio.current_task()
        if not writing.is_local:
            self.writer.add(writing)
            self._hear_stops(writing.keys.shard.stops)

    def end(self, writing: Writing) -> None:
        """Keep a turn no longer."""
        self.writer.remove(writing)
        if self.running.get(writing.keys.session_id) is writing:
            del self.running[writing.keys.session_id]
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def feed(self, keys: SessionKeys) -> Feed:
        """Return the feed of a session, which all its listeners in this process share. Leave it with `leave`."""
        feed = self._feeds.get(keys.session_id)
        if feed is None:
            feed = self._feeds[keys.session_id] = Feed(self.store, self.subscriptions, keys)
        feed.listeners_count += 1
        return feed

    def leave(self, feed: Feed) -> None:
        """Leave a feed. It ends with its last listener."""
        feed.listeners_count -= 1
        if not feed.listeners_count:
            feed.end()
            if self._feeds.get(feed.keys.session_id) is feed:
                del self._feeds[feed.keys.session_id]

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run work in the background, at the longest until the memory is closed."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _hear_stops(self, channel: bytes) -> None:
        if channel not in self._heard:
            self._heard.add(channel)
            self.spawn(self._subscribe(channel))

    async def _subscribe(self, channel: bytes) -> None:
        await self.subscriptions.add(channel, self)
        self.on_gap()

    def on_message(self, payload: bytes) -> None:
        """Stop the turn that a message of the channel of stops names."""
        generation, _, reason = payload.partition(b" ")
        for writing in list(self.running.values()):
            if writing.field.generation.encode() == generation:
                writing.on_stop(reason.decode("ascii", "replace"))

    def on_gap(self) -> None:
        """Ask Redis for stops that no message told."""
        self.writer.beats_often = not all(map(self.subscriptions.is_on, self._heard))
        self.writer.beat_now()

    async def aclose(self) -> None:
        """Stop the running turns, wait up to `deadline_s` for them to end, and end the feeds and subscriptions."""
        for writing in list(self.running.values()):
            writing.on_stop("closed")
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.store.settings.deadline_s):
                    while self.running:
                        await self._changed.wait()
        finally:  # the block of a turn that closes the memory is cancelled, and this with it
            if self.running:
                text = "closed with %d running turns, which other processes end as lost"
                log.error(text, len(self.running), extra=facts(op="turn", outcome="lost"))
            self._no_loop_end()
            await self._end()
            for writing in list(self.running.values()):
                writing.on_lost()

    async def _end(self) -> None:
        self.store.lives.pop(self._loop, None)
        for feed in list(self._feeds.values()):
            feed.end()
        for task in list(self._tasks):
            task.cancel()
        await self.writer.aclose()
        await self.subscriptions.aclose()


def find_running(store: Store, session_id: str) -> Writing | None:
    """Return the turn of a session that this event loop runs; `None` if there is none, or no event loop."""
    loop = asyncio._get_running_loop()
    live = None if loop is None else store.lives.get(loop)
    return live.running.get(session_id) if isinstance(live, Live) else None


def live_of(store: Store) -> Live:
    """Return the part of a store for the turns of the running event loop."""
    loop = asyncio.get_running_loop()
    part = store.lives.get(loop)
    if part is None:
        part = store.lives[loop] = Live(store, loop)
    assert isinstance(part, Live)
    return part
