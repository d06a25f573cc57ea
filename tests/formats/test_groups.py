"""Groups: reasoning stays with what its response put out, its calls and their results, wherever a cut is made."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from formats.test_tool_pairing import STAMP, context_of
from support.agent_loops import FORMS, PAIRS, Loop, Payload, hosted, pair
from support.request_rules import faults

from redismem import Session, Settings
from redismem.context.context import Context
from redismem.context.results import State
from redismem.formats.sections import may_hold_calls
from redismem.formats.tool_groups import cut_after, cut_before
from redismem.messages.decoding import StoredMessages
from redismem.messages.encoding import encode_message
from redismem.messages.message import Message
from redismem.workers.planning import plan

USER: Payload = {"role": "user", "content": "and now?"}


def reasoning(number: int = 1) -> Payload:
    return {"type": "reasoning", "id": f"rs_{number}", "summary": []}


def call(number: int = 1) -> Payload:
    return {"type": "function_call", "id": f"fc_{number}", "call_id": f"c{number}", "name": "look", "arguments": "{}"}


def result(number: int = 1) -> Payload:
    return {"type": "function_call_output", "call_id": f"c{number}", "output": f"found {number}"}


def answer(number: int = 1) -> Payload:
    content = [{"type": "output_text", "text": f"It is {number}.", "annotations": []}]
    return {"type": "message", "id": f"msg_{number}", "role": "assistant", "status": "completed", "content": content}


def messages_of(*payloads: Payload) -> list[Message]:
    return [Message.from_openai(payload) for payload in payloads]


def cut_context(*payloads: Payload) -> Context:
    """A context after a summary of the messages before these."""
    context = context_of(list(payloads))
    context.first_seq = 5
    return context


def loops(count: int) -> list[tuple[Loop, list[Payload]]]:
    """Agent loops on OpenAI's items that provoke every cut."""
    found = []
    for seed in range(count):
        loop = Loop("items", seed)
        told = [loop.asks()]
        for _ in range(8):
            told += loop.step(loop.random.randint(1, 4), loop.random.random() < 0.8)
        found.append((loop, [*told, *loop.says(True)]))
    return found


def test_no_cut_parts_an_item_from_its_reasoning() -> None:
    for loop, told in loops(12):
        messages = messages_of(*told)
        for wanted in range(len(told) + 1):
            place = cut_before(messages, wanted)
            assert place <= wanted
            assert faults("items", loop.came_of, told[place:]) == []
            assert faults("items", loop.came_of, told[:place]) == []
            after = cut_after(messages, wanted)
            context = context_of(told[after:])
            context.is_part = True
            assert faults("items", loop.came_of, context.to_responses()) == []


def test_what_a_response_puts_out_is_one_group_with_the_results() -> None:
    told = [USER, reasoning(), call(1), call(2), result(2), result(1), reasoning(2), answer(2), USER]
    messages = messages_of(*told)
    assert [cut_before(messages, wanted) for wanted in range(10)] == [0, 1, 1, 1, 1, 1, 6, 6, 8, 9]
    assert [cut_after(messages, wanted) for wanted in range(10)] == [0, 1, 6, 6, 6, 6, 6, 8, 8, 9]


def test_a_message_of_thoughts_leads_what_follows_it() -> None:
    thought = {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "s"}]}
    messages = messages_of(USER, thought, {"role": "assistant", "content": "So."}, USER)
    assert [cut_before(messages, wanted) for wanted in range(5)] == [0, 1, 1, 3, 4]


def test_items_after_a_cut_inside_a_group_lose_their_ids() -> None:
    shown = cut_context(call(), result(), reasoning(2), call(2), result(2), answer(3)).to_responses()
    assert [item.get("id") for item in shown] == [None, None, "rs_2", "fc_2", None, "msg_3"]
    assert "id" not in cut_context(answer(), USER).to_responses()[0]
    told = [answer(), USER]
    assert context_of(told).to_responses() == told, "nothing was cut: it came of no reasoning"


@pytest.mark.parametrize("kind", ["computer_call", "local_shell_call", "mcp_approval_request", "program"])
def test_an_item_that_needs_its_id_is_quoted_with_its_result(kind: str) -> None:
    call, result = pair(kind, ("c1", "asked", "found"))
    named = {"local_shell_call": "id", "mcp_approval_request": "approval_request_id"}.get(kind)
    told = [{"type": kind, "id": "x1", **call}, {"type": PAIRS[kind], **result, **({named: "x1"} if named else {})}]
    first, second = cut_context(*told).to_responses()
    assert first["role"] == second["role"] == "user"
    assert "asked" in first["content"]
    assert "was not there" not in first["content"]
    assert "The result of an earlier call" in second["content"]


def test_a_hosted_call_without_its_reasoning_is_quoted_with_its_result() -> None:
    first, second, last = cut_context(hosted("mcp_call", "m1", "asked", "found"), answer()).to_responses()
    assert ("asked" in first["content"], "found" in second["content"]) == (True, True)
    assert last == answer() or "id" not in last


