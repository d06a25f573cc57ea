"""The streaming chat: tools, images, retries, other processes, stops and the archive, as a client of it sees them."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from support.example_processes import Places, serve_example
from support.provider_answers import call_message
from support.redis_server import free_port
from support.waiting import START_S, wait_until

import redismem
from examples.fastapi_chat.app import app, get_services
from examples.fastapi_chat.turns import Turns
from redismem import Settings
from redismem.workers.archive import read_archive

PNG = b"\x89PNG\r\n\x1a\n" + b"pixels" * 1000
CALLS = call_message(("call-1", "find_order", {"number": "O-17"}), ("call-2", "book_repair", {"day": "2026-12-01"}))
ANSWER = {"role": "assistant", "content": "O-17 is sent, and your repair is booked."}


class Shop(ThreadingHTTPServer):
    """The API that the tools call. `asked` has the path and the idempotency key of each request."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), ShopRequest)
        self.asked: list[tuple[str, str | None]] = []
        self.is_open = threading.Event()
        self.is_open.set()


class ShopRequest(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert isinstance(self.server, Shop)
        self.server.asked.append((self.path, self.headers["Idempotency-Key"]))
        assert self.server.is_open.wait(60)
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"state": "done"}')

    do_POST = do_GET  # noqa: N815 (the server looks for this name)

    def log_message(self, format: str, *args: Any) -> None: ...


@pytest.fixture
def shop() -> Iterator[Shop]:
    with Shop() as shop:
        thread = threading.Thread(target=shop.serve_forever)
        thread.start()
        yield shop
        shop.shutdown()
        thread.join()


@pytest.fixture
def environment(shop: Shop, tmp_path: Path) -> dict[str, str]:
    return {
        "SHOP_URL": f"http://127.0.0.1:{shop.server_port}",
        "CHAT_IMAGES": str(tmp_path / "images"),
        "CHAT_ARCHIVE": str(tmp_path / "chats.jsonl"),
    }


Event = tuple[str, dict[str, Any]]


def begin(client: httpx.Client, chat: str, turn: dict[str, Any]) -> None:
    response = client.post(f"/chats/{chat}/turns", json=turn)
    assert response.status_code == 202, response.text


def listen(client: httpx.Client, chat: str, turn_id: str, after: str = "") -> Iterator[Event]:
    """Yield the id and the document of each event of a turn."""
    headers = {"last-event-id": after} if after else {}
    with client.stream("GET", f"/chats/{chat}/turns/{turn_id}", headers=headers) as response:
        assert response.status_code == 200
        event_id = ""
        for line in response.iter_lines():
            name, _, value = line.partition(": ")
            if name == "id":
                event_id = value
            elif name == "data":
                yield event_id, json.loads(value)


def take_turn(client: httpx.Client, chat: str, turn: dict[str, Any]) -> list[Event]:
    """Take a turn, and return its events."""
    begin(client, chat, turn)
    return list(listen(client, chat, turn["id"]))


def joined(events: list[Event]) -> str:
    assert events[-1][1]["outcome"] == "done", events[-1]
    return "".join(event["delta"] for _, event in events if event["type"] == "text")


def test_a_turn_runs_tools_and_sees_images_and_is_repeated_without_the_model(
    places: Places, shop: Shop, environment: dict[str, str], tmp_path: Path
) -> None:
    provider = places.provider
    with serve_example("fastapi_chat", places, REDISMEM_MAX_SESSIONS="1", **environment) as client:
        refused = client.post("/chats/anna/images", content=b"<svg/>", headers={"content-type": "image/svg+xml"})
        assert refused.status_code == 415
        stored = client.post("/chats/anna/images", content=PNG, headers={"content-type": "image/png"})
        reference = stored.json()["image"]
        turn = {"id": "t-1", "text": "Is O-17 sent? Please repair this.", "images": [reference]}
        assert client.post("/chats/ben/turns", json=turn).status_code == 404  # it is an image of another chat

        provider.script.extend([CALLS, ANSWER])
        events = take_turn(client, "anna", turn)
        assert joined(events) == ANSWER["content"]
        assert len(events) > 4  # in pieces
        assert sorted(shop.asked, key=str) == [("/orders/O-17", None), ("/repairs", "t-1:call-2")]
        _, question, calls, *results = provider.bodies[1]["messages"]
        assert question["content"][1]["image_url"]["url"].startswith("data:image/png;base64,iVBORw0KGgpw")
        assert [call["id"] for call in calls["tool_calls"]] == [each["tool_call_id"] for each in results]
        assert [each["content"] for each in results] == ['{"state": "done"}'] * 2

        assert joined(take_turn(client, "anna", turn)) == ANSWER["content"]
        assert (len(provider.asked), len(shop.asked)) == (2, 2)
        messages = client.get("/chats/anna").json()["messages"]
        assert [message["role"] for message in messages] == ["user", "assistant", "tool", "tool", "assistant"]
        assert messages[0]["content"][1]["image_url"]["url"] == reference

        provider.script.append({"role": "assistant", "content": "Hello."})
        take_turn(client, "ben", {"id": "t-2", "text": "Hi"})  # one session too many: the older one is evicted
        wait_until(lambda: client.get("/chats/anna").status_code == 404, "the first chat is evicted", START_S)
        (archived,) = read_archive(tmp_path / "chats.jsonl")
        assert (archived.session_id, archived.messages[-1].content) == ("anna", ANSWER["content"])
        assert client.delete("/chats/anna").status_code == 204
        assert not list((tmp_path / "images").rglob("*.png"))


