"""The table of message forms: one row for each kind of item and part of each provider and framework. No I/O.

A row tells the role of an item or part, and which of its fields contain the id, name, arguments and result of a tool
call. All other modules read messages through `reading`, which applies this table.

`docs/forms.md` lists the supported formats.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import methodcaller
from typing import Any, Literal, NamedTuple

Payload = dict[str, Any]
Role = Literal["call", "result", "hosted", "staged", "thought", "text", "nested", "media", "strings", "note"]
Reader = Callable[[Payload], Any]
"""A function that returns a value of an item or part, or None."""


def at(*fields: str | tuple[str, ...]) -> Reader:
    """Return a reader of the first present field: `a.b` is field b of field a, and a tuple collects several fields."""
    readers = [_at_field(field) for field in fields]
    if len(readers) == 1:
        return readers[0]

    def read_first(body: Payload) -> Any:
        for read in readers:
            value = read(body)
            if value is not None:
                return value
        return None

    return read_first


def _at_field(field: str | tuple[str, ...]) -> Reader:
    if isinstance(field, tuple):
        return lambda body: {name: body[name] for name in field if body.get(name) is not None} or None
    outer, _, inner = field.partition(".")
    if not inner:
        return methodcaller("get", outer)  # the fastest, and nearly all fields are read with it

    def read_inner(body: Payload) -> Any:
        value = body.get(outer)
        return value.get(inner) if isinstance(value, dict) else None

    return read_inner


def constant(value: str | None) -> Reader:
    """Return a reader whose value is always the same."""
    return lambda _: value


def read_nothing(body: Payload) -> None:
    """Return None: the reader of a value that a form lacks."""


class Form(NamedTuple):
    """A row of the table.

    `role` is one of: call or result, of a tool; hosted, a call that contains its own result; staged, a call that
    contains its result once its `state` is in STAGED_RESULTS; thought; text; nested, a part that contains parts; media,
    without words; strings, a part whose strings are its words; note, a part without words.
    """

    role: Role
    id: Reader = read_nothing
    name: Reader = read_nothing
    arguments: Reader = read_nothing
    result: Reader = read_nothing
    """The reader of the result, the text or the nested parts."""
    inside: bool = False
    """True if the result may be in the message of its call."""
    by_name: bool = False
    """True if a result without an id answers the first open call with its name."""
    other_id: Reader = read_nothing
    """The reader of a second id of the call, which a result may refer to."""
    needs_id: bool = False
    """True if OpenAI refuses the item without its `id`."""
    speaker: str = ""
    """The role of the part, if it is not the role of its message."""
    media: Reader = read_nothing
    """The reader of a result's media, if they are beside the result."""


def _call(id: str, name: Reader | str, *arguments: str | tuple[str, ...], **more: Any) -> Form:
    name = constant(name) if isinstance(name, str) else name
    return Form("call", at(id), name, at(*arguments), **more)


def _result(id: str, *result: str | tuple[str, ...], **more: Any) -> Form:
    return Form("result", at(id), result=at(*result), **more)


def _hosted(name: Reader | str, arguments: str, *result: str) -> Form:
    return _call("id", name, arguments, result=at(*result), needs_id=True)._replace(role="hosted")


def _generated_image(item: Payload) -> list[Payload] | None:
    data = item.get("result")
    mime = f"image/{item.get('output_format') or 'png'}"
    return [{"type": "image", "media_type": mime, "data": data}] if isinstance(data, str) else None


THOUGHT, MEDIA, STRINGS, NOTE = Form("thought"), Form("media"), Form("strings"), Form("note")
TEXT = Form("text", result=at("text"))
UNKNOWN = Form("strings")
"""The row of every kind that the table lacks."""

