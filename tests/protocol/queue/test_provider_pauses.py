"""Pauses of providers: commands and stored values."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redismem.protocol.keys import Keys
from redismem.protocol.queue import provider_pauses
from redismem.protocol.queue.provider_pauses import Pause

KEYS = Keys("shop", 4)
times = st.integers(0, 10**15)
reasons = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), min_size=1, max_size=120)


@given(since=times, failed=times, until=times, count=st.integers(0, 10**9 - 1), reason=reasons)
def test_a_pause_survives_encoding(since: int, failed: int, until: int, count: int, reason: str) -> None:
    pause = Pause(since, failed, until, count, reason)
    assert Pause.decode(pause.encode(b"ab12")) == pause


@given(noted=st.binary(max_size=60) | st.text("0123456789 abz\n", max_size=60).map(str.encode))
def test_any_bytes_decode_to_a_pause_or_none(noted: bytes) -> None:
    pause = Pause.decode(noted)
    assert pause is None or " ".join(map(str, (pause.since_ms, pause.until_ms))).isascii()


@pytest.mark.parametrize("noted", [b"", b"paused", b"1 2 3 4 ab", b"1 2 3 4 ab \n", b"1 2 3 -4 ab x", b"9" * 5_000])
def test_a_foreign_value_decodes_to_none(noted: bytes) -> None:
    assert Pause.decode(noted) is None


def test_reading_a_pause_is_one_command_on_one_key() -> None:
    assert provider_pauses.read_pause(KEYS, "p").commands == (("HGET", KEYS.providers, b"p"),)
    assert provider_pauses.read_pause(KEYS, "p").decode(None) == b""
    assert KEYS.providers == b"rm:{shop}:providers"


def test_pauses_are_listed_by_provider() -> None:
    pause = Pause(1, 2, 3, 4, "x answered 503")
    answer = [b"q", pause.encode(b"ab"), b"none", b"x", b"a", pause.encode(b"cd")]
    assert provider_pauses.list_pauses(KEYS).decode(answer) == {"a": pause, "q": pause}
