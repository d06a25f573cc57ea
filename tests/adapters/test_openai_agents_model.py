"""The session of the OpenAI Agents SDK and ours give the same answers, whatever workers and applications do beside."""

from __future__ import annotations

import json
from typing import Any

from agents import SQLiteSession
from hypothesis import given
from hypothesis import strategies as st
from support.compaction import needs_snapshots
from support.edited import is_sound, summarize
from support.json_values import texts, values
from support.stores import Store

from redismem import Memory, Settings
from redismem.adapters.openai_agents import Session
from redismem.workers.eviction import Eviction

ONE_SHARD = Settings(shards=1)  # all else is as by default: workers summarise windows of more than ten messages
ITEMS = (
    st.fixed_dictionaries({"role": st.sampled_from(["user", "system"]), "content": texts})
    | st.builds(
        lambda n: {"type": "function_call", "call_id": f"c{n}", "name": "f", "arguments": "{"}, st.integers(0, 3)
    )
    | st.builds(lambda n: {"type": "function_call_output", "call_id": f"c{n}", "output": ""}, st.integers(0, 3))
    | st.sampled_from(
        [
            {"id": "msg_1", "type": None},  # an item_reference
            {"__enc__": 1, "v": 1, "kid": "hkdf-v1", "payload": "gAAA"},
            {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"},
            {"role": "assistant", "content": [{"type": "output_text", "text": "a"}], "id": "msg_2", "type": "message"},
            {},
        ]
    )
    # JSON makes one character of the halves of an emoji, so the SDK's session returns another dict than it got.
    | st.dictionaries(texts, values, max_size=3).map(lambda item: json.loads(json.dumps(item)))
)
BATCHES = st.lists(ITEMS, max_size=3) | st.lists(ITEMS, min_size=8, max_size=12)
STEPS = st.lists(
    st.tuples(st.just("add"), BATCHES)
    | st.tuples(st.just("get"), st.none() | st.integers(0, 30))
    | st.tuples(st.sampled_from(["pop", "clear", "fold", "read", "evict"]), st.none())
    | st.tuples(st.just("replace all"), BATCHES)
    | st.tuples(st.just("replace suffix"), st.tuples(st.integers(1, 12), st.integers(0, 12), BATCHES)),
    min_size=4,
    max_size=7,
)


async def act(session: Any, step: str, argument: Any) -> Any:
    """Do one step with a session of the SDK, and return all that a caller sees of it."""
    match step:
        case "add":
            await session.add_items(argument)
        case "get":
            return await session.get_items(argument)
        case "pop":
            return await session.pop_item()
        case "clear":
            await session.clear_session()
        case "replace all" if isinstance(session, Session):
            await session._atomic_replace_items(argument)
        case "replace all":
            await session.clear_session()
            await session.add_items(argument)
        case "replace suffix":
            limit, start, items = argument
            snapshot = await session._get_compaction_snapshot(limit)
            return snapshot.items, snapshot.complete, await snapshot.replace_suffix(start, items)
    return None


async def act_beside(memory: Memory, session_id: str, step: str) -> None:
    """Do what other processes with default settings do to every session of the namespace."""
    if step == "fold":
        await summarize(memory)
    elif step == "evict":
        await Eviction(memory.store).enforce()
    elif step == "read":
        context = await memory.session(session_id).read()
        context.to_openai(), context.to_anthropic(), context.to_gemini()


def same(ours: Any, theirs: Any) -> bool:
    return json.dumps(ours) == json.dumps(theirs)


@needs_snapshots
@given(steps=STEPS)
async def test_any_sequence_of_calls_gives_the_same_answers(store: Store, steps: list[tuple[str, Any]]) -> None:
    async with store.memory("whole", ONE_SHARD) as memory, store.memory("whole", ONE_SHARD) as other:
        ours: Any = Session("a", memory=memory)
        theirs: Any = SQLiteSession("a")
        await ours.clear_session()
        for step, argument in steps:
            await act_beside(other, "agents:session:a", step)
            assert same(await act(ours, step, argument), await act(theirs, step, argument)), step
        assert same(await ours.get_items(), await theirs.get_items())
        assert await is_sound(other)
        theirs.close()


def apart(items: list[Any]) -> tuple[list[Any], list[Any]]:
    """Return the system prompts and the other items."""
    return [each for each in items if each.get("role") == "system"], [
        each for each in items if each.get("role") != "system"
    ]


@needs_snapshots
@given(steps=STEPS)
async def test_summaries_stand_for_older_items_which_stay_exact(store: Store, steps: list[tuple[str, Any]]) -> None:
    async with store.memory("summarised", ONE_SHARD) as memory, store.memory("summarised", ONE_SHARD) as other:
        ours: Any = Session("a", memory=memory, summarise=True)
        theirs: Any = SQLiteSession("a")
        await ours.clear_session()
        for step, argument in steps:
            await act_beside(other, "agents:session:a", step)
            if step != "get" or argument is not None:
                assert same(await act(ours, step, argument), await act(theirs, step, argument)), step
                continue
            items, whole = await ours.get_items(), await theirs.get_items()
            has_summary = bool((await other.session("agents:session:a").read()).summaries)
            (system, shown), (whole_system, whole) = map(apart, (items[1:] if has_summary else items, whole))
            assert same(system, whole_system)  # never summarised
            assert same(shown, whole[len(whole) - len(shown) :])
            if has_summary:
                assert items[0]["role"] == "user"
                assert "summary" in str(items[0]["content"]).lower()
        assert same(await ours.get_items(1_000), await theirs.get_items())
        assert await is_sound(other)
        theirs.close()
