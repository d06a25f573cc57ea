"""What happens to the store itself: it loses keys, is damaged, killed, or replaced by one that lags behind."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule
from protocol.actions import SETTINGS, volume
from protocol.turns import Turns, names
from protocol.wire import finished

from redismem.protocol import queue_calls


class Faults(Turns):
    @rule(some=st.sets(names, min_size=1))
    def sweep(self, some: set[str]) -> None:
        (shard,) = self.memory.store.keys.shards()
        swept = sorted(some)
        found = self.run_call(
            queue_calls.sweep(shard, [self.memory.store.keys.session(name) for name in swept], self.now)
        )
        self.same("sweep", found, self.shard.sweep(swept, self.now))

    @rule(name=names)
    def expire(self, name: str) -> None:
        self.vanish(name)

    @rule(name=names, how=st.sampled_from(["type", "number", "epoch", "short"]), by=st.booleans())
    def corrupted(self, name: str, how: str, by: bool) -> None:
        """What cannot be read is set aside, and leaves nothing behind that could shadow a new session."""
        told, keys = self.shard.sessions.get(name), self.memory.store.keys.session(name)
        if told is None or not 0 < len(told.window) < SETTINGS.max_window_count:
            self.overdue(name)
            told = self.shard.sessions[name]
        harm: dict[str, tuple[Any, ...]] = {
            "type": ("SET", keys.messages, "x"),
            "number": ("HSET", keys.state, "counters", "v1 1 x 1 1 1"),
            "epoch": ("HDEL", keys.state, "epoch"),
            "short": ("LPOP", keys.messages),
        }
        self.wire.send(harm[how])
        calls = self.calls[name]
        healing = calls.read() if by else calls.append_and_read([{"role": "user"}], now_ms=self.now)
        context = finished(self.memory.store.run(healing, quarantine=True))
        self.shard.remove(name, told.life)
        if not by:
            self.run_call(calls.clear(context.epoch))
        assert [self.run_call(calls.exists()), context.total_messages] == [False, 0 if by else 1]
        self.agrees()
        # Another caller found it unreadable too, and is late.
        self.append(name)
        assert self.run_call(calls.quarantine(told.epoch, self.now)) == 0

    @rule()
    def remember(self) -> None:
        keys = self.wire.send(("KEYS", "*"))[0]
        stored = [(key, *self.wire.send(("PEXPIRETIME", key), ("DUMP", key))) for key in keys]
        self.snapshot = (stored, copy.deepcopy(self.shard), self.fence_count)

    @precondition(lambda self: self.snapshot is not None)
    @rule()
    def roll_back(self) -> None:
        """A replica that had not got the latest is promoted: what the clients know is ahead of what is stored."""
        assert self.snapshot is not None
        stored, shard, self.fence_count = self.snapshot
        self.wire.send(("FLUSHALL",))
        for key, expires_ms, dump in stored:
            assert self.wire.send(("RESTORE", key, max(0, expires_ms), dump, "ABSTTL")) == [b"OK"]
        self.shard = copy.deepcopy(shard)
        self.pass_time(0)

    @rule()
    def scripts_forgotten(self) -> None:
        self.wire.send(("SCRIPT", "FLUSH"))

    @precondition(lambda self: self.restarts_left)
    @rule(really=st.booleans())
    def killed(self, really: bool) -> None:
        if really and self.restarts_left:
            self.restarts_left -= 1
            volume["restarts"] += 1
            self.server.kill()
            self.server.start()
            self.wire.connect()
