"""Commands and decoders of session calls. No I/O."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from redis.crc import key_slot

from redismem import UNSET
from redismem.context.context import Context
from redismem.context.results import State
from redismem.errors import CorruptSession, InvalidMessage, InvalidState, TooLarge, UnsupportedFormat, WrongShards
from redismem.messages.encoding import encode_message
from redismem.messages.message import Message
from redismem.protocol import scripts
from redismem.protocol.appends import Append, StateChange, append_limits
from redismem.protocol.call import Call
from redismem.protocol.ids import PROCESS
from redismem.protocol.keys import Keys
from redismem.protocol.namespace import calls as namespace_calls
from redismem.protocol.namespace.calls import Recorded
from redismem.protocol.quarantine import drop_copy, of_session
from redismem.protocol.server_errors import ConnectionLost, ServerError
from redismem.protocol.session import edits, ending, leaving
from redismem.protocol.session.calls import SessionCalls
from redismem.protocol.session.clear import clear_life
from redismem.protocol.session.page_reads import PageRange
from redismem.protocol.session.pages import Window
from redismem.settings.settings import Settings

KEYS = Keys("shop", 8)
USER = {"role": "user", "content": "hello"}


def calls_of(**settings: Any) -> SessionCalls:
    return SessionCalls(KEYS.session("user-42"), Settings(**settings))


def appended(call: Call[Any]) -> Append:
    assert call.append is not None
    return call.append


def keys_in(call: Call[Any]) -> list[bytes]:
    """Return the keys of a call's commands."""
    found: list[Any] = []
    for command in call.commands:
        found += command[3 : 3 + int(command[2])] if command[0] == "EVALSHA" else [command[1]]
    return found


def context_of(*payloads: dict[str, Any]) -> Context:
    """Return the context of a session whose window has these messages, from seq 5 on."""
    messages = [Message.from_openai(payload) for payload in payloads]
    for seq, message in enumerate(messages, 5):
        message.seq, message.epoch = seq, "1-a"
    last_seq = 4 + len(messages)
    return Context("user-42", [], messages, State(), last_seq, 5, last_seq, "1-a", 6)


def view_of(*payloads: dict[str, Any]) -> edits.View:
    elements = [encode_message(payload)[0] + b"\xcf" + bytes(8) for payload in payloads]
    return edits.View(context_of(*payloads), {b"counters": b"v1 1 %d 0 1 2" % len(payloads)}, elements)


VIEW = view_of(USER)


def test_all_keys_of_a_call_live_in_one_slot() -> None:
    made = calls_of()
    everything: list[Call[Any] | None] = [
        made.append([USER]),
        made.append_and_read([USER], {"id": "id", "expect": 1, "merge": {"a": 1}}),
        made.update(merge={"a": 1}),
        made.read(),
        PageRange(5, 30, True, Window("1-a", 17, 40)).call(made.keys),
        made.state(),
        made.info(),
        made.epoch(),
        made.exists(),
        clear_life(made.keys, "1-a"),
        made.pinned(),
        edits.window(made),
        edits.edit(made, VIEW, ending.pop(VIEW, VIEW.context.messages), bool),
        made.touch(),
        drop_copy(of_session(made.keys), 5),
    ]
    for call in everything:
        assert call is not None
        assert len({key_slot(key) for key in keys_in(call)}) == 1
        assert call.session_id == "user-42"


def test_a_turn_is_the_append_and_the_reads_in_one_call() -> None:
    call = calls_of().append_and_read([USER])
    assert [command[0] for command in call.commands] == ["EVALSHA", "HGETALL", "LRANGE"]


def test_a_resent_call_is_equal_and_a_new_call_differs() -> None:
    made = calls_of()
    call = made.append([USER])
    assert call.commands is call.commands
    assert made.append([USER]).commands != call.commands
    one, other = (appended(made.append([USER], {"id": "my-id"})) for _ in range(2))
    assert one != other
    assert one == replace(other, token=one.token)  # whose nonce makes an epoch unique
    assert one.name == other.name == PROCESS.token("my-id")[:7]