def test_another_process_continues_a_turn_and_failures_are_told(
    places: Places, shop: Shop, environment: dict[str, str]
) -> None:
    provider = places.provider
    turn = {"id": "t-1", "text": "Is O-17 sent? Please book a repair."}
    provider.script.append(CALLS)
    provider.modes.extend(["ok", "silent"])
    environment["REDISMEM_LIVE_LEASE_S"] = "1"
    with serve_example("fastapi_chat", places, **environment) as client:
        begin(client, "anna", turn)
        provider.wait_for_asked(2)  # the tools have run, and the model is silent
    with serve_example("fastapi_chat", places, **environment) as client:
        assert take_turn(client, "anna", turn)[-1][1]["outcome"] == "lost"
        for mode in ("401", "empty"):  # nothing was said, so the turn may begin again
            provider.modes.append(mode)
            end = take_turn(client, "anna", turn)[-1][1]
            assert (end["type"], end["outcome"], end["seq"]) == ("end", "failed", None), mode
        provider.script.append(ANSWER)
        assert joined(take_turn(client, "anna", turn)) == ANSWER["content"]
        assert [body["messages"][-1]["role"] for body in provider.bodies] == ["user", *["tool"] * 4]
        assert len(shop.asked) == 2
        for number, mode in enumerate(("break", "cut", "error")):  # a part is the reply
            provider.modes.append(mode)
            end = take_turn(client, "ben", {"id": f"t-{number}", "text": "Hi"})[-1][1]
            assert (end["outcome"], end["seq"]) == ("failed", 2 + 2 * number), mode

        assert client.post("/chats/anna/turns", json=turn | {"text": "Another"}).status_code == 422
        assert client.post("/chats/anna/turns", json=turn | {"id": "not/one"}).status_code == 422
        assert client.get("/chats/anna/turns/unknown").status_code == 404
        assert client.get("/chats/anna/turns/t-1", headers={"last-event-id": "nonsense"}).status_code == 422
        assert client.get("/chats/nobody").status_code == 404


def test_another_process_resumes_the_stream_and_stops_the_model(places: Places, environment: dict[str, str]) -> None:
    provider = places.provider
    provider.modes.append("hang")  # after two pieces
    with (
        serve_example("fastapi_chat", places, **environment) as writing,
        serve_example("fastapi_chat", places, **environment) as other,
    ):
        begin(writing, "anna", {"id": "t-1", "text": "Where is it?"})
        heard = list[Event]()
        for each in listen(other, "anna", "t-1"):
            heard.append(each)
            if "".join(event.get("delta", "") for _, event in heard) == "Your parcel ":
                break  # the connection of the client breaks
        assert other.post("/chats/anna/turns/t-0/stop").json() == {"stopped": False}
        assert other.post("/chats/anna/turns/t-1/stop").json() == {"stopped": True}
        rest = [event for _, event in listen(writing, "anna", "t-1", after=heard[-1][0])]
        assert [event["type"] for event in rest] == ["message", "end"]
        assert (rest[-1]["outcome"], rest[-1]["seq"]) == ("stopped", 2)
        assert other.get("/chats/anna").json()["messages"][-1]["content"] == "Your parcel "


async def test_a_redis_that_is_away_is_a_status(monkeypatch: pytest.MonkeyPatch) -> None:
    place, settings = f"redis://127.0.0.1:{free_port()}/0", Settings(deadline_s=0.05)
    async with (
        contextlib.aclosing(redismem.Memory.connect(place, settings=settings)) as memory,
        httpx.AsyncClient(base_url="http://shop", transport=httpx.ASGITransport(app)) as client,
    ):
        services = SimpleNamespace(memory=memory, turns=Turns(None, None))  # type: ignore[arg-type]
        monkeypatch.setitem(app.dependency_overrides, get_services, lambda: services)
        away = await client.post("/chats/anna/turns", json={"id": "t-2", "text": "Still there?"})
    assert (away.status_code, away.headers["retry-after"]) == (503, "1")
