"""An overloaded server: some requests are refused before their bodies are read."""

from __future__ import annotations

import asyncio

from support.http_service import RunningService, numbered_message
from support.overloads import refusing


async def test_an_overloaded_server_refuses_new_work_and_never_a_reply_a_stop_or_a_removal(
    http: RunningService,
) -> None:
    session, messages = "/v1/sessions/s", numbered_message(1)
    stored = await http.ask("POST", f"{session}/messages", json=messages)
    with refusing(asyncio.get_running_loop()):
        for method, path in (("POST", f"{session}/messages?read=true"), ("GET", session), ("POST", "/v1/chat")):
            answer = await http.ask(method, path, content=None if method == "GET" else b"not read")
            assert (answer.status_code, answer.json()["code"]) == (503, "overloaded")
            assert 1 <= int(answer.headers["retry-after"]) <= 3
        served = [
            ("GET", "/livez", None),
            ("GET", "/readyz", None),
            ("GET", "/metrics", None),
            ("POST", f"{session}/messages", messages),
            ("POST", f"{session}/turns/current/stop", {}),
            ("DELETE", session, None),
        ]
        for method, path, body in served:
            answer = await http.ask(method, path, json=body)
            assert answer.is_success, (path, answer.text)
    assert stored.is_success
    assert (await http.ask("GET", session)).status_code == 404, "cleared"
