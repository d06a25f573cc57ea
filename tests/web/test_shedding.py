"""An overloaded server: new work is refused before keys and bodies are read, and what must not wait goes on."""

from __future__ import annotations

import pytest
from support.http_service import RunningService, numbered_message, serve_memory

from redismem import Memory
from redismem.web.http.request_queue import RequestQueue, Turn

ORIGIN = "https://chat.example"


@pytest.fixture(autouse=True)
def _full_of_new_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RequestQueue, "is_full", lambda _, turn: turn is Turn.LAST)


async def test_an_overloaded_server_refuses_new_work_and_never_a_reply_a_stop_or_a_removal(
    http: RunningService,
) -> None:
    session, messages = "/v1/sessions/s", numbered_message(1)
    for method, path in (
        ("POST", f"{session}/messages?read=true"),
        ("GET", session),
        ("POST", "/v1/chat"),
        ("GET", "/v1/sessions/stop"),
        ("POST", "/v1/sessions/s%2Fstop/turns"),
    ):
        answer = await http.ask(method, path, content=None if method == "GET" else b"not read")
        assert (answer.status_code, answer.json()["code"]) == (503, "overloaded"), path
        assert 1 <= int(answer.headers["retry-after"]) <= 3
        assert answer.headers["cache-control"] == "no-store"
    measured = (await http.ask("GET", "/metrics")).text
    assert "\nredismem_overloaded 1.0" in measured
    assert 'redismem_refused_total{reason="BusyProcess"}' in measured
    assert 'method="POST",route="/v1/sessions/{session_id}/messages",status="503"' in measured
    served = [
        ("GET", "/livez", None),
        ("GET", "/readyz", None),
        ("GET", "/", None),
        ("POST", f"{session}/messages", messages),
        ("POST", f"{session}/turns/current/stop", {}),
        ("DELETE", session, None),
    ]
    for method, path, body in served:
        answer = await http.ask(method, path, json=body)
        assert answer.is_success, (path, answer.text)


async def test_a_page_of_an_allowed_origin_can_read_the_refusal(memory: Memory) -> None:
    async with serve_memory(memory, cors_origins=(ORIGIN,)) as http:
        for origin in (ORIGIN, "https://other.example"):
            answer = await http.ask("GET", "/v1/sessions/s", headers={"Origin": origin})
            assert answer.status_code == 503
            assert answer.headers.get("access-control-allow-origin") == (ORIGIN if origin == ORIGIN else None)
