"""A hundred turns over HTTP that fail in every way, and the retry of each."""

from __future__ import annotations

import contextlib
import random
from functools import partial
from typing import Any

import httpx
import pytest
from support.checks import until
from support.http_service import RunningService, open_stream, read_events, serve_chat
from support.provider_server import ProviderServer as Provider
from support.service_process import start_services

from redismem import Memory, Settings

pytestmark = pytest.mark.nightly
COUNT, LEASE_S = 100, 0.6
PATH = "/v1/sessions/s/turns"
SETTINGS = Settings(threshold=12, recent_limit=4, keep_originals=True, tick_s=0.1, live_lease_s=LEASE_S)
MODES = {"ok": "ok", "left": "ok", "broken": "break", "refused": "500", "killed": "hang"}
"""The fate of a turn, and the mode of the model's provider in it."""
FAILED = {"broken": "failed", "refused": "failed", "killed": "lost"}


def fates(chance: random.Random) -> list[str]:
    """Return what happens to each turn: most go well, or their client leaves after the first event."""
    drawn = ["killed"] * 4 + ["broken"] * 15 + ["refused"] * 10 + ["left"] * 20
    drawn += ["ok"] * (COUNT - len(drawn))
    chance.shuffle(drawn)
    return drawn


def read_end(events: list[Any]) -> tuple[str, str, Any]:
    """Return text and outcome of a turn, and the seq of its reply."""
    text = "".join(each.document["delta"] for each in events if each.event == "text")
    return text, events[-1].document["outcome"], events[-1].document["seq"]


def request(number: int) -> dict[str, Any]:
    return {"json": {"message": f"Question {number}"}, "headers": {"Idempotency-Key": f"t{number}"}}


async def follow(http: RunningService, number: int) -> tuple[str, str, Any]:
    async with open_stream(http.client, "GET", f"{PATH}/current", params={"turn": f"t{number}"}) as events:
        return read_end([each async for each in events])


async def test_the_retry_of_each_of_100_turns_gets_its_own_answer_of_one_model_call(
    redis_server: Any, namespace: str, provider: Provider
) -> None:
    """In random order, on both servers, after failures, and after summaries have taken the messages."""
    chance = random.Random(7)
    connect = partial(Memory.connect, redis_server.url, namespace=namespace, settings=SETTINGS)
    async with (
        connect(workers=True) as one,
        connect() as two,
        serve_chat(one, provider) as first,
        serve_chat(two, provider) as second,
    ):
        servers, answers = (first, second), {}
        kill = partial(_kill, redis_server, namespace, provider)
        for number, fate in enumerate(fates(chance)):
            provider.mode = MODES[fate]
            provider.pieces = [f"Answer {number} ", "is ", "this."]
            asked, other = chance.sample(servers, 2)
            if fate == "killed":
                await kill(other, number)
                answers[number] = await follow(other, number)
            elif fate == "left":
                async with open_stream(asked.client, "POST", PATH, **request(number)) as events:
                    assert (await anext(events)).event == "message"
                answers[number] = await follow(other, number)
            else:
                answers[number] = read_end(await read_events(asked.client, PATH, **request(number)))
            text = f"Answer {number} is " + ("" if fate in FAILED else "this.")
            expected = ("" if fate == "refused" else text, FAILED.get(fate, "done"))
            assert answers[number][:2] == expected, (number, fate)
        assert len(provider.asked) == COUNT

        async def is_summarised() -> bool:
            return (await first.ask("GET", "/v1/sessions/s")).json()["summaries_count"] > 0

        await until(is_summarised)
        provider.mode, provider.pieces = "ok", ["another answer"]
        for number in chance.sample(range(COUNT), COUNT):
            for http in servers:
                assert read_end(await read_events(http.client, PATH, **request(number))) == answers[number], number
        assert len(provider.asked) == COUNT


async def _kill(redis_server: Any, namespace: str, provider: Provider, other: RunningService, number: int) -> None:
    """Begin a turn on a server of its own, and kill that server once another one tells a part of the answer."""
    async with start_services(redis_server, namespace, provider, LEASE_S) as (running,):
        with contextlib.suppress(httpx.TransportError):
            async with open_stream(other.client, "POST", f"{running.url}{PATH}", **request(number)) as events:
                text = ""
                async for each in events:
                    text += each.document.get("delta", "")
                    if text == f"Answer {number} is ":
                        running.kill()
