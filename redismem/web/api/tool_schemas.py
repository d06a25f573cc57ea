"""Tools of the caller, and their results, in the bodies of requests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
from pydantic import AfterValidator, Field, TypeAdapter, ValidationError

from redismem.web.api.schemas import Name, Taken
from redismem.web.http.problems import Problem
from redismem.web.service import Service

_TOOLS_COUNT = 64
_TOOLS_BYTES = 64 * 1024
_RESULT_CHARS = 100_000


class Function(Taken):
    """A function that the model may call. `parameters` is the JSON Schema of its arguments."""

    name: Annotated[str, Field(pattern="^[A-Za-z_][A-Za-z0-9_-]{0,63}$")]
    description: Annotated[str, Field(max_length=8_000)] = ""
    parameters: dict[str, Any] = Field(default={})
    strict: bool | None = None


class Tool(Taken):
    """A tool that the caller runs, in the format of OpenAI's chat API."""

    type: Literal["function"] = "function"
    function: Function


def _check_tools(tools: list[Tool]) -> list[Tool]:
    if len({tool.function.name for tool in tools}) < len(tools):
        raise ValueError("two tools have the same name")
    if len(msgspec.json.encode([tool.model_dump() for tool in tools])) > _TOOLS_BYTES:
        raise ValueError(f"all tools together have at most {_TOOLS_BYTES} bytes")
    return tools


Tools = Annotated[list[Tool], Field(max_length=_TOOLS_COUNT), AfterValidator(_check_tools)]
_TOOLS: TypeAdapter[list[Tool]] = TypeAdapter(Tools)


class ToolResult(Taken):
    """The result of a tool call. `tool_call_id` is the `id` of the event `tool_call`."""

    tool_call_id: Name
    content: Annotated[str, Field(max_length=_RESULT_CHARS)]

    def payload(self) -> dict[str, Any]:
        """Return the message to store."""
        return {"role": "tool", "tool_call_id": self.tool_call_id, "content": self.content}


Results = Annotated[list[ToolResult], Field(min_length=1, max_length=128)]


def plain_tools(tools: Sequence[Tool]) -> list[dict[str, Any]]:
    """Return the tools as dicts, without members that the caller left out."""
    return [{"type": tool.type, "function": tool.function.model_dump(exclude_unset=True)} for tool in tools]


def tools_for(service: Service, given: Sequence[object]) -> list[dict[str, Any]]:
    """Return the tools of a body of another protocol; none if the chat's model takes none. Raises Problem: invalid."""
    if service.chat.alternate:
        return []
    try:
        return plain_tools(_TOOLS.validate_python(list(given)))
    except ValidationError as refused:
        first = refused.errors(include_input=False, include_url=False, include_context=False)[0]
        where = ".".join(map(str, first["loc"]))[:200]
        raise Problem("invalid", f"a tool cannot be taken: {where}: {first['type']}") from None
