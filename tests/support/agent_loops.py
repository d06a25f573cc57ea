"""Random agent loops in every message format, each with words of its own."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable
from typing import Any

Payload = dict[str, Any]
Called = tuple[str, str, str]
"""The id of a call, the word of its arguments and the word of its result."""


class Loop:
    """Writes the messages of one agent; `came_of` maps the id of an item to the id of its reasoning."""

    def __init__(self, form: str, seed: int) -> None:
        self.form = form
        self.random = random.Random(seed)
        self.came_of: dict[str, str] = {}
        self._numbers = itertools.count(1)

    def word(self) -> str:
        return f"word{next(self._numbers)}x"

    def id(self, prefix: str) -> str:
        return f"{prefix}_{next(self._numbers)}"

    def asks(self) -> Payload:
        """A question of the user."""
        text = self.word()
        match self.form:
            case "gemini":
                return {"role": "user", "parts": [{"text": text}]}
            case "bedrock":
                return {"role": "user", "content": [{"text": text}]}
            case "ui":
                return {"id": self.id("m"), "role": "user", "parts": [{"type": "text", "text": text}]}
            case "agent framework":
                return {"type": "message", "role": "user", "contents": [{"type": "text", "text": text}]}
            case "langchain":
                return {"type": "human", "data": {"content": text, "additional_kwargs": {}, "type": "human"}}
            case "llamaindex":
                blocks = [{"block_type": "text", "text": text}]
                return {"role": "user", "additional_kwargs": {}, "blocks": blocks}
            case "pydantic ai":
                return {"kind": "request", "parts": [{"part_kind": "user-prompt", "content": text}]}
        return {"role": "user", "content": text}

    def step(self, count: int, thinks: bool) -> list[Payload]:
        """A response with this many calls, and their results."""
        called = [(self.id("call"), self.word(), self.word()) for _ in range(count)]
        return STEPS[self.form](self, called, thinks)

    def says(self, thinks: bool) -> list[Payload]:
        """A response without calls."""
        return SAYS.get(self.form, _chat_says)(self, self.word(), thinks)


def _arguments(word: str) -> str:
    return json.dumps({"q": word})


def _chat_says(loop: Loop, word: str, thinks: bool) -> list[Payload]:
    return [{"role": "assistant", "content": word}]


def _chat(loop: Loop, called: list[Called], thinks: bool) -> list[Payload]:
    calls: list[Payload] = []
    for at, (id, word, _) in enumerate(called):
        function = {"id": id, "type": "function", "function": {"name": "look", "arguments": _arguments(word)}}
        custom = {"id": id, "type": "custom", "custom": {"name": "look", "input": word}}
        calls.append(custom if at % 2 else function)
    results = [{"role": "tool", "tool_call_id": id, "content": result} for id, _, result in called]
    return [{"role": "assistant", "content": loop.word(), "tool_calls": calls}, *results]


def _function(loop: Loop, called: list[Called], thinks: bool) -> list[Payload]:
    _, word, result = called[0]
    call = {"name": "look", "arguments": _arguments(word)}
    return [
        {"role": "assistant", "content": None, "function_call": call},
        {"role": "function", "name": "look", "content": result},
    ]


def pair(kind: str, called: Called) -> tuple[Payload, Payload]:
    """A call of a kind of OpenAI's items, and its result."""
    id, word, answer = called
    screenshot = {"type": "computer_screenshot", "image_url": "https://example.com/a.png"}
    match kind:
        case "function_call":
            return {"name": "look", "call_id": id, "arguments": _arguments(word)}, {"call_id": id, "output": answer}
        case "custom_tool_call":
            return {"name": "look", "call_id": id, "input": word}, {"call_id": id, "output": answer}
        case "computer_call":
            return {"call_id": id, "action": {"type": "type", "text": word}}, {"call_id": id, "output": screenshot}
        case "local_shell_call":
            action = {"type": "exec", "command": [word], "env": {}}
            return {"call_id": id, "action": action}, {"output": answer}
        case "shell_call":
            output = [{"stdout": answer, "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]
            return {"call_id": id, "action": {"commands": [word]}}, {"call_id": id, "output": output}
        case "apply_patch_call":
            operation = {"type": "delete_file", "path": word}
            return {"call_id": id, "operation": operation}, {"call_id": id, "status": "completed", "output": answer}
        case "tool_search_call":
            tools = [{"type": "function", "name": answer, "parameters": {}}]
            return {"call_id": id, "arguments": {"q": word}, "execution": "client"}, {"call_id": id, "tools": tools}
        case "mcp_approval_request":
            return (
                {"name": "look", "arguments": _arguments(word), "server_label": "s"},
                {"approve": True, "reason": answer},
            )
        case "program":
            return {"call_id": id, "code": word, "fingerprint": "f"}, {"call_id": id, "result": answer}
    raise KeyError(kind)


PAIRS = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
    "computer_call": "computer_call_output",
    "local_shell_call": "local_shell_call_output",
    "shell_call": "shell_call_output",
    "apply_patch_call": "apply_patch_call_output",
    "tool_search_call": "tool_search_output",
    "mcp_approval_request": "mcp_approval_response",
    "program": "program_output",
}
"""OpenAI's calls, and the results of each."""


def hosted(kind: str, id: str, word: str, answer: str) -> Payload:
    """A call of a tool that OpenAI runs, with its result."""
    item: Payload = {"type": kind, "id": id, "status": "completed"}
    match kind:
        case "web_search_call":
            return item | {"action": {"type": "search", "query": f"{word} {answer}"}}
        case "file_search_call":
            return item | {"queries": [word], "results": [{"text": answer}]}
        case "code_interpreter_call":
            return item | {"code": word, "container_id": "c", "outputs": [{"type": "logs", "logs": answer}]}
        case "mcp_call":
            return item | {"name": "look", "arguments": _arguments(word), "server_label": "s", "output": answer}
    raise KeyError(kind)


HOSTED = ("web_search_call", "file_search_call", "code_interpreter_call", "mcp_call")


def _reasoning(loop: Loop, thinks: bool) -> tuple[list[Payload], str]:
    if not thinks:
        return [], ""
    id = loop.id("rs")
    return [{"type": "reasoning", "id": id, "summary": [], "encrypted_content": "abc"}], id


def _items(loop: Loop, called: list[Called], thinks: bool) -> list[Payload]:
    items, reasoning = _reasoning(loop, thinks)
    results: list[Payload] = []
    for one in called:
        kind, own_id = loop.random.choice(list(PAIRS)), loop.id("item")
        call, result = pair(kind, one)
        items.append({"type": kind, "id": own_id, **call})
        loop.came_of[own_id] = reasoning
        named = {"local_shell_call": "id", "mcp_approval_request": "approval_request_id"}.get(kind)
        results.append({"type": PAIRS[kind], **result, **({named: own_id} if named else {})})
        if loop.random.random() < 0.3:
            hosted_id = loop.id("hosted")
            items.append(hosted(loop.random.choice(HOSTED), hosted_id, loop.word(), loop.word()))
            loop.came_of[hosted_id] = reasoning
    return [*items, *results]


def _items_say(loop: Loop, word: str, thinks: bool) -> list[Payload]:
    items, reasoning = _reasoning(loop, thinks)
    id = loop.id("msg")
    loop.came_of[id] = reasoning
    content = [{"type": "output_text", "text": word, "annotations": []}]
    return [*items, {"type": "message", "id": id, "role": "assistant", "status": "completed", "content": content}]


def _anthropic(loop: Loop, called: list[Called], thinks: bool) -> list[Payload]:
    thought = [{"type": "thinking", "thinking": "hm", "signature": "s"}] * thinks
    server: list[Payload] = []
    if loop.random.random() < 0.4:
        id, found = loop.id("srvtoolu"), {"type": "web_search_result", "title": loop.word(), "url": "https://a"}
        server = [
            {"type": "server_tool_use", "id": id, "name": "web_search", "input": {"query": loop.word()}},
            {
                "type": "web_search_tool_result",
                "tool_use_id": id,
                "content": [found | {"encrypted_content": "e"}],
            },
        ]
    calls = [{"type": "tool_use", "id": id, "name": "look", "input": {"q": word}} for id, word, _ in called]
    results = [{"type": "tool_result", "tool_use_id": id, "content": result} for id, _, result in called]
    said = [{"type": "text", "text": loop.word()}]
    return [
        {"role": "assistant", "content": [*thought, *server, *said, *calls]},
        {"role": "user", "content": results},
    ]


def _gemini(loop: Loop, called: list[Called], thinks: bool) -> list[Payload]:
    snake = loop.random.random() < 0.5
    call, response = ("function_call", "function_response") if snake else ("functionCall", "functionResponse")
    thought = [{"text": "hm", "thought": True}] * thinks
    code: list[Payload] = []
    if loop.random.random() < 0.3:
        executed, output = {"code": f"'{loop.word()}'", "language": "PYTHON"}, {"output": loop.word()}
        code = [{"executableCode": executed}, {"codeExecutionResult": {"outcome": "OUTCOME_OK", **output}}]
    calls = [{call: {"name": "look", "args": {"q": word}}} for _, word, _ in called]
    results = [{response: {"name": "look", "response": {"found": result}}} for _, _, result in called]
    return [{"role": "model", "parts": [*thought, *code, *calls]}, {"role": "user", "parts": results}]


def _gemini_says(loop: Loop, word: str, thinks: bool) -> list[Payload]:
    return [{"role": "model", "parts": [*[{"text": "hm", "thought": True}] * thinks, {"text": word}]}]


def _bedrock(loop: Loop, called: list[Called], thinks: bool) -> list[Payload]:
    thought = [{"reasoningContent": {"reasoningText": {"text": "hm", "signature": "s"}}}] * thinks
    calls = [{"toolUse": {"toolUseId": id, "name": "look", "input": {"q": word}}} for id, word, _ in called]
    results = [
        {"toolResult": {"toolUseId": id, "content": [{"json": {"found": result}}], "status": "success"}}
        for id, _, result in called
    ]
    return [{"role": "assistant", "content": [*thought, *calls]}, {"role": "user", "content": results}]


def _bedrock_says(loop: Loop, word: str, thinks: bool) -> list[Payload]:
    return [{"role": "assistant", "content": [{"text": word}]}]


def _vercel(loop: Loop, called: list[Called], thinks: bool) -> list[Payload]:
    thought = [{"type": "reasoning", "text": "hm"}] * thinks
    calls = [{"type": "tool-call", "toolCallId": i, "toolName": "look", "input": {"q": w}} for i, w, _ in called]
    results = [
        {"type": "tool-result", "toolCallId": id, "toolName": "look", "output": {"type": "text", "value": result}}
        for id, _, result in called
    ]
    return [{"role": "assistant", "content": [*thought, *calls]}, {"role": "tool", "content": results}]


def _ui(loop: Loop, called: list[Called], thinks: bool) -> list[Payload]:
    parts: list[Payload] = [{"type": "step-start"}, *[{"type": "reasoning", "text": "hm", "state": "done"}] * thinks]
    for at, (id, word, result) in enumerate(called):
        name: Payload = {"type": "dynamic-tool", "toolName": "look"} if at % 2 else {"type": "tool-look"}
        ending = {"state": "output-error", "errorText": result} if at == 2 else {"state": "output-available"}
        output = {} if at == 2 else {"output": {"found": result}}
        parts.append({**name, "toolCallId": id, "input": {"q": word}, **ending, **output})
    return [{"id": loop.id("m"), "role": "assistant", "parts": [*parts, {"type": "text", "text": loop.word()}]}]


def _ui_says(loop: Loop, word: str, thinks: bool) -> list[Payload]:
    return [{"id": loop.id("m"), "role": "assistant", "parts": [{"type": "text", "text": word, "state": "done"}]}]


def _framework(loop: Loop, called: list[Called], thinks: bool) -> list[Payload]:
    beside: Payload = {"additional_properties": {}}
    thought = [{"type": "text_reasoning", "text": "hm", **beside}] * thinks
    calls = [
        {"type": "function_call", "call_id": id, "name": "look", "arguments": _arguments(word), **beside}
        for id, word, _ in called
    ]
    results = [{"type": "function_result", "call_id": id, "result": result, **beside} for id, _, result in called]
    message: Payload = {"type": "message", **beside}
    return [
        message | {"role": "assistant", "contents": [*thought, *calls]},
        message | {"role": "tool", "contents": results},
    ]


def _framework_says(loop: Loop, word: str, thinks: bool) -> list[Payload]:
    return [{"type": "message", "role": "assistant", "contents": [{"type": "text", "text": word}]}]


def _langchain_message(kind: str, **data: Any) -> Payload:
    return {
        "type": kind,
        "data": {"additional_kwargs": {}, "response_metadata": {}, "type": kind, "name": None, **data},
    }


def _langchain(loop: Loop, called: list[Called], thinks: bool) -> list[Payload]:
    calls = [{"name": "look", "args": {"q": word}, "id": id, "type": "tool_call"} for id, word, _ in called]
    blocks: list[Payload] = [{"type": "reasoning", "reasoning": "hm"}] * thinks
    blocks += [{"type": "text", "text": loop.word()}]
    if loop.random.random() < 0.5:  # some integrations leave the provider's own parts in the content
        blocks += [{"type": "tool_use", "id": id, "name": "look", "input": {"q": word}} for id, word, _ in called]
    results = [
        _langchain_message("tool", content=result, tool_call_id=id, artifact=None, status="success")
        for id, _, result in called
    ]
    return [_langchain_message("ai", content=blocks, tool_calls=calls, invalid_tool_calls=[]), *results]


def _langchain_says(loop: Loop, word: str, thinks: bool) -> list[Payload]:
    return [_langchain_message("ai", content=word, tool_calls=[], invalid_tool_calls=[])]


def _llamaindex(loop: Loop, called: list[Called], thinks: bool) -> list[Payload]:
    blocks: list[Payload] = [{"block_type": "thinking", "content": "hm"}] * thinks
    extra: Payload = {}
    if loop.random.random() < 0.5:
        blocks += [
            {"block_type": "tool_call", "tool_call_id": id, "tool_name": "look", "tool_kwargs": {"q": word}}
            for id, word, _ in called
        ]
    else:
        extra["tool_calls"] = [
            {"id": id, "type": "function", "function": {"name": "look", "arguments": _arguments(word)}}
            for id, word, _ in called
        ]
    results = [
        {
            "role": "tool",
            "additional_kwargs": {"tool_call_id": id, "name": "look"},
            "blocks": [{"block_type": "text", "text": result}],
        }
        for id, _, result in called
    ]
    return [{"role": "assistant", "additional_kwargs": extra, "blocks": blocks}, *results]


def _llamaindex_says(loop: Loop, word: str, thinks: bool) -> list[Payload]:
    return [{"role": "assistant", "additional_kwargs": {}, "blocks": [{"block_type": "text", "text": word}]}]


def _pydantic(loop: Loop, called: list[Called], thinks: bool) -> list[Payload]:
    thought = [{"part_kind": "thinking", "content": "hm", "signature": None}] * thinks
    built_in: list[Payload] = []
    if loop.random.random() < 0.4:
        common = {"tool_name": "web_search", "tool_call_id": loop.id("builtin")}
        built_in = [
            {"part_kind": "builtin-tool-call", **common, "args": {"q": loop.word()}},
            {"part_kind": "builtin-tool-return", **common, "content": {"found": loop.word()}},
        ]
    calls = [
        {"part_kind": "tool-call", "tool_name": "look", "args": {"q": word}, "tool_call_id": id}
        for id, word, _ in called
    ]
    results = [
        {
            "part_kind": "retry-prompt" if at == 2 else "tool-return",
            "tool_name": "look",
            "content": result,
            "tool_call_id": id,
        }
        for at, (id, _, result) in enumerate(called)
    ]
    return [{"kind": "response", "parts": [*thought, *built_in, *calls]}, {"kind": "request", "parts": results}]


def _pydantic_says(loop: Loop, word: str, thinks: bool) -> list[Payload]:
    thought = [{"part_kind": "thinking", "content": "hm", "signature": None}] * thinks
    return [{"kind": "response", "parts": [*thought, {"part_kind": "text", "content": word}]}]


STEPS: dict[str, Callable[[Loop, list[Called], bool], list[Payload]]] = {
    "chat": _chat,
    "function": _function,
    "items": _items,
    "anthropic": _anthropic,
    "gemini": _gemini,
    "bedrock": _bedrock,
    "ai sdk": _vercel,
    "ui": _ui,
    "agent framework": _framework,
    "langchain": _langchain,
    "llamaindex": _llamaindex,
    "pydantic ai": _pydantic,
}
SAYS: dict[str, Callable[[Loop, str, bool], list[Payload]]] = {
    "items": _items_say,
    "gemini": _gemini_says,
    "bedrock": _bedrock_says,
    "ui": _ui_says,
    "agent framework": _framework_says,
    "langchain": _langchain_says,
    "llamaindex": _llamaindex_says,
    "pydantic ai": _pydantic_says,
}
FORMS = tuple(STEPS)
