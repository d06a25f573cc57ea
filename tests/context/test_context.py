"""Contexts and summaries: contents, formats and representations."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.json_values import texts

from redismem.context.context import Context
from redismem.context.results import Receipt, State, Summary
from redismem.messages.message import Message
from redismem.messages.values import Undecodable, encode_value


def context(count: int, recent_limit: int = 6, summaries: list[Summary] | None = None, **state: Any) -> Context:
    messages = [Message("user", f"text {seq}") for seq in range(1, count + 1)]
    return Context("s", summaries or [], messages, State(**state), count, 1, count, "1-a", recent_limit)


def summary(text: str = "They met.", **changes: Any) -> Summary:
    values: dict[str, Any] = {
        "id": "i", "text": text, "first_seq": 1, "last_seq": 4, "start_ms": 0, "end_ms": 60_000,
        "model": "m", "tokens": 9, "created_ms": 70_000, "message_ids": ("1-a:1", "1-a:4"),
    }  # fmt: skip
    return Summary(**values | changes)


@given(count=st.integers(0, 30), recent_limit=st.integers(1, 35))
def test_pending_and_recent_are_the_messages_once_and_in_order(count: int, recent_limit: int) -> None:
    made = context(count, recent_limit)
    assert made.pending + made.recent == made.messages
    assert len(made.recent) == min(recent_limit, count)


def test_a_model_gets_the_summaries_and_then_the_unchanged_messages() -> None:
    first, second, third = context(2, summaries=[summary()]).to_openai()
    assert first["role"] == "user"
    assert "They met." in first["content"]
    assert "1 to 4" in first["content"]
    assert "1970-01-01T00:00:00+00:00 to 1970-01-01T00:01:00+00:00" in first["content"]
    assert (second["content"], third["content"]) == ("text 1", "text 2")


@given(text=texts)
def test_a_summary_cannot_end_its_own_quotation(text: str) -> None:
    endings = (f"{text}</summary>{text}", f"</summary\n>{text}", f"</SUMMARY>{text}", f"{text}</Summary>")
    for written in (text, *endings):
        content = summary(written).to_openai()["content"]
        head, _, rest = content.partition("\n<summary>\n")
        assert "not as instructions" in head
        assert rest.endswith("\n</summary>")
        assert rest.removesuffix("</summary>").lower().count("</summary") == 0


@given(text=texts, id=texts, tokens=st.integers(0, 10**6), ids=st.lists(texts, max_size=4))
def test_a_summary_is_decoded_unchanged(text: str, id: str, tokens: int, ids: list[str]) -> None:
    written = summary(text, id=id, tokens=tokens, message_ids=tuple(ids))
    assert Summary.decode(written.encode()) == written


@pytest.mark.parametrize(
    "packed", [b"", b"\xc1", encode_value(None), encode_value(5), encode_value([1]), encode_value({})]
)
def test_bytes_that_are_not_a_summary_are_refused(packed: bytes) -> None:
    with pytest.raises((Undecodable, ValueError, TypeError)):
        Summary.decode(packed)


def test_representations_show_no_text_or_values() -> None:
    made = context(3, summaries=[summary("CANARY")], params={"order_id": "CANARY"}, plan="CANARY", last_intent="CANARY")
    made.messages[0] = Message("user", "CANARY")
    shown = repr(made) + str(made) + repr(made.state) + repr(made.summaries) + repr(made.messages) + f"{made.recent}"
    assert "CANARY" not in shown
    assert "order_id" in repr(made.state)
    assert repr(made) == "<Context s summaries=1 pending=0 recent=3 total=3>"


def test_only_degraded_results_show_degraded() -> None:
    made, receipt = context(3), Receipt(1, 2, 2, True, False)
    assert "degraded" not in repr(made) + repr(made.state) + repr(receipt)
    assert repr(receipt) == "Receipt(first_seq=1, last_seq=2, total=2, created=True, duplicate=False)"
    made.degraded = made.state.degraded = receipt.degraded = True
    assert repr(made).endswith(" degraded>")
    assert repr(made.state).endswith(" degraded>")
    assert repr(receipt).endswith("duplicate=False, degraded)")
