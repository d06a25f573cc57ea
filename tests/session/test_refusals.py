"""Refused calls write nothing, on both stores."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import Any

import pytest
from support.conversations import user_message
from support.stored import read_namespace
from support.stores import Store

from redismem import (
    UNSET,
    Conflict,
    InvalidMessage,
    InvalidSessionId,
    InvalidState,
    Memory,
    Session,
    Settings,
    TooLarge,
)

REFUSED: dict[str, tuple[Callable[[Session], Coroutine[Any, Any, Any]], type[Exception]]] = {
    "no message": (lambda session: session.append(), InvalidMessage),
    "a tuple": (lambda session: session.append(user_message((1,))), InvalidMessage),
    "a set": (lambda session: session.append(user_message({1})), InvalidMessage),
    "a datetime": (lambda session: session.append(user_message([datetime.now(UTC)])), InvalidMessage),
    "bytes": (lambda session: session.append(user_message({"a": b"x"})), InvalidMessage),
    "an int key": (lambda session: session.append(user_message({1: "x"})), InvalidMessage),
    "text": (lambda session: session.append("hello"), InvalidMessage),  # type: ignore[arg-type]
    "the last of a batch": (
        lambda session: session.append(user_message("a"), user_message("b"), user_message((1,))),
        InvalidMessage,
    ),
    "an id that is none": (lambda session: session.append(user_message("a"), id=""), InvalidMessage),
    "expect that is none": (lambda session: session.append(user_message("a"), expect=-1), InvalidMessage),
    "another last seq": (lambda session: session.append(user_message("a"), expect=1), Conflict),
    "a large message": (lambda session: session.append(user_message("a"), user_message("x" * 5000)), TooLarge),
    "a large batch": (lambda session: session.append(*[user_message("a")] * 9), TooLarge),
    "a full window": (lambda session: session.append(*[user_message("a")] * 8, id="z"), TooLarge),
    "a large value": (lambda session: session.append(user_message("a"), merge={"v": "x" * 200}), TooLarge),
    "many params": (
        lambda session: session.append(user_message("a"), merge=dict.fromkeys(map(str, range(99)))),
        TooLarge,
    ),
    "a value that is none": (lambda session: session.append(user_message("a"), merge={"v": (1,)}), InvalidState),
    "a plan that is none": (lambda session: session.append(user_message("a"), plan={1: 2}), InvalidState),
    "a name that is none": (lambda session: session.append(user_message("a"), waiting=""), InvalidState),
    "merge alone": (lambda session: session.merge({"ok": 1, "v": {1}}), InvalidState),
    "many params alone": (lambda session: session.merge(dict.fromkeys(map(str, range(99)))), TooLarge),
    "waiting alone": (lambda session: session.set_waiting(5), InvalidState),  # type: ignore[arg-type]
    "last_intent alone": (lambda session: session.set_last_intent(b"x"), InvalidState),
    "last_result alone": (lambda session: session.set_last_result("x" * 200), TooLarge),
    "a prune below nothing": (lambda session: session.prune(-1), ValueError),
    "a limit below nothing": (lambda session: session.read(limit=-1), ValueError),
}
SMALL = Settings(
    max_message_bytes=4096, max_batch_count=8, max_window_count=10, max_value_bytes=100, max_params_count=8
)


@pytest.mark.parametrize("what", REFUSED)
async def test_what_is_refused_writes_nothing(raw: Any, store: Store, namespace: str, what: str) -> None:
    call, kind = REFUSED[what]
    async with store.memory(namespace, SMALL) as memory:
        session = memory.session("user-42")
        for existing in (what == "a full window", True):
            if existing:
                await session.append(*[user_message("a")] * 3, merge={"kept": 1}, id="first")
            before = await read_namespace(raw, namespace)
            with pytest.raises(kind) as refused:
                await call(session)
            assert "xxxxx" not in str(refused.value)
            assert getattr(refused.value, "session_id", "user-42") == "user-42"
            assert await read_namespace(raw, namespace) == before


async def test_append_and_read_refuses_what_append_refuses(raw: Any, session: Session, namespace: str) -> None:
    await session.append(user_message("a"))
    before = await read_namespace(raw, namespace)
    for call, kind in (
        (session.append_and_read(), InvalidMessage),
        (session.append_and_read(user_message("b"), user_message((1,))), InvalidMessage),
        (session.append_and_read(user_message("b"), expect=0), Conflict),
        (session.append_and_read(user_message("b"), plan=(1,)), InvalidState),
    ):
        with pytest.raises(kind):
            await call
    assert await read_namespace(raw, namespace) == before


async def test_a_session_holds_as_many_params_as_the_settings_say(store: Store, namespace: str) -> None:
    async with store.memory(namespace, Settings(max_params_count=8)) as memory:
        full = memory.session("full")
        await full.merge({str(number): number for number in range(8)})
        await full.append(user_message("a"), merge={"0": "again"}, plan="p", waiting="w", last_intent=1, last_result=2)
        with pytest.raises(TooLarge, match="max_params_count"):
            await full.merge({"one more": 1})
        await full.merge({"0": UNSET})
        await full.merge({"one more": 1})
        with pytest.raises(TooLarge):
            await memory.session("new").merge({str(number): number for number in range(9)})
        assert not await memory.session("new").exists()


@pytest.mark.parametrize("session_id", ["", " a", "a\n", "a\x7f", "x" * 257])
async def test_a_session_id_that_is_none_is_refused_at_once(memory: Memory, session_id: str) -> None:
    with pytest.raises(InvalidSessionId):
        memory.session(session_id)
