"""A plain model of two sessions, compared with the real server after every step of random programs."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from support.redis_server import RedisServer
from support.session_model import HANDOVER_MS, THRESHOLD, TIMEOUT_MS, WINDOW_LIMIT, PlainSession, PlainSessions

from redismem import Conflict, IdReused, InvalidMessage, InvalidTime, Receipt, SessionNotFound, Settings, TooLarge
from redismem.blocking import memory

SETTINGS = Settings(
    shards=1, threshold=THRESHOLD, recent_limit=4, idle_timeout_s=TIMEOUT_MS / 1000, max_window_count=WINDOW_LIMIT
)
PAST_MS = 1_000_000_000_000
_numbers = itertools.count(1)

sessions = st.sampled_from(["one", "two"])
counts = st.integers(1, 5)
names = st.sampled_from(["size", "order", "city"])
merges = st.none() | st.dictionaries(names, st.integers() | st.text(max_size=3), max_size=3)
steps_ms = st.sampled_from([0, 1, 999, 1000, 5_000, TIMEOUT_MS - 1, HANDOVER_MS])


def numbers_of(receipt: Receipt) -> tuple[Any, ...]:
    return receipt.first_seq, receipt.last_seq, receipt.total, receipt.created


class Sessions(RuleBasedStateMachine):
    client: redis.Redis

    def __init__(self) -> None:
        super().__init__()
        self.namespace = f"model-{next(_numbers)}"
        self.memory = memory.Memory.connect(
            client=self.client, namespace=self.namespace, settings=SETTINGS, clock=lambda: self.now_ms
        )
        self.now_ms = 4_000_000_000_000
        self.plain = PlainSessions()
        self.epochs: list[str] = []
        self.ids = itertools.count(1)

    # What happens.

    @rule(ms=steps_ms)
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms

    @rule(
        name=sessions, count=counts, named=st.booleans(), merge=merges, waits=st.none() | st.just(...) | names,
        expects=st.booleans(), reads=st.booleans(),
    )  # fmt: skip
    def append(self, name: str, count: int, named: bool, merge: Any, waits: Any, expects: bool, reads: bool) -> None:
        session = self.memory.session(name)
        if self.plain.is_full(name, count):
            with pytest.raises(TooLarge):
                session.append(*[{"role": "user"}] * count, merge=merge)
            return
        what: dict[str, Any] = {"id": f"turn-{next(self.ids)}" if named else None}
        expected = self.plain.live[name].total if name in self.plain.live else 0
        change = {"merge": merge} | ({} if waits is ... else {"waiting": waits})
        messages, due = self.plain.append(name, count, self.now_ms, what["id"], **change)
        what |= change | {"expect": expected if expects else None}
        if reads:
            context = session.append_and_read(*messages, **what)
            assert context.receipt is not None
            receipt = context.receipt
            assert [message.content for message in context.messages] == self.plain.live[name].messages
            assert (context.state.params, context.total_messages) == (
                self.plain.live[name].params,
                self.plain.live[name].total,
            )
        else:
            receipt = session.append(*messages, **what)
        assert numbers_of(receipt) == numbers_of(due)
        assert not receipt.duplicate

    @rule(name=sessions, back=st.integers(0, 15), reads=st.booleans())
    def replay(self, name: str, back: int, reads: bool) -> None:
        known = [append for append in self.plain.live[name].appends if append[0]] if name in self.plain.live else []
        if not known:
            return
        id, due, contents = known[-1 - back % len(known)]
        session = self.memory.session(name)
        what: dict[str, Any] = {"id": id, "merge": {"city": "not this"}, "expect": 10**6}
        messages = [{"role": "user", "content": content} for content in contents]
        with pytest.raises(IdReused):
            session.append(*messages, {"role": "user", "content": "one more"}, **what)
        if reads:
            context = session.append_and_read(*messages, **what)
            assert context.receipt is not None
            receipt = context.receipt
        else:
            receipt = session.append(*messages, **what)
        assert numbers_of(receipt) == numbers_of(due)
        assert receipt.duplicate

    @rule(name=sessions, wrong=st.integers(1, 3))
    def expect_another(self, name: str, wrong: int) -> None:
        total = self.plain.live[name].total if name in self.plain.live else 0
        with pytest.raises(Conflict) as conflict:
            self.memory.session(name).append({"role": "user"}, expect=total + wrong)
        assert conflict.value.last_seq == total

    @rule(name=sessions)
    def append_what_cannot_be(self, name: str) -> None:
        with pytest.raises(InvalidMessage):
            self.memory.session(name).append({"role": "user"}, {"role": (1,)}, merge={"city": 1})

    @rule(name=sessions, now_ms=st.sampled_from([PAST_MS, 1, 4_000_000_000, 4_000_000_000_000_000]))
    def append_at_no_time(self, name: str, now_ms: int) -> None:
        """Append with a clock so old that the session would expire at once, or with a clock in another unit."""
        self.now_ms, before_ms = now_ms, self.now_ms
        with pytest.raises(InvalidTime):
            self.memory.session(name).append({"role": "user"})
        if name in self.plain.live:
            with pytest.raises(InvalidTime):
                self.memory.session(name).touch()
        self.now_ms = before_ms

    @rule(name=sessions, merge=merges, waits=names | st.none())
    def update(self, name: str, merge: Any, waits: Any) -> None:
        self.plain.change(name, self.plain.write(name, self.now_ms), self.now_ms, merge, waits)
        self.memory.session(name).update(merge=merge, waiting=waits)

    @rule(name=sessions, kept=st.integers(0, 12))
    def prune(self, name: str, kept: int) -> None:
        if name not in self.plain.live:
            with pytest.raises(SessionNotFound):
                self.memory.session(name).prune(kept)
            return
        model = self.plain.live[name]
        dropped = max(0, len(model.messages) - kept)
        model.messages = model.messages[dropped:]
        model.first_seq += dropped
        assert self.memory.session(name).prune(kept) == dropped

    @rule(name=sessions)
    def clear(self, name: str) -> None:
        assert self.memory.session(name).clear() is (name in self.plain.live)
        self.plain.live.pop(name, None)
        # An expired session's entries go too.
        self.plain.active.pop(name, None)
        self.plain.overdue.pop(name, None)

    @rule(name=sessions)
    def expire(self, name: str) -> None:
        if self.plain.live.pop(name, None):
            keys = self.memory.store.keys.session(name)
            for key in (keys.state, keys.messages):
                self.client.pexpireat(key, 1)

    @rule(name=sessions)
    def touch(self, name: str) -> None:
        assert self.memory.session(name).touch() is (name in self.plain.live)
        if name in self.plain.live:
            model = self.plain.live[name]
            model.active_ms = self.plain.active[name] = self.now_ms
            model.expires_ms = self.now_ms + TIMEOUT_MS

    @rule(name=sessions, limit=st.integers(0, 12), before=st.none() | st.integers(-1, 40))
    def read_a_part(self, name: str, limit: int, before: int | None) -> None:
        model = self.plain.live.get(name, PlainSession())
        seqs = [seq for seq in range(model.first_seq, model.total + 1) if before is None or seq < before]
        expected = seqs[max(0, len(seqs) - limit) :]
        session = self.memory.session(name)
        assert [message.seq for message in session.read(limit=limit, before=before).messages] == expected
        if name in self.plain.live:
            assert [message.seq for message in session.messages(limit=limit, before=before)] == expected

    @rule()
    def forget_the_scripts(self) -> None:
        self.client.script_flush()

    # What must hold.

    def expires_ms(self, key: bytes) -> int:
        return int(self.client.pexpiretime(key.decode()))

    @invariant()
    def the_sessions_are_as_the_model_says(self) -> None:
        for name in ("one", "two"):
            session = self.memory.session(name)
            keys = self.memory.store.keys.session(name)
            if name not in self.plain.live:
                assert self.client.exists(keys.state, keys.messages, keys.originals) == 0
                assert session.read().epoch == ""
                continue
            model = self.plain.live[name]
            context, known = session.read(), session.info()
            assert [message.content for message in context.messages] == model.messages
            assert [message.seq for message in context.messages] == list(range(model.first_seq, model.total + 1))
            assert (context.total_messages, context.last_seq, context.first_seq) == (
                model.total,
                model.total,
                model.first_seq,
            )
            assert len(context.recent) == min(4, len(model.messages))
            assert (context.state.params, context.state.waiting_for_param) == (model.params, model.waiting)
            assert known.window_count == len(model.messages) == self.client.llen(keys.messages)
            assert known.window_tokens == sum(message.tokens for message in context.messages)
            assert (known.active_ms, known.expires_ms) == (model.active_ms, model.expires_ms)
            assert known.queued == ("overdue" if model.queued else None)
            assert self.expires_ms(keys.state) == model.expires_ms
            assert self.expires_ms(keys.messages) == (model.expires_ms if model.messages else -2)

    @invariant()
    def the_indexes_are_as_the_model_says(self) -> None:
        shard = self.memory.store.keys.session("one").shard

        def index(key: bytes) -> dict[str, int]:
            entries: Any = self.client.zrange(key, 0, -1, withscores=True)
            return {member.decode(): int(score) for member, score in entries}

        assert index(shard.active) == self.plain.active
        assert index(shard.overdue) == self.plain.overdue
        assert self.client.exists(shard.leased, shard.dead, shard.evictions) == 0
        counted = sum(active_ms > self.now_ms - TIMEOUT_MS for active_ms in self.plain.active.values())
        assert self.memory.count() == counted

    @invariant()
    def an_epoch_is_used_once(self) -> None:
        for name in self.plain.live:
            epoch = self.memory.session(name).info().epoch
            if epoch in self.epochs:
                assert epoch in self.epochs[-2:]
                self.epochs.remove(epoch)
            self.epochs.append(epoch)

    def teardown(self) -> None:
        for name in list(self.plain.live):
            self.clear(name)
        keys = self.client.scan_iter(f"rm:{{{self.namespace}[:}}]*", count=10_000)
        left = {key.rpartition(b":")[2] for key in keys if b":cleared:" not in key}  # a clear is remembered for a while
        assert left <= {b"active", b"overdue", b"fences", b"namespace"}


def test_sessions_behave_as_the_model(redis_server: RedisServer) -> None:
    with redis.Redis(port=redis_server.port) as client:
        Sessions.client = client
        run_state_machine_as_test(
            Sessions,
            settings=settings(
                stateful_step_count=15,
                suppress_health_check=list(HealthCheck),
            ),
        )
