"""Finding a text in one conversation: all its messages, also behind summaries, a bounded number per request."""

from __future__ import annotations

from typing import Any

import pytest
from support.http_service import RunningService, numbered_message, serve_memory

from redismem import Memory
from redismem.models import open_extractive
from redismem.web import finding
from redismem.workers.strategies import Summarize
from redismem.workers.summaries import Worker


async def find(http: RunningService, **asked: Any) -> tuple[list[int], int | None]:
    answer = await http.ask("POST", "/v1/sessions/s/find", json=asked)
    assert answer.status_code == 200, answer.text
    document = answer.json()
    return document["seqs"], document["before"]


async def test_a_text_is_found_in_all_messages(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finding, "_PAGE_COUNT", 10)
    monkeypatch.setattr(finding, "_PAGES_COUNT", 2)
    call = {"id": "c1", "type": "function", "function": {"name": "ship", "arguments": '{"to": "Zürich"}'}}
    session = memory.session("s")
    await session.append({"role": "user", "content": "The BLUE\n  kettle"}, *(numbered_message(n) for n in range(28)))
    await session.append({"role": "assistant", "content": None, "tool_calls": [call]}, numbered_message("blue kettle"))
    await Worker(memory.store, Summarize(open_extractive())).drain()
    assert (await session.read()).first_seq > 20
    async with serve_memory(memory) as http:
        assert await find(http, text="blue  Kettle") == ([31], 12)
        assert await find(http, text="blue kettle", before=12) == ([1], None)
        assert await find(http, text="zürich") == ([30], 12)
        assert await find(http, text="e") == ([*range(12, 30), 31], 12)
        for wrong in ({"text": " "}, {}, {"text": "x", "before": 0}, {"text": "x", "after": 1}):
            assert (await http.ask("POST", "/v1/sessions/s/find", json=wrong)).status_code == 422
        await session.forget(1)
        assert await find(http, text="blue kettle", before=12) == ([], None)
        await session.clear()
        assert (await http.ask("POST", "/v1/sessions/s/find", json={"text": "kettle"})).status_code == 404
