"""An application that raises: the caller gets a problem, and the log the kind of a defect."""

from __future__ import annotations

from typing import Any

import pytest

from redismem.errors import InvalidSettings, StoreUnavailable
from redismem.web.http.failures import contain

CANARY = "canary-91aa"


@pytest.mark.parametrize(
    ("error", "path", "status", "logged"),
    [
        (InvalidSettings(CANARY), "/metrics", 500, ["GET /metrics failed with InvalidSettings"]),
        (RuntimeError(CANARY), f"/{CANARY}", 500, ["GET other failed with RuntimeError"]),
        (StoreUnavailable(CANARY, reason="LOADING"), "/metrics", 503, []),
    ],
)
@pytest.mark.parametrize("is_begun", [False, True])
async def test_an_error_is_answered_once_and_a_defect_is_logged(
    caplog: pytest.LogCaptureFixture, error: Exception, path: str, status: int, logged: list[str], is_begun: bool
) -> None:
    sent: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if is_begun:
            await send({"type": "http.response.start", "status": 200, "headers": []})
        raise error

    async def send(message: Any) -> None:
        sent.append(message)

    await contain(app, "/metrics")({"method": "GET", "path": path}, None, send)  # type: ignore[arg-type]
    assert [each["status"] for each in sent if "status" in each] == [200 if is_begun else status]
    assert [record.getMessage() for record in caplog.records] == logged
    assert CANARY not in str(sent) + caplog.text