_NAME, _CONTENT = at("name"), at("content")
ITEMS: dict[str, Form] = {  # OpenAI Responses: messages that have a type instead of a role
    "function_call": _call("call_id", _NAME, "arguments", "input"),
    "function_call_output": _result("call_id", "output"),
    "custom_tool_call": _call("call_id", _NAME, "arguments", "input"),
    "custom_tool_call_output": _result("call_id", "output"),
    "computer_call": _call("call_id", "computer", "action", "actions", needs_id=True),
    "computer_call_output": _result("call_id", "output"),
    "local_shell_call": _call("id", "local_shell", "action", needs_id=True, other_id=at("call_id")),
    "local_shell_call_output": _result("id", "output"),
    "shell_call": _call("call_id", "shell", "action"),
    "shell_call_output": _result("call_id", "output"),
    "apply_patch_call": _call("call_id", "apply_patch", "operation"),
    "apply_patch_call_output": _result("call_id", "output", "status"),
    "tool_search_call": _call("call_id", "tool_search", "arguments"),
    "tool_search_output": _result("call_id", "tools"),
    "mcp_approval_request": _call("id", _NAME, "arguments", needs_id=True),
    "mcp_approval_response": _result("approval_request_id", ("approve", "reason")),
    "program": _call("call_id", "program", "code", needs_id=True),
    "program_output": _result("call_id", "result"),
    "web_search_call": _hosted("web_search", "action"),
    "file_search_call": _hosted("file_search", "queries", "results"),
    "code_interpreter_call": _hosted("code_interpreter", "code", "outputs"),
    "image_generation_call": _hosted("image_generation", "revised_prompt", "status")._replace(media=_generated_image),
    "mcp_call": _hosted(_NAME, "arguments", "output", "error"),
    "mcp_list_tools": _hosted("mcp_list_tools", "server_label", "tools", "error"),
    "reasoning": THOUGHT,
    "compaction": Form("text", result=_CONTENT),  # Anthropic's block with this type has a text, OpenAI's item none
    "compaction_trigger": NOTE,
    "configuration_update": NOTE,
    "additional_tools": NOTE,
    "item_reference": NOTE,
}
OUTPUTS = frozenset(
    kind
    for kind, form in ITEMS.items()
    if form.role in ("call", "hosted", "thought") or kind in ("compaction", "item_reference")
)
"""The kinds of items that a model's response may contain, besides messages."""

_VERCEL_ID, _VERCEL_NAME = "toolCallId", at("toolName")
_STAGED = Form(
    "staged",
    at(_VERCEL_ID),
    _VERCEL_NAME,
    at("input", "rawInput", "args"),
    at("output", "errorText", "result", "approval.reason"),
)
STAGED_RESULTS = frozenset(["output-available", "output-error", "output-denied", "result"])
"""The states in which a staged part contains its result."""
TYPES: dict[str, Form] = {  # parts with a `type`
    **ITEMS,
    **dict.fromkeys(("text", "input_text", "output_text", "summary_text", "text-plain"), TEXT),
    "refusal": Form("text", result=at("refusal")),
    **dict.fromkeys(("image_url", "input_image", "image", "document", "file", "input_file", "input_audio"), MEDIA),
    **dict.fromkeys(("audio", "video", "computer_screenshot", "container_upload", "encrypted_content"), MEDIA),
    "reasoning_text": THOUGHT,
    # Anthropic
    "tool_use": _call("id", _NAME, "input"),
    "tool_result": _result("tool_use_id", "content"),
    "server_tool_use": _call("id", _NAME, "input", inside=True),
    "mcp_tool_use": _call("id", _NAME, "input", inside=True),
    "thinking": THOUGHT,
    "redacted_thinking": THOUGHT,
    **dict.fromkeys(("search_result", "tool_reference", "content_block_location"), STRINGS),
    **dict.fromkeys(("tool_addition", "tool_removal", "mcp_tool_listing", "fallback"), NOTE),
    # Vercel AI SDK: model messages, then UI messages
    "tool-call": _call(_VERCEL_ID, _VERCEL_NAME, "input", "args", inside=True),
    "tool-result": _result(_VERCEL_ID, "output", "result", inside=True),
    "dynamic-tool": _STAGED,
    **dict.fromkeys(("media", "image-data", "image-url", "image-file-id", "file-data", "file-url", "file-id"), MEDIA),
    **dict.fromkeys(("source", "source-url", "source-document", "tool-approval-response"), STRINGS),
    **dict.fromkeys(("step-start", "tool-approval-request", "reasoning-file"), NOTE),
    # Microsoft Agent Framework
    "function_result": _result("call_id", "result", "exception"),
    "text_reasoning": THOUGHT,
    "code_interpreter_tool_call": _call("call_id", "code_interpreter", "inputs", inside=True),
    "code_interpreter_tool_result": _result("call_id", "outputs", inside=True),
    "mcp_server_tool_call": _call("call_id", at("tool_name"), "arguments", inside=True),
    "mcp_server_tool_result": _result("call_id", "output", inside=True),
    "search_tool_call": _call("call_id", at("tool_name"), "arguments", inside=True),
    "search_tool_result": _result("call_id", "result", "items", inside=True),
    "shell_tool_call": _call("call_id", "shell", "commands", inside=True),
    "shell_tool_result": _result("call_id", "outputs", inside=True),
    "computer_tool_call": _call("call_id", "computer", "arguments", "actions", "action", inside=True),
    "computer_tool_result": _result("call_id", "outputs", "output", "result", inside=True),
    "image_generation_tool_call": _call("image_id", "image_generation", inside=True),
    "image_generation_tool_result": _result("image_id", "outputs", inside=True),
    "function_approval_request": _call("id", at("function_call.name"), "function_call.arguments"),
    "function_approval_response": _result("id", "approved"),
    **dict.fromkeys(("uri", "data", "hosted_file", "hosted_vector_store"), MEDIA),
    **dict.fromkeys(("error", "shell_command_output"), STRINGS),
    **dict.fromkeys(("usage", "oauth_consent_request"), NOTE),
    # LangChain
    "tool_call": _call("id", _NAME, "args"),
    "tool_call_chunk": _call("id", _NAME, "args"),
    "invalid_tool_call": _call("id", _NAME, "args"),
    "server_tool_call": _call("id", _NAME, "args", inside=True),
    "server_tool_result": _result("tool_call_id", "output", inside=True),
    "non_standard": Form("nested", result=at("value")),
}
_SERVER_RESULT = _result("tool_use_id", "content", inside=True)
SUFFIXES = {"_tool_result": _SERVER_RESULT}  # Anthropic has one kind of result for each of its server's tools
PREFIXES = {"data-": STRINGS}  # parts that an application adds to UI messages

