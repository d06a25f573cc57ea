"""The ASGI application: the edge, and the routes behind it."""

from __future__ import annotations

from functools import cache
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from redismem.web.api import (
    about,
    chat,
    clients,
    contexts,
    edits,
    operations,
    project_writes,
    projects,
    records,
    responses,
    schemas,
    sessions,
    turns,
)
from redismem.web.edge import Edge
from redismem.web.http.problems import ANSWERED, Problem, to_problem
from redismem.web.openapi import openapi_document
from redismem.web.service import Service

# Faults whose message says what is allowed and quotes nothing from the request.
_SHOWN_FAULTS = {
    "missing",
    "extra_forbidden",
    "literal_error",
    "string_pattern_mismatch",
    "string_too_short",
    "string_too_long",
    "too_short",
    "too_long",
    "greater_than_equal",
    "less_than_equal",
    "bool_parsing",
    "int_parsing",
    "string_type",
    "bool_type",
    "int_type",
    "float_type",
    "list_type",
    "dict_type",
    "model_attributes_type",
    "value_error",  # by a check of a schema of ours
}
# Not `include_router`, which would analyse each route once more, at the first request.
_ROUTES = [
    route
    for part in (
        sessions,
        turns,
        contexts,
        edits,
        operations,
        about,
        chat,
        clients,
        responses,
        projects,
        project_writes,
        records,
    )
    for route in part.router.routes
]
_CODE_OF = {404: "not_found", 405: "method_not_allowed", 413: "too_large", 422: "invalid"}


def create_app(service: Service) -> Edge:
    """Return the ASGI application of this service."""
    app = FastAPI(
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        exception_handlers={
            RequestValidationError: _answer_invalid,
            HTTPException: _answer_http_error,
            **dict.fromkeys(ANSWERED, _answer_error),
            # Starlette raises any other error again, and the edge logs it.
            Exception: _answer_error,
        },
    )
    app.state.service = service
    app.router.routes += _ROUTES
    return Edge(service, app, openapi())


@cache
def openapi() -> dict[str, Any]:
    """Return the OpenAPI document. It takes a quarter of a second, so the services of a process share it."""
    return openapi_document(_ROUTES)


def _response(problem: Problem) -> Response:
    headers = {name.decode(): value.decode() for name, value in problem.headers()}
    return Response(problem.document(), problem.status, headers)


async def _answer_error(request: Request, error: Exception) -> Response:
    del request
    return _response(to_problem(error))


async def _answer_http_error(request: Request, error: Exception) -> Response:
    del request
    assert isinstance(error, HTTPException)
    detail = "the body is not JSON" if error.status_code == 400 else ""
    allow = (error.headers or {}).get("Allow", "")
    return _response(Problem(_CODE_OF.get(error.status_code, "bad_request"), detail, allow=allow))


async def _answer_invalid(request: Request, error: Exception) -> Response:
    """Answer with the location and kind of each fault, and the expected value; never with the given value."""
    del request
    assert isinstance(error, RequestValidationError)
    errors = error.errors()
    if any(each["type"] == "json_invalid" for each in errors):
        return _response(Problem("bad_request", "the body is not JSON"))
    return _response(Problem("invalid", faults=[_fault(each) for each in errors[: schemas.FAULTS_COUNT]]))


def _fault(error: Any) -> dict[str, str]:
    fault = {"where": ".".join(map(str, error["loc"]))[:200], "what": error["type"]}
    return fault | ({"expected": error["msg"]} if error["type"] in _SHOWN_FAULTS else {})
