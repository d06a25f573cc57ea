"""A server of the Model Context Protocol over a memory, as `redismem serve --mcp` or a program of its own starts it."""

from redismem.settings.extras import from_extra

with from_extra("mcp", __name__):
    from redismem.mcp.events import EventStore
    from redismem.mcp.server import create_server

__all__ = ["EventStore", "create_server"]
