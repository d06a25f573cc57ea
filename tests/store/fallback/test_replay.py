"""The backlog reaches Redis once, in order per session, whatever replies are lost on the way."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.checks import contents, silent_logs, until, user  # noqa: F401 (an autouse fixture)
from support.faulty import OTHERS, SETTINGS, Fault, Place, append_and_lose

from redismem import StoreUnavailable, TooLarge


@pytest.fixture
async def place(namespace: str) -> AsyncIterator[Place]:
    async with Place(namespace) as place:
        yield place


@pytest.mark.parametrize("fault", ["lost before", "lost after"])
@pytest.mark.parametrize("options", [{}, {"id": "mine"}, {"merge": {"n": 1}}], ids=str)
@pytest.mark.parametrize("was_seen", [True, False])
async def test_an_append_under_way_is_made_once_despite_many_other_writes(
    place: Place, fault: Fault, options: Any, was_seen: bool
) -> None:
    await place.direct_memory.session("a").append(user("first"))
    if was_seen:
        await place.memory.session("a").read()
    await append_and_lose(place, fault, user(1), user(2), **options)
    await place.memory.session("a").append(user(3))
    others = await place.append_others("a")
    await place.catch_up()
    mine = [user(n)["content"] for n in (1, 2)]
    stored = await contents(place.direct_memory.session("a"))
    assert stored == [
        user("first")["content"],
        *([*mine, *others] if fault == "lost after" else [*others, *mine]),
        user(3)["content"],
    ]
    assert await place.direct_memory.session("a").params() == options.get("merge", {})


async def test_equal_appends_under_way_are_each_made_once(place: Place) -> None:
    """Redis has made one of two: its message must not stand for both."""
    session = place.memory.session("a")
    await session.append_and_read(user("first"))
    place.faulty.faults.extend(["lost after", "lost before"])
    appending = [asyncio.ensure_future(session.append(user("yes"))) for _ in range(2)]
    while place.faulty.faults:  # noqa: ASYNC110 (the transport takes them)
        await asyncio.sleep(0)
    place.faulty.is_away = True
    await asyncio.gather(*appending)
    others = await place.append_others("a")
    await place.catch_up()
    stored = await contents(place.direct_memory.session("a"))
    assert Counter(stored) == Counter([user("first")["content"], *others, *[user("yes")["content"]] * 2])


async def test_messages_written_meanwhile_come_before_the_replay(place: Place) -> None:
    await place.memory.session("a").append_and_read(user("first"))
    place.faulty.is_away = True
    for number in range(3):
        await place.memory.session("a").append(user(number))
    others = await place.append_others("a", 2)
    await place.catch_up()
    mine = [user(number)["content"] for number in range(3)]
    assert await contents(place.direct_memory.session("a")) == [user("first")["content"], *others, *mine]
    again = await place.memory.session("a").append_and_read(user("next"))
    assert (again.degraded, again.last_seq) == (False, 7)


async def test_changes_of_the_state_are_replayed_in_order_with_the_appends(place: Place) -> None:
    session = place.memory.session("a")
    await session.append_and_read(user("first"), merge={"gone": 1})
    place.faulty.is_away = True
    await session.merge({"step": 1, "gone": 2})
    await session.append(user(1), merge={"step": 2}, waiting="size")
    await session.set_waiting("colour")
    await session.append(user(2), merge={"step": 3}, plan=["a"])
    place.faulty.says = ""
    await place.catch_up()
    state = await place.direct_memory.session("a").state()
    assert (state.params, state.waiting_for_param, state.plan) == ({"step": 3, "gone": 2}, "colour", ["a"])
    assert await contents(place.direct_memory.session("a")) == [user(n)["content"] for n in ("first", 1, 2)]


async def test_nothing_overtakes_the_backlog(place: Place) -> None:
    session = place.memory.session("a")
    place.faulty.is_away = True
    for number in range(50):
        await session.append(user(number))
    place.faulty.is_away = False
    number = 50
    while (await session.append(user(number))).degraded:
        number += 1
    assert await contents(place.direct_memory.session("a")) == [user(n)["content"] for n in range(number + 1)]


async def test_a_session_whose_replay_is_refused_waits_and_is_logged(
    namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    limited = SETTINGS.model_copy(update={"max_params_count": 1})
    async with Place(namespace, limited) as place:
        await place.memory.session("a").append_and_read(user(0))
        place.faulty.is_away = True
        await place.memory.session("a").append(user(1), merge={"mine": 1})
        await place.memory.session("b").append(user(2))
        await place.direct_memory.session("a").merge({"theirs": 1})
        place.faulty.is_away = False

        async def is_refused() -> bool:
            health = place.memory.health()
            return (health.backlog_session_count, health.refused_session_count) == (1, 1)

        await until(is_refused)
        assert await contents(place.direct_memory.session("b")) == [user(2)["content"]]
        session = place.memory.session("a")
        with place.faulty.recorded_pauses() as pauses_s:
            assert (await session.append(user(3))).degraded, "it goes behind what is refused"
        assert not any(pauses_s), "a replay that Redis refuses is not waited for"
        for call, why in (
            *((edit, "the newest message") for edit in (session.undo(), session.rewrite(1, []), session.forget(1))),
            (session.append(user(4), expect=1), "`expect`"),
        ):
            with pytest.raises(StoreUnavailable, match=f"Redis answers, but .* not replayed yet; .*{why}") as raised:
                await call
            assert raised.value.reason == TooLarge.__name__
        assert (await session.messages())[-1].content == user(3)["content"]
        assert await contents(place.direct_memory.session("a")) == [user(0)["content"]], (
            "the turn before it is not undone"
        )
        (refusal,) = [record for record in caplog.records if getattr(record, "outcome", "") == "refused"]
        assert (refusal.levelno, refusal.__dict__["error"]) == (logging.ERROR, TooLarge.__name__)
        await place.direct_memory.session("a").clear()
        await place.catch_up()
        assert await contents(place.direct_memory.session("a")) == [user(n)["content"] for n in (1, 3)]


async def test_a_clear_drops_the_backlog_of_the_session(namespace: str) -> None:
    limited = SETTINGS.model_copy(update={"max_params_count": 1})
    async with Place(namespace, limited) as place:
        place.faulty.is_away = True
        await place.memory.session("a").append(user(1), merge={"mine": 1})
        await place.direct_memory.session("a").merge({"theirs": 1})
        place.faulty.is_away = False

        async def is_refused() -> bool:
            return place.memory.health().refused_session_count == 1

        await until(is_refused)
        assert await place.memory.session("a").clear()
        assert place.memory.health().backlog_session_count == 0
        assert not await place.direct_memory.session("a").exists()


async def test_a_redis_that_comes_back_empty_gets_the_backlog(place: Place) -> None:
    await place.memory.session("a").append_and_read(user(0))
    await append_and_lose(place, "lost before", user(1))
    await place.memory.session("a").append(user(2))
    await place.direct_memory.store.transport._client.flushall()  # type: ignore[attr-defined]
    await place.catch_up()
    assert await contents(place.direct_memory.session("a")) == [user(n)["content"] for n in (1, 2)]
    assert await place.direct_memory.store.agreement.look(), "its record is written again"


Step = tuple[str, Any]
STEPS: st.SearchStrategy[Step] = st.one_of(
    st.tuples(st.just("append"), st.tuples(st.sampled_from("ab"), st.integers(1, 3), st.booleans())),
    st.tuples(st.just("merge"), st.sampled_from("ab")),
    st.tuples(st.just("away"), st.booleans()),
    st.tuples(st.just("faults"), st.lists(st.sampled_from(["", "lost before", "lost after"]), min_size=1, max_size=6)),
    st.tuples(st.just("others"), st.tuples(st.sampled_from("ab"), st.sampled_from([1, OTHERS]))),
)


class History:
    """The appends made so far, and the contents that must be there in the end."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._said = 0
        self.mine: dict[str, list[str]] = {"a": [], "b": []}
        self.theirs: dict[str, list[str]] = {"a": [], "b": []}
        self.merged: dict[str, int] = {}
        self.unsure: set[str] = set()
        """Texts of failed appends: the error says if they may have been made."""

    async def step(self, step: Step) -> None:
        match step:
            case "append", (name, count, has_id):
                messages = [user(self._said + at) for at in range(count)]
                self._said += count
                texts = [message["content"] for message in messages]
                options: Any = {"id": texts[0]} if has_id else {}
                try:
                    await self._place.memory.session(name).append(*messages, **options)
                except StoreUnavailable:
                    self.unsure.update(texts)
                self.mine[name] += texts
            case "merge", name:
                self._said += 1
                await self._place.memory.session(name).merge({"n": self._said})
                self.merged[name] = self._said
            case "away", is_away:
                self._place.faulty.is_away = is_away
            case "faults", faults:
                self._place.faulty.faults.extend(faults)
            case "others", (name, count):
                messages = [user(f"other {self._said + at}") for at in range(count)]
                self._said += count
                for message in messages:
                    await self._place.direct_memory.session(name).append(message)
                self.theirs[name] += [message["content"] for message in messages]

    async def check(self) -> None:
        for name, texts in self.mine.items():
            is_there = await self._place.direct_memory.session(name).exists()
            stored = await contents(self._place.direct_memory.session(name)) if is_there else []
            assert max(Counter(stored).values(), default=0) <= 1, "doubled"
            assert set(texts) - set(stored) <= self.unsure, "lost"
            assert [text for text in stored if text in set(texts)] == [text for text in texts if text in set(stored)]
            assert [text for text in stored if text in set(self.theirs[name])] == self.theirs[name]
            if name in self.merged:
                assert (await self._place.direct_memory.session(name).params())["n"] == self.merged[name]


@given(steps=st.lists(STEPS, max_size=14))
def test_every_append_is_there_once_and_in_order_whatever_is_lost(steps: list[Step]) -> None:
    async def play() -> None:
        async with Place("history") as place:
            history = History(place)
            for step in steps:
                await history.step(step)
            place.faulty.faults.clear()
            await place.catch_up()
            await history.check()

    asyncio.run(play())
