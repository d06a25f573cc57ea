"""A small server that answers the clients of every stream format with the events of one log, always from the start."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from redismem.formats.streams.opening import open_stream
from redismem.formats.streams.requests import TurnRequest, parse_ag_ui, parse_ai_sdk, parse_responses
from redismem.formats.streams.responses import parse_response_id
from redismem.formats.streams.stream import StreamTurn
from support.streams import KEY, Event, with_ids

_HEARTBEAT = b": \n\n"
_BEGINNINGS = {
    "/ui/chat": ("ai", parse_ai_sdk),
    "/ag-ui": ("ag-ui", parse_ag_ui),
    "/openai/responses": ("openai", parse_responses),
}


class StreamServer(ThreadingHTTPServer):
    """Tells every turn the same events. `turns` is what clients asked for."""

    daemon_threads = True

    def __init__(self, events: Sequence[Event], key: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.events, self.key = events, key
        self.turns: list[TurnRequest] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: StreamServer

    def do_POST(self) -> None:
        format, parse = _BEGINNINGS[self.path]
        asked = parse(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        self.server.turns.append(asked)
        turn_id = asked.turn_id or self.headers["idempotency-key"]
        self._tell(format, StreamTurn(str(asked.session_id), turn_id, KEY))

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        parts = url.path.split("/")
        if url.path.startswith("/ui/chat/"):
            self._tell("ai", StreamTurn(unquote(parts[3]), "turn", KEY))
            return
        session_id, turn_id, generation = parse_response_id(unquote(parts[-1]))
        after = int(parse_qs(url.query).get("starting_after", ["-1"])[0])
        self._tell("openai", StreamTurn(session_id, turn_id, generation, starting_after=after))

    def _tell(self, format: str, turn: StreamTurn) -> None:
        if self.headers["authorization"] != f"Bearer {self.server.key}":
            self.send_error(401)
            return
        if not self.server.events:
            self.send_response(204)
            self.end_headers()
            return
        stream = open_stream(format, turn)
        self.send_response(200)
        for name, value in stream.content_headers.items():
            self.send_header(name, value)
        self.end_headers()
        with contextlib.suppress(ConnectionError):  # the client broke the connection
            for each in with_ids(self.server.events):
                self.wfile.write(_HEARTBEAT + stream.convert(*each))
            self.wfile.write(stream.close())

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


@contextlib.contextmanager
def serve_events(events: Sequence[Event], key: str) -> Iterator[StreamServer]:
    """Serve the events of a turn on a free port, to callers with this key."""
    with StreamServer(events, key) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
