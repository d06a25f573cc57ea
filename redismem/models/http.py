"""The way of one request to a provider: what is sent, what counts as an answer, and what a refusal means.

One attempt is one request: whether and when to try again is up to the caller. Errors carry a status and the provider's
code for it, never what was sent or answered. What the request has nothing to do with is a ProviderUnavailable.
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
from redismem.models.tls import trusted

CONNECT_S = 5.0
MAX_REPLY_BYTES = 1024 * 1024
# The longest pause that a provider is granted: whoever asks for more is asked again then.
MAX_WAIT_S = 3_600.0
# What a request itself may be refused for. Any other status says that nobody gets an answer.
_OF_THE_REQUEST = frozenset([400, 413, 422])
# So do these codes, whatever their status: Gemini answers 400 to a wrong key.
_OF_THE_ACCOUNT = frozenset(
    ["invalid_api_key", "API_KEY_INVALID", "insufficient_quota", "billing_hard_limit_reached", "model_not_found"]
)
_WORD = re.compile("[A-Za-z_]{1,40}")
_KEY = re.compile("[!-~]+")


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """The pause that a provider asks for: retry-after-ms, else retry-after in seconds or as a date."""
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


def checked_key(api_key: str | None) -> str:
    """The key, "" for none. Raises InvalidSettings, without it."""
    key = (api_key or "").strip()
    if key and not _KEY.fullmatch(key):
        raise InvalidSettings("the API key of a model holds characters that no key has")
    return key


def failed(reason: str, *, permanent: bool = False) -> ModelFailed:
    """The error for this reason: all of it is said here, and nothing of what was sent or answered."""
    return ModelFailed(reason, reason=reason, permanent=permanent)


def unavailable(reason: str, retry_after_s: float | None = None, *, perhaps_request: bool) -> ProviderUnavailable:
    """The same, for what the transcript has nothing to do with, or only perhaps."""
    return ProviderUnavailable(reason, reason=reason, retry_after_s=retry_after_s, perhaps_request=perhaps_request)


def refusal(name: str, status: int, headers: Mapping[str, str], raw: bytes) -> ModelFailed:
    """What an answer other than 200 means for the next attempt."""
    words = _error_words(raw)
    reason = f"{name} answered {' '.join([str(status), *words])}"
    if status in _OF_THE_REQUEST and _OF_THE_ACCOUNT.isdisjoint(words):
        return failed(reason, permanent=headers.get("x-should-retry") != "true")
    wait_s = retry_after_s(headers)
    return unavailable(reason, None if wait_s is None else min(wait_s, MAX_WAIT_S), perhaps_request=status >= 500)


def _error_words(raw: bytes) -> list[str]:
    """The provider's own names for the error. Not its message: that may quote the key or the transcript."""
    try:
        reply = json.loads(raw)
    except (ValueError, RecursionError):
        return []
    error = reply.get("error") if isinstance(reply, dict) else None
    if not isinstance(error, dict):
        return []
    details = error.get("details")
    found = [error.get(name) for name in ("code", "type", "status")]
    found += [each.get("reason") for each in (details if isinstance(details, list) else ()) if isinstance(each, dict)]
    words = (word for word in found if isinstance(word, str) and _WORD.fullmatch(word))
    return list(dict.fromkeys(words))[:3]


def not_json(name: str) -> ModelFailed:
    """The error for an answer that cannot be read."""
    return failed(f"{name} answered with something other than JSON in UTF-8")


class Address(Protocol):
    """Where a provider is asked, and how it knows who asks. No I/O."""

    @property
    def name(self) -> str: ...

    @property
    def base_url(self) -> str: ...

    def path(self, model: str) -> str: ...

    def headers(self, api_key: str) -> dict[str, str]: ...


class Asking:
    """One address of a provider's, and how it is asked."""

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
        """`name`: the provider's, in errors. `timeout_s`: for one request as a whole."""
        self._name = name
        self._url = url
        headers = {"accept-encoding": "identity", "content-type": "application/json", "user-agent": "redismem"}
        self._headers = {**headers, **key_headers}
        self._timeout_s = timeout_s
        self._max_reply_bytes = max_reply_bytes
        self._owns_client = client is None
        self._client = client or httpx.AsyncClient(verify=trusted(), trust_env=False)

    async def ask(self, body: Callable[[], Any]) -> Any:
        """What a status of 200 brought, out of JSON, in answer to what `body` makes. Raises ModelFailed."""
        name = self._name
        request = self._request(body)
        try:
            async with asyncio.timeout(self._timeout_s):  # httpx limits each read, not the whole
                status, headers, raw = await self._send(request)
        except (TimeoutError, httpx.ReadTimeout, httpx.WriteTimeout):
            raise unavailable(f"{name} did not answer within {self._timeout_s:g} s", perhaps_request=True) from None
        except httpx.HTTPError as cause:
            connected = not isinstance(cause, httpx.ConnectError | httpx.ConnectTimeout)
            kind = type(cause).__name__
            raise unavailable(f"{name} could not be asked ({kind})", perhaps_request=connected) from None
        if status != 200:
            raise refusal(name, status, headers, raw)
        try:
            return json.loads(raw.decode())
        except (ValueError, RecursionError):
            raise not_json(name) from None

    async def aclose(self) -> None:
        """Closes the connections, unless the client is the caller's."""
        if self._owns_client:
            await self._client.aclose()

    def _request(self, body: Callable[[], Any]) -> httpx.Request:
        try:
            text = json.dumps(body(), ensure_ascii=False, allow_nan=False)
        except (ValueError, TypeError, RecursionError):
            raise failed("the messages hold a value that JSON has no form for", permanent=True) from None
        timeout = httpx.Timeout(self._timeout_s, connect=min(CONNECT_S, self._timeout_s))
        content = text.encode("utf-8", "replace")  # halves of surrogate pairs become question marks
        return self._client.build_request("POST", self._url, content=content, headers=self._headers, timeout=timeout)

    async def _send(self, request: httpx.Request) -> tuple[int, Mapping[str, str], bytes]:
        response = await self._client.send(request, stream=True, follow_redirects=False, auth=None)
        try:
            raw = bytearray()
            # Raw: a small compressed body may unpack to any size.
            async for chunk in response.aiter_raw():
                raw += chunk
                if len(raw) > self._max_reply_bytes:
                    raise failed(f"{self._name} answered with more than {self._max_reply_bytes} bytes")
        finally:
            await response.aclose()
        return response.status_code, response.headers, bytes(raw)
