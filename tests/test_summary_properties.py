"""What holds of sessions, summaries and eviction whatever comes: one property a test, on a real server."""

from __future__ import annotations

import itertools
import math
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest
import redis.asyncio
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from redis_server import RedisServer
from writers import T0, Echo, said

import redismem
from redismem import Memory, Session, Settings
from redismem.context import Context, Summary
from redismem.errors import ModelFailed, RedismemError
from redismem.models import Draft
from redismem.protocol.layout import counters
from redismem.protocol.queue_calls import members
from redismem.workers.eviction import Eviction
from redismem.workers.summaries import Worker

HUNDRED = settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
_numbers = itertools.count(1)
Opened = Callable[..., AbstractAsyncContextManager[Memory]]

texts = st.text(max_size=12)
floats = st.floats(allow_nan=False, allow_infinity=False)
values = st.none() | st.booleans() | st.integers(-(2**63), 2**63) | floats | texts
payloads = st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant"]), "content": texts})
batches = st.lists(st.integers(1, 9), min_size=1, max_size=8)
bounds = st.tuples(st.integers(1, 12), st.integers(1, 12)).map(
    lambda pair: {"threshold": max(pair), "recent_limit": min(pair)}
)
ages = st.lists(st.integers(0, 60), min_size=1, max_size=8)
failures = st.sampled_from(
    [
        ModelFailed("500"),
        ModelFailed("429", counts=False, retry_after_s=1),
        ModelFailed("401", permanent=True),
        TimeoutError(),
        ValueError("of a strategy's own"),
        RecursionError(),
    ]
)


@pytest.fixture
async def opened(redis_server: RedisServer, namespace: str) -> AsyncIterator[Opened]:
    """Opens a memory with a namespace of its own, once an example."""
    async with redis.asyncio.Redis(port=redis_server.port) as client:

        def open_it(**changed: Any) -> AbstractAsyncContextManager[Memory]:
            name = f"{namespace}-{next(_numbers)}"
            return Memory.connect(client=client, namespace=name, settings=Settings(shards=2, **changed))

        yield open_it


@pytest.fixture
async def raw(redis_server: RedisServer) -> AsyncIterator[Any]:
    async with redis.asyncio.Redis(port=redis_server.port) as raw:
        yield raw


async def append(session: Session, counts: list[int], now_ms: int = T0) -> None:
    """Batches of messages that say their own seq."""
    seq = 0
    for count in counts:
        await session.append(*(said(seq + at) for at in range(1, count + 1)), now_ms=now_ms)
        seq += count


def covered(context: Context) -> list[int]:
    """The seqs in summaries and window together, in order."""
    seqs = [seq for summary in context.summaries for seq in range(summary.first_seq, summary.last_seq + 1)]
    return seqs + [message.seq for message in context.messages]


async def stored_of(raw: Any, session: Session, memory: Memory) -> list[Any]:
    """All that is stored of a session, and its place in every index of its shard."""
    keys = memory.store.keys.session(session.id)
    shard = keys.shard
    state = await raw.hgetall(keys.state)
    lists = [await raw.lrange(key, 0, -1) for key in (keys.messages, keys.originals)]
    indexes = (shard.active, shard.overdue, shard.leased, shard.dead, shard.evictions)
    return [state, *lists, *[await raw.zscore(index, session.id) for index in indexes]]


async def begin(memory: Memory, active_ms: list[int]) -> list[str]:
    """Sessions last active at these times."""
    names = [f"s-{number}" for number in range(len(active_ms))]
    for name, at_ms in zip(names, active_ms, strict=True):
        await memory.session(name).append(said(1), now_ms=at_ms)
    return names


async def listed(memory: Memory, queue: str) -> set[str]:
    return {entry.session_id for entry in await memory.store.run(members(memory.store.keys, queue, 1_000))}


@HUNDRED
@given(steps=st.lists(st.lists(payloads, min_size=1, max_size=7) | st.just("drain") | texts, min_size=1, max_size=10))
async def test_storage_consistency(opened: Opened, steps: list[Any]) -> None:
    async with opened(keep_originals=True) as memory:
        session, worker = memory.session("a"), Worker(memory.store, Echo())
        put: list[dict[str, Any]] = []
        params: dict[str, str] = {}
        await session.update(merge={"x": 1}, now_ms=T0)
        for step in steps:
            if step == "drain":
                await worker.drain(T0)
            elif isinstance(step, str):
                params[f"p{step}"] = step
                await session.update(merge={f"p{step}": step}, now_ms=T0)
            else:
                put += step
                await session.append(*step, now_ms=T0)
            found = await session.messages(include_originals=True)
            assert [message.to_openai() for message in found] == put
            assert [message.seq for message in found] == list(range(1, len(put) + 1))
            context, known = await session.read(), await session.info()
            assert covered(context) == list(range(1, len(put) + 1))
            assert context.state.params == {"x": 1} | params
            assert known.window_tokens == sum(message.tokens for message in context.messages)
            assert (known.total_messages, known.window_count) == (len(put), len(context.messages))


