"""An overloaded server: new work is refused before keys and bodies are read, and what must not wait goes on."""

from __future__ import annotations

import re
from time import monotonic
from typing import Any

import pytest
from support.http_service import RunningService, numbered_message, serve_memory

from redismem import Memory
from redismem.web.http.request_queue import ARRIVED_S, Priority, RequestQueue

ORIGIN = "https://chat.example"


@pytest.fixture(autouse=True)
def _full_of_new_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RequestQueue, "is_full", lambda _, priority: priority is Priority.NEW_WORK)


async def test_an_overloaded_server_refuses_new_work_and_never_a_reply_a_stop_or_a_removal(
    http: RunningService,
) -> None:
    session, messages = "/v1/sessions/s", numbered_message(1)
    for method, path in (
        ("POST", f"{session}/messages?read=true"),
        ("GET", session),
        ("POST", "/v1/chat"),
        ("GET", "/v1/sessions/stop"),
        ("POST", "/v1/sessions/s%2Fstop"),
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
    assert (await http.ask("POST", "/openai/responses/unknown/cancel")).status_code == 404


async def test_a_page_of_an_allowed_origin_can_read_refusals_and_answers(memory: Memory) -> None:
    messages = numbered_message(1)
    async with serve_memory(memory, cors_origins=(ORIGIN,)) as http:
        for method, path, origin, status, allowed in (
            ("GET", "/v1/sessions/s", ORIGIN, 503, ORIGIN),
            ("GET", "/v1/sessions/s", "https://other.example", 503, None),
            ("POST", "/v1/sessions/s/messages", ORIGIN, 201, ORIGIN),
            ("OPTIONS", "/v1/sessions/s/turns/current/stop", ORIGIN, 204, ORIGIN),
        ):
            headers = {"Origin": origin, "Access-Control-Request-Method": "POST"}
            answer = await http.ask(method, path, headers=headers, json=messages)
            assert answer.status_code == status
            assert answer.headers.get("access-control-allow-origin") == allowed


async def test_the_time_of_a_request_includes_its_wait(http: RunningService, monkeypatch: pytest.MonkeyPatch) -> None:
    def begin_late(queue: Any, loop: Any, priority: Any, scope: Any, begin: Any) -> None:
        del queue, loop, priority
        scope[ARRIVED_S] = monotonic() - 5
        begin()

    monkeypatch.setattr(RequestQueue, "begin", begin_late)
    await http.ask("POST", "/v1/sessions/s/messages", json=numbered_message(1))
    measured = (await http.ask("GET", "/metrics")).text
    (seconds,) = re.findall(r'http_request_seconds_sum\{method="POST",.*status="201"\} ([\d.]+)', measured)
    assert float(seconds) >= 5
