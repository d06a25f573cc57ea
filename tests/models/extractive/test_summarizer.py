"""The extractive summariser: its selection, its size limit, and its determinism."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redismem.messages.message import Message
from redismem.models import Draft, open_extractive


def summarize(messages: Any, previous: Any = None, max_tokens: Any = 400) -> Draft:
    return asyncio.run(open_extractive().summarize(messages, previous, max_tokens))


def size(text: str) -> float:
    return len(text.encode()) / 4


CONVERSATION = [
    Message("user", "Hello! My name is Mei Kovacs and my order #W2378156 has not arrived. It was due on 2024-05-12."),
    Message("assistant", "I am sorry to hear that. Let me look."),
    Message(
        "assistant",
        None,
        tool_calls=[{"id": "c", "function": {"name": "get_order", "arguments": '{"id": "#W2378156"}'}}],
    ),
    Message("tool", '{"status": "lost", "carrier": "DPD-77120", "note": "' + "x " * 3000 + '"}', tool_call_id="c"),
    Message("assistant", "The parcel was lost. We agreed on a refund of $142.50 to card 4417."),
    Message("user", "Fine. Nice weather today, by the way."),
    Message("user", [{"type": "text", "text": "And who pays for the lamp?"}, {"type": "image_url", "image_url": {}}]),
]


def test_it_keeps_names_numbers_decisions_and_the_open_question() -> None:
    text = summarize(CONVERSATION, max_tokens=150).text
    for kept in ("Mei Kovacs", "#W2378156", "2024-05-12", "$142.50", "refund", "And who pays for the lamp?"):
        assert kept in text
    assert "DPD-77120" in text, "of what tools answered, ids are kept"
    assert "x " * 120 not in text
    assert size(text) <= 150


def test_lines_stand_in_the_order_they_were_said() -> None:
    lines = summarize(CONVERSATION).text.splitlines()
    at = [next(at for at, line in enumerate(lines) if said in line) for said in ("Kovacs", "lost", "refund", "lamp")]
    assert at == sorted(at)


def test_the_previous_summary_is_folded_in() -> None:
    first = summarize(CONVERSATION, max_tokens=100)
    then = [Message("user", "Please also cancel order #W9000001."), Message("assistant", "Done, it is cancelled.")]
    second = summarize(then, first.text, max_tokens=130).text
    assert "#W2378156" in second
    assert "#W9000001" in second
    assert second.index("Kovacs") < second.index("#W9000001")
    assert second.count("Also mentioned: ") <= 1


def test_folding_alone_makes_it_shorter() -> None:
    long = summarize(CONVERSATION, max_tokens=300).text
    folded = summarize([], long, max_tokens=60).text
    assert size(folded) <= 60
    assert "W2378156" in folded


def test_numbers_without_a_sentence_stay_one_list() -> None:
    previous = "user: My lamp is late.\nAlso mentioned: A-100, B-200"
    lines = summarize([Message("user", "It is order C-300.")], previous).text.splitlines()
    assert lines[-1] == "Also mentioned: A-100, B-200"
    assert [line for line in lines[:-1] if "mentioned" in line] == []


def test_a_number_in_the_part_of_a_sentence_that_is_cut_is_listed() -> None:
    text = summarize([Message("user", f"{'so ' * 150} order Q-4711 {'and ' * 90} please")]).text
    assert "Also mentioned: Q-4711" in text


def test_a_sentence_over_the_room_is_cut_not_dropped() -> None:
    text = summarize([Message("user", f"I wait for order Q-4711 {'and wait ' * 50}")], max_tokens=40).text
    assert text.startswith("user: I wait for order")


def test_a_short_list_in_a_tools_answer_stays_with_its_name() -> None:
    answer = '{"standard_days": [2, 3], "express_days": [1, 1], "express_fee": 0, "note": "none"}'
    said = "Standard takes standard_days 2 to 3, express_days is 1 with an express_fee of 0."
    text = summarize([Message("tool", answer, tool_call_id="c"), Message("assistant", said)]).text
    assert "standard_days: [2, 3], express_days: [1, 1], express_fee: 0" in text


def test_a_tool_that_answers_hundreds_of_ids_does_not_fill_the_summary() -> None:
    answer = ", ".join(f"FLIGHT-{at}" for at in range(100, 250))
    messages = [Message("user", f"Is there a seat for passenger {at}?") for at in range(10)]
    text = summarize([*messages, Message("tool", answer, tool_call_id="c")], max_tokens=200).text
    assert text.count("FLIGHT-") <= 200 * 4 // 2 // 8 // len("FLIGHT-100, ") + 20
    assert text.count("Is there a seat") >= 5


def test_the_points_of_a_list_keep_their_numbers() -> None:
    lines = summarize([Message("assistant", "Do this:\n1. Call the bank.\n2. Block the card.")]).text.splitlines()
    assert lines == ["assistant: Do this:", " 1. Call the bank.", " 2. Block the card."]


def test_a_summary_with_room_enough_comes_back_as_it_is() -> None:
    text = summarize(CONVERSATION, max_tokens=300).text
    assert summarize([], text, max_tokens=600).text == text


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("我的订单号是W2378156，什么时候发货？请告诉我。", ["W2378156", "什么时候发货？"]),
        ("Где мой заказ 4512-77? Он должен был прийти вчера.", ["4512-77", "Где мой заказ"]),
        ("أين طلبي رقم ٤٥١٢؟ أريد استرداد المبلغ.", ["٤٥١٢", "أين طلبي"]),
        ("मेरा ऑर्डर 8812 कहाँ है? कृपया बताइए।", ["8812", "मेरा ऑर्डर"]),
        ("注文番号A-1045はいつ届きますか？", ["A-1045", "届きますか？"]),
    ],
)
def test_languages(said: Any, kept: Any) -> None:
    text = summarize([Message("user", said), Message("assistant", "…")]).text
    assert all(piece in text for piece in kept), text


def test_no_message_is_too_odd() -> None:
    odd: list[dict[str, Any]] = [
        {},
        {"role": "user"},
        {"content": 4},
        {"role": None, "content": [None, 5, {"type": 7}, {"x": 1}, []]},
    ]
    for payload in odd:
        assert summarize([Message.from_openai(payload)]).text.strip()
    with pytest.raises(ValueError, match="nothing to summarise"):
        summarize([], " ")


def test_it_is_the_same_in_another_process_with_other_hashes() -> None:
    script = (
        "import asyncio; from redismem.messages import Message; from redismem.models import open_extractive; "
        "said = ' '.join(f'Word{at % 7} other{at % 11} thing{at % 5} number {at}.' for at in range(200)); "
        "print(asyncio.run(open_extractive().summarize([Message('user', said)], None, 100)).text)"
    )
    texts = {
        subprocess.run(
            [sys.executable, "-c", script], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(texts) == 1
    assert "Word" in texts.pop()


def test_its_draft_names_it() -> None:
    draft = summarize(CONVERSATION)
    assert (draft.model, draft.input_tokens, draft.output_tokens) == ("extractive", 0, 0)
    assert repr(draft) == "<Draft by extractive in=0 out=0>"


contents: st.SearchStrategy[Any] = (
    st.text(max_size=200) | st.none() | st.lists(st.builds(dict, type=st.just("text"), text=st.text(max_size=50)))
)
roles = st.sampled_from(["user", "assistant", "tool", "system"])
any_messages = st.lists(st.builds(Message, roles, contents, name=st.text(min_size=1, max_size=9)), max_size=12)


@given(any_messages, st.none() | st.text(max_size=300), st.integers(1, 300))
def test_property_deterministic_within_budget_never_empty(messages: Any, previous: Any, max_tokens: Any) -> None:
    if not messages and not any(char.isalnum() for char in previous or ""):
        return
    text = summarize(messages, previous, max_tokens).text
    assert text.strip()
    assert size(text) <= max_tokens
    assert text == summarize(messages, previous, max_tokens).text
    assert all(char in "\n\t" or ord(char) >= 0x20 for char in text)


order_ids = st.from_regex(r"#?[A-Z]{1,3}[0-9]{3,8}", fullmatch=True)
days = st.dates().map(str)
fillers = st.lists(st.sampled_from(["the", "order", "is", "late", "and", "I", "want", "money", "back"]), max_size=40)


@given(st.lists(st.tuples(fillers, order_ids | days, fillers), min_size=1, max_size=15), st.integers(20, 200))
def test_property_every_id_that_fits_a_quarter_of_the_room_is_kept(said: Any, max_tokens: Any) -> None:
    numbers = {number for _, number, _ in said}
    messages = [Message("user", " ".join([*before, number, *after]) + ".") for before, number, after in said]
    needed = sum(len(number) + 2 for number in numbers) + len("Also mentioned: ")
    text = summarize(messages, None, max_tokens).text
    if needed <= max_tokens:
        assert [number for number in numbers if number not in text] == []
    else:
        assert any(number in text for number in numbers)


@given(st.lists(st.lists(order_ids, min_size=1, max_size=3), min_size=1, max_size=5))
def test_property_numbers_survive_being_folded_again_and_again(turns: Any) -> None:
    previous = ""
    for ids in turns:
        messages = [Message("user", f"Please look at {number}, will you?") for number in ids]
        previous = summarize(messages, previous or None, 150).text
    assert [number for ids in turns for number in ids if number not in previous] == []