@HUNDRED
@given(counts=batches, drain_after=st.sets(st.integers(0, 7)), bound=bounds)
async def test_context_holds_summaries_and_recent(
    opened: Opened, counts: list[int], drain_after: set[int], bound: dict[str, int]
) -> None:
    async with opened(summaries_limit=2, **bound) as memory:
        session, worker, total = memory.session("a"), Worker(memory.store, Echo()), 0
        for number, count in enumerate(counts):
            context = await session.append_and_read(*(said(total + at + 1) for at in range(count)), now_ms=T0)
            total += count
            assert covered(context) == list(range(1, total + 1))
            if number in drain_after:
                await worker.drain(T0)
            context = await session.read()
            assert covered(context) == list(range(1, total + 1))
            newest = list(range(max(0, total - bound["recent_limit"]) + 1, total + 1))
            assert [message.seq for message in context.recent][-len(newest) :] == newest
            assert context.pending + context.recent == context.messages
            shown = context.to_openai()
            assert [turn["content"] for turn in shown[len(context.summaries) :]] == [
                said(message.seq)["content"] for message in context.messages
            ]
            for turn, summary in zip(shown, context.summaries, strict=False):
                assert summary.text in turn["content"]
                assert all(
                    said(seq)["content"] in summary.text for seq in range(summary.first_seq, summary.last_seq + 1)
                )


@HUNDRED
@given(counts=batches, threshold=st.integers(1, 30))
async def test_trigger_over_threshold(opened: Opened, counts: list[int], threshold: int) -> None:
    async with opened(threshold=threshold, recent_limit=1) as memory:
        session, total = memory.session("a"), 0
        for count in counts:
            await session.append(*map(said, range(total + 1, total + count + 1)), now_ms=T0)
            total += count
            assert (await session.info()).queued == ("overdue" if total > threshold else None)
        worker = Worker(memory.store, Echo())
        assert await worker.drain(T0) == (1 if total > threshold else 0)
        assert (await session.info()).queued is None


@HUNDRED
@given(counts=batches, bound=bounds)
async def test_exactly_recent_limit_verbatim(opened: Opened, counts: list[int], bound: dict[str, int]) -> None:
    async with opened(**bound) as memory:
        session = memory.session("a")
        await append(session, counts)
        before = (await session.read()).messages
        await Worker(memory.store, Echo()).drain(T0)
        after = (await session.read()).messages
        kept = bound["recent_limit"] if len(before) > bound["threshold"] else len(before)
        assert len(after) == kept
        assert after == before[-kept:]


@HUNDRED
@given(counts=batches, errors=st.lists(failures, min_size=1, max_size=7))
async def test_degradation_keeps_originals(opened: Opened, counts: list[int], errors: list[Exception]) -> None:
    async with opened(threshold=3, recent_limit=2) as memory:
        session, echo = memory.session("a"), Echo()
        await append(session, [4, *counts])
        before = await session.messages()
        echo.failures.extend(errors)
        worker = Worker(memory.store, echo)
        for at in range(len(errors)):
            await worker.drain(T0 + at * 10**6)
            if echo.failures:
                assert await session.messages() == before
        assert len(echo.seen) <= len(errors)
        if (await session.info()).queued == "dead":
            assert await session.messages() == before
        await session.append(said(99), now_ms=T0)
        assert (await session.messages())[-1].content == said(99)["content"]


