"""Ask the chat's model: its answer piece by piece, and its failures as ModelFailed."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterator
from functools import partial
from typing import Any, Protocol

from redismem.concurrency.callbacks import run_callback
from redismem.errors import ModelFailed
from redismem.events import facts, unquoted
from redismem.models.tool_calls import ToolDelta, Tools
from redismem.web.metrics.spans import chat_span

log = logging.getLogger("redismem")


class Model(Protocol):
    """A model that streams answers, such as `redismem.models.streaming.StreamingModel`."""

    @property
    def name(self) -> str: ...

    @property
    def provider(self) -> str: ...

    def stream(self, messages: list[dict[str, Any]], *, max_tokens: int) -> AsyncIterator[str | ToolDelta]:
        """Yield the answer piece by piece. Raises ModelFailed.

        With the option `tools` a piece may be a part of a call. A model that has no such option is asked without.
        """

    async def aclose(self) -> None: ...


async def ask_model(
    model: Model, prompt: list[dict[str, Any]], max_tokens: int, tools: Tools
) -> AsyncGenerator[str | ToolDelta, None]:
    """Yield the answer piece by piece. Raises ModelFailed, also for the errors of a model of the caller's own."""
    options: dict[str, Any] = {"tools": tools} if tools else {}
    stream = aiter(model.stream(prompt, max_tokens=max_tokens, **options))
    try:
        with chat_span(model.provider, model.name):
            while (piece := await run_callback(partial(anext, stream, None))) is not None:
                yield piece
    except ModelFailed:
        raise
    except Exception as error:
        # The text of a foreign error may quote messages.
        kind, trace = type(error).__name__, unquoted(error)
        log.error("the chat's model failed with %s", kind, exc_info=trace, extra=facts(op="chat", error=kind))
        raise ModelFailed("") from None
    finally:
        if isinstance(stream, AsyncGenerator):
            await stream.aclose()
