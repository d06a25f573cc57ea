"""Invariants of sessions and summaries under faults, one property per test, on a real server."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.clock import T0, Clock
from support.examples import (
    OpenMemory,
    append,
    batches,
    covered_seqs,
    failures,
    read_stored,
)
from support.quarantined import quarantine_of
from support.writers import Echo, chat_message

import redismem
from redismem import Settings
from redismem.errors import RedismemError
from redismem.models import Draft
from redismem.workers.strategies import Dropped
from redismem.workers.summaries import Worker


@given(counts=batches, errors=st.lists(failures, min_size=1, max_size=4))
async def test_degradation_keeps_originals(
    open_memory: OpenMemory, counts: list[int], errors: list[Exception], clock: Clock
) -> None:
    async with open_memory(threshold=3, recent_limit=2, extractive_after_s=0) as memory:
        session, echo = memory.session("a"), Echo()
        await append(session, [4, *counts])
        before = await session.messages()
        echo.failures.extend(errors)
        worker = Worker(memory.store, echo)
        for at in range(len(errors)):
            await clock.run_at(T0 + at * 10**6, worker.drain())
            if echo.failures:
                assert await session.messages() == before
        assert len(echo.seen) <= len(errors)
        if (await session.info()).queued == "dead":
            assert await session.messages() == before
        await clock.run_at(T0, session.append(chat_message(99)))
        assert (await session.messages())[-1].content == chat_message(99)["content"]


@given(errors=st.lists(st.none() | failures, min_size=2, max_size=4))
async def test_error_continuation(open_memory: OpenMemory, errors: list[Exception | None]) -> None:
    class Failing(Echo):
        """A strategy that fails for the sessions with an error."""

        async def compact(self, messages: Any, previous: str | None) -> Draft | Dropped:
            error = errors[int(messages[0].content.split("-")[0])]
            if error is not None:
                raise error
            return await super().compact(messages, previous)

    async with open_memory(threshold=3, recent_limit=2, extractive_after_s=0) as memory:
        worker = Worker(memory.store, Failing())
        for number in range(len(errors)):
            await memory.session(f"s-{number}").append(*({"role": "user", "content": f"{number}-"} for _ in range(4)))
        assert await worker.drain() == errors.count(None)
        for number, error in enumerate(errors):
            context = await memory.session(f"s-{number}").read()
            assert len(context.summaries) == (1 if error is None else 0)
            assert covered_seqs(context) == [1, 2, 3, 4]


refused: list[dict[str, Any]] = [
    {"messages": []},
    {"messages": [{"role": "user", "content": {1, 2}}]},
    {"messages": [chat_message(1), "no dict"]},
    {"messages": [chat_message(1)], "expect": 1_000_000},
    {"messages": [{"role": "user", "content": "x" * 2_000}]},
    {"messages": [chat_message(1)] * 30},
    {"messages": [chat_message(1)], "merge": {"": 1}},
    {"messages": [chat_message(1)], "merge": {f"p{at}": 1 for at in range(50)}},
]


@given(steps=st.lists(st.sampled_from([*refused, "append", "drain", "forget"]), min_size=1, max_size=7))
async def test_operation_resilience(open_memory: OpenMemory, client: Any, steps: list[Any]) -> None:
    limits = {"max_message_bytes": 1_000, "max_batch_count": 20, "max_params_count": 10, "max_window_count": 500}
    async with open_memory(keep_originals=True, **limits) as memory:
        session, worker = memory.session("a"), Worker(memory.store, Echo())
        await session.append(chat_message(1))
        total = 1
        for step in steps:
            before = await read_stored(client, session, memory)
            if step == "drain":
                await worker.drain()
            elif step == "forget":
                await client.script_flush()
            elif step == "append":
                await session.append(*map(chat_message, range(total + 1, total + 6)))
                total += 5
            else:
                arguments = {key: value for key, value in step.items() if key != "messages"}
                with pytest.raises(RedismemError):
                    await session.append(*step["messages"], **arguments)
                assert await read_stored(client, session, memory) == before, "a refusal changes nothing"
            found = await session.messages(include_originals=True)
            assert [message.content for message in found] == [
                chat_message(seq)["content"] for seq in range(1, total + 1)
            ]


@given(
    where=st.sampled_from(["element", "number", "epoch", "summary", "lost", "type"]),
    junk=st.binary(min_size=1, max_size=8).filter(lambda junk: not junk.isdigit()),
    by_worker=st.booleans(),
)
@example(where="summary", junk=b"\x93", by_worker=True)
async def test_corrupt_session_recovers(
    open_memory: OpenMemory, client: Any, where: str, junk: bytes, by_worker: bool
) -> None:
    async with open_memory() as memory:
        session, keys, worker = memory.session("a"), memory.store.keys.session("a"), Worker(memory.store, Echo())
        await append(session, [12])
        await append(memory.session("b"), [12])
        match where:
            case "element":
                await client.lset(keys.messages, 3, b"\xc1" + junk)
            case "number":
                await client.hset(keys.state, "counters", junk)
            case "epoch":
                await client.hdel(keys.state, "epoch")
            case "summary":
                await client.hset(keys.state, "summary:1", b"\xc1" + junk)
            case "lost":
                await client.lpop(keys.messages, 2)
            case "type":
                await client.delete(keys.messages)
                await client.set(keys.messages, junk)
        if by_worker:
            await worker.drain()
        context = await session.append_and_read(chat_message(1, "afresh"))
        assert [message.to_openai() for message in context.messages] == [chat_message(1, "afresh")]
        assert (context.summaries, context.total_messages) == ([], 1)
        await append(session, [11])
        assert await worker.drain() + by_worker == 2, "this session and the other one"
        assert covered_seqs(await session.read()) == list(range(1, 13))
        aside = [key async for key in client.scan_iter(match=quarantine_of(keys) + b":*", count=100_000)]
        assert aside, "what it was can be looked at"


NUMBERS = {name: field.default for name, field in Settings.model_fields.items() if type(field.default) in (int, float)}

unusable = st.sampled_from(["", "x", "-1", "1e400", "nan", "0x10", "10,5", "None", str(10**30), "\u0661x"])


@given(bad=st.dictionaries(st.sampled_from(sorted(NUMBERS)), unusable, min_size=1, max_size=4))
@pytest.mark.usefixtures("default_deadlines")
def test_bad_configuration_ends_the_start(bad: dict[str, str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in bad.items():
            patch.setenv(f"REDISMEM_{name.upper()}", value)
        with pytest.raises(redismem.InvalidSettings) as told:
            Settings()
    assert [name for name in bad if f"REDISMEM_{name.upper()} " not in str(told.value)] == []
