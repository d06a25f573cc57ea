"""Odd messages in any order and number, with fields of one format inside another."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from support.json_values import texts, values
from support.odd_messages import (
    ODD_ARGUMENTS,
    ODD_DATA,
    ODD_PARTS,
    ODD_URLS,
    ROLES,
    calls_with,
    check_views,
    parts_at,
)
from support.views import PNG, URL, Payload

from redismem import Memory

parts = st.one_of(
    st.sampled_from(ODD_PARTS),
    st.sampled_from([*ODD_URLS.values(), *ODD_DATA.values()]).flatmap(lambda url: st.sampled_from(parts_at(url))),
    st.tuples(st.sampled_from(["http://", "https://", "data:", "gs://", ""]), texts).flatmap(
        lambda url: st.sampled_from(parts_at("".join(url)))
    ),
    st.fixed_dictionaries({"type": texts | values, "text": texts | values}),
)
spoken = st.fixed_dictionaries(
    {"role": st.sampled_from(ROLES), "content": st.lists(parts | texts, max_size=4) | texts | st.none()},
    optional={"parts": st.lists(parts, max_size=2), "refusal": values, "audio": values, "name": texts | values},
).map(lambda payload: [payload])
asked = st.one_of(st.sampled_from([*ODD_ARGUMENTS.values()]), values, texts).flatmap(
    lambda arguments: st.sampled_from(calls_with(arguments))
)


# Fields of all formats, in places where they do not belong.
IN_ANY_FORM = (
    "role type content parts text refusal audio transcript name id call_id tool_call_id tool_use_id tool_calls "
    "function function_call functionCall function_response functionResponse arguments args input output response "
    "is_error source url data media_type file_id image_url input_audio format file file_data file_url file_uri "
    "inline_data mime_type thought thought_signature extra_content google executable_code code language outcome "
    "cache_control citations ttl"
)
NAMES = IN_ANY_FORM.split()
WORDS = [*NAMES, *ROLES, "tool_use", "tool_result", "thinking", "image", "document", "search_result", "base64", "{}"]
WORDS += [
    "function_call_output",
    "custom_tool_call",
    "reasoning",
    "ephemeral",
    URL,
    PNG,
    "data:,",
    "http://[x",
    "\ud800",
]
jumbled = st.recursive(
    st.sampled_from([None, True, 0, 10**400, 1.5, "", " "]) | st.sampled_from(WORDS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=5),
    max_leaves=20,
)
jumble = st.tuples(
    st.sampled_from(ROLES),
    st.dictionaries(st.sampled_from(NAMES), jumbled, max_size=6),
    st.sampled_from(["role", "type", "both"]),
    st.sampled_from(WORDS),
).map(
    lambda drawn: [
        drawn[1]
        | ({} if drawn[2] == "type" else {"role": drawn[0]})
        | ({} if drawn[2] == "role" else {"type": drawn[3]})
    ]
)


@given(
    told=st.lists(spoken | asked | jumble, max_size=3).map(lambda several: [each for some in several for each in some])
)
async def test_no_odd_message_breaks_a_session(direct_memory: Memory, told: list[Payload]) -> None:
    await check_views(direct_memory, told)
