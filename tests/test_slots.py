"""Slot filling, on both stores, without an HTTP server."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.clock import Clock

from redismem import Memory, State
from redismem.errors import InvalidSettings
from redismem.slots import ASKED, Intent, Kind, Slot, Slots, Step

ORDER = Slot(name="order_id", prompt="Which order?", pattern=r"[A-Z]-\d{1,6}", example="O-17", asks_limit=2)
SIZE = Slot(name="size", prompt="Which size?", choices=("Small", "Large"))
CARD = Slot(name="card", prompt="Which card?", pattern=r"\d{8}", example="12345678", sensitive=True)
NOW_MS = 1_700_000_000_000
CLOCK = Clock(NOW_MS)
ASKING = Slots(
    [
        Intent(name="order", words=("order", "Parcel"), slots=(ORDER, SIZE)),
        Intent(name="pay", words=("pay",), slots=(CARD,)),
    ],
    clock=CLOCK,
)


async def say(memory: Memory, text: str, now_ms: int = NOW_MS) -> Step:
    """Handle a message of the user as a backend does."""
    session = memory.session("s")
    CLOCK.now_ms = now_ms
    step = ASKING.step(await session.state(), text)
    await session.append({"role": "user", "content": step.text}, **step.changes)
    return step


async def state(memory: Memory) -> State:
    return await memory.session("s").state()


async def test_it_asks_for_each_slot_and_resumes(memory: Memory) -> None:
    first = await say(memory, "Where is my PARCEL?")
    assert (first.kind, first.say, first.intent) == (Kind.ASK, "Which order?", "order")
    assert (await state(memory)).waiting_for_param == "order_id"
    second = await say(memory, " O-17 ")
    assert (second.kind, second.say) == (Kind.ASK, "Which size?")
    third = await say(memory, "large")
    assert (third.kind, third.say, third.intent) == (Kind.RESUME, None, "order")
    found = await state(memory)
    assert (found.params, found.waiting_for_param) == ({"order_id": "O-17", "size": "Large"}, None)
    assert found.last_intent == "order"
    assert (await say(memory, "and this order?")).kind is Kind.RESUME
    assert (await say(memory, "Thanks")).kind is Kind.FREE


async def test_it_asks_again_with_an_example_and_gives_up(memory: Memory) -> None:
    await say(memory, "my order")
    again = await say(memory, "the blue one")
    assert (again.kind, again.say) == (Kind.ASK, "Which order? For example: O-17")
    given_up = await say(memory, "I do not know")
    assert (given_up.kind, given_up.say) == (Kind.GAVE_UP, "Let us leave that for now.")
    found = await state(memory)
    assert (found.params, found.waiting_for_param) == ({}, None)
    assert (await say(memory, "O-17")).kind is Kind.FREE


async def test_a_wrong_answer_gets_the_choices(memory: Memory) -> None:
    await say(memory, "order")
    await say(memory, "O-1")
    assert (await say(memory, "huge")).say == "Which size? One of: Small, Large."


async def test_a_wrong_answer_with_a_word_of_its_own_intent_counts(memory: Memory) -> None:
    await say(memory, "my order")
    again = await say(memory, "the order of last week")
    assert (again.kind, again.say) == (Kind.ASK, "Which order? For example: O-17")
    assert (await say(memory, "just my order")).kind is Kind.GAVE_UP


@pytest.mark.parametrize("word", ["reset", "Cancel", " never mind "])
async def test_a_reset_clears(memory: Memory, word: str) -> None:
    await say(memory, "order")
    step = await say(memory, word)
    assert (step.kind, step.say) == (Kind.RESET, "All right, we leave that.")
    found = await state(memory)
    assert (found.params, found.waiting_for_param) == ({}, None)


async def test_another_intent_replaces_the_intent(memory: Memory) -> None:
    await say(memory, "order")
    step = await say(memory, "no, I want to pay")
    assert (step.kind, step.say, step.intent) == (Kind.ASK, "Which card?", "pay")
    assert (await state(memory)).waiting_for_param == "card"


async def test_a_late_answer_is_ignored(memory: Memory) -> None:
    await say(memory, "order")
    late = await say(memory, "O-17", NOW_MS + 900_001)
    assert (late.kind, late.say) == (Kind.FREE, None)
    found = await state(memory)
    assert (found.params, found.waiting_for_param) == ({}, None)


async def test_a_sensitive_answer_is_in_no_message(memory: Memory) -> None:
    await say(memory, "pay")
    wrong = await say(memory, "canary 999")
    assert (wrong.kind, wrong.text) == (Kind.ASK, "[card]")
    right = await say(memory, "87654321")
    assert right.kind is Kind.RESUME
    assert (await state(memory)).params == {"card": "87654321"}
    context = await memory.session("s").read()
    told = str([message.to_openai() for message in context.messages]) + repr((wrong, right))
    assert "canary" not in told
    assert "87654321" not in told
    assert ASKING.sensitive == {"card"}


@pytest.mark.parametrize("now_ms", [NOW_MS + 900_001, NOW_MS + 86_400_000])
async def test_a_late_sensitive_answer_is_in_no_message(memory: Memory, now_ms: int) -> None:
    await say(memory, "pay")
    late = await say(memory, "87654321", now_ms)
    assert (late.kind, late.text) == (Kind.GAVE_UP, "[card]")
    assert late.say is not None
    assert "not kept" in late.say
    found = await state(memory)
    assert (found.params, found.waiting_for_param) == ({}, None)
    assert (await say(memory, "Thanks", now_ms)).text == "Thanks"


async def test_a_sensitive_answer_to_an_intent_that_is_gone_is_in_no_message(memory: Memory) -> None:
    session = memory.session("s")
    asked = {"intent": "of-another-release", "count": 1, "asked_ms": NOW_MS}
    await session.update(waiting="card", merge={ASKED: asked})
    assert (await say(memory, "87654321")).text == "[card]"


async def test_a_late_answer_may_start_an_intent(memory: Memory) -> None:
    await say(memory, "pay")
    late = await say(memory, "my order 87654321", NOW_MS + 900_001)
    assert (late.kind, late.text, late.say) == (Kind.ASK, "[card]", "Which order?")
    assert (await state(memory)).waiting_for_param == "order_id"


async def test_two_answers_at_once_leave_one_state(memory: Memory) -> None:
    await say(memory, "order")
    await asyncio.gather(say(memory, "O-1"), say(memory, "O-2"))
    found = await state(memory)
    assert found.params["order_id"] in ("O-1", "O-2")
    assert found.waiting_for_param == "size"


async def test_a_param_that_other_code_waits_for_stays(memory: Memory) -> None:
    session = memory.session("s")
    await session.update(waiting="theirs", merge={"x": 1})
    step = ASKING.step(await session.state(), "hello")
    assert (step.kind, step.changes) == (Kind.FREE, {})


@given(
    st.text(max_size=600),
    st.sampled_from([None, "order_id", "size", "card", "other"]),
    st.integers(0, 5),
    st.sampled_from([0, 900_000, 900_001]),
)
def test_any_text_in_any_state_gives_a_step(text: str, waiting: str | None, count: int, since_ms: int) -> None:
    asked: Any = {"intent": "pay" if waiting == "card" else "order", "count": count, "asked_ms": NOW_MS}
    CLOCK.now_ms = NOW_MS + since_ms
    step = ASKING.step(State({ASKED: asked}, waiting), text)
    assert (step.say is None) is (step.kind in (Kind.FREE, Kind.RESUME))
    if waiting == "card" and step.kind is not Kind.RESET:
        assert step.text == "[card]"


@pytest.mark.parametrize("asked", [None, 7, {}, {"intent": "none"}, {"intent": "order", "asked_ms": "x"}])
def test_a_state_of_other_code_is_reset(asked: Any) -> None:
    step = ASKING.step(State({ASKED: asked}, "order_id"), "hello")
    assert (step.kind, step.changes["waiting"]) == (Kind.FREE, None)


@pytest.mark.parametrize("text", ["order " * 100_000, "a" * 600_000, "_" * 600_000])
def test_a_long_message_takes_little_time(text: str) -> None:
    begun_s = time.thread_time()
    ASKING.step(State({ASKED: {"intent": "order", "count": 1, "asked_ms": NOW_MS}}, "order_id"), text)
    assert time.thread_time() - begun_s < 20


TOML = """
[[intents]]
name = "order"
words = ["order"]
[[intents.slots]]
name = "order_id"
prompt = "Which order?"
pattern = '\\d+'
example = "17"
sensitive = true
"""


def test_intents_are_read_from_a_file() -> None:
    asking = Slots.from_toml(TOML)
    assert asking.sensitive == {"order_id"}
    assert asking.step(State(), "my order").say == "Which order?"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("prompt =", "promt ="),
        ("[[intents]]", "[[intent]]"),
        ('example = "17"', 'example = "x"'),
        ("'\\d+'", "'(a)\\1'"),
        ('words = ["order"]', 'words = ["my order"]'),
        ("sensitive = true", "asks_limit = 0"),
        ('name = "order_id"', f'name = "{ASKED}"'),
        ("[[intents.slots]]", "[[intents.slots]"),
    ],
)
def test_an_invalid_file_is_refused(old: str, new: str) -> None:
    assert old in TOML
    with pytest.raises(InvalidSettings):
        Slots.from_toml(TOML.replace(old, new))


def test_duplicate_names_are_refused() -> None:
    twice = Intent(name="a", words=("a",), slots=(SIZE,))
    with pytest.raises(InvalidSettings, match="same name"):
        Slots([twice, Intent(name="b", words=("b",), slots=(SIZE,))])
