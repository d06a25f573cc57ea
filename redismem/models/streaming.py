"""A chat model that streams its answer, over the same HTTP API as the model that summarises."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from time import monotonic
from typing import Any, Literal

import httpx

from redismem.errors import InvalidSettings
from redismem.models.base_url import split_base_url
from redismem.models.clients import Clients
from redismem.models.http import CONNECT_S, MAX_REPLY_BYTES, model_error, refusal_error, unavailable_error
from redismem.models.http_model import HttpModel, Wire
from redismem.models.openai import key_header_for
from redismem.models.stream_wires import AnthropicStream, GeminiStream, OpenAIStream, StreamWire
from redismem.models.tool_calls import CallsOfAnswer, ToolDelta, Tools

_ERROR_BYTES = 64 * 1024


class StreamingModel:
    """A chat model behind a provider's HTTP API that returns its answer whole or as a stream."""

    def __init__(
        self,
        wire: OpenAIStream | AnthropicStream | GeminiStream,
        model: str,
        api_key: str | None = None,
        *,
        base_url: str | None = None,
        allow_http: bool = False,
        silence_s: float = 60,
        total_s: float = 300,
        client: httpx.AsyncClient | None = None,
    ) -> None:
        """`silence_s` limits the pause between two pieces, `total_s` the whole answer, both in seconds.

        Raises InvalidSettings.
        """
        # Also validates the settings and the key.
        self._model_over_http = HttpModel(wire, model, api_key, base_url=base_url, allow_http=allow_http, client=client)
        self._wire: StreamWire = wire
        self._named: Wire = wire
        self._model = model
        base, query = split_base_url(wire.base_url if base_url is None else base_url, allow_http)
        path, _, own_query = wire.stream_path(model).partition("?")
        whole_query = "&".join(filter(None, (query.removeprefix("?"), own_query)))
        self._url = f"{base}{path}?{whole_query}" if whole_query else base + path
        key = (api_key or "").strip()
        headers = {"accept": "text/event-stream", "accept-encoding": "identity", "content-type": "application/json"}
        self._headers = headers | {"user-agent": "redismem"} | (wire.headers(key) if key else {})
        self._silence_s = silence_s
        self._total_s = total_s
        self._clients = Clients(client)

    @property
    def name(self) -> str:
        """The model's name."""
        return self._model

    @property
    def provider(self) -> str:
        """The provider's name."""
        return self._named.name

    async def reply(self, messages: Sequence[dict[str, Any]], *, max_tokens: int) -> str:
        """Return the whole answer.

        Raises:
            ModelFailed: There is no usable text.
        """
        return await self._model_over_http.reply(messages, max_tokens=max_tokens)

    async def stream(
        self, messages: Sequence[dict[str, Any]], *, max_tokens: int, tools: Tools = ()
    ) -> AsyncIterator[str | ToolDelta]:
        """Yield the answer in pieces: text, and with `tools` also the calls of these tools.

        Raises:
            ModelFailed: The model failed, perhaps after some pieces; the rest of the answer is then missing.
        """
        end_s = monotonic() + self._total_s
        try:
            response = await self._within(end_s, self._send(messages, max_tokens, tools))
        except httpx.HTTPError as cause:
            connected = not isinstance(cause, httpx.ConnectError | httpx.ConnectTimeout)
            reason = f"{self.provider} did not answer ({type(cause).__name__})"
            raise unavailable_error(reason, perhaps_request=connected) from None
        try:
            if response.status_code != 200:
                raw = await self._within(end_s, _read_start(response))
                raise refusal_error(self.provider, response.status_code, response.headers, raw)
            async for piece in self._pieces(response, end_s, max_tokens, takes_calls=bool(tools)):
                yield piece
        except httpx.HTTPError as cause:
            raise model_error(f"{self.provider} broke off ({type(cause).__name__})") from None
        finally:
            await response.aclose()

    async def aclose(self) -> None:
        """Close the connections that the model opened itself."""
        await self._model_over_http.aclose()
        await self._clients.aclose()

    async def _send(self, messages: Sequence[dict[str, Any]], max_tokens: int, tools: Tools) -> httpx.Response:
        try:
            body = json.dumps(self._wire.stream_body(self._model, messages, max_tokens, tools), allow_nan=False)
        except (ValueError, TypeError, RecursionError):
            raise model_error("the messages contain a value that JSON cannot represent", permanent=True) from None
        timeout = httpx.Timeout(self._silence_s, connect=min(CONNECT_S, self._silence_s))
        request = self._clients.here().build_request(
            "POST", self._url, content=body, headers=self._headers, timeout=timeout
        )
        return await self._clients.here().send(request, stream=True, follow_redirects=False, auth=None)

    async def _pieces(
        self, response: httpx.Response, end_s: float, max_tokens: int, *, takes_calls: bool
    ) -> AsyncIterator[str | ToolDelta]:
        has_text, calls = False, CallsOfAnswer()
        async for event in self._events(response, end_s):
            if event == "[DONE]":
                break
            try:
                piece = self._wire.piece(json.loads(event))
            except (ValueError, RecursionError):
                raise model_error(f"{self.provider} answered with something other than JSON") from None
            if piece.text:
                has_text = True
                # Lone surrogates are valid JSON, but not valid text.
                yield _sendable(piece.text)
            for part in piece.calls if takes_calls else ():
                yield calls.add(part._replace(name=_sendable(part.name), arguments=_sendable(part.arguments)))
            if piece.is_cut:
                raise model_error(f"{self.provider} stopped at the limit of {max_tokens} tokens")
            if piece.is_end:
                break
        else:
            raise model_error(f"{self.provider} broke off")
        for end in calls.end():
            yield end
        if not has_text and not calls:
            raise model_error(f"{self.provider} answered with an empty text")

    async def _events(self, response: httpx.Response, end_s: float) -> AsyncIterator[str]:
        """Yield the data lines of the event stream."""
        chunks = response.aiter_raw()
        buffer = bytearray()
        read_bytes = 0
        while (chunk := await self._within(end_s, anext(chunks, None))) is not None:
            read_bytes += len(chunk)
            if read_bytes > 8 * MAX_REPLY_BYTES or len(buffer) > MAX_REPLY_BYTES:
                raise model_error(f"{self.provider} answered with too many bytes")
            buffer += chunk
            *lines, rest = bytes(buffer).split(b"\n")
            buffer = bytearray(rest)
            for line in lines:
                field, _, value = line.decode("utf-8", "replace").rstrip("\r").partition(":")
                if field == "data":
                    yield value.removeprefix(" ")

    async def _within(self, end_s: float, work: Any) -> Any:
        try:
            async with asyncio.timeout(max(0.0, end_s - monotonic())):
                return await work
        except TimeoutError:
            raise model_error(f"{self.provider} did not end its answer within {self._total_s:g} s") from None


def _sendable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


async def _read_start(response: httpx.Response) -> bytes:
    raw = bytearray()
    async for chunk in response.aiter_raw():
        raw += chunk
        if len(raw) > _ERROR_BYTES:
            break
    return bytes(raw[:_ERROR_BYTES])


def open_streaming(
    provider: Literal["openai", "gemini", "anthropic"],
    model: str,
    api_key: str | None = None,
    *,
    max_tokens_field: str = "max_completion_tokens",
    **options: Any,
) -> StreamingModel:
    """Open a model that streams. `options` are the arguments of StreamingModel.

    Raises:
        InvalidSettings: The provider, model, key or address cannot be used.
    """
    wires: dict[str, OpenAIStream | AnthropicStream | GeminiStream] = {
        "openai": OpenAIStream(max_tokens_field, key_header=key_header_for(options.get("base_url"))),
        "gemini": GeminiStream(),
        "anthropic": AnthropicStream(),
    }
    if provider not in wires:
        raise InvalidSettings(f"the provider of a model must be one of {', '.join(wires)}")
    return StreamingModel(wires[provider], model, api_key, **options)
