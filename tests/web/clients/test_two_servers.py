"""The real JavaScript clients and two servers on one Redis: cut, killed, asked twice and stopped in mid-answer."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.balancer import Balancer
from support.checks import until
from support.node_clients import RunningDriver, prepare_drivers, start_driver
from support.provider_server import ProviderServer as Provider
from support.service_process import ServiceProcess, start_services

pytestmark = pytest.mark.nightly
LEASE_S = 0.6
LOST_S = 1.5 * LEASE_S + 2
SLACK_S = 3
"""The time that a busy machine may take beside."""
PIECES = [f"word {number}, " for number in range(40)]
TEXT = "".join(PIECES)
SEEN = len("".join(PIECES[:5]))
CLIENTS = ("ai_sdk", "ag_ui", "responses")
SESSION = "/v1/sessions/chat-1"


@dataclass
class Servers:
    """Two servers on one Redis, and the balancer that clients connect to. It begins with the first server."""

    balancer: Balancer
    first: ServiceProcess
    other: ServiceProcess
    drivers: Path
    http: httpx.AsyncClient
    """A client of the other server."""

    @contextlib.asynccontextmanager
    async def driver(self, name: str, **options: Any) -> AsyncIterator[RunningDriver]:
        """Start a client that asks for turn-1 at the balancer."""
        ids = {"message_id": "turn-1", "run_id": "turn-1", "turn_id": "turn-1"}
        given = {"base": self.balancer.url, "session": "chat-1", "text": "Rain?", **ids, **options}
        async with start_driver(self.drivers, name, **given) as driver:
            yield driver

    def move(self) -> None:
        """Send new connections to the other server."""
        self.balancer.target = self.other.url

    async def has_ended(self) -> bool:
        """True if no turn runs."""
        return (await self.http.get(f"{SESSION}/turns/current")).status_code == 204

    async def stored(self) -> tuple[str, Any]:
        """Return text and reason of incompleteness of the reply, which is the only one."""
        rows = (await self.http.get(f"{SESSION}/messages")).json()["messages"]
        assert [each["message"]["role"] for each in rows] == ["user", "assistant"]
        return rows[1]["message"]["content"], rows[1]["beside"]["metadata"].get("incomplete")


@pytest.fixture(scope="module")
def drivers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare_drivers(tmp_path_factory.mktemp("clients"))


@pytest.fixture
async def servers(redis_server: Any, namespace: str, provider: Provider, drivers: Path) -> AsyncIterator[Servers]:
    provider.pieces, provider.mode = PIECES, "drip"
    async with (
        start_services(redis_server, namespace, provider, LEASE_S, count=2) as (first, other),
        Balancer(first.url) as balancer,
        httpx.AsyncClient(base_url=other.url, trust_env=False) as http,
    ):
        yield Servers(balancer, first, other, drivers, http)


def text_of(name: str, told: Any) -> str:
    """Return the text that a client shows, or the deltas that it got, joined."""
    if name == "responses":
        assert told["numbers"] == list(range(len(told["numbers"])))
        assert told["rebuilt"] == told["replayed"]
        assert told["rebuilt"]["output_text"] == told["text"]
        return str(told["text"])
    messages = told["messages"] if name == "ai_sdk" else told[-1]["messages"]
    assert [each["role"] for each in messages] == ["user", "assistant"]
    return str(messages[1]["content"] if name == "ag_ui" else "".join(p.get("text", "") for p in messages[1]["parts"]))


def outcome_of(name: str, told: Any) -> Any:
    """Return how the turn has ended, in the words of the client's protocol."""
    if name == "ai_sdk":
        return told["status"], told["finishes"][-1].get("finishReason"), told.get("error")
    if name == "ag_ui":
        end = told[-1]["end"]
        return end["type"], end.get("outcome", {}).get("type"), told[-1].get("failure")
    return told["rebuilt"]["status"], (told["rebuilt"]["error"] or {}).get("message")


def resumed_count(name: str, told: Any) -> int:
    return int(len(told) - 1 if name == "ag_ui" else told["resumed"])


DONE = {
    "ai_sdk": ("ready", "stop", None),
    "ag_ui": ("RUN_FINISHED", "success", None),
    "responses": ("completed", None),
}
WHY = "The answer was lost: the process that wrote it stopped."
LOST = {
    "ai_sdk": ("error", None, WHY),
    "ag_ui": ("RUN_ERROR", None, WHY),
    "responses": ("failed", WHY),
}
STOPPED = {
    "ai_sdk": ("ready", "other", None),
    "ag_ui": ("RUN_FINISHED", "cancelled", None),
    "responses": ("incomplete", None),
}


