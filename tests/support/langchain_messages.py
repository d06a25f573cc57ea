"""LangChain messages of every kind, as strategies for hypothesis."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)

texts = st.text(max_size=20)
values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=4,
)
objects = st.dictionaries(texts, values, max_size=2)
parts = st.fixed_dictionaries({"type": st.just("text"), "text": texts}) | st.fixed_dictionaries(
    {"type": st.just("image_url"), "image_url": st.fixed_dictionaries({"url": texts})}
)
contents = texts | st.lists(parts | texts, max_size=3)
shared: dict[str, Any] = {
    "content": contents,
    "additional_kwargs": objects,
    "response_metadata": objects,
    "name": st.none() | texts,
    "id": st.none() | texts,
}
calls = st.lists(
    st.fixed_dictionaries({"name": texts, "args": objects, "id": texts, "type": st.just("tool_call")}), max_size=2
)
usage = st.none() | st.just({"input_tokens": 3, "output_tokens": 4, "total_tokens": 7})
results = {"tool_call_id": texts, "status": st.sampled_from(["success", "error"]), "artifact": values}


def built(kind: type[BaseMessage], **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[BaseMessage]:
    return st.fixed_dictionaries(fields).map(lambda given: kind(**given))


messages: st.SearchStrategy[BaseMessage] = st.one_of(
    built(HumanMessage, **shared),
    built(AIMessage, **shared, tool_calls=calls, usage_metadata=usage),
    built(ToolMessage, **shared, **results),
    built(SystemMessage, **shared),
    built(ChatMessage, **shared, role=texts),
    built(FunctionMessage, **{**shared, "name": texts}),
    built(AIMessageChunk, content=texts, id=texts),
    built(RemoveMessage, id=texts),
)