_PYDANTIC_ID, _PYDANTIC_NAME = "tool_call_id", at("tool_name")
PART_KINDS: dict[str, Form] = {  # Pydantic AI: parts with a `part_kind`
    "system-prompt": Form("text", result=_CONTENT, speaker="system"),
    "user-prompt": Form("nested", result=_CONTENT),
    "text": Form("text", result=_CONTENT),
    "compaction": Form("text", result=_CONTENT),
    "retry-feedback": Form("text", result=_CONTENT),
    "speech": Form("text", result=at("transcript")),
    "thinking": THOUGHT,
    "tool-call": _call(_PYDANTIC_ID, _PYDANTIC_NAME, "args"),
    "tool-return": _result(_PYDANTIC_ID, "content"),
    "retry-prompt": _result(_PYDANTIC_ID, "content"),
    "builtin-tool-call": _call(_PYDANTIC_ID, _PYDANTIC_NAME, "args", inside=True),
    "builtin-tool-return": _result(_PYDANTIC_ID, "content", inside=True),
    "file": MEDIA,
    "instruction": STRINGS,
    **dict.fromkeys(("instruction-baseline", "instruction-delta", "model-settings-delta"), NOTE),
    **dict.fromkeys(("tool-availability-delta", "capability-load-delta"), NOTE),
}
KINDS: dict[str, Form] = {  # Pydantic AI: what a user's prompt and a result hold, with a `kind`
    **dict.fromkeys(("image-url", "audio-url", "video-url", "document-url", "binary", "uploaded-file"), MEDIA),
    "text-content": Form("text", result=_CONTENT),
    "structured-content": STRINGS,
    "cache-point": NOTE,
}
BLOCK_TYPES: dict[str, Form] = {  # LlamaIndex: blocks with a `block_type`
    "text": TEXT,
    "thinking": THOUGHT,
    "tool_call": _call("tool_call_id", at("tool_name"), "tool_kwargs"),
    **dict.fromkeys(("image", "audio", "video", "document"), MEDIA),
    "citable": Form("nested", result=_CONTENT),
    "citation": Form("nested", result=at("cited_content")),
}
_GEMINI_CALL = _call("id", _NAME, "args", by_name=True)
_GEMINI_RESULT = _result("id", "response", name=_NAME, by_name=True, media=at("parts"))
_GEMINI_CODE = _call("id", "code_execution", "code", by_name=True, inside=True)
_GEMINI_OUTPUT = _result("id", "output", "outcome", name=constant("code_execution"), by_name=True, inside=True)
_GEMINI_TYPE = at("tool_type", "toolType")
_GEMINI_TOOL = _call("id", _GEMINI_TYPE, "args", by_name=True, inside=True)
_GEMINI_ANSWER = _result("id", "response", name=_GEMINI_TYPE, by_name=True, inside=True)
FIELDS: dict[str, Form] = {  # parts without a type: one field names the kind and holds the part
    # Gemini, in snake and camel case
    **dict.fromkeys(("function_call", "functionCall"), _GEMINI_CALL),
    **dict.fromkeys(("function_response", "functionResponse"), _GEMINI_RESULT),
    **dict.fromkeys(("executable_code", "executableCode"), _GEMINI_CODE),
    **dict.fromkeys(("code_execution_result", "codeExecutionResult"), _GEMINI_OUTPUT),
    **dict.fromkeys(("tool_call", "toolCall"), _GEMINI_TOOL),
    **dict.fromkeys(("tool_response", "toolResponse"), _GEMINI_ANSWER),
    **dict.fromkeys(("inline_data", "inlineData", "file_data", "fileData"), MEDIA),
    **dict.fromkeys(("audio_transcription", "audioTranscription"), STRINGS),
    # Bedrock Converse
    "toolUse": _call("toolUseId", _NAME, "input"),
    "toolResult": _result("toolUseId", "content"),
    "reasoningContent": THOUGHT,
    **dict.fromkeys(("image", "document", "video", "audio"), MEDIA),
    "citationsContent": Form("nested", result=_CONTENT),
    **dict.fromkeys(("guardContent", "searchResult"), STRINGS),
    "cachePoint": NOTE,
}
MARKS = frozenset(["thought", "thought_signature", "thoughtSignature", "part_metadata", "media_resolution"])
"""Fields of a Gemini part that describe it."""
CALL_ENTRY = _call(
    "id",
    at("function.name", "custom.name", "name"),
    "function.arguments",
    "function.input",
    "custom.input",
    "custom.arguments",
    "args",
    "arguments",
    by_name=True,
)
"""The row of an entry of `tool_calls`."""
FUNCTION = _call("name", _NAME, "arguments")
"""The row of the function in an entry of `tool_calls`, and of the older `function_call` beside a content."""
DISCRIMINATORS = (("type", TYPES), ("part_kind", PART_KINDS), ("block_type", BLOCK_TYPES), ("kind", KINDS))


