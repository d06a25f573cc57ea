"""Check methods and query names of requests against the OpenAPI document."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

from redismem.web.http.problems import Problem

SEARCH = "/v1/search"
"""The path of the search, which reads but has its conditions in a body."""
_QUARANTINE = "/v1/quarantine"
FIELDS_COUNT = 100
_CHECKED_ROOTS = ("/v1/", "/api/")
_STREAMS = frozenset(("/api/chat", "/ui/chat", "/ag-ui", "/openai/responses"))
_STREAM_ENDS = ("/events", "/turns", "/turns/current")
_RESPONSE = "/openai/responses/"


class Documented:
    """The routes of an OpenAPI document. Paths are percent-encoded, as the client sent them."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._routes = [_names_by_method(operations) for operations in document["paths"].values()]
        shapes = ("[^/]+".join(map(re.escape, re.split(r"\{\w+\}", path))) for path in document["paths"])
        self._paths = re.compile("|".join(f"({shape})" for shape in shapes))

    def check(self, method: str, path: str, query: bytes) -> None:
        """Check a request. Accepts any path that is not in the document, and any query of a probe.

        Raises:
            Problem: method_not_allowed, if the path does not have this method.
            Problem: bad_request or invalid, see `check_names`. The clients of other protocols add names of their own.
        """
        match = self._paths.fullmatch(path)
        if match is None:
            return
        methods = self._routes[(match.lastindex or 1) - 1]
        if method not in methods:
            raise Problem("method_not_allowed", allow=", ".join(_allowed_methods(methods, path)))
        names, lists = methods[method]
        is_strict = path.startswith(_CHECKED_ROOTS)
        if query and (is_strict or names):
            check_names(query, names, lists, only=is_strict)

    def query_names(self, method: str, path: str) -> tuple[str, ...]:
        """Return the query names of a route; none for any path or method that is not in the document."""
        match = self._paths.fullmatch(path)
        if match is None:
            return ()
        names, _ = self._routes[(match.lastindex or 1) - 1].get(method, ((), ()))
        return names


def is_stream(path: str) -> bool:
    """True if the path answers with a stream, which has no deadline because it limits itself."""
    if path.startswith("/v1/sessions/"):
        return path.endswith(_STREAM_ENDS)
    return (
        path in _STREAMS
        or path.startswith("/ui/chat/")
        or (path.startswith(_RESPONSE) and "/" not in path[len(_RESPONSE) :])
    )


def is_search(method: str, path: str, query: bytes) -> bool:
    """True if a request may read far more than it returns, so that only few of a namespace run at once."""
    if path == _QUARANTINE:
        return True
    if method not in ("GET", "HEAD"):
        return path == SEARCH or (path.startswith("/v1/sessions/") and path.endswith("/find"))
    if path.startswith("/v1/sessions/"):
        return b"include_originals" in query
    return path == "/v1/sessions" or path.startswith(("/v1/projects", "/v1/records"))


def check_names(
    query: bytes, names: tuple[str, ...], lists: tuple[str, ...] = (), *, only: bool = True
) -> dict[str, str]:
    """Return the query as a dict. Names in `lists` may be repeated: their last value counts.

    Raises:
        Problem: bad_request, if the query is not percent-encoded UTF-8: other bytes would name another owner.
        Problem: invalid, if there are too many fields, another name is repeated, or a name is not in `names`. Without
            `only` a query may have further names, and repeat these.
    """
    try:
        pairs = parse_qsl(query.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=FIELDS_COUNT)
    except UnicodeDecodeError:
        raise Problem("bad_request", "a query is percent-encoded UTF-8") from None
    except ValueError:
        raise Problem("invalid", f"a query has at most {FIELDS_COUNT} fields") from None
    fields = dict(pairs)
    if only and not fields.keys() <= set(names):
        detail = f"a query here has {', '.join(names)}, and no other name" if names else "there is no query here"
        raise Problem("invalid", detail)
    single = [name for name, _ in pairs if name not in lists and (only or name in names)]
    if len(set(single)) < len(single):
        raise Problem("invalid", "each name of a query comes once")
    return fields


def _names_by_method(operations: Mapping[str, Any]) -> dict[str, tuple[tuple[str, ...], tuple[str, ...]]]:
    """Return the query names of each method, and those of them that may be repeated."""
    found = {}
    for method, operation in operations.items():
        fields = [field for field in operation.get("parameters", ()) if field["in"] == "query"]
        lists = tuple(field["name"] for field in fields if _is_list(field["schema"]))
        found[method.upper()] = tuple(field["name"] for field in fields), lists
    return found


def _is_list(schema: Mapping[str, Any]) -> bool:
    return any(each.get("type") == "array" for each in (schema, *schema.get("anyOf", ())))


def _allowed_methods(methods: Mapping[str, Any], path: str) -> list[str]:
    return sorted({*methods, "HEAD"} if "GET" in methods and not is_stream(path) else methods)
