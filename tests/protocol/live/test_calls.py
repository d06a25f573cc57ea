"""Commands and decoders of the calls of turns. No I/O."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from redismem.errors import (
    CorruptSession,
    InvalidMessage,
    OwnerMismatch,
    RedismemError,
    TurnBusy,
    TurnKnown,
    TurnLost,
)
from redismem.events import Op
from redismem.protocol import layout, replies, scripts
from redismem.protocol.call import Call, tag_of
from redismem.protocol.keys import Keys
from redismem.protocol.live.calls import (
    Appended,
    ClaimReply,
    LookUp,
    TurnEnd,
    TurnRead,
    TurnWrite,
    WriteReply,
    append_turn,
    begin_turn,
    claim_turn,
    due_turns,
    look_up_turn,
    read_turn,
    stop_turn,
    write_turns,
)
from redismem.protocol.live.turns import TurnField, TurnRecord, end_line, turn_name
from redismem.protocol.server_errors import ServerError
from redismem.protocol.session.calls import SessionCalls
from redismem.settings.settings import Settings

SETTINGS = Settings(live_lease_s=2.5)
KEYS = Keys("shop", 8).session("user-42")
OWNED = SessionCalls(KEYS, SETTINGS, owner="anna").keys
FIELD = b"r 5-aabbccdd 00112233 00112233445566 12"
TURN = TurnField("running", "5-aabbccdd", "00112233", "00112233445566", 12)
COUNTERS = b"v1 1 14 60 4000000000000 4000001600000"


CALLS = SessionCalls(KEYS, SETTINGS)
USER = {"role": "user", "content": "hello"}


def at(ms: int) -> Any:
    return lambda: ms


def test_a_write_names_the_keys_and_values_of_each_turn() -> None:
    other = Keys("shop", 8).session("user-43")
    writes = [TurnWrite(KEYS, TURN, 0, b"a\n"), TurnWrite(other, TURN, 7, b"")]
    call = write_turns(SETTINGS, at(4_000_000_000_000), writes)
    keys = [KEYS.state, KEYS.live, KEYS.shard.turns, other.state, other.live, other.shard.turns]
    one = [KEYS.session, TURN.generation, TURN.holder, 0, b"a\n"]
    two = [other.session, TURN.generation, TURN.holder, 7, b""]
    assert list(call.commands[0][2:]) == [6, *keys, 4_000_000_000_000, 2_500, *one, *two]
    assert (call.op, call.session_id) == (Op.WRITE_TURNS, None)
    assert write_turns(SETTINGS, None, writes[:1]).session_id == "user-42"
    assert call.again() == call


def test_the_replies_to_a_write_are_decoded() -> None:
    call = write_turns(SETTINGS, None, [TurnWrite(KEYS, TURN, 0, b"")])
    assert call.decode([b"12", b"7 user left", b"lost", b"differs", b"differs x"]) == [
        WriteReply("ok", 12, None),
        WriteReply("ok", 7, "user left"),
        WriteReply("lost", 0, None),
        WriteReply("differs", 0, None),
        WriteReply("differs", 0, "x"),
    ]


def test_a_stop_means_one_turn_or_any() -> None:
    name = turn_name("a")
    call = stop_turn(OWNED, "user", generation="5-aabbccdd", name=name)
    assert call.commands[0][2:] == (2, KEYS.state, KEYS.shard.stops, "5-aabbccdd", name.hex(), "user", OWNED.owner)
    assert stop_turn(KEYS, "user", generation=None, name=None).commands[0][5:] == ("-", "-", "user", "-")
    assert [call.decode(reply) for reply in (0, 1)] == [False, True]
    with pytest.raises(InvalidMessage, match="reason"):
        stop_turn(KEYS, "", generation=None, name=None)


def test_the_reply_to_a_claim_is_decoded() -> None:
    call = claim_turn(KEYS, SETTINGS, None, "cccccccc")
    assert call.commands[0][5:] == (KEYS.session, "-", "cccccccc", 2_500)
    assert call.decode([b"claimed", 2_500, FIELD]) == ClaimReply("claimed", 2_500, TURN)
    assert call.decode([b"none", 0, b""]) == ClaimReply("none", 0, None)


def test_a_read_has_the_turn_and_the_log_from_an_offset() -> None:
    call = read_turn(KEYS, 7)
    assert call.commands[1] == ("GETRANGE", KEYS.live, 7, -1)
    assert call.decode([COUNTERS, b"3-ab", None, FIELD], b"x\n") == TurnRead(TURN, b"x\n")
    assert call.decode([COUNTERS, b"3-ab", None, None], b"") == TurnRead(None, b"")
    assert call.decode([None] * 4, b"") == TurnRead(None, b"")


def test_a_turn_is_looked_up_by_its_name() -> None:
    name = turn_name("a")
    call = look_up_turn(KEYS, name)
    turned = b"00112233445566ff" + name + (3).to_bytes(5) + (1).to_bytes(3) + b"\x09"
    found = call.decode([COUNTERS, b"3-00112233445566ff", None, FIELD], turned)
    assert found == LookUp(TURN, TurnRecord(3, 4, "done", has_reply=True))
    assert call.decode([None] * 4, turned) == LookUp(None, None)


@pytest.mark.parametrize("call", [read_turn(OWNED, 0), look_up_turn(OWNED, turn_name("a"))])
def test_reads_are_of_the_owner_and_only_of_readable_counters(call: Call[Any]) -> None:
    with pytest.raises(OwnerMismatch):
        call.decode([COUNTERS, b"3-ab", b"1 other", FIELD], b"")
    with pytest.raises(CorruptSession):
        call.decode([b"x", b"3-ab", OWNED.owner, FIELD], b"")
    assert call.decode([COUNTERS, b"3-ab", OWNED.owner, FIELD], b"").turn == TURN


def test_due_turns_are_read_from_each_shard() -> None:
    shards = Keys("shop", 2).shards()
    call = due_turns(shards, 4_000)
    assert [command[1] for command in call.commands] == [shard.turns for shard in shards]
    assert call.decode([b"a", b"b"], [b"c"]) == ["a", "b", "c"]
    assert (call.is_independent, call.absent) == (True, ())


def test_a_quick_read_stays_quick_while_a_turn_runs() -> None:
    fields = {b"epoch": b"3-ab", b"counters": b"v1 1 0 0 4000000000000 4000001600000", b"ids_a": b"b"}
    with_turn = fields | {b"turn": FIELD, b"stop": b"user", b"doubt": b"00112233"}
    read = [replies.context("s", 6, each, ()) for each in (fields, with_turn)]
    assert read[0].last_seq == read[1].last_seq
    assert layout.BARE.issuperset(with_turn)


def test_all_keys_of_a_call_live_in_one_slot() -> None:
    calls: list[Call[Any]] = [
        write_turns(SETTINGS, None, [TurnWrite(KEYS, TURN, 0, b"")]),
        stop_turn(KEYS, "user", generation=None, name=None),
        claim_turn(KEYS, SETTINGS, None, "cccccccc"),
        read_turn(KEYS, 0),
        look_up_turn(KEYS, turn_name("a")),
        beginning(),
        append_turn(CALLS, TURN, [USER], {}, offset=0, number=1, end=None),
    ]
    tags = {tag_of([command]) for call in calls for command in call.commands}
    keys = [key for call in calls for key in call.commands[0] if isinstance(key, bytes) and key.startswith(b"rm:")]
    assert len(tags) == 1
    assert {key.partition(b"{")[2].partition(b"}")[0] for key in keys} == tags


def arguments_of(call: Call[Any]) -> dict[str, Any]:
    """Return the arguments of a call's script by their names, and what follows as `more`."""
    script, command = call.script, call.commands[0]
    assert script is not None
    values = command[3 + int(command[2]) :]
    return {**dict(zip(script.arguments, values, strict=False)), "more": values[len(script.arguments) :]}