@HUNDRED
@given(
    told=st.lists(texts.filter(str.strip), min_size=11, max_size=25), limit=st.integers(1, 3), tokens=st.integers(0, 9)
)
async def test_summary_structure(opened: Opened, told: list[str], limit: int, tokens: int) -> None:
    async with opened(summaries_limit=limit) as memory:
        session, echo = memory.session("a"), Echo()
        worker = Worker(memory.store, echo)
        for at, text in enumerate(told):
            echo.drafts.append(Draft(text, tokens, tokens, "some-model"))
            await session.append(said(at), now_ms=T0 + at)
            await worker.drain(T0 + at)
        context, seen_ids = await session.read(), set()
        assert 1 <= len(context.summaries) <= limit
        next_seq = 1
        for summary in context.summaries:
            assert summary.first_seq == next_seq <= summary.last_seq < context.first_seq
            next_seq = summary.last_seq + 1
            assert T0 + summary.first_seq - 1 == summary.start_ms <= summary.end_ms == T0 + summary.last_seq - 1
            assert summary.end_ms <= summary.created_ms <= T0 + len(told)
            assert (summary.model, summary.text in told) == ("some-model", True)
            assert summary.tokens > 0
            whole = tuple(f"{context.epoch}:{seq}" for seq in range(summary.first_seq, summary.last_seq + 1))
            of_summaries = all("-" in id.rpartition(":")[2] for id in summary.message_ids)
            assert summary.message_ids == whole or (of_summaries and 2 <= len(summary.message_ids) <= limit + 1)
            assert Summary.decode(summary.encode()) == summary
            seen_ids.add(summary.id)
        assert next_seq == context.first_seq
        assert len(seen_ids) == len(context.summaries)


@HUNDRED
@given(counts=batches, params=st.dictionaries(texts.filter(bool), values, max_size=3), chosen=st.booleans())
async def test_clear_complete(
    opened: Opened, raw: Any, counts: list[int], params: dict[str, Any], chosen: bool
) -> None:
    async with opened(keep_originals=True, threshold=4, recent_limit=2) as memory:
        session = memory.session("a")
        await append(session, counts)
        await Worker(memory.store, Echo()).drain(T0)
        await session.append(*map(said, range(5)), merge=params, waiting="x", now_ms=T0)
        if chosen:
            await Eviction(memory.store).choose_idle(T0 + 10**9)
        assert await session.clear()
        assert await stored_of(raw, session, memory) == [{}, [], [], None, None, None, None, None]
        assert (await session.read()).to_openai() == []
        assert not await session.exists()
        assert not await session.clear()


@HUNDRED
@given(counts=batches, params=st.dictionaries(texts.filter(bool), values, max_size=3), put=payloads)
async def test_fresh_session(opened: Opened, counts: list[int], params: dict[str, Any], put: dict[str, Any]) -> None:
    async with opened(keep_originals=True, threshold=4, recent_limit=2) as memory:
        session = memory.session("a")
        never = await session.read()
        assert (never.summaries, never.messages, never.epoch, never.total_messages) == ([], [], "", 0)
        await append(session, counts)
        await session.update(merge=params, last_intent="x", now_ms=T0)
        await Worker(memory.store, Echo()).drain(T0)
        old = await session.read()
        await session.clear()
        context = await session.append_and_read(put, now_ms=T0)
        assert context.receipt is not None
        assert context.receipt.created
        assert [message.to_openai() for message in context.messages] == [put]
        assert (context.summaries, context.first_seq, context.total_messages) == ([], 1, 1)
        assert (context.state.params, context.state.last_intent, context.summary_version) == ({}, None, "")
        assert context.epoch != old.epoch
        assert [message.to_openai() for message in await session.messages(include_originals=True)] == [put]


@HUNDRED
@given(idle_s=ages, idle_timeout_s=st.integers(31, 60))
async def test_inactive_marked(opened: Opened, raw: Any, idle_s: list[int], idle_timeout_s: int) -> None:
    async with opened(idle_timeout_s=idle_timeout_s) as memory:
        names = await begin(memory, [T0 - age * 1_000 for age in idle_s])
        inactive = {name for name, age in zip(names, idle_s, strict=True) if age > idle_timeout_s}
        assert await Eviction(memory.store).choose_idle(T0) == len(inactive)
        assert await listed(memory, "evictions") == inactive
        for name in names:
            marked = counters(await raw.hget(memory.store.keys.session(name).state, "counters")).evicting
            assert marked == ("idle" if name in inactive else None)
        assert await memory.count(T0) == sum(age < idle_timeout_s for age in idle_s)


@HUNDRED
@given(idle_s=ages, idle_timeout_s=st.integers(31, 60))
async def test_cleanup_removes_idle_and_leaves_active(opened: Opened, idle_s: list[int], idle_timeout_s: int) -> None:
    async with opened(idle_timeout_s=idle_timeout_s) as memory:
        handed = []

        async def on_evict(session_id: str, context: Context) -> None:
            handed.append((session_id, len(context.messages)))

        names = await begin(memory, [T0 - age * 1_000 for age in idle_s])
        active = {name for name, age in zip(names, idle_s, strict=True) if age <= idle_timeout_s}
        assert await Eviction(memory.store, on_evict).enforce(T0) == len(names) - len(active)
        assert await listed(memory, "active") == active
        assert sorted(handed) == sorted((name, 1) for name in names if name not in active)
        for name in names:
            assert await memory.session(name).exists() == (name in active)


