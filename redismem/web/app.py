"""The application: the routes, behind the edge."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema
from starlette.exceptions import HTTPException

from redismem.errors import RedismemError
from redismem.web.api import about, appends, chat, operations, projects, schemas, sessions
from redismem.web.edge import Edge
from redismem.web.http.problems import CODES, MEDIA_TYPE, Problem, problem_of
from redismem.web.service import Service

_OPEN = ("/livez", "/readyz", "/openapi.json")
# Faults whose words say what is allowed and quote nothing of what was given.
_TOLD = {
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
    "list_type",
    "dict_type",
    "model_attributes_type",
}
_CODE_OF = {404: "not_found", 405: "method_not_allowed", 413: "too_large", 422: "invalid"}


def create_app(service: Service) -> Edge:
    """The ASGI application of this service."""
    app = FastAPI(
        title="redismem",
        version=version("redismem"),
        description="Session memory for chat backends.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        exception_handlers={
            RequestValidationError: _invalid,
            HTTPException: _http,
            RedismemError: _refused,
            Problem: _refused,
            Exception: _refused,
        },
    )
    app.state.service = service
    app.include_router(sessions.router)
    app.include_router(operations.router)
    app.include_router(about.router)
    app.include_router(chat.router)
    app.include_router(projects.router)
    app.openapi = lambda: _document(app)  # type: ignore[method-assign]
    return Edge(service, app, app.openapi)


def _answer(problem: Problem) -> Response:
    headers = {name.decode(): value.decode() for name, value in problem.headers()}
    return Response(problem.document(), problem.status, headers)


async def _refused(request: Request, error: Exception) -> Response:
    del request
    return _answer(problem_of(error))


async def _http(request: Request, error: Exception) -> Response:
    del request
    assert isinstance(error, HTTPException)
    detail = "the body is not JSON" if error.status_code == 400 else ""
    allow = (error.headers or {}).get("Allow", "")
    return _answer(Problem(_CODE_OF.get(error.status_code, "bad_request"), detail, allow=allow))


async def _invalid(request: Request, error: Exception) -> Response:
    """Where it is wrong, in what way, and what is expected; never what was given."""
    del request
    assert isinstance(error, RequestValidationError)
    found = error.errors()
    if any(each["type"] == "json_invalid" for each in found):
        return _answer(Problem("bad_request", "the body is not JSON"))
    return _answer(Problem("invalid", faults=[_fault(each) for each in found[: schemas.FAULTS_COUNT]]))


def _fault(error: Any) -> dict[str, str]:
    found = {"where": ".".join(map(str, error["loc"]))[:200], "what": error["type"]}
    return found | ({"expected": error["msg"]} if error["type"] in _TOLD else {})


def _document(app: FastAPI) -> dict[str, Any]:
    if app.openapi_schema is None:
        document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
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
        wanted = [(kind, "serialization") for kind in (schemas.ProblemDocument, *appends.ANSWERS)]
        _, definitions = models_json_schema(wanted, ref_template="#/components/schemas/{model}")  # type: ignore[arg-type]
        components["schemas"] = definitions["$defs"] | components.get("schemas", {})
        app.openapi_schema = document
    return app.openapi_schema


def _refusals() -> dict[str, Any]:
    """The problems that any route may answer with, by status, as OpenAPI has them."""
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemDocument"}}}
    codes: dict[str, list[str]] = {}
    for code, (status, _) in CODES.items():
        codes.setdefault(str(status), []).append(code)
    return {status: {"description": ", ".join(named), "content": content} for status, named in codes.items()}
