"""Opaque messages: stored and returned verbatim, never read, pinned only on request."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.edited import SMALL, is_sound, payloads, seqs, summarize
from support.json_values import is_identical, texts, values
from support.stores import Store

from redismem import InvalidMessage, Message, Policy, Settings
from redismem.formats.openai_chat import chat_messages
from redismem.messages.decoding import StoredMessages, decode_messages
from redismem.messages.encoding import default_tokens, encode_message
from redismem.messages.message import STAMP_BYTES, Opaque
from redismem.messages.values import encode_plain
from redismem.originals.fields import searchable_texts
from redismem.project.files.transcripts import export_transcript, parse_transcript
from redismem.text.plain import render_message
from redismem.workers.strategies import Trim
from redismem.workers.summaries import Worker

ENVELOPE = {"role": "system", "content": "secret words", "tool_calls": [{"id": "c1"}], "sealed": "ciphertext"}
CALL: dict[str, Any] = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}],
}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "rain"}
USER = {"role": "user", "content": "And tomorrow?"}
_STAMP = b"\xcf" + bytes(STAMP_BYTES - 1)


@given(payload=st.dictionaries(texts, values, max_size=5))
def test_every_dict_comes_back_verbatim_and_unread(payload: dict[str, Any]) -> None:
    element, tokens = encode_message(Message.opaque(payload, id="e-1"))
    (message,) = decode_messages([element + _STAMP], 1, "1-a")
    assert is_identical(message.to_openai(), payload)
    assert (message.id, message.tokens) == ("e-1", tokens)
    assert not message.pinned
    assert (message.role, message.content, message.name, message.tool_calls, message.tool_call_id) == (None,) * 5
    assert (message.metadata, searchable_texts(message)) == (None, [])
    assert render_message(message, 10_000).splitlines()[1:] == ["  (no text)"]
    (visible,) = StoredMessages([element + _STAMP], 1, "1-a").payloads()
    assert visible == {}
    assert isinstance(visible, Opaque)
    assert visible.payload == payload


@pytest.mark.parametrize("payload", [None, [], "text", b"bytes", Message("user", "x"), Opaque({})])
def test_only_a_plain_dict_can_be_opaque(payload: Any) -> None:
    with pytest.raises(InvalidMessage, match="an opaque message is a plain dict, not a"):
        Message.opaque(payload)


async def test_values_that_json_cannot_hold_are_refused(store: Store, namespace: str) -> None:
    async with store.memory(namespace) as memory:
        with pytest.raises(InvalidMessage, match="message 1: sealed is a value of type bytes"):
            await memory.session("a").append(Message.opaque({"sealed": b"raw"}))


async def test_views_return_them_or_leave_them_out(store: Store, namespace: str) -> None:
    async with store.memory(namespace, count_tokens=lambda message: len(message["role"])) as memory:
        session = memory.session("a")
        opaque = Message.opaque(ENVELOPE, metadata={"kind": "audit"})
        context = await session.append_and_read({"role": "system", "content": "Be brief."}, opaque, USER)
        assert context.to_openai() == [{"role": "system", "content": "Be brief."}, ENVELOPE, USER]
        assert context.messages[0].metadata == {"kind": "audit"}
        packed = encode_plain(Message.opaque(ENVELOPE).to_openai())
        assert context.messages[0].tokens >= default_tokens(packed), "a token counter may need a role"
        assert context.to_openai() == [{"role": "system", "content": "Be brief."}, ENVELOPE, USER], "decoded now"
        views = (context.to_openai(alternate=True), context.to_anthropic(), context.to_gemini())
        for view in views:
            assert "ciphertext" not in str(view)
            assert "And tomorrow?" in str(view)
        assert await is_sound(memory)


async def test_it_does_not_separate_a_call_from_its_result(store: Store, namespace: str) -> None:
    async with store.memory(namespace) as memory:
        session = memory.session("a")
        context = await session.append_and_read(CALL, Message.opaque(ENVELOPE), RESULT, USER)
        assert context.to_openai() == [CALL, ENVELOPE, RESULT, USER]
        assert [each["role"] for each in context.to_anthropic()["messages"]] == ["user", "assistant", "user"]
        item = {"type": "function_call", "call_id": "c2", "name": "look", "arguments": "{}"}
        context = await session.append_and_read(item, Message.opaque(ENVELOPE))
        assert context.to_responses()[-2:] == [item, ENVELOPE], "the call is still open"


def test_each_keeps_its_place_among_changed_messages() -> None:
    sealed = [Opaque({"n": number}) for number in range(4)]
    late = {"role": "tool", "tool_call_id": "c9", "content": "late"}
    view = chat_messages([sealed[0], CALL, sealed[1], RESULT, sealed[2], late, USER, sealed[3]])
    shown = [{"n": 0}, CALL, {"n": 1}, RESULT, {"n": 2}, USER, {"n": 3}]
    (quoted,) = [each for each in view if each not in shown]
    assert "late" in quoted["content"]
    assert [each for each in view if each is not quoted] == shown


async def test_it_is_pinned_only_on_request_and_keeps_its_mark_in_edits(store: Store, namespace: str) -> None:
    async with store.memory(namespace, Settings(**SMALL)) as memory:
        session = memory.session("a")
        await session.append(Message.opaque(ENVELOPE))
        await session.append(Message.opaque({"n": 2}), pin=True)
        await session.append(USER)
        context = await session.read()
        assert (seqs(context.pinned), seqs(context.messages)) == ([2], [1, 3])
        await session.replace(1, Message.opaque({"n": 1}))
        await session.unpin(2)
        context = await session.read()
        assert payloads(context.messages) == [{"n": 1}, {"n": 2}, USER]
        assert context.to_openai() == [{"n": 1}, {"n": 2}, USER]
        await session.undo()
        assert payloads((await session.read()).messages) == [{"n": 1}, {"n": 2}], "undo looks for the user's message"
        assert await is_sound(memory)


async def test_no_summary_covers_it(store: Store, namespace: str, caplog: pytest.LogCaptureFixture) -> None:
    async with store.memory(namespace, Settings(**SMALL, keep_originals=True)) as memory:
        sealed = Message.opaque({**ENVELOPE, "content": "secret words. " * 200})
        compacted = {"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAA"}
        policy = Policy(idle_timeout_s=1600, exempt=True, zone="Europe/Zurich")
        for name, last in (("a", sealed), ("b", compacted), ("c", sealed)):
            await memory.session(name, policy=policy).append(*[USER] * 3, last, *[USER] * 3)
        with caplog.at_level("INFO", "redismem.worker"):
            assert await summarize(memory) == 3, "of the messages before it"
            for name in "abc":
                await memory.session(name).append(USER, USER)
            await summarize(memory)
        for name in "abc":
            session = memory.session(name)
            context = await session.read()
            assert [(each.first_seq, each.last_seq) for each in context.summaries] == [(1, 3)]
            assert len(context.messages) == 6
            assert (await session.info()).policy == replace(policy, keep_whole=True)
            await session.append(*[USER] * 9)
            assert (await session.info()).queued is None
        said = [record for record in caplog.records if "kept whole" in record.getMessage()]
        assert [record.levelname for record in said] == ["WARNING", "INFO", "INFO"]
        assert await memory.session("a").recall("secret words") == []
        assert await is_sound(memory)


async def test_a_trimmed_session_loses_it_as_any_other(store: Store, namespace: str) -> None:
    async with store.memory(namespace, Settings(**SMALL, keep_originals=True)) as memory:
        session = memory.session("a")
        sealed: list[dict[str, Any]] = [ENVELOPE, {"n": 2}, {"n": 3}]
        await session.append(USER, *map(Message.opaque, sealed), USER)
        assert await Worker(memory.store, Trim()).drain() == 1
        assert len((await session.read()).messages) == 2
        kept = await session.messages(include_originals=True)
        assert payloads(kept) == [USER, *sealed, USER]
        assert [message.beside for message in kept] == [None, *[{"opaque": True}] * 3, None]
        exported = await export_transcript(session)
        assert [message.to_openai() for message in parse_transcript(exported, 100_000).messages] == payloads(kept)
        assert await is_sound(memory)
