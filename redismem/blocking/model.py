"""A model asked by callers without an event loop: in one thread that has a loop, as a model's connections need one."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import Any

from redismem.models.draft import ChatModel
from redismem.project.extraction.extraction import Ask, ask_within_timeout
from redismem.settings.settings import Settings

_lock = threading.Lock()
_loops: dict[int, asyncio.AbstractEventLoop] = {}


def asked_in_thread(model: ChatModel, settings: Settings) -> Ask:
    """Asks this model, blocks, and never suspends. From then on the model belongs to that thread."""
    ask = ask_within_timeout(model, settings)

    async def blocking_ask(messages: list[dict[str, Any]]) -> str:
        async def asking() -> str:
            return await ask(messages)

        return asyncio.run_coroutine_threadsafe(asking(), _loop()).result()

    return blocking_ask


def close_model(model: ChatModel) -> None:
    """Closes the connections of a model that was used without an event loop."""
    asyncio.run_coroutine_threadsafe(_closed(model), _loop()).result()


async def _closed(model: ChatModel) -> None:
    await model.aclose()


def _loop() -> asyncio.AbstractEventLoop:
    """The loop of the thread: one a process, as a process that was forked off has no thread of the other's."""
    with _lock:
        loop = _loops.get(os.getpid())
        if loop is None:
            _loops.clear()
            loop = _loops[os.getpid()] = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, name="redismem-models", daemon=True).start()
        return loop