@HUNDRED
@given(
    steps=st.lists(st.tuples(st.integers(0, 5_000), st.sampled_from(["append", "update", "touch", "read", "drain"])))
)
async def test_activity_tracked(opened: Opened, steps: list[tuple[int, str]]) -> None:
    async with opened(threshold=2, recent_limit=1) as memory:
        session, worker = memory.session("a"), Worker(memory.store, Echo())
        now_ms = last_ms = T0
        await session.append(said(0), now_ms=now_ms)
        for later_ms, step in steps:
            now_ms += later_ms
            if step == "append":
                await session.append(said(1), now_ms=now_ms)
            elif step == "update":
                await session.update(merge={"a": now_ms}, now_ms=now_ms)
            elif step == "touch":
                assert await session.touch(now_ms=now_ms)
            elif step == "read":
                await session.read()
            else:
                await worker.drain(now_ms)
            last_ms = last_ms if step in ("read", "drain") else now_ms
            known = await session.info()
            assert last_ms - 1_000 < known.active_ms <= last_ms, "within a second, by those who talk and no others"
            (entry,) = (await memory.sessions(now_ms=now_ms)).sessions
            assert entry.active_ms == known.active_ms
            assert known.expires_ms >= last_ms + memory.settings.idle_timeout_ms - 1_000


@HUNDRED
@given(order=st.permutations(range(8)), limit=st.integers(1, 9), touched=st.sets(st.integers(0, 7), max_size=3))
async def test_limit_evicts_the_oldest(opened: Opened, order: list[int], limit: int, touched: set[int]) -> None:
    async with opened(max_sessions=limit) as memory:
        active_ms = [T0 + place * 2_000 for place in order]
        names = await begin(memory, active_ms)
        for number in touched:
            active_ms[number] += 10**6
            await memory.session(names[number]).append(said(2), now_ms=active_ms[number])
        by_age = sorted(names, key=lambda name: active_ms[names.index(name)])
        gone = by_age[: max(0, len(names) - limit)]
        assert await Eviction(memory.store).enforce(T0 + 2 * 10**6) == len(gone)
        assert await listed(memory, "active") == set(names) - set(gone)


@HUNDRED
@given(errors=st.lists(st.none() | failures, min_size=2, max_size=6))
async def test_error_continuation(opened: Opened, errors: list[Exception | None]) -> None:
    class Failing(Echo):
        """Fails for the sessions that have an error."""

        async def compact(self, messages: Any, previous: str | None) -> Draft | None:
            error = errors[int(messages[0].content.split("-")[0])]
            if error is not None:
                raise error
            return await super().compact(messages, previous)

    async with opened(threshold=3, recent_limit=2) as memory:
        worker = Worker(memory.store, Failing())
        for number in range(len(errors)):
            await memory.session(f"s-{number}").append(
                *({"role": "user", "content": f"{number}-"} for _ in range(4)), now_ms=T0
            )
        assert await worker.drain(T0) == errors.count(None)
        for number, error in enumerate(errors):
            context = await memory.session(f"s-{number}").read()
            assert len(context.summaries) == (1 if error is None else 0)
            assert covered(context) == [1, 2, 3, 4]


refused: list[dict[str, Any]] = [
    {"messages": []},
    {"messages": [{"role": "user", "content": {1, 2}}]},
    {"messages": [said(1), "no dict"]},
    {"messages": [said(1)], "expect": 1_000_000},
    {"messages": [{"role": "user", "content": "x" * 2_000}]},
    {"messages": [said(1)] * 30},
    {"messages": [said(1)], "merge": {"": 1}},
    {"messages": [said(1)], "merge": {f"p{at}": 1 for at in range(50)}},
]


