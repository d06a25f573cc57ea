"""Commands and decoders of the calls of turns. No I/O."""

from __future__ import annotations

from typing import Any

import pytest

from redismem.errors import CorruptSession, InvalidMessage, OwnerMismatch
from redismem.events import Op
from redismem.protocol import layout, replies
from redismem.protocol.call import Call, tag_of
from redismem.protocol.keys import Keys
from redismem.protocol.live.calls import (
    ClaimReply,
    LookUp,
    TurnRead,
    TurnWrite,
    WriteReply,
    claim_turn,
    due_turns,
    look_up_turn,
    read_turn,
    stop_turn,
    write_turns,
)
from redismem.protocol.live.turns import TurnField, TurnRecord, turn_name
from redismem.protocol.session.calls import SessionCalls
from redismem.settings.settings import Settings

SETTINGS = Settings(live_lease_s=2.5)
KEYS = Keys("shop", 8).session("user-42")
OWNED = SessionCalls(KEYS, SETTINGS, owner="anna").keys
FIELD = b"r 5-aabbccdd 00112233 00112233445566 12"
TURN = TurnField("running", "5-aabbccdd", "00112233", "00112233445566", 12)
COUNTERS = b"v1 1 14 60 4000000000000 4000001600000"


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
    fields = [COUNTERS, b"3-ab", None, FIELD, b"user"]
    assert call.decode(fields, b"x\n") == TurnRead(TURN, "user", "3-ab", b"x\n", 14)
    assert call.decode([COUNTERS, b"3-ab", None, None, None], b"") == TurnRead(None, None, "3-ab", b"", 14)
    assert call.decode([None] * 5, b"") == TurnRead(None, None, "", b"", 0)


def test_a_turn_is_looked_up_by_its_name() -> None:
    name = turn_name("a")
    call = look_up_turn(KEYS, name)
    turned = b"00112233445566ff" + name + (3).to_bytes(5) + (1).to_bytes(3) + b"\x09"
    found = call.decode([COUNTERS, b"3-00112233445566ff", None, FIELD, None], turned)
    assert found == LookUp(TURN, TurnRecord(3, 4, "done", has_reply=True), "3-00112233445566ff", 14)
    assert call.decode([None] * 5, turned) == LookUp(None, None, "", 0)


@pytest.mark.parametrize("call", [read_turn(OWNED, 0), look_up_turn(OWNED, turn_name("a"))])
def test_reads_are_of_the_owner_and_only_of_readable_counters(call: Call[Any]) -> None:
    with pytest.raises(OwnerMismatch):
        call.decode([COUNTERS, b"3-ab", b"1 other", FIELD, None], b"")
    with pytest.raises(CorruptSession):
        call.decode([b"x", b"3-ab", OWNED.owner, FIELD, None], b"")
    assert call.decode([COUNTERS, b"3-ab", OWNED.owner, FIELD, None], b"").turn == TURN


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
    ]
    tags = {tag_of([command]) for call in calls for command in call.commands}
    keys = [key for call in calls for key in call.commands[0] if isinstance(key, bytes) and key.startswith(b"rm:")]
    assert len(tags) == 1
    assert {key.partition(b"{")[2].partition(b"}")[0] for key in keys} == tags
