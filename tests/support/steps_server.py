"""A program: an MCP server of anybody's over streamable HTTP, with a tool that reports steps, and an EventStore.

    python -m support.steps_server URL NAMESPACE

Prints its port. The tool reports `count` steps, and ends after as many more as the session `go` has messages.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import uvicorn
from mcp.server.mcpserver import Context, MCPServer

from redismem import Memory
from redismem.mcp import EventStore
from redismem.web.server import listen
from support.checks import until
from support.waiting import START_S


def create_server(memory: Memory) -> MCPServer[Any]:
    server: MCPServer[Any] = MCPServer("steps", log_level="ERROR")

    async def appended() -> int:
        return (await memory.session("go").read()).total_messages

    @server.tool()
    async def walk(ctx: Context[Any, Any], count: int) -> str:
        for step in range(count):
            await ctx.report_progress(step)
        more: int = await until(appended, START_S)
        for step in range(count, count + more):
            await ctx.report_progress(step)
        return "arrived"

    return server


async def main(url: str, namespace: str) -> None:
    async with Memory.connect(url, namespace=namespace) as memory:
        events = EventStore(memory, max_events=100)
        app = events.wrap(create_server(memory).streamable_http_app(event_store=events))
        with listen("127.0.0.1", 0) as listening:
            sys.stdout.write(f"port {listening.getsockname()[1]}\n")
            sys.stdout.flush()
            await uvicorn.Server(uvicorn.Config(app, log_level="warning")).serve([listening])


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
