"""The subscriptions of one event loop: find the node of each channel, and subscribe again after each loss."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Sequence

from redismem.concurrency.loops import at_loop_end
from redismem.protocol.server_errors import TRANSIENT_WORDS, ConnectionLost, ServerError
from redismem.transport import resp
from redismem.transport.base import ChannelNodes
from redismem.transport.lane.opening import connect
from redismem.transport.subscriptions.channel import Channel, Listener, Pauses
from redismem.transport.subscriptions.link import IDLE, Link
from redismem.transport.url import Address

_CHECK_EVERY_S = 2.0
_REFUSED_S = 30.0
_HOPS = 5
_CLOSED = "closed"


class Keeper:
    """Keeps the channels of one event loop subscribed, each at the node that has its slot."""

    def __init__(self, nodes: ChannelNodes, timeout_s: float, on_refusal: Callable[[str], None]) -> None:
        """Create a keeper for the running event loop. It ends with the loop."""
        self._loop = asyncio.get_running_loop()
        self._nodes, self._timeout_s, self._on_refusal = nodes, timeout_s, on_refusal
        self._channels: dict[bytes, Channel] = {}
        self._waiting: dict[Channel, float] = {}
        """The channels without a link, each with the time of its next attempt."""
        self._links: dict[str, Link] = {}
        """The connection to each node, by place."""
        self._pauses: dict[str, Pauses] = {}
        """The pauses of each node that was in trouble, by place; "" for an unknown node."""
        self._refused: set[bytes] = set()
        """The channels that the server refused for a lasting reason, such as NOPERM."""
        self._refused_until = 0.0
        """The time before which no channel is asked for, because the server has refused all so far."""
        self._may_subscribe = False
        self._connecting: set[asyncio.Task[None]] = set()
        self._placing: asyncio.Task[None] | None = None
        self._awake = asyncio.Event()
        self.is_closed = False
        self.forget_end = at_loop_end(self.close)

    @property
    def is_connected(self) -> bool:
        """True if a connection is open, or being opened."""
        return bool(self._links)

    async def add(self, name: bytes, listener: Listener) -> bool:
        """Subscribe the listener. Return False if the channel must be polled for now."""
        channel = self._channels.get(name)
        if channel is None:
            channel = self._channels[name] = Channel(name)
            channel.is_failing = self._loop.time() < self._refused_until
            self._wait(channel, self._refused_until)
        channel.listeners[listener] = None
        if channel.is_on or channel.is_failing:
            return channel.is_on
        told: asyncio.Future[bool] = self._loop.create_future()
        channel.listeners[listener] = told
        try:
            async with asyncio.timeout(self._timeout_s):
                return await told
        except TimeoutError:
            return told.done() and not told.cancelled() and told.result()
        except asyncio.CancelledError:
            self.remove(name, listener)
            raise

    def remove(self, name: bytes, listener: Listener) -> None:
        """End the listener's subscription."""
        channel = self._channels.get(name)
        if channel is None or listener not in channel.listeners:
            return
        told = channel.listeners.pop(listener)
        if told is not None and not told.done():
            told.set_result(False)
        if not channel.listeners:
            del self._channels[name]
            self._waiting.pop(channel, None)
            self._refused.discard(name)
            if channel.link is not None:
                channel.link.unsubscribe([name])

    def is_on(self, name: bytes) -> bool:
        """True if the server has confirmed the subscription, and its connection is open."""
        channel = self._channels.get(name)
        return channel is not None and channel.is_on

    def _wait(self, channel: Channel, until: float) -> None:
        """Subscribe the channel again, at this time."""
        channel.lose()
        self._waiting[channel] = until
        self._awake.set()
        if self._placing is None or self._placing.done():
            self._placing = self._loop.create_task(self._keep())

    async def _keep(self) -> None:
        """Place the channels that wait when their time has come, and look for those whose node has changed."""
        check_at = self._loop.time() + _CHECK_EVERY_S
        while self._channels and not self.is_closed:
            now = self._loop.time()
            sought = [channel for channel, at in self._waiting.items() if at <= now]
            if check_at <= now:
                check_at = now + random.uniform(_CHECK_EVERY_S / 2, _CHECK_EVERY_S)
                sought += [channel for channel in self._channels.values() if channel not in self._waiting]
            if sought:
                await self._place(sought)
                continue
            self._awake.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(min([check_at, *self._waiting.values()])):
                    await self._awake.wait()

    async def _place(self, sought: Sequence[Channel]) -> None:
        """Subscribe each channel at its node, if it is not there yet."""
        addresses: Sequence[Address | None] = [None] * len(sought)
        with contextlib.suppress(ServerError, ConnectionLost):
            addresses = await self._nodes.channel_addresses([channel.name for channel in sought], self._timeout_s)
        names: dict[Link, list[bytes]] = {}
        now = self._loop.time()
        for channel, address in zip(sought, addresses, strict=True):
            if self._channels.get(channel.name) is channel and self._waiting.get(channel, 0) <= now:
                link = self._link_of(channel, address, now)
                if link is not None and link is not channel.link:
                    self._leave(channel)
                    channel.link = link
                    names.setdefault(link, []).append(channel.name)
        for link, its in names.items():
            link.subscribe(its)

    def _link_of(self, channel: Channel, address: Address | None, now: float) -> Link | None:
        """Return the connection for a channel; `None` if there is none now. Then a channel without one waits."""
        place = "" if address is None else address.place
        link = self._links.get(place)
        if link is not None:
            return link
        pauses = self._pauses.setdefault(place, Pauses())
        if address is None or pauses.until > now:
            if channel.link is None:  # otherwise it stays: its node may well be up
                channel.fail()
                self._wait(channel, pauses.begin(now))
            return None
        link = self._links[place] = Link(self._loop, place, self)
        task = self._loop.create_task(self._connect(link, address))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)
        return link

    def _leave(self, channel: Channel) -> None:
        """Leave the connection that carries the channel, or the line of those that wait for one."""
        self._waiting.pop(channel, None)
        if channel.link is not None:
            channel.link.unsubscribe([channel.name])
            channel.lose()

    async def _connect(self, link: Link, address: Address) -> None:
        try:
            await connect(link, address, self._timeout_s)
        except ServerError as refused:
            for name in tuple(link.channels):
                self.on_refused(link, name, refused)
        except (ConnectionLost, OSError, UnicodeError):
            pass  # `on_lost` has postponed its channels
        else:
            link.begin()

    def on_message(self, link: Link, name: bytes, payload: bytes) -> None:
        """Give the message to the channel's listeners."""
        channel = self._channels.get(name)
        if channel is not None and channel.link is link:
            channel.deliver(payload)

    def on_confirmed(self, link: Link, name: bytes) -> None:
        """Tell the listeners: those that wait in `add`, and those that may have missed messages."""
        channel = self._channels.get(name)
        if channel is not None and channel.link is link:
            self._may_subscribe, self._refused_until = True, 0.0
            self._refused.discard(name)
            if not self._refused:
                self._on_refusal("")
            channel.confirm()

    def on_refused(self, link: Link, name: bytes, refused: ServerError) -> None:
        """Follow a redirection at once. Try again after a pause, which is long if the server will not change soon."""
        channel, now = self._channels.get(name), self._loop.time()
        if channel is None or channel.link not in (link, None):
            return
        self._nodes.note_channel_trouble(refused, link.place)
        if refused.word == "MOVED" and channel.hops < _HOPS:
            channel.hops += 1
            self._wait(channel, now)
            return
        if refused.word in TRANSIENT_WORDS:
            until = self._pauses.setdefault(link.place, Pauses()).begin(now)
        else:
            until = now + _REFUSED_S
            self._refused.add(name)
            if not self._may_subscribe:
                self._refused_until = until
            is_unknown = refused.word == "ERR" and resp.is_command_refused(refused)
            self._on_refusal("unknown command" if is_unknown else refused.word)
        channel.fail()
        self._wait(channel, until)

    def on_moved(self, link: Link, name: bytes) -> None:
        """Subscribe again: the node that gave the slot away answers with the place of its new owner.

        If it has become a replica of the new owner, it subscribes the link. Then the next check moves the channel.
        """
        channel = self._channels.get(name)
        if channel is not None and channel.link is link:
            self._nodes.note_channel_trouble(ServerError("MOVED", "MOVED"), link.place)
            self._wait(channel, self._loop.time())

    def on_lost(self, link: Link) -> None:
        """Subscribe the channels of the link again. Listeners poll if that takes more than one attempt."""
        del self._links[link.place]
        if self.is_closed or link.lost_reason == IDLE:
            return
        if link.is_proven:
            self._pauses.pop(link.place, None)
        until = self._pauses.setdefault(link.place, Pauses()).begin(self._loop.time())
        for name in tuple(link.channels):  # a listener may end subscriptions
            channel = self._channels.get(name)
            if channel is not None and channel.link is link:
                if not channel.is_on:
                    channel.fail()
                self._wait(channel, until)
        self._nodes.note_channel_trouble(ConnectionLost(link.lost_reason), link.place)

    def close(self) -> None:
        """Close all connections. Each `add` that waits returns False."""
        self.is_closed = True
        self.forget_end()
        for task in self._tasks():
            task.cancel()
        for link in tuple(self._links.values()):
            link.lose(_CLOSED)
        for channel in self._channels.values():
            channel.end()
        self._channels.clear()
        self._waiting.clear()

    def _tasks(self) -> list[asyncio.Task[None]]:
        return [*self._connecting, *([] if self._placing is None else [self._placing])]

    async def aclose(self) -> None:
        """Close all connections, and wait until they are closed."""
        links, tasks = tuple(self._links.values()), self._tasks()
        self.close()
        await asyncio.gather(*tasks, return_exceptions=True)
        for link in links:
            if link.is_open:
                await link.closed

    def abandon(self) -> None:
        """Close the connections of an event loop that was closed without a shutdown."""
        self.is_closed = True
        self.forget_end()
        for link in self._links.values():
            link.abandon()
        self._links.clear()
