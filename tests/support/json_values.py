"""Hypothesis strategies for messages, values and session ids, and an exact comparison."""

from __future__ import annotations

import math
import unicodedata
from typing import Any

from hypothesis import strategies as st

# st.text() alone excludes surrogates, which real transcripts hold.
texts = st.text(st.characters(codec=None, categories=None), max_size=20) | st.sampled_from(
    ["", "\ud800", "\udfff\ud800", "\ud83d\ude00", "😀", "\x00", "é", "e\u0301"]
)
integers = st.integers() | st.sampled_from(
    [2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1, 10**400]
)
floats = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([0.0, -0.0, 1.0, 1e16])
scalars = st.none() | st.booleans() | integers | floats | texts
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4), max_leaves=12
)
_known = {
    "role": st.sampled_from(["user", "assistant", "system", "tool", "developer", "chatbot", "HUMAN"]) | st.none(),
    "content": texts
    | st.none()
    | st.just([])
    | st.lists(st.fixed_dictionaries({"type": st.just("text"), "text": texts}), max_size=3),
    "name": texts,
    "tool_call_id": texts,
    "tool_calls": st.lists(
        st.fixed_dictionaries(
            {
                "id": texts,
                "type": st.just("function"),
                "function": st.fixed_dictionaries(
                    {"name": texts, "arguments": texts | st.sampled_from(["{", '{"a": 1.0, }', "", '{"a":NaN}'])}
                ),
            }
        ),
        max_size=3,
    ),
}


def _with_role(payload: dict[str, Any], role: str) -> dict[str, Any]:
    """Return the payload, with this role if it has neither a role nor a type."""
    if any(type(payload.get(key)) is str and payload[key] for key in ("role", "type")):
        return payload
    return payload | {"role": role}


messages = st.builds(
    lambda unknown, known, role: _with_role(unknown | known, role),
    st.dictionaries(texts, values, max_size=3),
    st.fixed_dictionaries({}, optional=_known),
    st.sampled_from(["user", "assistant", "model"]),
)


def is_identical(left: Any, right: Any) -> bool:
    """True if types, order of keys and signs of zero are equal too; any NaN equals any other."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return list(left) == list(right) and all(is_identical(left[key], right[key]) for key in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(is_identical, left, right))
    if isinstance(left, float):
        return (
            math.isnan(left) and math.isnan(right)
            if left != right
            else math.copysign(1, left) == math.copysign(1, right)
        )
    return bool(left == right)


def _fits(text: str) -> bool:
    if any(unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp") for char in text):
        return False
    return text == text.strip() and len(text.encode()) <= 256


session_ids = st.text(min_size=1, max_size=64).filter(_fits)
