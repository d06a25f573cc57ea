"""Messages that an earlier release has compressed come back unchanged; damaged frames are detected."""

from __future__ import annotations

from typing import Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from support.compressed import compress_element, compress_window
from support.json_values import is_identical, messages
from support.stores import Store
from support.writers import Echo

from redismem import Memory, Message, Settings
from redismem.errors import TooLarge
from redismem.messages.compression import expand_element, expanded_bytes
from redismem.messages.decoding import decode_messages
from redismem.messages.encoding import encode_message
from redismem.messages.values import Undecodable, encode_plain
from redismem.originals.blocks import decode_block
from redismem.protocol.keys import SessionKeys
from redismem.workers.summaries import Worker

STAMP = b"\xcf" + (1_700_000_000_123).to_bytes(8, "big")
NIL = encode_plain(None)
LONG = "Your order #W123 is on its way, and should be there by Tuesday. " * 40


def user(content: str) -> dict[str, Any]:
    return {"role": "user", "content": content}


def plain_of(element: bytes, seq: int = 1) -> Message:
    (message,) = decode_messages([element + STAMP], seq, "e")
    return message


@given(messages, st.integers(0, (1 << 32) - 1))
def test_what_was_compressed_comes_back(payload: dict[str, Any], tokens: int) -> None:
    element, _ = encode_message(payload | {"long": LONG}, lambda _: tokens)
    small = compress_element(element)
    assert len(small) < len(element)
    assert expand_element(small + STAMP) == element + STAMP
    assert 0 <= len(element + STAMP) - expanded_bytes(small + STAMP) < 32
    before, after = plain_of(element), plain_of(small)
    assert is_identical(after.to_openai(), payload | {"long": LONG})
    assert (
        (after.tokens, after.stored_ms, after.seq)
        == (before.tokens, before.stored_ms, before.seq)
        == (
            tokens,
            1_700_000_000_123,
            1,
        )
    )


@pytest.mark.parametrize("message", [{"content": LONG, "half": "\ud800"}, {"content": LONG, "big": 2**80}])
def test_what_is_json_text_inside_comes_back(message: dict[str, Any]) -> None:
    assert plain_of(compress_element(encode_message(message)[0])).to_openai() == message


def test_what_stands_beside_comes_back() -> None:
    message = Message("tool", content=LONG, metadata={"source": LONG}, tool_call_id="c").with_pin(True)
    small = compress_element(encode_message(message)[0])
    found = plain_of(small)
    assert (found.to_openai(), found.beside) == (message.to_openai(), message.beside)
    assert found.pinned


@given(st.integers(0, 10_000), st.integers(0, 255))
def test_a_frame_that_has_changed_is_found_out(at: int, other: int) -> None:
    small = compress_element(encode_message(user(LONG))[0])
    start = 8  # behind version, tokens and the length of the frame
    changed = bytearray(small + STAMP)
    changed[start + at % (len(small) - start - len(NIL))] = other
    try:
        assert plain_of(bytes(changed[: -len(STAMP)])).content == LONG
    except Undecodable:
        assert bytes(changed) != small + STAMP


@pytest.mark.parametrize(
    "frame",
    [
        encode_plain(b""),
        encode_plain(b"no frame"),
        encode_plain({"role": "user"}),
        encode_plain(zstandard.compress(encode_plain({"a": 1}))),  # nothing stands beside
        encode_plain(zstandard.compress(encode_plain({"a": 1}) + NIL) + b"more"),
        encode_plain(zstandard.compress(encode_plain([1]) + NIL)),
        encode_plain(zstandard.compress(bytes((1 << 27) + 1))),  # larger than any message may be
    ],
)
def test_what_is_no_compressed_message_is_none(frame: bytes) -> None:
    with pytest.raises(Undecodable):
        plain_of(b"\x95\x02\x04" + frame + NIL)


async def stored_heads(raw: Any, keys: SessionKeys) -> list[bytes]:
    found: list[bytes] = await raw.lrange(keys.messages, 0, -1)
    return [element[:2] for element in found]


async def test_a_compressed_window_is_read(memory: Memory, raw: Any, keys: SessionKeys) -> None:
    given = [user("short"), user(LONG), {"role": "tool", "tool_call_id": "c", "content": LONG}]
    session = memory.session("user-42")
    await session.append(*given)
    await compress_window(raw, keys)
    assert await stored_heads(raw, keys) == [b"\x95\x01", b"\x95\x02", b"\x95\x02"]
    assert sum(map(len, await raw.lrange(keys.messages, 0, -1))) < len(LONG)
    context = await session.read()
    assert [message.to_openai() for message in context.messages] == given
    assert context.to_openai()[0] == given[0]


async def test_it_can_be_edited(memory: Memory, raw: Any, keys: SessionKeys) -> None:
    session = memory.session("user-42")
    await session.append(user("short"), user(LONG))
    await session.append(user(LONG + "pinned"), pin=True)
    await compress_window(raw, keys)
    await session.replace(1, user(LONG + "replaced"))
    await session.unpin(3)
    assert await stored_heads(raw, keys) == [b"\x95\x01", b"\x95\x02", b"\x95\x01"]
    assert [message.content for message in await session.pop()] == [LONG + "pinned"]
    assert [message.content for message in await session.messages()] == [LONG + "replaced", LONG]


async def test_what_was_stored_under_a_higher_limit_can_be_unpinned(
    store: Store, namespace: str, memory: Memory
) -> None:
    await memory.session("user-42").append(user(LONG), pin=True)
    async with store.memory(namespace, Settings(max_message_bytes=1_000)) as strict:
        session = strict.session("user-42")
        assert (await session.unpin(1)).content == LONG
        with pytest.raises(TooLarge, match="the replacement has"):
            await session.replace(1, user(LONG))
        assert [message.content for message in await session.messages()] == [LONG]


async def test_originals_are_compressed_once(raw: Any, store: Store, namespace: str) -> None:
    async with store.memory(namespace, Settings(threshold=4, recent_limit=2)) as memory:
        session, keys = memory.session("user-42"), memory.store.keys.session("user-42")
        texts = [f"{number} {LONG[:600]}" for number in range(9)]
        await session.append(*map(user, texts))
        await session.append(user(LONG + "pinned"), pin=True)
        await compress_window(raw, keys)
        assert await Worker(memory.store, Echo()).drain() == 1
        assert [message.content for message in await session.messages(include_originals=True)] == [
            *texts,
            LONG + "pinned",
        ]
        _, elements = decode_block(0, await raw.hget(keys.originals, "0"))
        assert {element[:2] for element in elements} == {b"\x95\x01"}
