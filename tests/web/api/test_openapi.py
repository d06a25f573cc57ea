"""The OpenAPI document is true: all requests get documented answers, and no 5xx."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.http_service import PATIENT, RunningService, run_service
from support.selection import EVERYTHING

from redismem import Memory
from redismem.web.access import Access
from redismem.web.app import openapi
from redismem.web.service import Service

# A stream has no end.
STREAMS = (
    "/v1/sessions/{session_id}/events",
    "/v1/sessions/{session_id}/turns",
    "/v1/sessions/{session_id}/turns/current",
    "/api/chat",
    "/ui/chat",
    "/ui/chat/{id}/stream",
    "/ag-ui",
    "/openai/responses",
    "/openai/responses/{response_id}",
)
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
# The edges of each parameter and body; `make nightly` also draws cases at random.
PHASES = ("--phases", "coverage,fuzzing", "--max-examples", "25") if EVERYTHING else ("--phases", "coverage")


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


@pytest.mark.nightly  # it makes thousands of requests
def test_every_route_conforms_to_the_document(url: str, tmp_path: Path) -> None:
    excluded = [word for path in STREAMS for word in ("--exclude-path", path)]
    options = (*PHASES, "--checks", CHECKS, *excluded, "--seed", "1", "--warnings", "off", "--no-color")
    options += ("--request-timeout", "60")  # by default 10 s, which a busy machine may take
    command = [sys.executable, "-m", "schemathesis.cli", "run", f"{url}/openapi.json", *options]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=500)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    (selected, total) = re.findall(r"(\d+) selected / (\d+) total", ran.stdout)[0]
    assert int(total) - int(selected) == len(STREAMS)


async def test_the_document_is_encoded_once(http: RunningService, monkeypatch: pytest.MonkeyPatch) -> None:
    """Anyone may ask for it, so no request may cost the encoding of a hundred kilobytes."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("encoded again")

    monkeypatch.setattr(json, "dumps", refuse)
    assert (await http.client.get("/openapi.json")).status_code == 200


async def test_the_document_is_served_and_lists_every_refusal(http: RunningService) -> None:
    answer = await http.ask("GET", "/openapi.json")
    document = answer.json()
    assert answer.headers["content-type"] == "application/json"
    assert document == openapi()
    head = await http.ask("HEAD", "/openapi.json")
    assert (head.content, head.headers["content-length"]) == (b"", answer.headers["content-length"])
    assert (await http.ask("POST", "/openapi.json")).headers["allow"] == "GET, HEAD"
    for path, operations in document["paths"].items():
        for operation in operations.values():
            assert {"400", "401", "403", "404", "409", "413", "422", "429", "503"} <= set(operation["responses"]), path
            assert ("security" in operation) is (path not in ("/livez", "/readyz"))


def untyped(part: Any, where: str = "") -> Iterator[str]:
    """Yield the places of a document whose values have no type: a generated client does not know them."""
    if isinstance(part, list):
        for number, each in enumerate(part):
            yield from untyped(each, f"{where}/{number}")
    elif isinstance(part, dict):
        members = part.get("properties", {})
        schemas = members | {name: part[name] for name in ("schema", "items") if name in part}
        for name, schema in schemas.items():
            if not schema.keys() & {"type", "$ref", "anyOf", "oneOf", "enum", "const"}:
                yield f"{where}/{name}"
        if part.get("additionalProperties") is True:
            yield f"{where}/additionalProperties"
        for name, each in (part | members if members else part).items():
            if name != "properties" or name in members:
                yield from untyped(each, f"{where}/{name}")


def test_every_value_of_the_document_has_a_type() -> None:
    document = openapi()
    assert list(untyped(document)) == []
    contents = [
        (path, status, kind)
        for path, operations in document["paths"].items()
        for operation in operations.values()
        for status, answer in operation["responses"].items()
        for kind, content in answer.get("content", {}).items()
        if "schema" not in content
    ]
    assert contents == []
    event = document["components"]["schemas"]["TurnEvent"]
    written = {"text", "reasoning", "tool_call", "tool_result", "data", "notice"}
    assert set(event["discriminator"]["mapping"]) == {*written, "message", "reset", "end"}
    fault = {"properties": {"given": {"title": "Given"}}, "additionalProperties": True}
    assert list(untyped(fault)) == ["/given", "/additionalProperties"]
