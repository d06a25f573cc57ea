"""The support chat on two processes, as its clients see it: tools, retries, stops, recall over chats, forgetting."""

from __future__ import annotations

import contextlib
import json
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from support.example_processes import Places, serve_example
from support.provider_answers import call_message
from support.provider_server import ProviderServer
from support.redis_server import RedisServer, free_port

import redismem
from examples.fastapi_chat import app as app_module
from examples.fastapi_chat.app import app, get_services
from examples.fastapi_chat.turns import Turns
from redismem import Settings

PNG = b"\x89PNG\r\n\x1a\n" + b"pixels" * 1000
CALLS = call_message(("call-1", "find_order", {"number": "O-17"}), ("call-2", "book_repair", {"day": "2026-12-01"}))
ANSWER = {"role": "assistant", "content": "O-17 is sent, and your repair is booked."}


def test_the_docstring_names_every_route() -> None:
    text = app_module.__doc__ or ""
    paths = {f"{method.upper()} {path}" for path, methods in app.openapi()["paths"].items() for method in methods}
    assert [line for line in sorted(paths) if not re.search(rf"\b{re.escape(line)}(?![/\w])", text)] == []


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


@pytest.fixture(scope="module")
def shop() -> Iterator[Shop]:
    with Shop() as shop:
        thread = threading.Thread(target=shop.serve_forever)
        thread.start()
        yield shop
        shop.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def places(redis_server: RedisServer) -> Iterator[Places]:
    with ProviderServer() as provider:
        yield Places(redis_server, "fastapi-chat", provider)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("images")


@pytest.fixture(scope="module")
def environment(shop: Shop, folder: Path) -> dict[str, str]:
    return {"SHOP_URL": f"http://127.0.0.1:{shop.server_port}", "CHAT_IMAGES": str(folder)}


@contextlib.contextmanager
def serve(places: Places, environment: dict[str, str]) -> Iterator[httpx.Client]:
    """Serve the chat, and yield a client with Anna's cookie."""
    with serve_example("fastapi_chat", places, **environment) as client:
        client.headers["cookie"] = "user=anna"
        yield client


@pytest.fixture(scope="module")
def processes(places: Places, environment: dict[str, str]) -> Iterator[tuple[httpx.Client, httpx.Client]]:
    """Two processes on one Redis, for all tests."""
    with serve(places, environment) as one, serve(places, environment) as other:
        yield one, other


@pytest.fixture(autouse=True)
def nothing_asked(places: Places, shop: Shop) -> None:
    places.provider.asked.clear()
    places.provider.script.clear()
    shop.asked.clear()


BEN = {"cookie": "user=ben"}
Event = tuple[str, dict[str, Any]]


def begin(client: httpx.Client, chat: str, turn: dict[str, Any], user: dict[str, str] | None = None) -> None:
    response = client.post(f"/chats/{chat}/turns", json=turn, headers=user)
    assert response.status_code == 202, response.text


def listen(
    client: httpx.Client, chat: str, turn_id: str, after: str = "", user: dict[str, str] | None = None
) -> Iterator[Event]:
    """Yield the id and the document of each event of a turn."""
    headers = (user or {}) | ({"last-event-id": after} if after else {})
    with client.stream("GET", f"/chats/{chat}/turns/{turn_id}", headers=headers) as response:
        assert response.status_code == 200
        event_id = ""
        for line in response.iter_lines():
            name, _, value = line.partition(": ")
            if name == "id":
                event_id = value
            elif name == "data":
                yield event_id, json.loads(value)


def take_turn(client: httpx.Client, chat: str, turn: dict[str, Any], user: dict[str, str] | None = None) -> list[Event]:
    """Take a turn, and return its events."""
    begin(client, chat, turn, user)
    return list(listen(client, chat, turn["id"], user=user))


def joined(events: list[Event]) -> str:
    assert events[-1][1]["outcome"] == "done", events[-1]
    return "".join(event["delta"] for _, event in events if event["type"] == "text")


def titles(client: httpx.Client, user: dict[str, str] | None = None) -> list[str]:
    return [chat["title"] for chat in client.get("/chats", headers=user).json()["chats"]]


