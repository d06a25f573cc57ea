"""No two conversations of frameworks have one id, whatever characters their prefixes, ids and sources have."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from agents import RunContextWrapper
from hypothesis import given
from hypothesis import strategies as st

from redismem import Memory
from redismem.adapters.agent_framework import HistoryProvider, SessionStore
from redismem.adapters.langchain import ChatMessageHistory
from redismem.adapters.langgraph import RedismemSaver, RedismemStore
from redismem.adapters.llama_index import ChatStore
from redismem.adapters.openai_agents import Session
from redismem.adapters.pydantic_ai import ConversationStore
from redismem.adapters.sessions import join_id, split_id

texts = st.lists(st.sampled_from(["a", "b", ":", "%", "%3A", "%25", "%2F", "/"]), min_size=3, max_size=7).map("".join)


def cuts(text: str) -> Iterator[tuple[str, str]]:
    """All ways to read a text as two parts, with a separator between them or without one."""
    for first, last in itertools.combinations_with_replacement(range(len(text) + 1), 2):
        if last - first <= 1:
            yield text[:first], text[last:]


def of_a_run(memory: Memory, prefix: str, id: str) -> str:
    session = Session(id, memory=memory, key_prefix=lambda wrapper: wrapper.context)
    return session._of(RunContextWrapper(prefix)).id


MAKERS: list[Callable[[Memory, str, str], str]] = [
    lambda memory, prefix, id: Session(id, memory=memory, key_prefix=prefix)._of(None).id,
    of_a_run,
    lambda memory, prefix, id: ChatMessageHistory(id, memory, key_prefix=prefix)._session.id,
    lambda memory, prefix, id: ChatStore(memory=memory, key_prefix=prefix)._sessions.open(id).id,
    lambda memory, prefix, id: HistoryProvider(memory=memory, key_prefix=prefix)._opened.open(id).id,
    lambda memory, prefix, id: SessionStore(memory=memory, key_prefix=prefix)._opened.open(id).id,
    lambda memory, prefix, id: ConversationStore(memory=memory, key_prefix=prefix)._open(id).id,
    lambda memory, prefix, id: RedismemSaver(memory, key_prefix=prefix)._threads(memory).record(id).id,
]


def check_distinct(make: Callable[..., str], names: Iterable[Any]) -> None:
    made: dict[str, Any] = {}
    for name in names:
        try:
            id = make(*name)
        except ValueError:  # refused
            continue
        assert made.setdefault(id, name) == name


@pytest.mark.parametrize("number", range(len(MAKERS)))
async def test_prefix_and_id_are_told_apart_by_every_adapter(number: int) -> None:
    make = MAKERS[number]
    async with Memory.connect("memory://") as memory:
        for text in ("acme:admin:secret", "a%3Ab:c%253A:", "a:b/c:d%2F:e"):
            check_distinct(lambda *name: make(memory, *name), cuts(text))
        assert make(memory, "acme", "user-42") == "acme:user-42"


@given(first=texts, second=texts)
def test_no_two_pairs_have_one_id_and_each_is_read_back(first: str, second: str) -> None:
    pairs = {*cuts(first), *cuts(second)}
    check_distinct(join_id, pairs)
    check_distinct(
        join_id, ((prefix, id, source) for prefix, rest in pairs for id, source in (*cuts(rest), (rest, None)))
    )
    for prefix, id in pairs:
        if id:
            readers = [other for other, _ in pairs if split_id(other, join_id(prefix, id)) is not None]
            assert {*readers} == {prefix}
            assert split_id(prefix, join_id(prefix, id)) == id
            assert split_id(prefix, join_id(prefix, id, "source")) is None


async def test_histories_of_two_sources_of_an_agent_are_apart() -> None:
    async with Memory.connect("memory://") as memory:

        def make(prefix: str, id: str, source: str) -> str:
            return HistoryProvider(memory=memory, key_prefix=prefix, source_id=source)._opened.open(id).id

        check_distinct(make, ((prefix, *rest) for prefix, text in cuts("a:b%2Faudit:c") for rest in cuts(text)))
        sources = ["redismem", "audit", "", "%2Faudit"]
        assert [make("p", "42", source) for source in sources] == [
            *("p:42", "p:42%2Faudit", "p:42%2F", "p:42%2F%252Faudit")
        ]


async def test_items_of_two_namespaces_are_apart() -> None:
    async with Memory.connect("memory://") as memory:

        def make(prefix: str, space: tuple[str, ...], key: str) -> str:
            return RedismemStore(memory, key_prefix=prefix)._items(memory)._record(space, key).id

        names = [
            (prefix, (*labels,), key)
            for prefix in ("p", "p:a")
            for size in (0, 1, 2)
            for labels in itertools.product(("a", "b", ":", "a:b"), repeat=size)
            for key in ("k", ".", "..", ".k", "..k", "a..k", "a.b..k")
        ]
        check_distinct(make, names)
