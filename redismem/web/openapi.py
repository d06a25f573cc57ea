"""The OpenAPI document: every route with its refusals, and a type for each value, so that clients can be generated."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from fastapi.openapi.utils import get_openapi
from pydantic import TypeAdapter
from pydantic.json_schema import models_json_schema
from starlette.routing import BaseRoute

from redismem.web.api import appends, schemas
from redismem.web.api.turn_schemas import CHAT_EVENTS, TurnEvent
from redismem.web.http.problems import CODES, MEDIA_TYPE

_OPEN = ("/livez", "/readyz", "/openapi.json")
_REF = "#/components/schemas/{model}"
_JSON = {"$ref": _REF.format(model="Json")}
# Not recursive: a generated client that makes types of types, such as openapi-fetch, would not end.
_JSON_TYPES: list[dict[str, Any]] = [
    *({"type": name} for name in ("string", "number", "boolean", "null", "array")),
    {"type": "object", "additionalProperties": {}},
]
_MEANINGS = {"title", "description", "default", "examples"}
"""The members of a schema that say nothing about the type."""


def openapi_document(routes: Sequence[BaseRoute]) -> dict[str, Any]:
    """Return the document of these routes."""
    described = "Session memory for chat backends."
    document = get_openapi(title="redismem", version=version("redismem"), description=described, routes=routes)
    refusals = _refusals()
    paths = document["paths"]
    paths.setdefault(appends.PATH, {})["post"] = appends.operation({}) | {"tags": ["sessions"]}
    for path, operations_of in paths.items():
        for operation in operations_of.values():
            operation["responses"].pop("422", None)
            operation["responses"] |= {
                status: answer for status, answer in refusals.items() if status not in operation["responses"]
            }
            if path not in _OPEN:
                operation["security"] = [{"key": []}]
    components = document.setdefault("components", {})
    components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    components["schemas"] = _further_schemas() | components.get("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):  # of FastAPI; no route answers with them
        components["schemas"].pop(name, None)
    typed: dict[str, Any] = _with_json(document)
    return typed


def _refusals() -> dict[str, Any]:
    """Return the OpenAPI responses for the problems that any route may answer with, by status."""
    content = {MEDIA_TYPE: {"schema": {"$ref": _REF.format(model="ProblemDocument")}}}
    codes: dict[str, list[str]] = {}
    for code, (status, _) in CODES.items():
        codes.setdefault(str(status), []).append(code)
    return {status: {"description": ", ".join(names), "content": content} for status, names in codes.items()}


def _further_schemas() -> dict[str, Any]:
    """Return the schemas of problems, appends, events and JSON values, which no route of FastAPI names."""
    models = [(kind, "serialization") for kind in (schemas.ProblemDocument, *appends.ANSWERS, *CHAT_EVENTS.values())]
    _, definitions = models_json_schema(models, ref_template=_REF)  # type: ignore[arg-type]
    event = TypeAdapter(TurnEvent).json_schema(mode="serialization", ref_template=_REF)
    named: dict[str, Any] = definitions["$defs"] | event.pop("$defs")
    return named | {"TurnEvent": event, "Json": {"description": "Any JSON value.", "anyOf": _JSON_TYPES}}


def _with_json(schema: Any) -> Any:
    """Return a part of the document in which each value that may be any JSON value has a type of this name.

    Without it, the types of generated clients do not know such a value.
    """
    if isinstance(schema, list):
        return [_with_json(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: _with_json(value) for name, value in schema.items() if name != "properties"}
    if found.get("additionalProperties") is True:
        found["additionalProperties"] = _JSON
    if "properties" in schema:
        members = schema["properties"].items()
        found["properties"] = {
            name: value | _JSON if value.keys() <= _MEANINGS else _with_json(value) for name, value in members
        }
    return found
