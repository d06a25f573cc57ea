"""Any messages in any format: each view follows the rules of its provider, and no word is lost."""

from __future__ import annotations

from typing import Any

from formats.test_tool_pairing import FORMS, IN_PARTS, call, context_of, result
from hypothesis import given
from hypothesis import strategies as st
from support.views import VIEWS

Payload = dict[str, Any]
WORDS = st.sampled_from(["hello", " ", "", "</tool_result>", "trailing \n", "{}", '{"a": 1}'])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["id", "function", "type"]), inner),
    max_leaves=8,
)
IDS = st.lists(st.sampled_from(["a", "b", "call:1", "ü"]), min_size=1, max_size=3, unique=True)
PARTS = st.one_of(
    WORDS.map(lambda text: {"type": "text", "text": text}),
    st.sampled_from(
        [
            {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
            {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "mp3"}},
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            {"type": "unheard_of"},
            {"inline_data": {"mime_type": "image/png", "data": "AAAA"}},
            {"function_response": {"name": "fa", "response": {"x": 1}}},
            {"function_call": {"name": "fa", "args": {}}},
        ]
    ),
)


@st.composite
def message(draw: st.DrawFn) -> Payload:
    kind = draw(st.sampled_from(["call", "call", "result", "result", "words", "parts", "foreign"]))
    form = draw(st.sampled_from(FORMS))
    ids = draw(IDS) if form == "chat" or form in IN_PARTS else draw(IDS)[:1]
    if kind == "call":
        return call(form, *ids)
    if kind == "result":
        return result(form, *(ids if form in IN_PARTS else ids[:1]))
    role = draw(st.sampled_from(["user", "assistant", "system", "developer", "model", "tool", 5]))
    if kind == "words":
        return {"role": role, "content": draw(WORDS)}
    if kind == "parts":
        return {"role": role, draw(st.sampled_from(["content", "parts"])): draw(st.lists(PARTS, max_size=4))}
    return {"role": role, "content": draw(VALUES), "tool_calls": draw(VALUES), "type": draw(WORDS)}


@given(st.lists(message(), max_size=12))
def test_the_rules_are_kept(told: list[Payload]) -> None:
    context = context_of(told)
    for view, check in VIEWS.values():
        check(view(context))
        check(view(context, tools=False, thoughts=False))
    assert context.to_anthropic() == context_of(told, stored=False).to_anthropic()


@given(st.lists(message(), max_size=12), st.data())
def test_no_text_is_lost_and_nothing_that_is_stored_changes(told: list[Payload], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(told)))
    role = data.draw(st.sampled_from(["user", "assistant", "system"]))
    told = [*told[:at], {"role": role, "content": "canary"}, *told[at:]]
    context = context_of(told)
    before = repr(told)
    for view, _ in VIEWS.values():
        assert str(view(context)).count("canary") == 1
    assert repr(told) == before