def beginning(calls: SessionCalls = CALLS, **changed: Any) -> Call[Any]:
    named: dict[str, Any] = {"turn_id": "t", "holder": "00112233", "ticket": None, "again": None}
    return begin_turn(calls, [USER], {"merge": {"a": 1}, "expect": 7}, **named | changed)


def test_a_begin_has_its_values_in_the_order_of_the_header() -> None:
    record = TurnRecord(3, 4, "failed", has_reply=False)
    names = scripts.values_in("begin_turn", "begun")
    values = dict(zip(names, arguments_of(beginning(ticket="aabb", again=record))["begun"].split(), strict=True))
    assert values == {
        "name": turn_name("t").hex(),
        "holder": "00112233",
        "ticket": "aabb",
        "lease_ms": "2500",
        "places_limit": str(SETTINGS.max_waiting_turns),
        "again_first": "3",
        "again_last": "4",
        "waited": "0",
    }
    assert arguments_of(beginning())["begun"].split()[2::3] == ["-", "-"]
    for script in ("begin_turn", "append_turn"):
        assert scripts.values_in(script, "request") == scripts.values_in("append", "request")


def test_a_begin_is_an_append_with_reads_that_can_be_resent() -> None:
    first, other = beginning(), beginning()
    assert first.append is not None
    assert other.append is not None
    assert (first.op, len(first.commands), first.append.name) == (Op.BEGIN_TURN, 3, other.append.name)
    assert first.append.name != turn_name("t")
    assert arguments_of(first)["request"].startswith("0 1 1 ")
    assert arguments_of(first)["more"][0] == first.append.elements[0]
    resent = first.again()
    assert arguments_of(resent)["request"].startswith("3 1 1 ")
    assert arguments_of(resent)["begun"] == arguments_of(first)["begun"]
    assert resent.commands[1:] == first.commands[1:]
    again = beginning(again=TurnRecord(3, 3, "lost", has_reply=False))
    assert again.append is not None
    assert len(again.append.elements) == 0


