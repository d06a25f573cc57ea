"""A server of the Model Context Protocol over a memory: `redismem mcp`, or `create_server` for a program of its own."""

from redismem.settings.extras import from_extra

with from_extra("mcp", __name__):
    from redismem.mcp.events import EventStore
    from redismem.mcp.server import create_server

__all__ = ["EventStore", "create_server"]
