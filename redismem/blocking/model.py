"""Models for callers without an event loop. They run on one thread with a loop, which their connections need."""

from __future__ import annotations

from functools import partial
from typing import Any

from redismem.blocking.loop_thread import LoopThread
from redismem.models.draft import ChatModel
from redismem.project.extraction.extraction import Ask, ask_within_timeout
from redismem.settings.settings import Settings

_thread = LoopThread("redismem-models")


def asked_in_thread(model: ChatModel, settings: Settings) -> Ask:
    """Return a function that asks this model and blocks. The model must then be used only through this function."""
    ask = ask_within_timeout(model, settings)

    async def blocking_ask(messages: list[dict[str, Any]]) -> str:
        return _thread.run(partial(ask, messages))

    return blocking_ask


def close_model(model: ChatModel) -> None:
    """Close the connections of a model that was used without an event loop."""
    _thread.run(model.aclose)
