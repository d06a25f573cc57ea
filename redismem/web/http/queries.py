"""Validate requests against the OpenAPI document: the methods of a path, and the names in its query."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

from redismem.web.http.problems import Problem

_FIELDS_COUNT = 100
_OF_CLIENTS = ("/v1/", "/api/")


class Documented:
    """The routes of a document. Paths are as they were sent."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._routes = [_names_by_method(operations) for operations in document["paths"].values()]
        shapes = ("[^/]+".join(map(re.escape, re.split(r"\{\w+\}", path))) for path in document["paths"])
        self._paths = re.compile("|".join(f"({shape})" for shape in shapes))

    def check(self, method: str, path: str, query: bytes) -> None:
        """Raises Problem: method_not_allowed; invalid, for a name that is none: it would be passed over in silence."""
        found = self._paths.fullmatch(path)
        if found is None:
            return
        methods = self._routes[(found.lastindex or 1) - 1]
        if method not in methods:
            raise Problem("method_not_allowed", allow=", ".join(_with_head(methods, path)))
        if query and path.startswith(_OF_CLIENTS):  # probes may be asked with whatever their caller likes
            check_names(query, methods[method])


def is_stream(path: str) -> bool:
    """True if the response of this path has no time limit, since it bounds itself."""
    return path == "/api/chat" or (path.startswith("/v1/sessions/") and path.endswith("/events"))


def check_names(query: bytes, names: tuple[str, ...]) -> dict[str, str]:
    """The query by its names, the last of each. Raises Problem: invalid, for other names than these."""
    try:
        given = dict(parse_qsl(query.decode("latin-1"), keep_blank_values=True, max_num_fields=_FIELDS_COUNT))
    except ValueError:
        raise Problem("invalid", f"a query has at most {_FIELDS_COUNT} fields") from None
    if not given.keys() <= set(names):
        told = f"a query here has {', '.join(names)}, and no other name" if names else "there is no query here"
        raise Problem("invalid", told)
    return given


def _names_by_method(operations: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    return {
        method.upper(): tuple(each["name"] for each in operation.get("parameters", ()) if each["in"] == "query")
        for method, operation in operations.items()
    }


def _with_head(methods: Mapping[str, Any], path: str) -> list[str]:
    return sorted({*methods, "HEAD"} if "GET" in methods and not is_stream(path) else methods)
