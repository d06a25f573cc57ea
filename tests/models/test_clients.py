"""A model in several event loops: its connections belong to the loop that opened them, and are closed with it."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from support.provider_server import ProviderServer

from redismem.models import open_model

ASKED = [{"role": "user", "content": "Why?"}]


def open_stream(server: ProviderServer) -> Any:
    return open_model("openai", "some-model", "key", base_url=server.base_url, allow_http=True)


def test_event_loops_use_a_model_one_after_the_other(server: ProviderServer) -> None:
    model = open_stream(server)
    for _ in range(3):
        assert asyncio.run(model.reply(ASKED, max_tokens=10))
    asyncio.run(model.aclose())
    with pytest.raises(RuntimeError, match="this model is closed"):
        asyncio.run(model.reply(ASKED, max_tokens=10))
    assert len(server.asked) == 3


def test_event_loops_of_several_threads_use_a_model_at_once(server: ProviderServer) -> None:
    model, failures = open_stream(server), list[BaseException]()
    start = threading.Barrier(4)

    async def ask() -> None:
        await asyncio.gather(*(model.reply(ASKED, max_tokens=10) for _ in range(4)))

    def run() -> None:
        start.wait(60)
        try:
            for _ in range(3):
                asyncio.run(ask())
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(server.asked) == 48
    asyncio.run(model.aclose())
