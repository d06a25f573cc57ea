"""append.lua, raw: a resent append is recognised by its token."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.raw_scripts import NOW_MS, Scripts, counters, resending


def is_new(reply: Any) -> bool:
    """True if the append wrote its messages."""
    return isinstance(reply, bytes) or (len(reply) == 5 and reply[4] == 0)


async def test_a_known_token_returns_the_first_reply_and_writes_nothing(lua: Scripts) -> None:
    await lua.append("a", "b", token=b"token..1")
    await lua.append("c", token=b"token..2")
    before = await lua.read_namespace()
    again = await lua.append("x", "y", token=b"token..1", sets={"plan": "p"}, expect="99", now_ms=NOW_MS + 10**7)
    assert again == [counters(3, 20), 1, 2, 1, 1]
    assert await lua.append("x", token=b"token..2") == [counters(3, 20), 3, 3, 0, 1]
    assert await lua.read_namespace() == before


@pytest.mark.parametrize("sizes", [[1] * 20, [20] * 1 + [1] * 19, [3, 1, 4, 1, 5, 9, 2, 6] * 3, [1000] * 17])
async def test_the_last_sixteen_appends_are_known_whatever_their_sizes(lua: Scripts, sizes: list[int]) -> None:
    limits: dict[str, Any] = {"window_limit": 10**6, "threshold": 10**6}
    for number, size in enumerate(sizes):
        await lua.append(*["m"] * size, token=b"%08d" % number, **limits)
    before = await lua.read_namespace()
    noted = counters(sum(sizes), 10 * len(sizes))
    for number in range(len(sizes) - 16, len(sizes)):
        first_seq, last_seq = sum(sizes[:number]) + 1, sum(sizes[: number + 1])
        again = await lua.append("other", token=b"%08d" % number, **limits)
        assert again == [noted, first_seq, last_seq, int(number == 0), 1]
    assert await lua.read_namespace() == before
    forgotten = await lua.append("m", token=b"%08d" % (len(sizes) - 17), **limits)
    assert forgotten == counters(sum(sizes) + 1, 10 * len(sizes) + 10)


async def test_a_token_is_found_at_its_own_place_only(lua: Scripts) -> None:
    """The same bytes occur between two entries and across them."""
    await lua.append("a", token=b"AAAAAAAA")
    await lua.append("b", token=b"BBBBBBBB")
    across = b"AAA\x00\x00\x00\x80\x01BBBB"
    for start in range(1, 5):
        assert is_new(await lua.append("c", token=across[start : start + 7]))
    inside = b"\x00\x80\x01BBBB"
    assert is_new(await lua.append("d", token=inside))
    assert not is_new(await lua.append("x", token=inside))


async def test_a_token_may_hold_any_bytes(lua: Scripts) -> None:
    tokens = [bytes([byte] * 8) for byte in (0, 10, 13, 37, 42, 46, 91, 128, 255)]
    for token in tokens:
        assert is_new(await lua.append("a", token=token))
    for number, token in enumerate(tokens, 1):
        assert (await lua.append("a", token=token))[1:] == [number, number, int(number == 1), 1]


# On the embedded store the examples take ten times as long, and the script is the same.
@pytest.mark.parametrize("store", ["real"], indirect=True)
@given(
    sizes=st.lists(st.integers(1, 9) | st.just(130), min_size=20, max_size=32),
    turn=st.integers(0, 11),
)
async def test_the_last_sixteen_are_known_after_any_number_of_rotations(
    lua: Scripts, sizes: list[int], turn: int
) -> None:
    await lua.raw.delete(*(lua.key(name) for name in ("messages", "state", "active", "overdue")))
    limits: dict[str, Any] = {"window_limit": 10**6, "threshold": 10**6, "tokens": 0}
    last_seq, seqs = 0, []
    for number, size in enumerate(sizes):
        await lua.append(*["m"] * size, token=b"%08d" % number, fresh=number % 2, **limits)
        seqs.append([last_seq + 1, last_seq + size])
        last_seq += size
        for back in {0, turn, turn + 4, 15} if number > 18 and number % 12 == turn else ():
            again = await lua.append("x", token=b"%08d" % (number - back), **limits)
            assert again == [counters(last_seq, 0), *seqs[number - back], int(number == back), 1]
    fields = await lua.fields()
    assert all(len(value) <= 61 for name, value in fields.items() if name.startswith(b"ids_"))


async def test_a_fresh_append_does_not_search_the_ring(lua: Scripts) -> None:
    await lua.append("a", fresh=1)
    assert await lua.append("b", fresh=1) == counters(2, 20)
    assert (await lua.append("c", fresh=0))[1:] == [1, 1, 1, 1]


@pytest.mark.parametrize(("first", "second"), [(1, 2), (0, 3)])
async def test_a_resent_append_that_is_known_notes_its_sending_alone(lua: Scripts, first: int, second: int) -> None:
    await lua.append("a", fresh=first)
    before = await lua.read_namespace()
    assert (await lua.append("a", fresh=second))[1:] == [1, 1, 1, 0]
    assert await lua.read_namespace() == before, "a client that resends by itself notes nothing"
    assert (await lua.append("a", fresh=second, sending=resending(2)))[1:] == [1, 1, 1, 0]
    assert (await lua.fields())[b"resent"] == resending(2)
    await lua.raw.hdel(lua.key("state"), "resent")
    assert await lua.read_namespace() == before


async def test_only_a_resend_of_the_same_call_is_no_duplicate(lua: Scripts) -> None:
    await lua.append("a", fresh=0, own=b"\x01\x02\x03")
    for own, fresh, duplicate in (
        (b"\x01\x02\x03", 3, 0),
        (b"\x01\x02\x04", 3, 1),
        (b"\x01\x02\x03", 0, 1),
        (b"\x01\x02\x04", 0, 1),
    ):
        assert (await lua.append("a", fresh=fresh, own=own))[1:] == [1, 1, 1, duplicate]
