"""The OpenAPI document is true: valid requests get the documented answers and no unexpected 5xx."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from support.http_service import PATIENT, RunningService, run_service

from redismem import Memory
from redismem.web.access import Access
from redismem.web.app import create_app
from redismem.web.service import Service

DOCUMENT = create_app(Service({}, Access([]))).openapi()
schema = schemathesis.openapi.from_dict(DOCUMENT)
# A stream has no end.
STREAMS = ("/v1/sessions/{session_id}/events", "/api/chat")
CHECKS = [status_code_conformance, content_type_conformance, response_schema_conformance]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The service on the embedded store, on an event loop of its own."""
    ready, told = threading.Event(), threading.Event()
    found: list[str] = []

    async def run() -> None:
        async with (
            Memory.connect("memory://") as memory,
            run_service(Service({"default": memory}, Access.of(""), PATIENT)) as http,
        ):
            found.append(str(http.client.base_url))
            ready.set()
            await asyncio.to_thread(told.wait)

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    assert ready.wait(60)
    yield found[0]
    told.set()
    thread.join()


@schema.exclude(path=list(STREAMS)).parametrize()
@settings(max_examples=25, suppress_health_check=list(HealthCheck))
def test_every_route_conforms_to_the_document(case: Any, url: str) -> None:
    response = case.call(base_url=url, timeout=60)
    case.validate_response(response, checks=CHECKS)
    assert response.status_code < 500 or response.json()["code"] in ("store_unavailable", "overloaded")


async def test_the_document_is_encoded_once(http: RunningService, monkeypatch: pytest.MonkeyPatch) -> None:
    """Anyone may ask for it, so no request may cost the encoding of a hundred kilobytes."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("encoded again")

    monkeypatch.setattr(json, "dumps", refuse)
    assert (await http.client.get("/openapi.json")).status_code == 200


async def test_the_document_is_served_and_lists_every_refusal(http: RunningService) -> None:
    answer = await http.ask("GET", "/openapi.json")
    document = answer.json()
    assert (document, answer.headers["content-type"]) == (DOCUMENT, "application/json")
    head = await http.ask("HEAD", "/openapi.json")
    assert (head.content, head.headers["content-length"]) == (b"", answer.headers["content-length"])
    assert (await http.ask("POST", "/openapi.json")).headers["allow"] == "GET, HEAD"
    for path, operations in document["paths"].items():
        for operation in operations.values():
            assert {"400", "401", "403", "404", "409", "413", "422", "429", "503"} <= set(operation["responses"]), path
            assert ("security" in operation) is (path not in ("/livez", "/readyz"))
