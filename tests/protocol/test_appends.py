"""The command of an append, which is built by hand for speed, matches the header of append.lua."""

from __future__ import annotations

import re
from typing import Any

import pytest

from redismem.messages.encoding import encode_message
from redismem.messages.message import STAMP_BYTES, Message
from redismem.protocol import scripts
from redismem.protocol.appends import append_limits
from redismem.protocol.ids import PROCESS
from redismem.protocol.keys import Keys
from redismem.protocol.owners import encode_owner
from redismem.protocol.session.append import AppendOptions
from redismem.protocol.session.calls import SessionCalls
from redismem.protocol.session.state import StateChanges
from redismem.settings.settings import Settings

SETTINGS = Settings(
    threshold=1234,
    threshold_tokens=98_765,
    recent_limit=5,
    idle_timeout_s=156.789,
    tick_s=2,
    max_window_count=4321,
    max_window_bytes=888_888,
    max_params_count=777,
    max_value_bytes=99,
)
KEYS = Keys("shop", 8).session("user-42")
CALLS = SessionCalls(KEYS, SETTINGS, clock=lambda: NOW_MS)
OWNED = SessionCalls(KEYS, SETTINGS, clock=lambda: NOW_MS, owner="ann")
CONTENTS = ["first", "second", "third"]
MESSAGES: list[Any] = [{"role": "user", "content": content} for content in CONTENTS]
NOW_MS = 1_700_000_000_123


@pytest.mark.parametrize("name", ["limits", "request"])
def test_a_packed_argument_has_the_names_of_the_header(name: str) -> None:
    parsed: dict[int, str] = {}
    matches = rf"^ *(?:local )?([\w,\s]+?) =\s+string\.match\({name}, '([^']+)'\)$"
    for locals_, pattern in re.findall(matches, scripts.load("append").source.decode(), re.MULTILINE):
        places = [place for place, word in enumerate(pattern.split()) if word.startswith("(")]
        parsed |= dict(zip(places, re.split(r",\s*", locals_), strict=True))
    assert tuple(name for _, name in sorted(parsed.items())) == scripts.values_in("append", name)


CHANGES: StateChanges = {"merge": {"order": "O-1"}, "waiting": "size", "plan": None}
OPTIONS: AppendOptions = {"id": "my-id", "expect": 17, "pin": True, "confirm": None, **CHANGES}
ELEMENTS = [encode_message(Message.from_openai(message).with_pin(True))[0] for message in MESSAGES]
PINS = f"3,{sum(map(len, ELEMENTS)) + 3 * STAMP_BYTES},{SETTINGS.max_pinned_count},{SETTINGS.max_pinned_bytes}"


def name_of(key: bytes) -> str:
    """Return the kind of a key, from the part after its tag."""
    match = re.fullmatch(rb"rm:\{shop:\d\d[a-z]{4}\}:(\w+)(?::user-42)?(?::\d+:(\w+))?(?::[0-9a-f]{16})?", key)
    assert match, key
    return "_".join(part.decode() for part in match.groups() if part)


def test_an_append_has_its_parts_at_their_places_in_the_header() -> None:
    script = scripts.load("append")
    call = OWNED.append(MESSAGES, OPTIONS)
    _, _, count, *rest = call.commands[0]
    assert [name_of(key) for key in rest[: int(count)] if isinstance(key, bytes)] == list(script.keys)
    session, limits, request, token, *parts = rest[int(count) :]
    numbers = [156_789, 1234, 98_765, 5, 4321, 777, 888_888]
    assert (session, limits) == (b"user-42", f"{' '.join(map(str, numbers))} @".encode() + encode_owner("ann"))
    values = {"fresh": 0, "message_count": 3, "set_count": 2, "tokens": 0, "expect": 17, "now_ms": NOW_MS, "pins": PINS}
    assert tuple(values) == scripts.values_in("append", "request")
    assert request == " ".join(map(str, values.values()))
    assert isinstance(token, bytes)
    assert (len(token), token[:7]) == (30, PROCESS.token("my-id")[:7])
    assert parts == [*ELEMENTS, b"param:order", b"\xa3O-1", b"waiting", b"\xa4size", b"plan"]


def test_an_append_without_an_owner_has_neither_the_owner_nor_its_key() -> None:
    owned, plain = (list(calls.append(MESSAGES, OPTIONS).commands[0]) for calls in (OWNED, CALLS))
    assert owned.pop(13) == KEYS.shard.owners
    assert (owned[2], plain[2]) == (11, 10)
    assert (owned[3:14], owned[15], owned[17:]) == (plain[3:14], plain[15], plain[17:])
    assert plain[14] == append_limits(SETTINGS).text
