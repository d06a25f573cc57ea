"""Messages that no provider accepts unchanged, and a check that they break no session."""

from __future__ import annotations

import itertools
from typing import Any

from redismem import InvalidMessage, Memory
from redismem.messages.coercion import check_role_or_type
from support.views import PNG, URL, VIEWS, Payload, assistant, chat_result, user

_numbers = itertools.count(1)

ODD_URLS: dict[str, Any] = {
    "an open bracket": "http://[x",
    "a bracket in a file's address": "https://[::1/a.pdf",
    "an address of IPv6 that is none": "https://[::::]/a.png",
    "a host that changes its letters": "https://a\u2100b.com/a.png",
    "a port that is too large": "https://example.com:99999/a.png",
    "a port that is no number": "https://example.com:port/a.png",
    "a port that is no number anywhere": "https://example.com:\u0661/a.png",
    "no host": "https:///a.png",
    "two dots in the host": "https://a..b/a.png",
    "a name and a password": "https://user:secret@example.com/a.png",
    "another scheme": "javascript:alert(1)",
    "a file of the server": "file:///etc/passwd",
    "no scheme": "example.com/a.png",
    "a line break": "https://example.com/a\nb.png",
    "a NUL": "https://example.com/\x00.png",
    "half a character": "https://example.com/\ud800.png",
    "half a character alone": "\ud800",
    "blank": "  ",
    "nothing": "",
    "very long": "https://example.com/" + "a" * 20_000,
}
ODD_DATA: dict[str, Any] = {
    "nothing": "data:",
    "no comma": "data:image/png;base64",
    "no bytes": "data:image/png;base64,",
    "no type": f"data:;base64,{PNG}",
    "a type that is none": f"data:png;base64,{PNG}",
    "a type that nobody takes": f"data:application/zip;base64,{PNG}",
    "half a character as text": "data:text/plain,\ud800",
    "half a character as base64": "data:image/png;base64,\ud800",
    "half a character as a type": f"data:image/\ud800;base64,{PNG}",
    "letters that are no base64": "data:image/png;base64,%%%",
    "base64 cut off": "data:image/png;base64,AAAAA",
    "percent signs": "data:text/plain,%zz%",
    "many parameters": "data:image/png" + ";a=b" * 10_000 + f";base64,{PNG}",
}
ODD_VALUES: dict[str, Any] = {"a number": 5, "null": None, "a list": [URL], "an object": {"url": {"url": URL}}}


def parts_at(url: Any) -> list[Payload]:
    """Return a part of each form that refers to an image or a file."""
    return [
        {"type": "image_url", "image_url": {"url": url}},
        {"type": "image_url", "image_url": url},
        {"type": "input_image", "image_url": url},
        {"type": "file", "file": {"file_data": url}},
        {"type": "input_file", "file_url": url},
        {"type": "image", "source": {"type": "url", "url": url}},
        {"type": "document", "source": {"type": "url", "url": url}},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": url}},
        {"type": "document", "source": {"type": "base64", "media_type": url, "data": PNG}},
        {"type": "input_audio", "input_audio": {"data": url, "format": url}},
        {"inline_data": {"mime_type": url, "data": PNG}},
        {"inlineData": {"mimeType": "image/png", "data": url}},
        {"file_data": {"mime_type": url, "file_uri": URL}},
        {"fileData": {"fileUri": url}},
    ]


def nested_json(levels: int) -> str:
    return '{"a":' * levels + "1" + "}" * levels


ODD_ARGUMENTS: dict[str, Any] = {
    "nothing": "",
    "blank": " \n",
    "null": None,
    "null as JSON": "null",
    "no JSON": "{'a': 1}",
    "cut off": '{"a": "b',
    "a list": "[1, 2]",
    "a text": '"x"',
    "a number": "17",
    "not a number": '{"n": NaN}',
    "infinity": '{"n": -Infinity}',
    "a number that becomes infinity": '{"n": 1e999}',
    "a number that becomes infinity, within": '[{"n": [-1e999]}]',
    "a number with 5,000 digits": '{"n": ' + "9" * 5_000 + "}",
    "a number that no double holds": '{"n": ' + "9" * 400 + "}",
    "deep": nested_json(100),
    "deeper than most stacks": nested_json(960),
    "deeper than any stack": nested_json(30_000),
    "brackets": "[" * 50_000,
    "the same key twice": '{"a": 1, "a": 2}',
    "half a character": '{"a": "\\ud800"}',
    "half a character as a key": '{"\\ud800": 1}',
    "half a character outside": '{"a": 1}\ud800',
    "a NUL": '{"a": "\\u0000"}\x00',
    "a list that is stored": [1],
    "a text that is stored, within": {"a": "\ud800"},
    "a number that is stored": 17,
    "a number that no double holds, stored": {"n": 10**400},
    "an object that is stored, deep": {
        "a": [[[[{"b": [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]}]]]]
    },
}


