"""The private parts of uvicorn that the service uses exist, so that an upgrade fails here and not in production."""

from __future__ import annotations

import ast
import inspect
from importlib.metadata import version

import uvicorn
from support.http_connection import REQUEST, Protocol, answer_whole
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from redismem.web.http import protocol as module

PROVEN = "0.54.0"
"""The release of uvicorn with which the limits and the measurements were proven."""
HINT = f"proven with uvicorn {PROVEN}, installed is {version('uvicorn')}: see docs/decisions/uvicorn-protocol.md"
METHODS = {
    "connection_made": ["self", "transport"],
    "connection_lost": ["self", "exc"],
    "data_received": ["self", "data"],
    "on_message_begin": ["self"],
    "on_body": ["self", "body"],
    "on_headers_complete": ["self"],
    "on_message_complete": ["self"],
    "send_400_response": ["self", "msg"],
    "_start_asgi_task": ["self", "cycle", "app"],
    "on_response_complete": ["self"],
    "timeout_keep_alive_handler": ["self"],
}
ATTRIBUTES = {
    "cycle",
    "flow",
    "logger",
    "loop",
    "parser",
    "pipeline",
    "scope",
    "server_state",
    "timeout_keep_alive",
    "transport",
}
CYCLE = {
    "body": bytearray,
    "disconnected": bool,
    "keep_alive": bool,
    "more_body": bool,
    "response_complete": bool,
    "response_started": bool,
    "scope": dict,
    "waiting_for_100_continue": bool,
}


def used_attributes(name: str) -> set[str]:
    """Return the attributes of `name` that LimitedProtocol uses and does not define."""
    tree = ast.parse(inspect.getsource(module.LimitedProtocol))
    attributes = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) in (name, f"self.{name}")
    }
    return attributes - vars(module.LimitedProtocol).keys() - {"_extensions", "_idle_timer"}


def test_the_overridden_methods_have_the_expected_parameters() -> None:
    for name, parameters in METHODS.items():
        method = getattr(HttpToolsProtocol, name, None)
        assert method is not None, f"{name}: {HINT}"
        assert list(inspect.signature(method).parameters) == parameters, f"{name}: {HINT}"
    overridden = vars(module.LimitedProtocol).keys() & vars(HttpToolsProtocol).keys()
    assert {name for name in overridden if not name.startswith("__")} <= METHODS.keys()


async def test_the_attributes_exist_with_the_expected_types() -> None:
    protocol = Protocol(answer_whole)
    await protocol.ask(REQUEST)
    for name in ATTRIBUTES:
        assert hasattr(protocol, name), f"{name}: {HINT}"
    for name, kind in CYCLE.items():
        assert isinstance(getattr(protocol.cycle, name, None), kind), f"cycle.{name}: {HINT}"
    for method in (protocol.cycle.message_event.set, protocol.cycle.message_event.clear, protocol.cycle.on_response):
        assert list(inspect.signature(method).parameters) == [], HINT
    assert list(inspect.signature(protocol.flow.resume_reading).parameters) == [], HINT
    assert protocol.flow.write_paused is False, HINT
    assert protocol.parser.should_upgrade() is False, HINT
    assert protocol.server_state.total_requests == 1, HINT
    assert len(protocol.pipeline) == 0, HINT
    assert STATUS_LINE[201] == b"HTTP/1.1 201 Created\r\n", HINT
    protocol.connection_lost(None)


def test_every_attribute_that_is_used_is_checked() -> None:
    assert used_attributes("self") == ATTRIBUTES | {"timeout_keep_alive_handler"}
    assert used_attributes("cycle") == CYCLE.keys() | {"message_event", "on_response"}


def test_the_server_has_the_hooks_that_stopping_needs() -> None:
    assert list(inspect.signature(uvicorn.Server.capture_signals).parameters) == ["self"], HINT
    server = uvicorn.Server(uvicorn.Config(answer_whole))
    assert server.server_state.connections == set(), HINT
    assert server.should_exit is False, HINT
