"""Data URLs and long runs of base64 or hex leave texts before anything weighs, quotes or indexes their words."""

from __future__ import annotations

import asyncio
import base64
import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redismem import Message
from redismem.models import open_extractive
from redismem.models.lost_facts import restore_lost_facts
from redismem.originals.fields import searchable_texts
from redismem.originals.signatures import distinct_stems
from redismem.project.extraction.answer import user_prompt
from redismem.recall.recall import extract_query
from redismem.text.data_runs import replace_data
from redismem.text.plain import pieces, split_transcript

BYTES = random.Random(7).randbytes(40_000)
BASE64 = base64.b64encode(BYTES).decode()
SCREENSHOT = f"data:image/png;base64,{BASE64}"
SHA256 = BYTES[:32].hex()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"see {SCREENSHOT}, please", "see [data], please"),
        (f"![cat]({SCREENSHOT})", "![cat]([data])"),
        ("an icon: data:image/gif;base64,R0lGODlhAQABAIAAAAAAAP.", "an icon: [data]."),
        ("data:text/html;charset=utf-8,%3Ch1%3EHello%3C%2Fh1%3E now", "[data] now"),
        (json.dumps({"img": SCREENSHOT, "order": "A-17"}).replace("/", "\\/"), '{"img": "[data]", "order": "A-17"}'),
        (f"the key is {BASE64}", "the key is [data]"),
        (f"the key is {base64.urlsafe_b64encode(BYTES[:300]).decode()}.", "the key is [data]."),
        (f"mail:\n{base64.encodebytes(BYTES[:200]).decode()}", "mail:\n[data]\n"),
        (json.dumps({"mail": base64.encodebytes(BYTES[:200]).decode()}), '{"mail": "[data]\\n"}'),
        (f"the dump {BYTES.hex()} ends", "the dump [data] ends"),
        ("A" * 64, "[data]"),
        (f"the image is sha256:{SHA256}", "the image is sha256:[data]"),
    ],
)
def test_data_becomes_a_placeholder(text: str, shown: str) -> None:
    assert replace_data(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        SHA256[:63],
        "order 550e8400-e29b-41d4-a716-446655440000",
        "/users/550e8400-e29b-41d4-a716-446655440000/orders/550e8400-e29b-41d4-a716-446655440001",
        "commit 83c6c8b9d7e1b0a9f0e6c7d8a9b0c1d2e3f4a5b6",
        "https://shop.example/help/how-to-return-an-order-that-has-not-arrived-in-time/and-get-your-money-back",
        "some_very_long_name_of_a_function_that_describes_everything_that_it_does_and_more",
        "src/main/java/com/acme/orderservice/internationalization/OrderServiceApplicationTests",
        "-" * 100,
        "=" * 100,
        "_" * 100,
        "我们昨天决定在下周一之前把订单号为四千七百一十一的包裹寄到柏林去" * 4,
        "เราตกลงกันเมื่อวานนี้ว่าจะส่งพัสดุไปเบอร์ลินก่อนวันจันทร์หน้า" * 3,
        "Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft",
        "metadata:text/plain,foo and data:1,2,3",
        "The order has not come yet. " * 40,
    ],
)
def test_words_names_and_short_identifiers_stay(text: str) -> None:
    assert replace_data(text) == text


@given(st.binary(min_size=96, max_size=400), st.sampled_from(["b64", "url", "hex"]), st.text("ab ,.\n", max_size=40))
def test_no_run_of_data_is_left(data: bytes, form: str, words: str) -> None:
    run = {"b64": base64.b64encode, "url": base64.urlsafe_b64encode, "hex": base64.b16encode}[form](data).decode()
    shown = replace_data(f"{words} {run} {words}")
    if len(set(run)) > 16 or form == "hex":
        assert shown == f"{words} [data] {words}"
    assert replace_data(shown) == shown


FACTS = [
    f"Parcel P-{number} goes to {town} on day {number}." for number, town in enumerate(["Bern", "Graz", "Brno"], 4710)
]


def result(content: Any) -> Message:
    return Message("tool", content, tool_call_id="c")


@pytest.mark.parametrize(
    "seen",
    [
        result(json.dumps({"screenshot": SCREENSHOT, "facts": FACTS})),
        result(json.dumps({"before": BASE64, "facts": FACTS, "after": BYTES.hex()})),
        result([{"type": "text", "text": f"{SCREENSHOT} {' '.join(FACTS)}"}]),
        Message("user", f"{SCREENSHOT}\n" + "\n".join(FACTS)),
        Message(
            parts=[{"functionResponse": {"name": "f", "response": {"shot": SCREENSHOT, "facts": FACTS}}}], role="user"
        ),
    ],
)
def test_a_screenshot_displaces_no_fact_from_a_summary(seen: Message) -> None:
    told = [Message("user", "Where do the parcels go?"), seen]
    for text in (
        asyncio.run(open_extractive().summarize(told, None, 200)).text,
        "\n".join(split_transcript(told, 20_000)),
        user_prompt(told, []),
    ):
        assert all(fact in text.replace('"', "") for fact in ("P-4710", "P-4711", "P-4712"))
        assert max(map(len, text.split())) < 64


def test_an_earlier_summary_loses_its_data_as_well() -> None:
    previous = f"user: My picture is {SCREENSHOT}.\n The parcel is P-4711."
    text = asyncio.run(open_extractive().summarize([Message("user", "Thanks!")], previous, 200)).text
    assert "[data]" in text
    assert "P-4711" in text
    assert "[data]" in user_prompt([], [], [previous])


def test_no_number_of_data_counts_as_lost() -> None:
    told = [Message("user", f"P-4711 is {BASE64[:3_000]} and {SHA256}")]
    text = asyncio.run(restore_lost_facts("facts: none.", told, "", 400))
    assert text.partition(": none.\n")[2] == "Also mentioned: P-4711"


def test_data_is_neither_indexed_nor_asked_for() -> None:
    message = Message("user", f"the parcel P-4711 {BASE64[:8_000]} to Bern")
    plain, _ = distinct_stems(["the parcel P-4711 [data] to Bern"])
    assert distinct_stems(searchable_texts(message))[0] == plain
    assert extract_query([{"role": "user", "content": f"where is {SHA256}?"}]) == "where is [data]?"


def test_without_a_limit_a_text_is_read_as_it_is() -> None:
    assert list(pieces(Message("user", SCREENSHOT))) == [("text", SCREENSHOT)]
