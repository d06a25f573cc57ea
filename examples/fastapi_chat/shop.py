"""The tools of the model: calls to the API of a shop, at SHOP_URL."""

from __future__ import annotations

import asyncio
import json
import os
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import httpx


def define_tool(name: str, description: str, argument: str, meaning: str) -> Any:
    parameters = {
        "type": "object",
        "properties": {argument: {"type": "string", "description": meaning}},
        "required": [argument],
        "additionalProperties": False,
    }
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


TOOLS = [
    define_tool("find_order", "Return the state of an order.", "number", "the order's number, such as O-17"),
    define_tool("book_repair", "Book a repair.", "day", "the day, as YYYY-MM-DD"),
]


class Shop:
    """A client of the shop."""

    def __init__(self) -> None:
        self._http = httpx.AsyncClient(base_url=os.environ.get("SHOP_URL", "http://127.0.0.1:9000"), timeout=10)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.aclose()

    async def run_all(self, calls: list[dict[str, Any]], turn_id: str) -> list[dict[str, Any]]:
        """Carry out the calls of one step at the same time, and return their results as messages."""
        return await asyncio.gather(*(self._run(call, f"{turn_id}:{call['id']}") for call in calls))

    async def _run(self, call: dict[str, Any], key: str) -> dict[str, Any]:
        function = call["function"]
        try:
            content = await self._request(function["name"], json.loads(function["arguments"]), key)
        except (httpx.HTTPError, LookupError, TypeError, ValueError) as error:
            content = f"This failed: {type(error).__name__}"  # the model reads it, and may correct its call
        return {"role": "tool", "tool_call_id": call["id"], "content": content}

    async def _request(self, name: str, arguments: dict[str, str], key: str) -> str:
        if name == "find_order":
            answer = await self._http.get(f"/orders/{quote(arguments['number'], safe='')}")
        elif name == "book_repair":
            # If this process dies before the result is stored, the call is made again: with the key, the shop notices.
            booking = {"day": arguments["day"]}
            answer = await self._http.post("/repairs", json=booking, headers={"Idempotency-Key": key})
        else:
            raise LookupError(name)
        answer.raise_for_status()
        return answer.text
