"""Decoding of the replies of Redis."""

from __future__ import annotations

from typing import Any

import pytest

from redismem.context.results import Receipt
from redismem.errors import Conflict, CorruptSession, RedismemError, ScriptFailed, TooLarge, UnsupportedFormat
from redismem.messages.encoding import encode_message
from redismem.messages.values import Undecodable, encode_value
from redismem.protocol import layout, replies, server_errors
from redismem.protocol.layout import Counters
from redismem.protocol.server_errors import LASTING_WORDS, TRANSIENT_WORDS, ServerError

STAMP = b"\xcf" + bytes(8)
ELEMENTS = [encode_message({"role": "user", "content": str(number)})[0] + STAMP for number in range(1, 6)]


def state_fields(**changes: bytes | None) -> dict[bytes, bytes]:
    """Return the state of a session of five messages. `None` leaves a field out; `param__x` stands for `param:x`."""
    fields: dict[str, bytes | None] = {"epoch": b"1-ab", "counters": b"v1 1 5 50 1000 2000", "ids_a": b"b" + bytes(10)}
    fields |= changes
    return {name.replace("__", ":").encode(): value for name, value in fields.items() if value is not None}


@pytest.mark.parametrize(
    ("text", "kind", "says"),
    [
        ("CONFLICT 7", Conflict, "7"),
        ("FULL 10000", TooLarge, "10000"),
        ("PARAMS 300", TooLarge, "300"),
        ("CORRUPT no epoch", CorruptSession, "CORRUPT"),
        ("LAYOUT 2", UnsupportedFormat, "layout version 2, this release knows 1"),
        ("WRONGTYPE Operation against a key holding the wrong kind of value", CorruptSession, "WRONGTYPE"),
        ("ERR user_script:9: oops script: 5d2, on @user_script:9.", ScriptFailed, "defect"),
        ("ERR Error running script (call to f_5d2): @user_script:9: oops", ScriptFailed, "defect"),
    ],
)
def test_each_word_of_a_script_has_its_error(text: str, kind: type[RedismemError], says: str) -> None:
    refused = replies.refusal(ServerError(text.partition(" ")[0], text), "s")
    assert type(refused) is kind
    assert refused.session_id == "s"
    assert says in str(refused)
    assert getattr(refused, "last_seq", 7) == 7


@pytest.mark.parametrize("word", [*sorted(TRANSIENT_WORDS | LASTING_WORDS), "ERR", "UNKNOWN"])
def test_a_word_of_the_server_is_no_refusal(word: str) -> None:
    assert replies.refusal(ServerError(word, f"{word} unknown command"), "s") is None


@pytest.mark.parametrize("word", sorted(TRANSIENT_WORDS | LASTING_WORDS))
def test_an_error_of_the_server_inside_a_script_is_no_defect(word: str) -> None:
    assert replies.refusal(ServerError(word, f"{word} not allowed script: 5d2, on @user_script:9."), "s") is None


def test_counters_are_five_numbers_with_an_optional_reason() -> None:
    assert layout.counters(b"v1 3 7 50 1000 2000") == Counters(3, 7, 50, 1000, 2000, None)
    chosen = layout.counters(b"v1 1 0 1000000000000001 1000 2000 limit")
    assert (chosen.tokens, chosen.window_count, chosen.evicting) == (10**15 + 1, 0, "limit")


@pytest.mark.parametrize(
    "field",
    [b"", b"v1", b"v1 1 2 3 4", b"v1 1 2 3 4 5 ", b"v1 1 2 3 4 5 6", b"v1 1 2 3 4 5idle", b" v1 1 2 3 4 5",
     b"1 2 3 4 5",
     b"v1 1 2 -3 4 5", b"v1 1 2 1e+15 4 5", b"v1 1 2 3 4 5.0", b"v1 1  2 3 4 5", b"v1 1 2 3 4 5 idle limit",
     b"v1 1 2 3 4 5\n", b"v1  1 2 3 4 5", b"v1x 1 2 3 4 5", b"v 1 2 3 4 5", "v1 1 2 3 4 ٥".encode(),
     b"v1 1 2 %b 4 5" % (b"9" * 20), b"v1 1 2 %b 4 5" % (b"9" * 5_000)],
)  # fmt: skip
def test_unreadable_counters_are_refused(field: bytes) -> None:
    with pytest.raises(Undecodable):
        layout.counters(field)


