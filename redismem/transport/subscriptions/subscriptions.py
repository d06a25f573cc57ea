"""Subscriptions to channels, for the asyncio callers of a store.

Each event loop that subscribes has connections of its own, which end with it. A transport without addresses, such as a
client that the caller provides, has no subscriptions: its channels are polled.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import warnings

from redismem.concurrency import forks
from redismem.concurrency.loops import call_on
from redismem.events import facts
from redismem.transport.base import ChannelNodes, Transport, is_embedded
from redismem.transport.subscriptions.channel import Listener
from redismem.transport.subscriptions.keeper import Keeper

log = logging.getLogger("redismem")


class Subscriptions:
    """Subscribes listeners to sharded channels. The channels of one node share a connection."""

    def __init__(self, transport: Transport, timeout_s: float) -> None:
        """Create subscriptions that are not connected yet. Close them before the transport.

        `timeout_s` bounds each `add`, and each attempt to connect.
        """
        self._nodes: ChannelNodes | None = None
        self._timeout_s = timeout_s
        self.refusal = ""
        """The reason why channels are polled, such as NOPERM or "embedded"; "" if there is none."""
        if is_embedded(transport):
            self.refusal = "embedded"
        elif transport.blocks:
            self.refusal = "a blocking caller"
        elif (nodes := _nodes_of(transport)) is not None:
            self._nodes = nodes
        else:
            self.refusal = "a client of your own"
        self._is_closed = False
        self._keepers: dict[asyncio.AbstractEventLoop, Keeper] = {}
        self.reset()
        forks.reset_after_fork(self)

    def reset(self) -> None:
        """Begin without listeners in a forked process. The old ones belong to the event loops of the parent."""
        for keeper in self._keepers.values():
            keeper.forget_end()
        self._lock = threading.Lock()
        self._keepers = {}

    async def add(self, channel: bytes, listener: Listener) -> bool:
        """Subscribe a listener, and return True once the server has confirmed it: every later message comes.

        Return False if the channel must be polled for now. It is subscribed in the background as soon as that is
        possible, and `on_gap` tells it.

        Raises:
            RuntimeError: The memory is closed.
        """
        keeper = self._enter()
        return keeper is not None and await keeper.add(channel, listener)

    def remove(self, channel: bytes, listener: Listener) -> None:
        """End the subscription of a listener of this event loop. Nothing happens if it has none."""
        keeper = self._keepers.get(asyncio.get_running_loop())
        if keeper is not None:
            keeper.remove(channel, listener)

    def is_on(self, channel: bytes) -> bool:
        """True if the channel is subscribed in this event loop, and its connection is open."""
        keeper = self._keepers.get(asyncio.get_running_loop())
        return keeper is not None and keeper.is_on(channel)

    def _enter(self) -> Keeper | None:
        """Return the keeper of the running event loop; `None` if the channels of this transport are polled."""
        if self._is_closed:
            raise RuntimeError("this memory is closed")
        if self._nodes is None:
            return None
        loop = asyncio.get_running_loop()
        with self._lock:
            keeper = self._keepers.get(loop)
            if keeper is None or keeper.is_closed:
                for ended in [each for each in self._keepers if each.is_closed()]:
                    self._keepers.pop(ended).abandon()
                keeper = self._keepers[loop] = Keeper(self._nodes, self._timeout_s, self._note_refusal)
            return keeper

    def _note_refusal(self, reason: str) -> None:
        if reason and reason != self.refusal:
            text = "Redis pushes no events of turns, which are polled instead: SSUBSCRIBE was refused with %s"
            log.warning(text, reason, extra=facts(op="follow", error=reason))
        self.refusal = reason

    async def aclose(self) -> None:
        """Close all connections. Each `add` that waits returns False, and nothing can be added afterwards."""
        self._is_closed = True
        here = self._keepers.pop(asyncio.get_running_loop(), None)
        self._end_others()
        if here is not None:
            await here.aclose()

    def drop(self) -> None:
        """Close open connections with a warning, if `aclose` was never called."""
        if self._is_closed:
            return
        if any(keeper.is_connected for keeper in self._keepers.values()):
            warnings.warn("a memory was not closed: use `async with`, or `aclose()`", ResourceWarning, stacklevel=2)
        self._is_closed = True
        self._end_others()

    def _end_others(self) -> None:
        """Close the connections of all event loops, each in its own thread."""
        keepers, self._keepers = self._keepers, {}
        for loop, keeper in keepers.items():
            if loop.is_closed():
                keeper.abandon()
            else:
                call_on(loop, keeper.close)


def _nodes_of(transport: Transport) -> ChannelNodes | None:
    """Return the transport itself if it has addresses."""
    return transport if isinstance(transport, ChannelNodes) else None
