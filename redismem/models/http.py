"""Send one request to a provider, and turn a refusal into an error.

One call is one request: the caller decides whether and when to retry. Errors carry a status and the provider's error
code, never the request or the answer. A failure that the request did not cause raises ProviderUnavailable.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Protocol

import httpx

from redismem.errors import InvalidSettings, ModelFailed, ProviderUnavailable
from redismem.models.clients import Clients

CONNECT_S = 5.0
MAX_REPLY_BYTES = 1024 * 1024
# The longest pause that a provider may ask for. After this time the provider is asked again.
MAX_WAIT_S = 3_600.0
# Statuses caused by the request itself. Any other status means that the provider is unavailable.
_REQUEST_STATUSES = frozenset([400, 413, 422])
# Codes that mean unavailable with any status. Gemini answers 400 to a wrong key.
_ACCOUNT_CODES = frozenset(
    ["invalid_api_key", "API_KEY_INVALID", "insufficient_quota", "billing_hard_limit_reached", "model_not_found"]
)
_WORD = re.compile("[A-Za-z_]{1,40}")
_KEY = re.compile("[!-~]+")


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Return the pause that a provider asks for, in seconds.

    It is in the header retry-after-ms, or in retry-after as seconds or a date.
    """
    for name, unit_s in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            wait_s = float(headers.get(name, "")) * unit_s
        except ValueError:
            continue
        if wait_s >= 0:
            return wait_s
    try:
        until = parsedate_to_datetime(headers.get("retry-after", ""))
    except (ValueError, TypeError, OverflowError):
        return None
    until = until if until.tzinfo else until.replace(tzinfo=UTC)
    return max((until - datetime.now(UTC)).total_seconds(), 0.0)


def normalize_key(api_key: str | None) -> str:
    """Return the key without surrounding spaces; "" if there is none.

    Raises InvalidSettings, which never quotes the key.
    """
    key = (api_key or "").strip()
    if key and not _KEY.fullmatch(key):
        raise InvalidSettings("the API key of a model contains characters that no key has")
    return key


def model_error(reason: str, *, permanent: bool = False) -> ModelFailed:
    """Return a ModelFailed whose text is this reason alone, without quotes of the request or the answer."""
    return ModelFailed(reason, reason=reason, permanent=permanent)


def unavailable_error(reason: str, retry_after_s: float | None = None, *, perhaps_request: bool) -> ProviderUnavailable:
    """Return a ProviderUnavailable. `perhaps_request` is True if the request may have caused the failure."""
    return ProviderUnavailable(reason, reason=reason, retry_after_s=retry_after_s, perhaps_request=perhaps_request)


def refusal_error(name: str, status: int, headers: Mapping[str, str], raw: bytes) -> ModelFailed:
    """Return the error for a status other than 200. The class of the error says if a retry may help."""
    words = _error_words(raw)
    reason = f"{name} answered {' '.join([str(status), *words])}"
    if status in _REQUEST_STATUSES and _ACCOUNT_CODES.isdisjoint(words):
        return model_error(reason, permanent=headers.get("x-should-retry") != "true")
    wait_s = retry_after_s(headers)
    return unavailable_error(reason, None if wait_s is None else min(wait_s, MAX_WAIT_S), perhaps_request=status >= 500)


def _error_words(raw: bytes) -> list[str]:
    """Return the provider's codes for the error.

    The provider's message is left out, because it may quote the key or the transcript.
    """
    try:
        reply = json.loads(raw)
    except (ValueError, RecursionError):
        return []
    error = reply.get("error") if isinstance(reply, dict) else None
    if not isinstance(error, dict):
        return []
    details = error.get("details")
    codes = [error.get(name) for name in ("code", "type", "status")]
    codes += [each.get("reason") for each in (details if isinstance(details, list) else ()) if isinstance(each, dict)]
    words = (code for code in codes if isinstance(code, str) and _WORD.fullmatch(code))
    return list(dict.fromkeys(words))[:3]


def not_json_error(name: str) -> ModelFailed:
    """Return the error for an answer that cannot be decoded."""
    return model_error(f"{name} answered with something other than JSON in UTF-8")


class Address(Protocol):
    """The address of a provider's API and its authentication headers. No I/O."""

    @property
    def name(self) -> str: ...

    @property
    def base_url(self) -> str: ...

    def path(self, model: str) -> str: ...

    def headers(self, api_key: str) -> dict[str, str]: ...


class Endpoint:
    """One URL of a provider's API, and the client that calls it."""

    def __init__(
        self,
        name: str,
        url: str,
        key_headers: Mapping[str, str],
        timeout_s: float,
        *,
        max_reply_bytes: int = MAX_REPLY_BYTES,
        client: httpx.AsyncClient | None = None,
    ) -> None:
        """`name` is the provider's name in errors. `timeout_s` limits each whole request."""
        self._name = name
        self._url = url
        headers = {"accept-encoding": "identity", "content-type": "application/json", "user-agent": "redismem"}
        self._headers = {**headers, **key_headers}
        self._timeout_s = timeout_s
        self._max_reply_bytes = max_reply_bytes
        self._clients = Clients(client)

    async def ask(self, body: Callable[[], Any]) -> Any:
        """Send the JSON that `body` builds and return the decoded answer. Raises ModelFailed."""
        name = self._name
        request = self._request(body)
        try:
            async with asyncio.timeout(self._timeout_s):  # httpx limits each read, not the whole request
                status, headers, raw = await self._send(request)
        except (TimeoutError, httpx.ReadTimeout, httpx.WriteTimeout):
            raise unavailable_error(
                f"{name} did not answer within {self._timeout_s:g} s", perhaps_request=True
            ) from None
        except httpx.HTTPError as cause:
            connected = not isinstance(cause, httpx.ConnectError | httpx.ConnectTimeout)
            kind = type(cause).__name__
            raise unavailable_error(f"{name} did not answer ({kind})", perhaps_request=connected) from None
        if status != 200:
            raise refusal_error(name, status, headers, raw)
        try:
            return json.loads(raw.decode())
        except (ValueError, RecursionError):
            raise not_json_error(name) from None

    async def aclose(self) -> None:
        """Close the connections, unless the caller owns the client."""
        await self._clients.aclose()

    def _request(self, body: Callable[[], Any]) -> httpx.Request:
        try:
            text = json.dumps(body(), ensure_ascii=False, allow_nan=False)
        except (ValueError, TypeError, RecursionError):
            raise model_error("the messages contain a value that JSON cannot represent", permanent=True) from None
        timeout = httpx.Timeout(self._timeout_s, connect=min(CONNECT_S, self._timeout_s))
        content = text.encode("utf-8", "replace")  # lone surrogates become question marks
        return self._clients.here().build_request(
            "POST", self._url, content=content, headers=self._headers, timeout=timeout
        )

    async def _send(self, request: httpx.Request) -> tuple[int, Mapping[str, str], bytes]:
        response = await self._clients.here().send(request, stream=True, follow_redirects=False, auth=None)
        try:
            raw = bytearray()
            # Raw bytes, because a small compressed body may unpack to any size.
            async for chunk in response.aiter_raw():
                raw += chunk
                if len(raw) > self._max_reply_bytes:
                    raise model_error(f"{self._name} answered with more than {self._max_reply_bytes} bytes")
        finally:
            await response.aclose()
        return response.status_code, response.headers, bytes(raw)
