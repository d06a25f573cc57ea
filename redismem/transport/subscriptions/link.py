"""A link: a connection to one node that carries the subscriptions of many channels."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Iterable
from itertools import count
from typing import Any, NamedTuple, Protocol

import hiredis

from redismem.protocol.server_errors import ServerError
from redismem.transport import resp
from redismem.transport.lane.alarm import Alarm
from redismem.transport.lane.connection import Connection

_PING_EVERY_S = 2.0
_SUBSCRIBE, _UNSUBSCRIBE, _PING = "SSUBSCRIBE", "SUNSUBSCRIBE", "PING"
IDLE = "idle"
"""The reason of a link that closed itself because it carried no channel."""


class _Asked(NamedTuple):
    """A command without a reply so far. The number tells a subscription from an earlier one to the same channel."""

    word: str
    channel: bytes = b""
    number: int = 0


class Owner(Protocol):
    """Gets the news of a link."""

    def on_message(self, link: Link, name: bytes, payload: bytes) -> None:
        """Take a message of a channel."""

    def on_confirmed(self, link: Link, name: bytes) -> None:
        """Note that every message to the channel comes from now on."""

    def on_refused(self, link: Link, name: bytes, refused: ServerError) -> None:
        """Note that the node does not subscribe the link to the channel, which the link no longer carries."""

    def on_moved(self, link: Link, name: bytes) -> None:
        """Note that the node gave the channel's slot away. The link no longer carries the channel."""

    def on_lost(self, link: Link) -> None:
        """Note that the link has ended, with all its channels."""


class Link(Connection):
    """Subscribes to channels of one node, and unsubscribes from them.

    The node must send something every 2 s, at least the reply to a PING. Otherwise the link is lost. It closes itself
    when it has carried no channel for a while.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, place: str, owner: Owner) -> None:
        super().__init__(loop, _nothing, self._report_lost, _nothing)
        self.place = place
        self.channels: dict[bytes, int] = {}
        """The number of the pending subscription to each channel; 0 once the node has confirmed it."""
        self.is_proven = False
        """True once the node has answered for 2 s."""
        self._owner = owner
        self._numbers = count(1)
        self._asked: deque[_Asked] = deque()
        self._is_greeted = self._has_heard = False
        self._alarm = Alarm(self._check, _PING_EVERY_S)

    def subscribe(self, names: Iterable[bytes]) -> None:
        """Subscribe to channels that the link does not carry; once the node has accepted the connection."""
        asked = [_Asked(_SUBSCRIBE, name, next(self._numbers)) for name in names]
        self.channels.update((each.channel, each.number) for each in asked)
        if self._is_greeted:
            self._command(asked)

    def unsubscribe(self, names: Iterable[bytes]) -> None:
        """Unsubscribe from channels that the link carries."""
        asked = [_Asked(_UNSUBSCRIBE, name) for name in names if self.channels.pop(name, None) is not None]
        if self._is_greeted:
            self._command(asked)

    def begin(self) -> None:
        """Subscribe to the channels that were given before the node had accepted the connection."""
        self._is_greeted = True
        self._command([_Asked(_SUBSCRIBE, name, number) for name, number in self.channels.items()])
        self._alarm.set(self._loop, self._loop.time() + _PING_EVERY_S)

    def _command(self, asked: list[_Asked]) -> None:
        if asked and self._transport is not None and not self.lost_reason:
            self._asked += asked
            commands = [(each.word, each.channel) if each.channel else (each.word,) for each in asked]
            self._transport.write(resp.encode_independent(commands))

    def _check(self, now: float) -> float:
        """Ping the node if it has answered since the last check. Return the time of the next check."""
        if not self._has_heard or not self.channels:
            self.lose("SilentServer" if self.channels else IDLE)
            return math.inf
        self.is_proven, self._has_heard = True, False
        self._command([_Asked(_PING)])
        return now + _PING_EVERY_S

    def _deliver_replies(self) -> None:
        """Take what the node has sent: the replies to the greeting, then messages and other replies."""
        if not self._is_greeted:
            super()._deliver_replies()
            return
        self._has_heard, self._unanswered_bytes = True, 0
        next_reply, nothing = self._reader.gets, resp.NOTHING
        while (reply := next_reply()) is not nothing and not self.lost_reason:
            match reply:
                case [b"smessage", bytes(name), bytes(payload)]:
                    self._owner.on_message(self, name, payload)
                case [b"ssubscribe", bytes(name), *_]:
                    self._confirm(name)
                case [b"sunsubscribe", bytes(name), *_]:
                    self._end(name)
                case ServerError():
                    self._refuse(reply)
                case [b"pong", *_] | b"PONG":
                    self._next_asked(_PING)
                case _ if type(reply) is not hiredis.PushNotification:
                    raise resp.OutOfStep("a reply to no command of a subscription")

    def _next_asked(self, word: str) -> _Asked:
        """Return the oldest command without a reply, which must be this one. Raises OutOfStep."""
        if not self._asked or self._asked[0].word != word:
            raise resp.OutOfStep("a reply without a command")
        return self._asked.popleft()

    def _confirm(self, name: bytes) -> None:
        asked = self._next_asked(_SUBSCRIBE)
        if asked.channel != name:
            raise resp.OutOfStep("a reply about another channel")
        if self.channels.get(name) == asked.number:
            self.channels[name] = 0
            self._owner.on_confirmed(self, name)

    def _end(self, name: bytes) -> None:
        """Take the reply to an unsubscription, or the news that the node no longer has the channel's slot."""
        if self._asked and self._asked[0] == _Asked(_UNSUBSCRIBE, name):
            self._asked.popleft()
        elif self.channels.get(name) == 0:
            del self.channels[name]
            self._owner.on_moved(self, name)

    def _refuse(self, refused: ServerError) -> None:
        if resp.is_crowded(refused) or not self._asked:
            self.lose(refused.word)
            return
        asked = self._asked.popleft()
        if asked.word == _SUBSCRIBE and self.channels.get(asked.channel) == asked.number:
            del self.channels[asked.channel]
            self._owner.on_refused(self, asked.channel, refused)

    def _report_lost(self, _: Any) -> None:
        self._alarm.cancel()
        self._owner.on_lost(self)

    def abandon(self) -> None:
        """Close the socket itself, because the event loop is closed and cannot."""
        self._alarm.cancel()
        super().abandon()


def _nothing(*_: Any) -> None:
    """Ignore room for further calls, and large replies: a link sends few bytes, and no calls."""
