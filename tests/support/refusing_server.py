"""A server with the paths of three providers that answers 400 for what they refuse, and a script of answers."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from support.openai_rules import check_chat, check_responses
from support.provider_rules import check_anthropic, check_gemini

Payload = dict[str, Any]


def _check(path: str, body: Payload) -> None:
    """Raise an error for a request that the provider of this path refuses."""
    if path.endswith("/chat/completions"):
        check_chat(body["messages"])
    elif path.endswith("/responses"):
        check_responses(body["input"], store=body.get("store", True))
    elif path.endswith("/messages"):
        check_anthropic({name: body[name] for name in ("messages", "system") if name in body})
    elif path.endswith(":generateContent"):
        from google.genai import types

        contents = [types.Content.model_validate(each) for each in body["contents"]]
        check_gemini({"contents": [each.model_dump(mode="json", exclude_none=True) for each in contents]})
    else:
        raise AssertionError(path)


@contextlib.contextmanager
def refusing_server(answers: list[Payload]) -> Iterator[tuple[str, list[Payload]]]:
    """Serve on the loopback; return the URL and the accepted requests. Each answer is given once, in order."""
    accepted: list[Payload] = []

    class Provider(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            try:
                _check(self.path.partition("?")[0], body)
                accepted.append(body)
                status, document = 200, answers[len(accepted) - 1]
            except Exception as refusal:
                status, document = 400, {"error": {"type": "invalid_request_error", "message": str(refusal)[:2_000]}}
            raw = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, format: str, *args: Any) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Provider)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", accepted
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
