"""The stored forms of turns. No I/O."""

from __future__ import annotations

import json
from typing import Any

import pytest

from redismem.errors import InvalidMessage
from redismem.protocol.live.turns import (
    TurnField,
    TurnRecord,
    check_reason,
    decode_turn,
    encode_flags,
    end_line,
    end_parts,
    find_record,
    message_line,
    new_holder,
    turn_name,
)

EPOCH = "7-00112233445566ff"
HEADER = b"00112233445566ff"


def record(name: bytes, first_seq: int, last_seq: int, flags: int) -> bytes:
    return name + first_seq.to_bytes(5) + (last_seq - first_seq).to_bytes(3) + bytes([flags])


def test_the_field_is_decoded() -> None:
    field = b"s 5-aabbccdd 00112233 00112233445566 12"
    assert decode_turn(field) == TurnField("stopped", "5-aabbccdd", "00112233", "00112233445566", 12)
    assert decode_turn(b"r" + field[1:]) == TurnField("running", "5-aabbccdd", "00112233", "00112233445566", 12)


@pytest.mark.parametrize(
    "field", [None, b"", b"r", b"x 5-aabbccdd 00112233 00112233445566 12", b"r 5 00112233 00112233445566 12", b"\xff"]
)
def test_an_unreadable_field_is_no_turn(field: bytes | None) -> None:
    assert decode_turn(field) is None


def test_the_field_of_the_longest_numbers_keeps_the_hash_small() -> None:
    field = b"r %d-aabbccdd 00112233 00112233445566 %d" % (2**48, 2**40)
    assert decode_turn(field) is not None
    assert len(field) <= 64


def test_names_differ_by_id_alone() -> None:
    assert turn_name("a") == turn_name("a") != turn_name("b")
    assert len(turn_name("x" * 256)) == len(turn_name("\ud800")) == 7


@pytest.mark.parametrize("id", ["", None, 7, b"a", "x" * 257, "é" * 129])
def test_an_id_is_a_string_of_1_to_256_bytes(id: Any) -> None:
    with pytest.raises(InvalidMessage, match="id of a turn"):
        turn_name(id)


def test_holders_are_random() -> None:
    assert len({new_holder() for _ in range(100)}) == 100
    assert len(new_holder()) == 8
    int(new_holder(), 16)


def test_a_record_is_found_by_its_name_and_the_newest_counts() -> None:
    one, two = turn_name("one"), turn_name("two")
    done, failed = encode_flags("done", has_reply=True), encode_flags("failed", has_reply=False)
    turned = HEADER + record(one, 1, 2, failed) + record(two, 3, 300, done) + record(one, 301, 301, failed)
    assert find_record(turned, EPOCH, two) == TurnRecord(3, 300, "done", has_reply=True)
    assert find_record(turned, EPOCH, one) == TurnRecord(301, 301, "failed", has_reply=False)
    found = find_record(turned, EPOCH, two)
    assert found is not None
    assert found.reply_seq == 300
    assert find_record(turned, EPOCH, turn_name("three")) is None


def test_a_name_across_two_records_or_in_the_header_is_none() -> None:
    name = turn_name("a")
    turned = HEADER + record(b"\1" * 7, 1, 2, 1)[:-3] + name[:3] + record(name[3:] + b"\2" * 3, 3, 4, 1)
    assert name in turned
    assert find_record(turned, EPOCH, name) is None
    assert find_record(turned + record(name, 5, 6, 1), EPOCH, name) == TurnRecord(5, 6, "done", has_reply=False)
    assert find_record(HEADER, EPOCH, HEADER[:7]) is None


@pytest.mark.parametrize("turned", [None, b"", HEADER, HEADER[:9]])
def test_without_records_there_is_none(turned: bytes | None) -> None:
    assert find_record(turned, EPOCH, turn_name("a")) is None


def test_records_of_an_earlier_life_and_half_a_record_do_not_count() -> None:
    turned = HEADER + record(turn_name("a"), 1, 2, 1)
    assert find_record(turned, EPOCH, turn_name("a")) is not None
    assert find_record(turned, "8-" + "f" * 16, turn_name("a")) is None
    assert find_record(turned, "", turn_name("a")) is None
    assert find_record(turned[:-1], EPOCH, turn_name("a")) is None


def test_lines_are_json_objects() -> None:
    assert json.loads(message_line(3, 4)) == {"type": "message", "first_seq": 3, "last_seq": 4}
    usage = {"input": 3, "model": "ü"}
    end = {"type": "end", "outcome": "stopped", "reason": 'by "x"', "seq": 9, "usage": usage}
    line = end_line("stopped", 'by "x"', 9, usage)
    assert (json.loads(line), line[-1:]) == (end, b"\n")
    assert line.count(b"\n") == 1
    assert end_line("done", "", None, None) == (
        b'{"type":"end","outcome":"done","reason":"","seq":null,"usage":null}\n'
    )
    before, after = end_parts("done", "", None)
    assert before + b"7" + after == end_line("done", "", 7, None)


@pytest.mark.parametrize("usage", [{"a": object()}, {"a": float("nan")}, {"a": "\ud800"}])
def test_a_usage_that_is_no_json_is_refused(usage: Any) -> None:
    with pytest.raises(InvalidMessage, match="usage"):
        end_line("done", "", None, usage)


@pytest.mark.parametrize("reason", ["", "x" * 41, "é", "a\nb", None])
def test_a_reason_is_short_and_printable(reason: Any) -> None:
    assert check_reason("the user left") == "the user left"
    with pytest.raises(InvalidMessage, match="reason"):
        check_reason(reason)