def test_a_double_click_is_one_turn_with_its_tools_and_images(
    places: Places, shop: Shop, processes: tuple[httpx.Client, httpx.Client], folder: Path
) -> None:
    provider, (one, other) = places.provider, processes
    refused = one.post("/chats/a-1/images", content=b"<svg/>", headers={"content-type": "image/svg+xml"})
    assert refused.status_code == 415
    stored = one.post("/chats/a-1/images", content=PNG, headers={"content-type": "image/png"})
    reference = stored.json()["image"]
    turn = {"id": "t-1", "text": "Is O-17 sent? Please repair this.", "images": [reference]}
    assert one.post("/chats/b-1/turns", json=turn, headers=BEN).status_code == 404  # it is an image of another chat

    provider.script.extend([CALLS, ANSWER])
    with ThreadPoolExecutor(2) as clicks:
        told = list(clicks.map(lambda client: take_turn(client, "a-1", turn), processes))
    assert [joined(events) for events in told] == [ANSWER["content"]] * 2
    assert len(told[0]) > 4  # in pieces
    assert sorted(shop.asked, key=str) == [("/orders/O-17", None), ("/repairs", "t-1:call-2")]
    _, question, calls, *results = provider.bodies[1]["messages"]
    assert question["content"][1]["image_url"]["url"].startswith("data:image/png;base64,iVBORw0KGgpw")
    assert [call["id"] for call in calls["tool_calls"]] == [each["tool_call_id"] for each in results]
    assert [each["content"] for each in results] == ['{"state": "done"}'] * 2

    assert joined(take_turn(other, "a-1", turn)) == ANSWER["content"]  # a retry, after the answer
    assert (len(provider.asked), len(shop.asked)) == (2, 2)
    messages = other.get("/chats/a-1").json()["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "tool", "assistant"]
    assert messages[0]["content"][1]["image_url"]["url"] == reference
    assert list(folder.rglob("*.png"))
    assert other.delete("/chats/a-1").status_code == 204
    assert one.get("/chats/a-1").status_code == 404
    assert not list(folder.rglob("*.png"))


def test_a_new_chat_knows_what_its_user_said_a_moment_before_and_nobody_else_does(
    places: Places, processes: tuple[httpx.Client, httpx.Client], folder: Path
) -> None:
    provider, (one, other) = places.provider, processes
    one.delete("/me")  # what other tests have said
    provider.script.extend({"role": "assistant", "content": "Noted."} for _ in range(9))
    numbers = iter(range(9))

    def is_known(chat: str, user: dict[str, str] | None = None) -> bool:
        """True if the model gets the number of the frame with the question for it."""
        question = {"id": f"q-{next(numbers)}", "text": "What is the number of my bicycle frame?"}
        assert joined(take_turn(other, chat, question, user)) == "Noted."
        return "ZX-481" in json.dumps(provider.bodies[-1])

    told = {"id": "t-1", "text": "The number of my bicycle frame is ZX-481."}
    take_turn(one, "a-1", told)
    assert is_known("a-2")
    assert not is_known("b-1", BEN)
    requests = [("GET", ""), ("DELETE", ""), ("GET", "/turns/t-1"), ("POST", "/turns/t-1/stop"), ("POST", "/turns")]
    for method, path in requests:
        refused = one.request(method, f"/chats/a-1{path}", headers=BEN, json=told if path == "/turns" else None)
        assert (refused.status_code, "ZX-481" in refused.text) == (403, False), (method, path)
    assert titles(one, BEN) == ["What is the number of my bicycle frame?"]
    assert sorted(titles(other)) == sorted([told["text"], *titles(one, BEN)])

    assert one.delete("/chats/a-1").status_code == 204
    assert not is_known("a-2")
    take_turn(one, "a-3", told)
    assert is_known("a-4")
    one.post("/chats/a-3/images", content=PNG, headers={"content-type": "image/png"})
    forgotten = other.delete("/me").json()
    assert (forgotten["chats"], forgotten["proven_ms"] > 0) == (3, True)
    assert (titles(one), titles(one, BEN)) == ([], ["What is the number of my bicycle frame?"])
    assert not list(folder.rglob("*.png"))
    assert not is_known("a-5")


def test_another_process_continues_a_turn_and_failures_are_told(
    places: Places, shop: Shop, environment: dict[str, str]
) -> None:
    provider = places.provider
    turn = {"id": "t-1", "text": "Is O-17 sent? Please book a repair."}
    provider.script.append(CALLS)
    provider.modes.extend(["ok", "silent"])
    environment["REDISMEM_LIVE_LEASE_S"] = "1"
    with serve(places, environment) as client:
        begin(client, "anna", turn)
        provider.wait_for_asked(2)  # the tools have run, and the model is silent
    with serve(places, environment) as client:
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
            end = take_turn(client, "other", {"id": f"t-{number}", "text": "Hi"})[-1][1]
            assert (end["outcome"], end["seq"]) == ("failed", 2 + 2 * number), mode

        assert client.post("/chats/anna/turns", json=turn | {"text": "Another"}).status_code == 422
        assert client.post("/chats/anna/turns", json=turn | {"id": "not/one"}).status_code == 422
        assert client.get("/chats/anna/turns/unknown").status_code == 404
        assert client.get("/chats/anna/turns/t-1", headers={"last-event-id": "nonsense"}).status_code == 422
        assert client.get("/chats/nobody").status_code == 404


def test_another_process_resumes_the_stream_and_stops_the_model(
    places: Places, processes: tuple[httpx.Client, httpx.Client]
) -> None:
    places.provider.modes.append("hang")  # after two pieces
    writing, other = processes
    begin(writing, "a-9", {"id": "t-1", "text": "Where is it?"})
    heard = list[Event]()
    for each in listen(other, "a-9", "t-1"):
        heard.append(each)
        if "".join(event.get("delta", "") for _, event in heard) == "Your parcel ":
            break  # the connection of the client breaks
    assert other.post("/chats/a-9/turns/t-0/stop").json() == {"stopped": False}
    assert other.post("/chats/a-9/turns/t-1/stop").json() == {"stopped": True}
    rest = [event for _, event in listen(writing, "a-9", "t-1", after=heard[-1][0])]
    assert [event["type"] for event in rest] == ["message", "end"]
    assert (rest[-1]["outcome"], rest[-1]["seq"]) == ("stopped", 2)
    assert other.get("/chats/a-9").json()["messages"][-1]["content"] == "Your parcel "


async def test_a_redis_that_is_away_is_a_status(monkeypatch: pytest.MonkeyPatch) -> None:
    place, settings = f"redis://127.0.0.1:{free_port()}/0", Settings(deadline_s=0.05)
    async with (
        contextlib.aclosing(redismem.Memory.connect(place, settings=settings)) as memory,
        httpx.AsyncClient(base_url="http://shop", transport=httpx.ASGITransport(app)) as client,
    ):
        services = SimpleNamespace(memory=memory, turns=Turns(None, None))  # type: ignore[arg-type]
        monkeypatch.setitem(app.dependency_overrides, get_services, lambda: services)
        turn = {"id": "t-2", "text": "Still there?"}
        away = await client.post("/chats/anna/turns", json=turn, headers=BEN)
    assert (away.status_code, away.headers["retry-after"]) == (503, "1")