NEWER = [b"v2", b"v2 1 2 3 4 5", b"v2 1 2 3 4 5 6 7", b"v12 {}", b"v0 1 2 3 4 5", b"v2\xff"]


@pytest.mark.parametrize("field", NEWER)
def test_counters_of_another_layout_are_not_corrupt(field: bytes) -> None:
    for read in (layout.counters, layout.bounds):
        with pytest.raises(UnsupportedFormat, match=r"layout version \d+, this release knows 1$"):
            read(field)
    for decode in (
        lambda: replies.context("s", 6, state_fields(counters=field), ELEMENTS),
        lambda: replies.info("s", state_fields(counters=field)),
    ):
        with pytest.raises(UnsupportedFormat, match=r"^session s: the session has layout version \d+, this"):
            decode()


def test_bounds_are_the_first_seq_and_the_message_count() -> None:
    assert layout.bounds(b"v1 3 7 50 1000 2000") == layout.bounds(b"v1 3 7 50 1000 2000 limit") == (3, 7)
    for field in (b"", b"v1 1 2 3 4", b"1 2 3 4 5", b"v1 x 2 3 4 5", b"v1 %b 2 3 4 5" % (b"9" * 5_000)):
        with pytest.raises(Undecodable):
            layout.bounds(field)


def test_a_receipt_decodes_the_reply_of_the_script() -> None:
    receipt = replies.receipt("s", 3, b"v1 2 5 50 1000 2000@1-ab")
    assert receipt == Receipt(3, 5, 5, False, False)
    assert receipt.window_count == 4
    first = replies.receipt("s", 3, [b"v1 1 3 50 1000 2000", 1, 3, 1, 0, b"1-ab"])
    assert first == Receipt(1, 3, 3, True, False)
    assert first.window_count == 3
    again = replies.receipt("s", 3, [b"v1 2 9 50 1000 2000 idle", 3, 5, 0, 1, b"1-ab"])
    assert again == Receipt(3, 5, 5, False, True)
    assert again.window_count == -1


@pytest.mark.parametrize("window_count", [0, 3, 5])
def test_a_window_of_another_length_than_the_state_says_is_corrupt(window_count: int) -> None:
    with pytest.raises(CorruptSession) as corrupt:
        replies.receipt("s", 3, [b"v1 2 5 50 1000 2000", b"1-ab", window_count])
    assert corrupt.value.epoch == "1-ab"
    with pytest.raises(CorruptSession, match=f"holds {window_count} messages, expected 4") as corrupt:
        replies.receipt("s", 3, [b"v1 2 5 50 1000 2000", None, window_count])
    assert corrupt.value.epoch == ""


def test_a_receipt_of_unreadable_counters_is_corrupt() -> None:
    counters = b"v1 1 %b 50 1000 2000" % (b"9" * 5_000)
    for reply, epoch in (([counters, b"1-ab", 3], "1-ab"), ([counters, 1, 3, 0, 1], "")):
        with pytest.raises(CorruptSession, match="the state's counters cannot be read") as corrupt:
            replies.receipt("s", 3, reply)
        assert corrupt.value.epoch == epoch


def test_fields_are_decoded_from_a_list_or_a_mapping() -> None:
    assert replies.fields([b"a", b"1", b"b", b"2"]) == replies.fields({b"a": b"1", b"b": b"2"})
    assert replies.fields([]) == {}


def test_a_context_is_the_state_and_the_window() -> None:
    state = state_fields(param__order=encode_value("O-1"), waiting=encode_value("size"), plan=encode_value([1.0]))
    context = replies.context("s", 2, state, ELEMENTS)
    assert [message.seq for message in context.messages] == [1, 2, 3, 4, 5]
    assert [message.seq for message in context.recent] == [4, 5]
    assert (context.total_messages, context.first_seq, context.last_seq, context.epoch) == (5, 1, 5, "1-ab")
    assert (context.state.params, context.state.waiting_for_param, context.state.plan) == (
        {"order": "O-1"},
        "size",
        [1.0],
    )
    newest = replies.context("s", 2, state, ELEMENTS[-2:], limit=2)
    assert [message.seq for message in newest.messages] == [4, 5]