@pytest.mark.parametrize(("name", "resumes"), [*((name, True) for name in CLIENTS), ("ai_sdk", "by hand")])
async def test_a_client_whose_connection_is_cut_goes_on_at_another_server(
    servers: Servers, provider: Provider, name: str, resumes: bool | str
) -> None:
    async with servers.driver(name, report_at=SEEN, resumes=resumes) as driver:
        assert await driver.step() == "seen"
        servers.move()
        servers.balancer.cut()
        told = await driver.answer()
    assert (text_of(name, told), outcome_of(name, told), resumed_count(name, told)) == (TEXT, DONE[name], 1)
    assert (await servers.stored(), len(provider.asked)) == ((TEXT, None), 1)


@pytest.mark.parametrize("name", CLIENTS)
async def test_a_client_that_comes_back_after_the_end_gets_the_whole_answer(
    servers: Servers, provider: Provider, name: str
) -> None:
    async with servers.driver(name, report_at=SEEN, resumes=True, names_turn=True) as driver:
        assert await driver.step() == "seen"
        servers.move()
        servers.balancer.is_open.clear()
        servers.balancer.cut()
        await until(servers.has_ended)
        servers.balancer.is_open.set()
        told = await driver.answer()
    assert (text_of(name, told), outcome_of(name, told), resumed_count(name, told)) == (TEXT, DONE[name], 1)
    assert (await servers.stored(), len(provider.asked)) == ((TEXT, None), 1)


@pytest.mark.parametrize("name", CLIENTS)
async def test_a_client_of_a_killed_server_gets_what_was_told_and_an_error(
    servers: Servers, provider: Provider, name: str
) -> None:
    async with servers.driver(name, report_at=SEEN, resumes=True) as driver:
        assert await driver.step() == "seen"
        servers.move()
        killed_s = time.monotonic()
        servers.first.kill()
        told = await driver.answer()
        took_s = time.monotonic() - killed_s
    text = text_of(name, told)
    assert len(text) >= SEEN
    assert TEXT.startswith(text)
    assert (outcome_of(name, told), resumed_count(name, told)) == (LOST[name], 1)
    assert (await servers.stored(), len(provider.asked)) == ((text, "lost"), 1)
    assert took_s < LOST_S + SLACK_S


@pytest.mark.parametrize("name", CLIENTS)
async def test_a_request_that_is_repeated_gets_the_same_answer_of_one_model_call(
    servers: Servers, provider: Provider, name: str
) -> None:
    """While the answer is written, and after it."""
    async with servers.driver(name, report_at=SEEN) as driver:
        assert await driver.step() == "seen"
        servers.move()
        async with servers.driver(name) as other:
            answers = [await driver.answer(), await other.answer()]
    async with servers.driver(name) as later:
        answers.append(await later.answer())
    for told in answers:
        assert (text_of(name, told), outcome_of(name, told), told) == (TEXT, DONE[name], answers[0])
    assert (await servers.stored(), len(provider.asked)) == ((TEXT, None), 1)


@pytest.mark.parametrize("name", CLIENTS)
async def test_a_client_whose_answer_is_lost_before_it_begins_asks_the_model_once(
    servers: Servers, provider: Provider, name: str
) -> None:
    servers.balancer.after_loss = servers.other.url
    async with servers.driver(name, resumes=True, draws_key=True) as driver:
        told = await driver.answer()
    assert servers.balancer.target == servers.other.url
    assert (text_of(name, told), outcome_of(name, told)) == (TEXT, DONE[name])
    assert (await servers.stored(), len(provider.asked)) == ((TEXT, None), 1)


@pytest.mark.parametrize("name", CLIENTS)
async def test_a_stop_at_another_server_ends_the_stream_of_the_model(
    servers: Servers, provider: Provider, name: str
) -> None:
    given = {"cancel_at": servers.other.url} if name == "responses" else {}
    async with servers.driver(name, report_at=SEEN, **given) as driver:
        assert await driver.step() == "seen"
        if name != "responses":
            stopped = await servers.http.post(f"{SESSION}/turns/current/stop", json={"reason": "cancelled"})
            assert stopped.json() == {"stopped": True}
        told = await driver.answer()
    await until(lambda: provider.left_count == 1)
    text = text_of(name, told)
    assert SEEN <= len(text) < len(TEXT)
    assert TEXT.startswith(text)
    assert outcome_of(name, told) == STOPPED[name]
    if name == "responses":
        (item,) = told["cancelled"]["output"]
        assert (told["cancelled"]["status"], item["content"][0]["text"]) == ("incomplete", text)
    assert (await servers.stored(), len(provider.asked)) == ((text, "cancelled"), 1)
