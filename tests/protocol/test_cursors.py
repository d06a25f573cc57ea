"""Cursors come from clients: a forged one is refused with the error that each list promises, whatever it contains."""

from __future__ import annotations

import base64
import itertools
import json
import math
from collections.abc import Callable
from typing import Any

import pytest

from redismem.errors import InvalidItem
from redismem.project.queries.query import decode_cursor as decode_of_items
from redismem.protocol.namespace.sessions import decode_cursor as decode_of_sessions
from redismem.protocol.record.listing import _decode_cursor as decode_of_records

ODD: tuple[Any, ...] = (math.inf, -math.inf, math.nan, 1.5, None, True, [], {}, "", "x", "\ud800", "1" * 5_001, [[]])
DECODERS: list[tuple[Callable[[str], object], type[Exception], Any, Any]] = [
    (decode_of_sessions, ValueError, 5, "s"),
    (decode_of_records, ValueError, "72", 3),
    (decode_of_items, InvalidItem, "5", "t-" + "0" * 18),
]


@pytest.mark.parametrize(("decode", "error", "first", "second"), DECODERS)
def test_a_forged_cursor_is_refused(
    decode: Callable[[str], object], error: type[Exception], first: Any, second: Any
) -> None:
    # The place behind a session of any name, and the first place among records, are in their lists.
    odd_seconds = [odd for odd in ODD if decode is not decode_of_sessions or type(odd) is not str]
    odd_firsts = [odd for odd in ODD if decode is not decode_of_records or odd != ""]
    pairs = [*((first, odd) for odd in odd_seconds), *itertools.product(odd_firsts, (*ODD, second))]
    for content in (*pairs, *ODD, [first] * 3):
        text = json.dumps(content)
        for cursor in (base64.urlsafe_b64encode(text.encode()).decode(), text):
            with pytest.raises(error, match="cursor"):
                decode(cursor)
    good: Any = decode(base64.urlsafe_b64encode(json.dumps([first, second]).encode()).decode())
    assert len(good) == 2