def test_without_state_and_window_there_is_no_session() -> None:
    context = replies.context("s", 2, {}, [])
    assert (context.epoch, context.messages, context.total_messages) == ("", [], 0)
    assert (context.first_seq, context.last_seq) == (1, 0)


@pytest.mark.parametrize(
    ("state", "elements"),
    [
        (state_fields(), []),
        (state_fields(), ELEMENTS[:4]),
        (state_fields(), [*ELEMENTS, ELEMENTS[0]]),
        ({}, ELEMENTS),
        ({b"foreign": b"1"}, []),
        (state_fields(epoch=None), ELEMENTS),
        (state_fields(epoch=b"\xff"), ELEMENTS),
        (state_fields(counters=None), ELEMENTS),
        (state_fields(counters=b""), ELEMENTS),
        (state_fields(counters=b"one 5 50 1000 2000"), ELEMENTS),
        (state_fields(counters=b"v1 1 5.5 50 1000 2000"), ELEMENTS),
        (state_fields(counters=b"v1 1 5 50 1000"), ELEMENTS),
        (state_fields(param__x=b"\xc1"), ELEMENTS),
        (state_fields() | {b"param:\xff": b"\x01"}, ELEMENTS),
        (state_fields(plan=b""), ELEMENTS),
        (state_fields(summary__1=b"\x01"), ELEMENTS),
        (state_fields(summary__1=encode_value([1, 2])), ELEMENTS),
        (state_fields(), [*ELEMENTS[:4], b"foreign"]),
    ],
)
def test_a_state_and_a_window_that_contradict_each_other_are_corrupt(
    state: dict[bytes, bytes], elements: list[bytes]
) -> None:
    with pytest.raises(CorruptSession) as corrupt:
        replies.context("s", 6, state, elements)
    readable = state.get(b"epoch") == b"1-ab"
    assert corrupt.value.epoch == ("1-ab" if readable else "")
    assert corrupt.value.__cause__ is None


def test_a_message_of_a_newer_release_is_not_corrupt() -> None:
    newer = b"\x95\x03" + ELEMENTS[0][2:]
    with pytest.raises(UnsupportedFormat):
        replies.context("s", 6, state_fields(), [*ELEMENTS[:4], newer])


def test_info_has_the_numbers_of_a_session() -> None:
    known = replies.info(
        "s",
        state_fields(
            counters=b"v1 3 5 50 1000 2000 idle",
            queued=b"overdue",
            waiting=encode_value("size"),
            param__b=b"\x01",
            param__a=b"\x01",
        ),
    )
    assert known is not None
    assert (known.total_messages, known.first_seq, known.window_count, known.window_tokens) == (5, 3, 3, 50)
    assert (known.params_keys, known.waiting_for_param, known.queued) == (("a", "b"), "size", "overdue")
    assert (known.active_ms, known.expires_ms, known.summaries_count) == (1000, 2000, 0)
    assert replies.telemetry(known) == {
        "history_count": 3, "params_keys": ["a", "b"], "waiting_for_param": "size",
    }  # fmt: skip


def test_without_a_session_there_is_no_info() -> None:
    assert replies.info("s", {}) is None
    assert replies.telemetry(None) == {"history_count": 0, "params_keys": [], "waiting_for_param": None}


@pytest.mark.parametrize(
    "change", [{"counters": None}, {"counters": b"1 5 50 x 2000"}, {"epoch": None}, {"plan": b"\xc1"}]
)
def test_unreadable_numbers_are_corrupt(change: dict[str, Any]) -> None:
    with pytest.raises(CorruptSession):
        replies.info("s", state_fields(**change))


def test_a_word_of_the_server_is_either_transient_or_lasting() -> None:
    assert not server_errors.TRANSIENT_WORDS & server_errors.LASTING_WORDS