_KIND_FIELDS = frozenset(name for name, _ in DISCRIMINATORS)
_BY_TYPE = {kind: form for kind, form in TYPES.items() if not kind.startswith("tool-")}
"""The rows that a type alone decides."""
_JSON = Form("text", result=at("json"))
_RETRY = Form("text", result=_CONTENT)


def find(part: Payload) -> tuple[Form, str, Payload]:
    """Return the row of a part, its kind and the dict with its fields. Without a row, the form is UNKNOWN."""
    kind: Any = part.get("type")
    form = _BY_TYPE.get(kind) if type(kind) is str else None
    if form is not None:
        return form, kind, part
    if not _KIND_FIELDS.isdisjoint(part):
        for name, rows in DISCRIMINATORS:
            kind = part.get(name)
            if isinstance(kind, str) and kind:
                body = part.get("toolInvocation") if kind == "tool-invocation" else None  # the AI SDK before version 5
                return (_STAGED, kind, body) if isinstance(body, dict) else (_find_kind(part, kind, rows), kind, part)
            if kind is not None:
                return UNKNOWN, "", part
    for name, value in part.items():
        form = FIELDS.get(name)
        if form is not None and isinstance(value, dict):
            return form, name, value
    if isinstance(part.get("text"), str):
        return (THOUGHT if part.get("thought") is True else TEXT), "text", part
    if "json" in part:  # of a result of Bedrock
        return _JSON, "json", part
    return UNKNOWN, "", part


def _find_kind(part: Payload, kind: str, rows: dict[str, Form]) -> Form:
    if rows is TYPES and kind.startswith("tool-") and _VERCEL_ID in part and "state" in part:
        return _STAGED._replace(name=constant(kind.removeprefix("tool-") or None))
    if kind == "retry-prompt" and part.get("tool_name") is None:  # a retry that answers no call
        return _RETRY
    if kind in rows:
        return rows[kind]
    if rows is TYPES:
        by_ending = (form for ending, form in SUFFIXES.items() if kind.endswith(ending))
        by_beginning = (form for beginning, form in PREFIXES.items() if kind.startswith(beginning))
        return next(by_ending, None) or next(by_beginning, UNKNOWN)
    return UNKNOWN


_MCP_FIELDS = frozenset(["isError", "structuredContent", "_meta", "meta"])


def unwrap_content(content: Any) -> Any:
    """Return the parts in a result of MCP, which some frameworks wrap again, if they hold media; else the content."""
    if isinstance(content, dict) and len(names := [name for name in content if name not in _MCP_FIELDS]) == 1:
        inner = content[names[0]] if names[0] in ("content", "output", "result") else None
        if isinstance(inner, dict):
            return content if (parts := unwrap_content(inner)) is inner else parts
        if isinstance(inner, list) and all(isinstance(part, dict) for part in inner):
            return inner if any(find(part)[0].role == "media" for part in inner) else content
    return content
