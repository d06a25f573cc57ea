"""Storage of a chat with too few replicas, during outages, and when only a check fails."""

from __future__ import annotations

from collections.abc import Iterator

import fakeredis
import pytest
from support.checks import until
from support.faulty import Faulty
from support.http_service import ASKED, joined_text, message_rows, notice_codes, read_events, serve_chat
from support.provider_answers import TEXT
from support.provider_server import ProviderServer as Provider
from support.proxy import Proxy
from support.replicated import Replicated
from support.stores import LONG_DEADLINES, Store, short_deadlines

from redismem import Memory, Settings

AGAIN = {"session_id": "s", "message": "still there?"}
BOTH = [("user", ASKED["message"], None), ("assistant", TEXT, None)]


@pytest.fixture(scope="module")
def replicated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replicated]:
    servers = Replicated(tmp_path_factory.mktemp("replicated"))
    yield servers
    servers.stop()


@pytest.mark.parametrize("with_project", [False, True])
async def test_an_unconfirmed_message_is_answered_with_a_notice(
    replicated: Replicated, namespace: str, provider: Provider, with_project: bool
) -> None:
    await replicated.wait_until_ready()
    settings = LONG_DEADLINES.model_copy(update={"shards": 2, "confirm": 2, "confirm_timeout_s": 0.05})
    plain = LONG_DEADLINES.model_copy(update={"shards": 2})
    async with Memory.connect(replicated.url, namespace=namespace, settings=plain) as memory:
        if with_project:
            await memory.project("apollo").decisions.create("We ship parcels by train", status="accepted")
    async with (
        Memory.connect(replicated.url, namespace=namespace, settings=settings) as memory,
        serve_chat(memory, provider, chat={"project": "apollo"} if with_project else {}) as http,
    ):
        with replicated.stop_replicas(1):
            events = await read_events(http.client, "/api/chat", json=ASKED)
            assert (joined_text(events), notice_codes(events)) == (TEXT, ["unconfirmed"])
            assert events[-1].document == {"complete": True, "reason": "done", "seq": 2, "waiting_for": None}
        assert message_rows(await memory.session("s").messages()) == BOTH
        assert len(provider.bodies) == 1
        assert ("parcels by train" in str(provider.bodies[0])) is with_project


async def test_turns_during_an_outage_are_replayed(
    proxy: Proxy, direct_memory: Memory, namespace: str, provider: Provider
) -> None:
    async with (
        Memory.connect(proxy.url, namespace=namespace, settings=LONG_DEADLINES, fallback=True) as memory,
        serve_chat(memory, provider) as http,
    ):
        await read_events(http.client, "/api/chat", json=ASKED)
        with short_deadlines(memory):
            await proxy.refuse()
            for _ in range(2):
                events = await read_events(http.client, "/api/chat", json=AGAIN)
                assert (joined_text(events), notice_codes(events)) == (TEXT, ["degraded"])
            await proxy.accept_again()

        async def is_replayed() -> bool:
            return len(await direct_memory.session("s").messages()) == 6

        await until(is_replayed)
    again = [("user", AGAIN["message"], None), ("assistant", TEXT, None)]
    assert message_rows(await direct_memory.session("s").messages()) == BOTH + again + again


async def test_an_answer_above_the_message_limit_is_not_stored_and_a_notice_says_why(
    store: Store, namespace: str, provider: Provider
) -> None:
    provider.pieces = ["Your ", "parcel " * 1_000]
    async with (
        store.memory(namespace, Settings(max_message_bytes=512)) as memory,
        serve_chat(memory, provider) as http,
    ):
        events = await read_events(http.client, "/api/chat", json=ASKED)
        (notice,) = [each.document for each in events if each.event == "notice"]
        assert (notice["code"], "too long for the memory" in notice["text"]) == ("not_stored", True)
        assert message_rows(await memory.session("s").messages()) == BOTH[:1]


async def test_a_failed_check_of_summaries_does_not_affect_the_answer(namespace: str, provider: Provider) -> None:
    faulty = Faulty(fakeredis.FakeServer())
    settings = LONG_DEADLINES.model_copy(update={"threshold": 4, "recent_limit": 2})
    async with (
        Memory.connect(client=faulty._client, namespace=namespace, settings=settings) as memory,
        serve_chat(memory, provider) as http,
    ):
        memory.store.transport = faulty
        await memory.session("s").append(*({"role": "user", "content": f"{number}"} for number in range(8)))
        faulty.lost_part = "HGETALL"
        with short_deadlines(memory):
            events = await read_events(http.client, "/api/chat", json=ASKED)
        assert "HGETALL" in faulty.called
        assert joined_text(events) == TEXT
        assert "memory_unavailable" not in notice_codes(events)
    await faulty.aclose()
    asked = [each["content"] for each in provider.bodies[0]["messages"]]
    assert asked[1:] == [*(f"{number}" for number in range(8)), ASKED["message"]]
