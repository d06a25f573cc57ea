"""Turns served while Redis is down: which context they see, and what is refused, bounded or lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from support.checks import catch_unavailable, check_silent, contents, silent_logs, until, user  # noqa: F401 (an autouse fixture)
from support.faulty import Faulty, Place, open_memory, wait_until_replayed
from support.operations import OPERATIONS
from support.proxy import Proxy

import redismem.blocking
from redismem import Memory, OwnerMismatch, Policy, Session, Settings, StoreUnavailable, TooLarge


@pytest.fixture
async def place(namespace: str) -> AsyncIterator[Place]:
    async with Place(namespace) as place:
        yield place


def texts(context: Any) -> list[str]:
    return [message.content for message in context.messages]


async def test_the_chat_goes_on_with_the_last_seen_context(degradable: Memory, faulty: Faulty) -> None:
    session = degradable.session("a")
    first = await session.append_and_read(user(1), merge={"size": "M"}, waiting="colour")
    await session.append(user(2), merge={"colour": "red"})
    assert (first.degraded, first.state.degraded) == (False, False)
    faulty.is_away = True
    context = await session.append_and_read(user(3), user(4), merge={"n": 1}, waiting=None)
    assert context.degraded
    assert context.receipt is not None
    assert context.receipt.degraded
    assert (context.receipt.first_seq, context.receipt.last_seq, context.receipt.created) == (3, 4, False)
    assert texts(context) == [user(n)["content"] for n in (1, 2, 3, 4)]
    assert context.state.params == {"size": "M", "colour": "red", "n": 1}
    assert context.state.waiting_for_param is None
    receipt = await session.append(user(5))
    assert (receipt.degraded, receipt.last_seq) == (True, 5)
    await session.set_waiting("size")
    read = await session.read(limit=2)
    assert (read.degraded, texts(read)) == (True, [user(4)["content"], user(5)["content"]])
    assert texts(await session.read(before=3)) == [user(1)["content"], user(2)["content"]]
    assert [message.seq for message in await session.messages(limit=3)] == [3, 4, 5]
    assert (await session.waiting(), (await session.state()).degraded) == ("size", True)
    info = await session.info()
    assert (info.total_messages, info.window_count, info.degraded) == (5, 5, True)
    assert (await session.telemetry())["history_count"] == 5
    faulty.is_away = False
    await wait_until_replayed(degradable)
    after = await session.read()
    assert (after.degraded, texts(after)) == (False, [user(n)["content"] for n in range(1, 6)])
    assert after.state.params == {"size": "M", "colour": "red", "n": 1}
    assert after.state.waiting_for_param == "size"
    assert await contents(session) == texts(after)


async def test_a_session_that_was_never_seen_begins_with_what_is_appended(degradable: Memory, faulty: Faulty) -> None:
    faulty.is_away = True
    assert texts(await degradable.session("b").read()) == []
    assert (await degradable.session("b").read()).degraded
    context = await degradable.session("b").append_and_read(user(1))
    assert (context.degraded, texts(context), context.epoch) == (True, [user(1)["content"]], "")
    assert context.to_openai() == [user(1)]
    kept = Policy(keep_whole=True, exempt=True, idle_timeout_s=7_200)
    await degradable.session("c", policy=kept, owner="anna").append(user(1))
    away = await degradable.session("c").info()
    faulty.is_away = False
    await wait_until_replayed(degradable)
    assert await contents(degradable.session("b")) == [user(1)["content"]]
    there = await degradable.session("c").info()
    assert (away.policy, away.owner) == (there.policy, there.owner) == (kept, "anna")


@pytest.mark.parametrize("name", [name for name, row in OPERATIONS.items() if row.outage == "refused"])
async def test_a_call_that_cannot_be_served_says_so_and_changes_nothing(
    degradable: Memory, faulty: Faulty, name: str
) -> None:
    await degradable.session("a").append_and_read(user(1))
    faulty.is_away = True
    assert (await degradable.session("b").append(user(1))).degraded  # Redis is known to be down now
    error = await catch_unavailable(OPERATIONS[name].call(degradable.session("a")))
    assert (error.session_id, error.reason) == ("a", "ConnectionRefusedError")
    # Errors must name the caller's method, not an internal operation such as `read_window`.
    odd = {"append that expects": "expect", "append with confirm": "an append with confirm"}
    called = odd.get(name, name.partition(" ")[0])
    assert called in error.text
    assert "cannot be" in error.text or name == "append that expects"
    assert not {"read_window", "read_epoch"} & set(error.text.split())
    assert degradable.health().backlog_message_count == 1
    faulty.is_away = False
    await wait_until_replayed(degradable)
    assert await contents(degradable.session("a")) == [user(1)["content"]]


NOT_OF_THE_UNSEEN = ("messages", "tail", "tail that renews", "info", "telemetry")


@pytest.mark.parametrize("name", [name for name, row in OPERATIONS.items() if row.outage == "served"])
async def test_the_served_calls_are_those_of_the_table(degradable: Memory, faulty: Faulty, name: str) -> None:
    seen, unseen = degradable.session("seen"), degradable.session("unseen")
    await seen.append_and_read(user(1))
    faulty.is_away = True
    assert not degradable.health().is_away
    served = await OPERATIONS[name].call(seen)
    assert degradable.health().is_away
    if name in ("read", "state", "append", "append_and_read"):
        assert "degraded" in repr(served)
    if name in NOT_OF_THE_UNSEEN:
        await catch_unavailable(OPERATIONS[name].call(unseen))
        await unseen.append(user(1))
    await OPERATIONS[name].call(unseen)


@pytest.mark.parametrize("owner", ["ann", None])
async def test_a_handle_with_another_owner_is_served_nothing(
    degradable: Memory, faulty: Faulty, owner: str | None
) -> None:
    await degradable.session("seen", owner=owner).append_and_read(user(1))
    await degradable.session("written", owner=owner).append(user(1))
    faulty.is_away = True
    await degradable.session("begun", owner=owner).append(user(1))
    for session_id in ("seen", "written", "begun"):
        for row in OPERATIONS.values():
            if row.outage == "served":
                with pytest.raises(OwnerMismatch):
                    await row.call(degradable.session(session_id, owner="bob"))
                await row.call(degradable.session(session_id, owner=owner))


@pytest.mark.parametrize("name", ["count", "sessions"])
async def test_calls_about_the_namespace_are_refused_by_name(degradable: Memory, faulty: Faulty, name: str) -> None:
    faulty.is_away = True
    assert (await degradable.session("b").append(user(1))).degraded
    error = await catch_unavailable(getattr(degradable, name)())
    assert error.text.endswith("; this call cannot be served without it")


async def test_nothing_is_claimed_about_an_unseen_session(degradable: Memory, faulty: Faulty) -> None:
    faulty.is_away = True
    for call in (
        degradable.session("b").info(),
        degradable.session("b").messages(),
        degradable.ping(),
        degradable.count(),
    ):
        await catch_unavailable(call)
    assert (await degradable.session("b").state()).degraded


async def test_the_same_id_is_accepted_once(degradable: Memory, faulty: Faulty) -> None:
    faulty.is_away = True
    first = await degradable.session("a").append(user(1), id="one")
    await degradable.session("a").append(user(2))
    again = await degradable.session("a").append_and_read(user(1), id="one")
    assert again.receipt is not None
    assert (again.receipt.duplicate, again.receipt.first_seq, len(again.messages)) == (True, first.first_seq, 2)
    faulty.is_away = False
    await wait_until_replayed(degradable)
    assert (await degradable.session("a").append(user(1), id="one")).duplicate
    assert await contents(degradable.session("a")) == [user(n)["content"] for n in (1, 2)]


async def test_a_process_that_starts_during_the_outage(faulty: Faulty, namespace: str) -> None:
    faulty.is_away = True
    async with open_memory(faulty, namespace) as memory:
        assert memory.health().state == "open"
        assert (await memory.session("a").append_and_read(user(1))).degraded
        faulty.is_away = False
        await wait_until_replayed(memory)
        assert await contents(memory.session("a")) == [user(1)["content"]]


async def test_without_the_fallback_no_process_starts_during_the_outage(faulty: Faulty, namespace: str) -> None:
    memory = Memory.connect(client=faulty._client, namespace=namespace, settings=Settings(deadline_s=0.05))
    memory.store.transport = faulty
    faulty.is_away = True
    with pytest.raises(StoreUnavailable):
        async with memory:
            pass


async def test_a_session_that_was_only_written_to_is_shown(degradable: Memory, faulty: Faulty) -> None:
    await degradable.session("a").append(user(1))
    await degradable.session("a").append(user(2), merge={"n": 2})
    faulty.is_away = True
    context = await degradable.session("a").append_and_read(user(3))
    assert (texts(context), context.state.params) == ([user(n)["content"] for n in (1, 2, 3)], {"n": 2})


REMOVALS: dict[str, Callable[[Session], Awaitable[object]]] = {
    "clear": lambda session: session.clear(),
    "prune": lambda session: session.prune(0),
    "archive": lambda session: session.archive(2),
    "pop": lambda session: session.pop(2),
    "rewrite": lambda session: session.rewrite(1, [user(3)]),
    "replace": lambda session: session.replace(1, user(3)),
}


@pytest.mark.parametrize("name", REMOVALS)
async def test_what_was_removed_is_not_shown_again(degradable: Memory, faulty: Faulty, name: str) -> None:
    session = degradable.session("a")
    await session.append_and_read(user(1), user(2))
    await REMOVALS[name](session)
    faulty.is_away = True
    assert user(1)["content"] not in texts(await session.read())
    assert user(1)["content"] not in texts(await session.append_and_read(user(4)))


async def test_what_another_process_cleared_is_not_shown_again(place: Place) -> None:
    session = place.memory.session("a")
    await session.append_and_read(user(1), user(2), user(3))
    await place.direct_memory.session("a").clear()
    await place.direct_memory.session("a").append(user(4))
    assert texts(await session.read()) == [user(4)["content"]]
    place.faulty.is_away = True
    assert texts(await session.read()) == [user(4)["content"]]


async def test_many_appends_without_a_read_are_all_shown(degradable: Memory, faulty: Faulty) -> None:
    await degradable.session("a").append_and_read(user(0))
    for number in range(1, 101):
        await degradable.session("a").append(user(number), merge={"n": number})
    faulty.is_away = True
    context = await degradable.session("a").read()
    assert texts(context) == [user(n)["content"] for n in range(101)]
    assert (context.state.params, context.last_seq) == ({"n": 100}, 101)


async def test_events_report_degraded_calls_and_the_replay(faulty: Faulty, namespace: str) -> None:
    events: list[Any] = []
    async with open_memory(faulty, namespace, on_event=events.append) as memory:
        faulty.is_away = True
        await memory.session("a").append(user(1), user(2))
        await memory.session("a").read()
        faulty.is_away = False
        await wait_until_replayed(memory)
    outcomes = [(event.op, event.outcome, event.message_count) for event in events if event.op in ("append", "read")]
    assert outcomes == [("append", "degraded", 2), ("read", "degraded", 0)]
    (replay,) = [event for event in events if event.op == "replay"]
    assert (replay.outcome, replay.message_count, replay.sent_count) == ("ok", 2, 1)


async def test_the_fallback_serves_blocking_callers_too(proxy: Proxy, direct_memory: Memory) -> None:
    loop = asyncio.get_running_loop()

    def talk() -> None:
        settings = Settings(deadline_s=60, fallback_after_s=0.3)
        with redismem.blocking.Memory.connect(
            proxy.url, namespace=direct_memory.store.keys.namespace, settings=settings, fallback=True
        ) as memory:
            session = memory.session("a")
            while session.append_and_read(user(0), id="0").degraded:
                pass
            asyncio.run_coroutine_threadsafe(proxy.refuse(), loop).result()
            for number in range(1, 20):
                context = session.append_and_read(user(number), merge={"n": number})
                assert (context.degraded, len(context.messages)) == (True, number + 1)
            with pytest.raises(StoreUnavailable):
                session.clear()
            assert memory.health().backlog_message_count == 19
            asyncio.run_coroutine_threadsafe(proxy.accept_again(), loop).result()
            while session.append_and_read(user("last"), id="last").degraded:
                pass
            session.append(user("behind"))

    await asyncio.to_thread(talk)
    assert await contents(direct_memory.session("a")) == [user(n)["content"] for n in [*range(20), "last", "behind"]]
    assert await direct_memory.session("a").params() == {"n": 19}


async def test_pinned_messages_stay_first_and_bounded(faulty: Faulty, degradable: Memory) -> None:
    session, prompt = degradable.session("a"), {"role": "system", "content": "Be brief."}
    await session.append_and_read(prompt, user(1))
    faulty.is_away = True
    await session.append(user(2), pin=True)
    context = await session.append_and_read(user(3))
    assert context.degraded
    assert context.to_openai() == [prompt, user(2), user(1), user(3)]
    assert (await session.info()).window_count == 2
    with pytest.raises(
        TooLarge, match=r"101 messages of \d+ bytes would be pinned, over 100, the limit max_pinned_count"
    ):
        await session.append(*[prompt] * 99)
    faulty.is_away = False
    await wait_until_replayed(degradable)
    after = await session.read()
    assert (after.degraded, after.to_openai()) == (False, [prompt, user(2), user(1), user(3)])


async def test_a_change_of_state_with_an_id_is_made_once(faulty: Faulty, degradable: Memory) -> None:
    session = degradable.session("a")
    await session.append_and_read(user(1))
    faulty.is_away = True
    await session.update(id="change", merge={"n": 1})
    await session.update(merge={"n": 2})
    await session.update(id="change", merge={"n": 1})
    assert await session.params() == {"n": 2}
    faulty.is_away = False
    await wait_until_replayed(degradable)
    await session.update(id="change", merge={"n": 1})
    assert await session.params() == {"n": 2}
