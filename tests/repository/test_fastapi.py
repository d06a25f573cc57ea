"""The service of the page about FastAPI does what the page says: streams, a retry, another user, and the errors."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from support.redis_server import RedisServer

PAGE = (Path(__file__).parents[2] / "docs" / "howto" / "fastapi.md").read_text()


def statuses(page: str) -> dict[str, int]:
    """Return the status of each error in the page's table."""
    rows = re.findall(r"^\| (`\w+`.*?) \| (\d{3})", page, re.MULTILINE)
    return {name: int(status) for names, status in rows for name in re.findall(r"`(\w+)`", names)}


def check_forgetting(client: TestClient) -> None:
    """Check that only Ann sees and clears her chat, and that nothing of her is left once she is forgotten."""
    ann, ben = {"cookie": "user=ann"}, {"cookie": "user=ben"}
    assert client.get("/chats", headers=ann).json() == {"c-1": "Where is it?"}
    assert client.get("/chats", headers=ben).json() == {}
    assert client.delete("/chats/c-1", headers=ben).status_code == 403
    assert client.delete("/me", headers=ann).json()["chats"] == 1
    assert client.get("/chats", headers=ann).json() == {}


def test_a_retry_asks_no_model_again_and_no_other_user_gets_in(
    redis_server: RedisServer, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDISMEM_URL", redis_server.url)
    names: dict[str, Any] = {}
    for block in re.findall(r"^```python\n(.*?)^```$", PAGE.replace('"shop"', repr(namespace)), re.M | re.S):
        exec(block, names)
    answers = iter(["It is sent.", "Said otherwise."])

    async def call_my_model(_: Any) -> AsyncIterator[str]:
        for word in next(answers).split(" "):
            yield word + " "

    names["call_my_model"] = call_my_model

    def post(user: str, text: str = "Where is it?", chat: str = "c-1") -> tuple[int, Any]:
        words = {"id": "t-1", "text": text}
        answer = client.post(f"/chats/{chat}/turns", json=words, headers={"cookie": f"user={user}"})
        return answer.status_code, answer.json()

    def listen(after: str = "") -> tuple[list[str], list[Any]]:
        headers = {"cookie": "user=ann"} | ({"last-event-id": after} if after else {})
        told = client.get("/chats/c-1/turns/t-1", headers=headers).text
        ids, data = (re.findall(rf"^{name}: (.*)$", told, re.MULTILINE) for name in ("id", "data"))
        return ids, [json.loads(each) for each in data]

    with TestClient(names["app"]) as client:
        assert [post("ann"), post("ann")] == [(202, None)] * 2
        ids, events = listen()
        assert "".join(event.get("delta", "") for event in events) == "It is sent. "
        assert (events[-1]["type"], events[-1]["outcome"]) == ("end", "done")
        assert listen(ids[0]) == (ids[1:], events[1:])
        assert next(answers) == "Said otherwise."
        assert client.post("/chats/c-1/turns/t-1/stop", headers={"cookie": "user=ann"}).json() is False
        nonsense = {"cookie": "user=ann", "last-event-id": "nonsense"}
        assert client.get("/chats/c-1/turns/t-1", headers=nonsense).status_code == 422
        refused = [post("ben"), post("ann", "What else?"), post("ann", chat="x" * 999)]
        check_forgetting(client)
    assert [status for status, _ in refused] == [403, 422, 422]
    assert not re.search("It is sent|c-1|ann", str(refused))


def test_the_snippet_maps_the_errors_of_the_table() -> None:
    table = statuses(PAGE)
    (mapping,) = re.findall(r"^STATUSES = \{(.*?)^\}", PAGE, re.M | re.S)
    mapped = {name: int(status) for name, status in re.findall(r"(\w+): (\d+)", mapping)}
    assert mapped == {**table, "ValueError": 422} == table | mapped