def test_fresh_tells_appends_with_an_id_and_resent_ones_apart() -> None:
    made = calls_of()
    calls: tuple[tuple[Call[Any], str, str], ...] = (
        (made.append([USER], {"expect": 3}), "1", "2"),
        (made.append_and_read([USER]), "1", "2"),
        (made.update(plan=1), "1", "2"),
        (made.append([USER], {"id": "my-id"}), "0", "3"),
        (made.append_and_read([USER], {"id": "my-id"}), "0", "3"),
        (made.update("my-id", plan=1), "0", "3"),
    )
    for call, first, second in calls:
        again, append = call.again(), appended(call)
        resent, thrice = appended(again), appended(again.again())
        assert (append.fresh, resent.fresh, thrice.fresh) == (first, second, second)
        assert replace(append, fresh=second, token=resent.token) == resent
        assert again.commands == (resent.command(), *call.commands[1:])
        assert (again.session_id, again.decode, again.script) == (call.session_id, call.decode, call.script)
        assert len({append.token, resent.token, thrice.token}) == 3, "each attempt is a sending of its own"
        assert again.again(is_sent=False).commands == again.commands
    others: tuple[Call[Any], ...] = (made.read(), made.touch())
    for other in others:
        assert other.again() is other


def test_the_first_error_among_the_answers_is_raised() -> None:
    call: Call[tuple[Any, ...]] = Call("s", (), lambda *answers: answers)
    assert call.finish([1, 2]) == (1, 2)
    with pytest.raises(ServerError, match="second"):
        call.finish([1, ServerError("B", "second"), ConnectionLost("third")])


def test_a_call_carries_its_script() -> None:
    made = calls_of()
    assert made.append([USER]).script is scripts.load("append")
    assert made.read().script is None


def test_an_append_needs_a_message() -> None:
    for build in (calls_of().append, calls_of().append_and_read):
        with pytest.raises(InvalidMessage, match="needs a message") as refused:
            build([])
        assert isinstance(refused.value, ValueError)


@pytest.mark.parametrize("expect", [-1, 1.0, "1", True, b"1"])
def test_expect_is_a_last_seq(expect: Any) -> None:
    with pytest.raises(InvalidMessage, match="expect") as refused:
        calls_of().append([USER], {"expect": expect})
    assert refused.value.session_id == "user-42"


def test_a_message_that_cannot_be_stored_is_named_by_its_place() -> None:
    with pytest.raises(InvalidMessage, match=r"session user-42: message 2: ") as refused:
        calls_of().append([USER, {"role": "user", "content": ("CANARY",)}, USER])
    assert "CANARY" not in str(refused.value)
    assert refused.value.__cause__ is None


def test_limits_are_inclusive() -> None:
    message = {"role": "user", "content": "x" * 100}
    size = len(encode_message(message)[0])
    calls_of(max_message_bytes=size).append([message])
    with pytest.raises(TooLarge, match=f"message 2 has {size} bytes, over {size - 1}"):
        calls_of(max_message_bytes=size - 1).append([USER, message])
    calls_of(max_batch_count=3).append([USER] * 3)
    with pytest.raises(TooLarge, match="4 messages in one append, over 3"):
        calls_of(max_batch_count=3).append([USER] * 4)
    value = "x" * 30  # and one byte of length
    calls_of(max_value_bytes=31).change(merge={"a": value}, plan=value, last_intent=value, last_result=value)
    for what in ({"merge": {"a": value}}, {"plan": value}, {"last_intent": value}, {"last_result": value}):
        with pytest.raises(
            TooLarge, match=f"{next(iter(what)) if 'merge' not in what else 'param'}.* 31 bytes, over 30"
        ):
            calls_of(max_value_bytes=30).change(**what)


def test_a_change_sets_and_drops() -> None:
    made = calls_of().change(merge={"a": 1, "b": UNSET, "ü": None}, waiting="a", last_intent=None, plan=UNSET)
    assert made.sets == (b"param:a", b"\x01", "param:ü".encode(), b"\xc0", b"waiting", b"\xa1a")
    assert made.drops == (b"param:b", b"last_intent")
    assert calls_of().change() == StateChange()
    assert calls_of().change(merge={}) == StateChange()


@pytest.mark.parametrize("name", ["", None, 5, b"a", ("a",), "x" * 257, "é" * 129, True])
def test_an_invalid_param_name_is_refused(name: Any) -> None:
    with pytest.raises(InvalidState, match="param name"):
        calls_of().change(merge={name: 1})
    with pytest.raises(InvalidState, match="param name"):
        calls_of().change(merge={name: UNSET})
    if name is not None:
        with pytest.raises(InvalidState, match="param name"):
            calls_of().change(waiting=name)


