"""Days by the speaker's clock: a message keeps the offset of its time, and a session has a time zone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from support.clock import Clock
from support.edited import summarize
from support.stores import Store

from redismem import InvalidSettings, Message, Policy, Settings
from redismem.protocol.policy import encode_policy

AUCKLAND = Policy(zone="Pacific/Auckland")
# In Auckland it is nine in the morning of the next day. The year is one that no server takes for expired.
SAID = datetime(2100, 3, 8, 20, tzinfo=UTC)
SETTINGS = Settings(shards=2, threshold=4, recent_limit=2, keep_originals=True)


def at(said: datetime) -> int:
    return int(said.timestamp() * 1000)


async def talk(memory: Any, clock: Clock, policy: Policy | None) -> Any:
    session = memory.session("s", policy=policy)
    clock.now_ms = at(SAID)
    await session.append(Message("user", "The parrot escaped yesterday."))
    clock.now_ms += 3_600_000
    for number in range(6):
        await session.append(Message("user", f"Line {number}."))
    assert await summarize(memory) == 1
    return memory.session("s")


@pytest.mark.parametrize(
    ("policy", "day", "before"),
    [(AUCKLAND, "Tuesday 9 March 2100", "8 March 2100"), (None, "Monday 8 March 2100", "7 March 2100")],
)
async def test_recall_and_summaries_name_days_of_the_zone(
    store: Store, namespace: str, clock: Clock, policy: Policy | None, day: str, before: str
) -> None:
    async with store.memory(namespace, SETTINGS) as memory:
        session = await talk(memory, clock, policy)
        context = await session.append_and_read(Message("user", "Where is the parrot?"), recall=300)
        (summary,) = context.summaries
        assert day.partition(" ")[2] in summary.text
        date = f"2100-03-{day.split()[1]:>02}T"
        assert f"({date}" in context.to_openai()[0]["content"], "the heading of the quotation agrees"
        quoted = next(each["content"] for each in context.to_openai() if "recalled" in each["content"])
        assert f"today is {day}" in quoted
        assert f"{day}:\nuser: The parrot escaped yesterday ({before})." in quoted
        found = next(each for each in await session.recall("parrot") if each.seq == 1)
        assert found.timestamp == SAID
        assert found.timestamp.day == int(day.split()[1])


async def test_a_period_in_a_question_is_one_of_the_zone(store: Store, namespace: str, clock: Clock) -> None:
    async with store.memory(namespace, SETTINGS) as memory:
        session = await talk(memory, clock, AUCKLAND)
        assert 1 in [message.seq for message in await session.recall("What about 9 March?")]
        assert await session.recall("What about 7 March?") == []
        clock.now_ms = at(SAID + timedelta(hours=16))  # after midnight in Auckland, still before it in UTC
        assert await session.recall("What was yesterday?")
        assert await session.recall("What was today?") == []


async def test_it_changes_with_the_policy_and_begins_with_the_session(
    store: Store, namespace: str, clock: Clock
) -> None:
    async with store.memory(namespace, SETTINGS) as memory, store.memory(namespace, SETTINGS) as pod:
        await talk(memory, clock, AUCKLAND)
        await memory.session("s", policy=Policy(zone="Europe/Zurich")).append(Message("user", "hi"))
        session = pod.session("s")
        assert (await session.info()).policy == AUCKLAND
        assert (await session.read()).messages[0].timestamp.utcoffset() == timedelta(hours=13)
        assert await session.set_policy(Policy(zone="Europe/Zurich", keep_whole=True))
        assert (await session.info()).policy.zone == "Europe/Zurich"
        assert (await session.messages(limit=1))[0].timestamp.utcoffset() == timedelta(hours=1)
        assert await session.set_policy(Policy())
        assert (await session.info()).policy == Policy()
        assert (await session.read()).messages[0].timestamp.utcoffset() == timedelta(0)


async def test_a_message_keeps_the_offset_of_its_own_time(store: Store, namespace: str, clock: Clock) -> None:
    tokyo = timezone(timedelta(hours=9))
    said = datetime(2100, 3, 9, 1, tzinfo=tokyo)
    async with store.memory(namespace, SETTINGS) as memory:
        session = memory.session("s", policy=Policy(zone="America/Lima"))
        await session.append(Message("user", "hi", timestamp=said))
        (message,) = (await session.read()).messages
        assert (message.timestamp, message.timestamp.utcoffset()) == (said, timedelta(hours=9))
        assert message == Message.restored(message.to_openai(), Message("user", timestamp=said).beside, 1, 0, 0, "")


@pytest.mark.parametrize("zone", ["Europe/Zürich", "Mars/Olympus", "", "../etc/passwd", "UTC+1", 2, "x" * 100])
def test_a_zone_that_is_none_is_refused(zone: Any) -> None:
    with pytest.raises(InvalidSettings, match="IANA"):
        encode_policy(Policy(zone=zone))
