"""Every provider accepts every history: twelve stored formats in five views, and no word or picture is lost."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.agent_loops import FORMS, Loop, Payload
from support.pictures import ASKED, FOUND, PICTURES
from support.views import VIEWS, holds_picture, view_of

WORD = re.compile(r"word\d+x")
CALLED = re.compile(r"'(?:tool_calls|function_call|functionCall|tool_use|toolUse|[a-z_]+_call|program)'")
SCENES = ("plain", "tools", "parallel", "thoughts", "cut", "handoff", "approval")


def scene(form: str, kind: str, seed: int = 1) -> list[Payload]:
    """A conversation stored in a format."""
    loop = Loop(form, seed)
    ask, thinks = loop.asks(), kind == "thoughts"
    match kind:
        case "plain":
            return [ask, *loop.says(False), loop.asks()]
        case "tools" | "thoughts":
            return [ask, *loop.step(1, thinks), *loop.says(thinks), loop.asks()]
        case "parallel":
            return [ask, *loop.step(3, False), *loop.says(False), loop.asks()]
        case "cut":  # the process ended before the results came
            return [ask, loop.step(2, True)[0], loop.asks()]
        case "approval":  # the last calls wait
            return [ask, *loop.step(2, True)[:-1]]
    other = Loop(FORMS[(FORMS.index(form) + 5) % len(FORMS)], seed)
    other._numbers = loop._numbers
    return [ask, *loop.step(2, True), other.asks(), *other.step(2, True), *loop.says(True), other.asks()]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", SCENES)
def test_every_provider_accepts_it_and_no_word_is_lost(form: str, kind: str) -> None:
    told = scene(form, kind)
    words, before = WORD.findall(str(told)), repr(told)
    for name in VIEWS:
        view = view_of(name, *told)
        assert set(words) <= set(WORD.findall(str(view))), name
        in_words = view_of(name, *told, tools=False, thoughts=False)
        assert set(words) <= set(WORD.findall(str(in_words))), name
        assert not CALLED.search(str(in_words)), name
    assert repr(told) == before


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", VIEWS)
def test_every_picture_reaches_every_provider(form: str, name: str) -> None:
    for options in ({}, {"tools": False}):
        view = view_of(name, *PICTURES[form], **options)
        assert holds_picture(view, ASKED)
        assert holds_picture(view, FOUND)
        assert "it is red" in str(view)


@given(form=st.sampled_from(FORMS), seed=st.integers(0, 100_000), data=st.data())
def test_whatever_was_stored_every_provider_accepts_it(form: str, seed: int, data: Any) -> None:
    """Messages of two formats in any order: dropped, doubled and swapped."""
    told = [*scene(form, "handoff", seed), *scene(form, "approval", seed + 1)]
    order = data.draw(st.lists(st.integers(0, len(told) - 1), min_size=1, max_size=len(told)))
    told = [told[at] for at in (order if data.draw(st.booleans()) else sorted(set(order)))]
    for name in VIEWS:
        options = {name: data.draw(st.booleans()) for name in ("thoughts", "tools")}
        view = view_of(name, *told, **options)
        assert set(WORD.findall(str(told))) <= set(WORD.findall(str(view))), name