@pytest.mark.parametrize("name", ["a", "x" * 256, "é" * 128, "\ud800", "with space: and \x00", "param:a"])
def test_any_other_text_is_a_valid_param_name(name: str) -> None:
    encoded = name.encode("utf-8", "surrogatepass")
    assert calls_of().change(merge={name: 1}).sets == (b"param:" + encoded, b"\x01")


def test_more_params_at_once_than_a_script_can_take_are_refused() -> None:
    """Lua's unpack takes 7,999 values: with more, half of the append would be written."""
    wide = calls_of(max_params_count=10_000)
    for value in (1, UNSET):
        wide.change(merge={f"p{number}": value for number in range(1_000)})
        with pytest.raises(TooLarge, match="1001 params in one change, over 1000"):
            wide.change(merge={f"p{number}": value for number in range(1_001)})


def test_a_read_requests_its_limit() -> None:
    def asked(limit: int | None) -> tuple[Any, ...]:
        return calls_of().read(limit).commands[1][2:]

    assert asked(None) == (0, -1)
    assert asked(5) == (-5, -1)
    assert asked(0) == (1, 0)
    assert -(2**63) < asked(10**30)[0] < -(10**6)


def test_a_prune_keeps_tool_calls_and_results_together() -> None:
    call = {"role": "assistant", "tool_calls": [{"id": "c"}]}
    context = context_of(USER, call, {"role": "tool", "tool_call_id": "c"}, USER)
    assert [len(leaving.select_pruned(context, count)) for count in (0, 1, 2, 3, 4, 5)] == [4, 3, 1, 1, 0, 0]


def test_state_alone_of_a_foreign_field_is_corrupt() -> None:
    for stored in ({b"param:\xff": b"\x01"}, {b"plan": b"\xc1"}, {b"epoch": b"\xff", b"plan": b"\xc1"}):
        with pytest.raises(CorruptSession):
            calls_of().state().decode(stored)


def test_a_namespace_with_another_shard_count_is_refused() -> None:
    none = [None, None]
    assert namespace_calls.record(KEYS, 0, Settings()).decode(1, 1, 1, 1, [b"1", b"8", None, *none]) == Recorded()
    assert namespace_calls.read_record(KEYS).decode([None, None, b"5", *none]) is None
    assert namespace_calls.read_record(KEYS).decode([b"1", b"8", b"5", *none]) == Recorded(5)
    assert namespace_calls.read_record(KEYS).decode([b"1", b"8", b"5", b"60000", b"0"]) == Recorded(5, 60_000, False)
    with pytest.raises(WrongShards, match="16 shards, the settings say 8: set shards=16"):
        namespace_calls.record(KEYS, 0, Settings()).decode(0, 0, [b"1", b"16", None, None, None])


def test_a_namespace_with_another_layout_version_is_refused() -> None:
    with pytest.raises(UnsupportedFormat, match="layout version 2, this release knows 1"):
        namespace_calls.record(KEYS, 0, Settings()).decode(0, 0, [b"2", b"8", None, None, None])


def test_the_servers_time_is_milliseconds() -> None:
    assert namespace_calls.server_time_ms().decode([b"1700000000", b"123999"]) == 1_700_000_000_123


def test_append_and_read_returns_a_context_with_a_receipt() -> None:
    element = encode_message(USER)[0] + b"\xcf" + bytes(8)
    stored = {b"epoch": b"1-a", b"counters": b"v1 1 1 9 5 6"}
    context = calls_of().append_and_read([USER]).decode([b"v1 1 1 9 5 6", 1, 1, 1, 0, b"1-ab"], stored, [element])
    assert isinstance(context, Context)
    assert context.receipt is not None
    assert (context.receipt.last_seq, context.receipt.created) == (1, True)


def test_the_limits_of_an_append_follow_the_settings() -> None:
    first = Settings(threshold=20, recent_limit=7, idle_timeout_s=81.5, threshold_tokens=99, max_window_count=30)
    assert append_limits(first).text == b"81500 20 99 7 30 256 25165824"
    other = first.model_copy(
        update={"idle_timeout_s": 1, "threshold_tokens": 0, "max_window_count": 12, "max_window_bytes": 70_000}
    )
    assert append_limits(other).text == b"1000 12 - 7 12 256 70000"
    assert append_limits(first.model_copy(update={"strategy": "none"})).text == b"81500 30 - 7 30 256 25165824"
    for limits, told in ((None, other), (append_limits(first), first)):
        made = SessionCalls(KEYS.session("user-42"), other, limits=limits)
        assert appended(made.append([USER])).head.limits == append_limits(told)
