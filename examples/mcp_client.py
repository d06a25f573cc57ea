"""A client of `redismem serve --mcp`: what one conversation decides, the next one knows. It plays the model's part.

A real client, such as an editor or a desktop assistant, starts the server in the same way, and its model calls the same
tools.

    python -m examples.mcp_client
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import uuid
from typing import Any

from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.types import TextContent

TRIES_COUNT = 3
SERVER = StdioServerParameters(command=sys.executable, args=["-m", "redismem", "serve", "--mcp"], env=dict(os.environ))


async def call(client: Client, tool: str, **arguments: Any) -> Any:
    """Return the typed result of a tool. A refusal is one line, which a model would read and act on."""
    result = await client.call_tool(tool, arguments)
    if result.is_error:
        (line,) = result.content
        raise RuntimeError(line.text if isinstance(line, TextContent) else tool)
    return result.structured_content


async def append(client: Client, session_id: str, *messages: dict[str, Any]) -> Any:
    """Append messages once, however often the call is repeated: every try has the same id."""
    turn = {"session_id": session_id, "messages": list(messages), "id": uuid.uuid4().hex}
    for _ in range(TRIES_COUNT - 1):
        with contextlib.suppress(RuntimeError):
            return await call(client, "append_messages", **turn)
    return await call(client, "append_messages", **turn)


async def decide(client: Client) -> None:
    """Hold a conversation that decides something, and record it."""
    question = {"role": "user", "content": "Where do we keep the sessions?"}
    context = await call(client, "read_context", session_id="planning")
    print(f"planning has {context['total_messages']} messages")
    answer = {"role": "assistant", "content": "In Redis, since every pod reaches it."}
    place = await append(client, "planning", question, answer)
    print(f"appended {place['first_seq']} to {place['last_seq']}")
    await call(
        client, "record_decision", project="apollo", title="Sessions are in Redis", rationale="every pod reaches it"
    )
    await call(client, "update_state", session_id="planning", set={"store": "redis"}, waiting_for_param="region")


async def look_back(client: Client) -> None:
    """Use in another conversation what the first one left."""
    text = (await call(client, "project_context", project="apollo", topic="sessions"))["text"]
    print(next(line for line in text.splitlines() if "Sessions are in Redis" in line))
    state = await call(client, "get_state", session_id="planning")
    print(f"waiting for {state['waiting_for_param']}")


async def main() -> None:
    async with Client(stdio_client(SERVER)) as client:
        await decide(client)
        await look_back(client)


if __name__ == "__main__":
    asyncio.run(main())