def calls_with(arguments: Any) -> list[list[Payload]]:
    """Return a call with these arguments in each form, each with a result of the same content."""
    call: Payload = {"type": "function", "id": "c", "function": {"name": "f", "arguments": arguments}}
    part: Payload = {"type": "tool_use", "id": "c", "name": "f", "input": arguments}
    answer: Payload = {"type": "tool_result", "tool_use_id": "c", "content": arguments}
    item: Payload = {"type": "function_call", "call_id": "c", "name": "f", "arguments": arguments}
    item_answer: Payload = {"type": "function_call_output", "call_id": "c", "output": arguments}
    return [
        [assistant(None, tool_calls=[call]), chat_result("c", arguments)],
        [assistant(None, function_call=call["function"]), {"role": "function", "name": "f", "content": arguments}],
        [assistant([part]), user([answer])],
        [item, item_answer],
        [
            {"role": "model", "parts": [{"function_call": {"name": "f", "args": arguments}}]},
            {"role": "user", "parts": [{"function_response": {"name": "f", "response": arguments}}]},
        ],
        [assistant(None, tool_calls=[{"function": call["function"]}]), {"role": "tool", "content": arguments}],
        [assistant(None, tool_calls=[call]), user("meanwhile"), chat_result("c", arguments)],
        [chat_result("c", arguments)],
        [assistant([part])],
    ]


ODD_PARTS: list[Payload] = [
    {"type": "image"},
    {"type": "image", "source": {"type": "file", "file_id": 5}},
    {"type": "document", "source": {"type": "content", "content": 5}},
    {"type": "document", "source": {"type": "unheard of"}},
    {"type": "search_result", "source": 5, "title": "T", "content": []},
    {"type": "search_result", "source": "s", "title": "T", "content": [5]},
    {"type": "container_upload"},
    {"type": "thinking", "thinking": "hm"},
    {"type": "redacted_thinking", "data": None},
    {"type": "server_tool_use", "id": "s", "name": "web_search", "input": "x"},
    {"type": "web_search_tool_result", "tool_use_id": 5, "content": []},
    {"type": "text", "text": "a", "cache_control": "x", "citations": 5},
    {"type": "text", "text": "a", "cache_control": {"type": "unheard of"}},
    {"type": "tool_use", "id": None, "name": None, "input": None},
    {"type": "tool_result", "tool_use_id": None, "content": None},
    {"type": ["text"], "text": "a"},
    {"type": 5},
    {"type": ""},
    {"executable_code": 5},
    {"executable_code": {"code": 5, "language": "PYTHON"}},
    {"code_execution_result": {"outcome": "unheard of", "output": "x"}},
    {"function_call": {"name": 5, "args": [1], "id": {"a": 1}}},
    {"function_response": {"name": None, "response": "x", "id": 5}},
    {"text": "a", "thought_signature": "%%%"},
    {"text": "a", "thoughtSignature": "\ud800"},
    {"text": 5},
    {"text": "\u200b"},
    {},
]
ROLES = ["user", "assistant", "system", "developer", "model", "tool", "function", "CHATBOT"]


def _is_taken(payload: Payload) -> bool:
    try:
        check_role_or_type(payload)
    except InvalidMessage:
        return False
    return True


async def check_views(memory: Memory, told: list[Payload]) -> None:
    """Store the messages in a session between two others, and check every view of it."""
    session = memory.session(f"s{next(_numbers)}")
    history = [user("before"), *filter(_is_taken, told), user("after")]
    await session.append(*history)
    contexts = [await session.read(), (await session.append_and_read(assistant("canary")))]
    for context in contexts:
        shown = context.to_openai()
        for view, check in VIEWS.values():
            found = view(context)
            check(found)
            assert str(found).count("before") == str(shown).count("before")
            assert str(found).count("after") == str(shown).count("after")
    stored = [message.to_openai() for message in await session.messages()]
    assert stored == [*history, assistant("canary")], "the stored messages are unchanged"