def test_a_begin_waits_for_replicas_as_an_append_does() -> None:
    call = begin_turn(CALLS, [USER], {"confirm": 2}, turn_id="t", holder="00112233", ticket=None, again=None)
    assert (call.confirm, call.has_id) == (2, True)
    confirming = SessionCalls(KEYS, Settings(confirm=1))
    assert beginning(confirming).confirm == append_turn(confirming, TURN, [], {}, offset=0, number=1, end=None).confirm


@pytest.mark.parametrize(
    ("messages", "options", "turn_id"), [([], {}, "t"), ([USER], {"id": "x"}, "t"), ([USER], {}, ""), ([7], {}, "t")]
)
def test_a_turn_has_a_message_and_one_id(messages: Any, options: Any, turn_id: str) -> None:
    with pytest.raises(InvalidMessage):
        begin_turn(CALLS, messages, options, turn_id=turn_id, holder="00112233", ticket=None, again=None)


def test_an_append_of_a_turn_has_its_values_in_the_order_of_the_header() -> None:
    calls = SessionCalls(KEYS, Settings(live_lease_s=2.5, live_keep_s=60, keep_originals=True))
    end = TurnEnd("stopped", "user", {"out": 1}, has_reply=True)
    values = arguments_of(append_turn(calls, TURN, [USER], {"plan": ["a"]}, offset=77, number=3, end=end))
    assert dict(zip(scripts.values_in("append_turn", "turned_to"), values["turned_to"].split(), strict=True)) == {
        "generation": TURN.generation,
        "holder": TURN.holder,
        "offset": "77",
        "lease_ms": "2500",
        "keep_ms": "60000",
        "with_originals": "1",
        "status": "s",
        "flags": "10",
    }
    assert values["end_head"] + b"9" + values["end_tail"] == end_line("stopped", "user", 9, {"out": 1})
    values = arguments_of(append_turn(CALLS, TURN, [USER], {}, offset=77, number=3, end=None))
    assert values["turned_to"].split()[-2:] == ["-", "0"]
    assert (values["end_head"], values["end_tail"]) == (b"", b"")


def test_an_append_is_named_by_the_turn_and_its_number_whichever_process_makes_it() -> None:
    def name(number: int, end: TurnEnd | None = None, turn: TurnField = TURN) -> bytes:
        made = append_turn(SessionCalls(KEYS, SETTINGS), turn, [USER], {}, offset=number, number=number, end=end).append
        assert made is not None
        return made.name

    lost = TurnEnd("lost", "", None, has_reply=False)
    assert name(1) == name(1)
    assert name(1) == name(1, turn=replace(TURN, holder="ffffffff"))
    assert len({name(1), name(2), name(1, lost), name(1, turn=replace(TURN, generation="6-aabbccdd"))}) == 4


def test_the_reply_to_an_append_has_the_bytes_of_the_log() -> None:
    call = append_turn(CALLS, TURN, [USER], {}, offset=0, number=1, end=None)
    appended = call.decode(COUNTERS + b"@3-ab!", 99)
    assert isinstance(appended, Appended)
    assert (appended.receipt.last_seq, appended.receipt.epoch, appended.log_bytes) == (14, "3-ab", 99)
    assert call.commands[1] == ("STRLEN", KEYS.live)
    with pytest.raises(CorruptSession):
        call.decode([COUNTERS, b"3-ab", 2], 99)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("TURN running 5-ab 12", (TurnKnown, "running", "5-ab", 12, 0, 0)),
        ("TURN ended 12 14 9 20", (TurnKnown, "ended", "", 12, 14, 14)),
        ("TURN ended 12 14 3 14", (TurnKnown, "ended", "", 12, 14, 0)),
    ],
)
def test_a_known_turn_is_told_with_its_seqs(text: str, expected: tuple[Any, ...]) -> None:
    told = replies.refusal(ServerError("TURN", text), "s")
    assert isinstance(told, TurnKnown)
    assert (type(told), told.how, told.generation, told.first_seq, told.last_seq, told.reply_seq) == expected
    assert told.outcome == {"running": "", "ended": "done" if told.reply_seq else "failed"}[told.how]


@pytest.mark.parametrize(
    ("text", "expected", "said"),
    [
        ("TURN busy 5-ab 70 0", ("5-ab", 70), "70 ms"),
        ("TURN busy - 0 2", ("", 0), "0 ms"),
        ("TURN full 5-ab 70 8", ("5-ab", 70), "8 wait"),
    ],
)
def test_a_busy_session_is_told_with_the_time_left(text: str, expected: tuple[str, int], said: str) -> None:
    told = replies.refusal(ServerError("TURN", text), "s")
    assert isinstance(told, TurnBusy)
    assert ((told.turn, told.left_ms), told.session_id) == (expected, "s")
    assert said in str(told)


@pytest.mark.parametrize("text", ["TURN lost", "TURN of a later release"])
def test_any_other_refusal_of_a_turn_is_a_lost_one(text: str) -> None:
    told: RedismemError | None = replies.refusal(ServerError("TURN", text), "s")
    assert isinstance(told, TurnLost)