def test_reasoning_with_nothing_behind_it_goes() -> None:
    assert context_of([USER, reasoning()]).to_responses() == [USER]
    assert context_of([reasoning(), USER, answer()]).to_responses()[0] == USER
    shown = context_of([USER, reasoning(), call(), USER]).to_responses()
    assert [item.get("type") for item in shown] == [None, None, None], "its call got no result and is quoted"


def test_a_call_without_a_result_does_not_part_its_neighbour_from_their_reasoning() -> None:
    shown = context_of([USER, reasoning(), call(1), call(2), result(2), USER]).to_responses()
    assert shown[:3] == [USER, reasoning(), call(2)]
    assert "was not there" in shown[3]["content"]
    assert shown[4:] == [result(2), USER]


def test_a_pinned_item_is_shown_without_the_reasoning_it_left() -> None:
    messages = messages_of(USER, reasoning(), call(), result(), answer(2))
    messages[4] = messages[4].with_pin(True)
    context = Context("s", [], messages, State(), 5, 1, 5, "1-a", 6, is_mixed=True)
    shown = context.to_responses()
    assert "id" not in shown[0]
    assert shown[1:] == [USER, reasoning(), call(), result()]


async def test_a_limit_within_the_last_group_gives_its_end(session: Session) -> None:
    told = [USER, reasoning(), call(), result(), reasoning(2), answer(2)]
    await session.append(*told)
    for limit, expected in ((2, told[4:]), (3, told[4:]), (5, told[1:]), (6, told)):
        assert (await session.read(limit=limit)).to_responses() == expected
    (last,) = (await session.read(limit=1)).to_responses()
    assert last == {name: value for name, value in answer(2).items() if name != "id"}


async def test_a_pop_and_a_prune_take_whole_groups(session: Session) -> None:
    await session.append(USER, reasoning(), call(), result(), reasoning(2), answer(2))
    assert [message.to_openai() for message in await session.pop()] == [reasoning(2), answer(2)]
    assert await session.prune(2) == 1, "the group of three began before the newest two"
    assert (await session.read()).to_responses() == [reasoning(), call(), result()]


def test_a_group_longer_than_the_window_may_be_is_cut_inside() -> None:
    searches = [
        item
        for number in range(60)
        for item in (reasoning(number), hosted("web_search_call", f"ws_{number}", "a", "b"))
    ]
    context = context_of(searches, stored=False)
    settings = Settings(max_window_count=60, threshold=10)
    covered = plan(context, 0, settings).covered
    assert len(covered) == 30
    assert plan(context_of(searches[:30], stored=False), 0, settings).covered == ()
    late = cut_context(*searches[31:])
    came_of = {f"ws_{number}": f"rs_{number}" for number in range(60)}
    assert faults("items", came_of, late.to_responses()) == []


@pytest.mark.parametrize("form", FORMS)
def test_the_test_of_bytes_misses_no_message_that_the_test_of_fields_finds(form: str) -> None:
    loop = Loop(form, 1)
    plain: list[Payload] = [{"role": "user", "content": "Hello."}, {"role": "assistant", "content": "Good day."}]
    assert not StoredMessages([encode_message(message)[0] + STAMP for message in plain], 1, "1-a").may_hold_calls
    for message in loop.step(3, True):
        short: Any = json.loads(re.sub(r"(call|item)_(\d)", r"\1-\2", json.dumps(message)))
        assert may_hold_calls(short)
        assert StoredMessages([encode_message(short)[0] + STAMP], 1, "1-a").may_hold_calls


def stored(*payloads: Payload) -> StoredMessages:
    return StoredMessages([encode_message(payload)[0] + STAMP for payload in messages_of(*payloads)], 1, "1-a")


@pytest.mark.parametrize("padding", ["", "\xa9", "\u0129\u0141" * 20])
@pytest.mark.parametrize(
    "thought",
    [
        {"type": "reasoning", "id": "rs-1", "summary": []},
        {"role": "assistant", "content": [{"type": "reasoning", "text": "hm"}]},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "s"}]},
        {"role": "assistant", "content": [{"reasoningContent": {"reasoningText": {"text": "hm"}}}]},
        {"role": "model", "parts": [{"text": "hm", "thought": True}]},
    ],
)
def test_reasoning_without_an_underscore_is_left_out_if_nothing_follows(thought: Payload, padding: str) -> None:
    user = {"role": "user", "content": f"Hello.{padding}"}
    window = stored(user, thought)
    assert window.may_hold_calls
    assert Context("s", [], window, State(), 2, 1, 2, "1-a", 6).to_responses() == [user]


def test_no_byte_of_a_text_passes_for_a_name() -> None:
    """The lengths of texts and the stamps contain any byte, and other alphabets contain many of the bytes of names."""
    assert not stored({"role": "user", "content": "x" * 0xA9}, {"role": "user", "content": "x" * 0xA5}).may_hold_calls
    assert not stored({"role": "user", "content": "\xe9\xe5, " * 50}).may_hold_calls