@HUNDRED
@given(steps=st.lists(st.sampled_from([*refused, "append", "drain", "forget"]), min_size=1, max_size=12))
async def test_operation_resilience(opened: Opened, raw: Any, steps: list[Any]) -> None:
    limits = {"max_message_bytes": 1_000, "max_batch_count": 20, "max_params_count": 10, "max_window_count": 500}
    async with opened(keep_originals=True, **limits) as memory:
        session, worker = memory.session("a"), Worker(memory.store, Echo())
        await session.append(said(1), now_ms=T0)
        total = 1
        for step in steps:
            before = await stored_of(raw, session, memory)
            if step == "drain":
                await worker.drain(T0)
            elif step == "forget":
                await raw.script_flush()
            elif step == "append":
                await session.append(*map(said, range(total + 1, total + 6)), now_ms=T0)
                total += 5
            else:
                arguments = {key: value for key, value in step.items() if key != "messages"}
                with pytest.raises(RedismemError):
                    await session.append(*step["messages"], now_ms=T0, **arguments)
                assert await stored_of(raw, session, memory) == before, "a refusal changes nothing"
            found = await session.messages(include_originals=True)
            assert [message.content for message in found] == [said(seq)["content"] for seq in range(1, total + 1)]


@HUNDRED
@given(
    where=st.sampled_from(["element", "number", "epoch", "summary", "lost", "type"]),
    junk=st.binary(min_size=1, max_size=8).filter(lambda junk: not junk.isdigit()),
    by_worker=st.booleans(),
)
@example(where="summary", junk=b"\x93", by_worker=True)
async def test_corrupt_session_recovers(opened: Opened, raw: Any, where: str, junk: bytes, by_worker: bool) -> None:
    async with opened() as memory:
        session, keys, worker = memory.session("a"), memory.store.keys.session("a"), Worker(memory.store, Echo())
        await append(session, [12])
        await append(memory.session("b"), [12])
        match where:
            case "element":
                await raw.lset(keys.messages, 3, b"\xc1" + junk)
            case "number":
                await raw.hset(keys.state, "counters", junk)
            case "epoch":
                await raw.hdel(keys.state, "epoch")
            case "summary":
                await raw.hset(keys.state, "summary:1", b"\xc1" + junk)
            case "lost":
                await raw.lpop(keys.messages, 2)
            case "type":
                await raw.delete(keys.messages)
                await raw.set(keys.messages, junk)
        if by_worker:
            await worker.drain(T0)
        context = await session.append_and_read(said(1, "afresh"), now_ms=T0)
        assert [message.to_openai() for message in context.messages] == [said(1, "afresh")]
        assert (context.summaries, context.total_messages) == ([], 1)
        await append(session, [11])
        assert await worker.drain(T0) + by_worker == 2, "this session and the other one"
        assert covered(await session.read()) == list(range(1, 13))
        aside = [key async for key in raw.scan_iter(match=keys.corrupt + b":*", count=100_000)]
        assert aside, "what it was can be looked at"


@HUNDRED
@given(counts=batches, bound=bounds, limit=st.integers(1, 5), window_limit=st.integers(12, 40))
async def test_thresholds_respected(
    opened: Opened, counts: list[int], bound: dict[str, int], limit: int, window_limit: int
) -> None:
    async with opened(summaries_limit=limit, max_window_count=window_limit, **bound) as memory:
        session, worker, total = memory.session("a"), Worker(memory.store, Echo()), 0
        for number, count in enumerate(counts):
            window = (await session.read()).messages
            if len(window) + count > window_limit:
                with pytest.raises(redismem.TooLarge):
                    await session.append(*map(said, range(count)), now_ms=T0)
            else:
                await session.append(*map(said, range(count)), now_ms=T0)
                total += count
            if number % 2:
                await worker.drain(T0)
                context = await session.read()
                assert len(context.messages) <= bound["threshold"]
                assert len(context.messages) >= min(total, bound["recent_limit"])
                assert len(context.summaries) <= limit
            assert len((await session.read()).messages) <= window_limit
            assert covered(await session.read()) == list(range(1, total + 1))


NUMBERS = {name: field.default for name, field in Settings.model_fields.items() if type(field.default) in (int, float)}
unusable = st.sampled_from(["", "x", "-1", "1e400", "nan", "0x10", "10,5", "None", str(10**30), "\u0661x"])


@HUNDRED
@given(bad=st.dictionaries(st.sampled_from(sorted(NUMBERS)), unusable, min_size=1, max_size=4))
def test_defaults_on_bad_configuration(bad: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
    caplog.clear()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in bad.items():
            patch.setenv(f"REDISMEM_{name.upper()}", value)
        found = Settings()
    assert found == Settings()
    for name in bad:
        assert any(f"REDISMEM_{name.upper()} " in record.getMessage() for record in caplog.records)
    assert math.isfinite(found.idle_timeout_s)
    for name in bad:
        with pytest.raises(redismem.InvalidSettings):
            Settings(**{name: "x"})
