"""Replays with summaries: each is written and covers the right messages, and every message can still be read."""

from __future__ import annotations

import re
from typing import Any

from support.commands import TransportLayer
from support.transcripts import CHAT, LONG, namespace_keys

import redismem.blocking
from redismem.protocol.call import Call
from redismem.protocol.scripts import load


def test_a_replay_ends_with_summaries_and_every_message_is_still_there(
    command: Any, store_options: Any, long_file: Any
) -> None:
    ran = command("demo", "replay", long_file, "--json", *store_options)
    found = ran.document
    assert (ran.code, ran.err, found["good"]) == (0, "", True)
    assert found["summaries"] == 10
    assert found["covered_messages"] == 10 * (len(LONG) - 6)
    assert found["identical_messages"] == 10 * len(LONG) + len(CHAT)
    assert (found["checked_sessions"], found["violations"]) == (11, 0)
    assert re.search(r"summaries +10 +of 240 messages", command("demo", "replay", long_file, *store_options).out)


def test_the_sessions_left_by_a_replay_are_summarised_and_intact(
    command: Any, redis_options: Any, long_file: Any, redis_server: Any, namespace: str
) -> None:
    assert command("demo", "replay", long_file, "--keep", *redis_options).code == 0
    checked = command("doctor", "--deep", "--json", *redis_options).document
    assert (checked["sessions_count"], checked["good"]) == (11, True)
    with redismem.blocking.Memory.connect(redis_server.url, namespace=namespace) as memory:
        context = memory.session("long-3").read()
        assert [(each.first_seq, each.last_seq) for each in context.summaries] == [(2, len(LONG) - 6)]
        assert len(context.messages) == 6
        originals = memory.session("long-3").messages(include_originals=True)
        assert [each.to_openai() for each in originals] == LONG


def test_without_summaries_the_sessions_stay_as_they_are(
    command: Any, redis_options: Any, long_file: Any, redis_server: Any, namespace: str
) -> None:
    found = command("demo", "replay", long_file, "--keep", "--no-summaries", "--json", *redis_options).document
    assert (found["summaries"], found["covered_messages"], found["good"]) == (0, 0, True)
    with redismem.blocking.Memory.connect(redis_server.url, namespace=namespace) as memory:
        assert memory.session("long-3").info().queued == "overdue"


def test_only_sessions_of_the_file_are_summarised(
    command: Any, redis_options: Any, long_file: Any, redis_server: Any, namespace: str
) -> None:
    with redismem.blocking.Memory.connect(redis_server.url, namespace=namespace) as memory:
        memory.session("other").append(*LONG)
        assert command("demo", "replay", long_file, *redis_options).code == 0
        assert memory.session("other").info().queued == "overdue"


class MiscountsTokens(TransportLayer):
    """A store that miscounts the tokens of the fourth conversation."""

    async def change_replies(self, commands: Any, answers: Any) -> Any:
        if commands[0][0] == "EVALSHA" and commands[0][1] == load("commit").sha and b"long-3" in commands[0]:
            state = self.memory.store.keys.session("long-3").state
            counters = await self.memory.store.run(Call(None, (("HGET", state, "counters"),), bytes.split))
            counters[3] = b"%d" % (int(counters[3]) + 1)
            await self.memory.store.run(Call(None, (("HSET", state, "counters", b" ".join(counters)),), int))
        return answers


def test_a_session_that_breaks_an_invariant_is_reported_and_kept(
    command: Any, intercept: Any, redis_options: Any, long_file: Any, redis_server: Any
) -> None:
    intercept(MiscountsTokens)
    ran = command("demo", "replay", long_file, "--json", *redis_options)
    assert (ran.code, ran.document["violations"]) == (1, 1)
    assert ran.document["identical_messages"] == ran.document["messages"]
    assert "line 4: session long-3: I10: " in ran.err
    left = {key.rpartition(b":")[2] for key in namespace_keys(redis_server.url, redis_options[-1])}
    assert left == {b"namespace", b"fences", b"active", b"long-3"}


class CommitsLate(TransportLayer):
    """A worker whose lease was taken over."""

    async def run(self, commands: Any, timeout_s: Any, script: Any = None, subject: Any = None) -> Any:
        if commands[0][0] == "EVALSHA" and commands[0][1] == load("commit").sha and b"long-3" in commands[0]:
            return [b"fenced"]
        return await self._inner.run(commands, timeout_s, script, subject)


def test_a_missing_summary_is_reported(
    command: Any, intercept: Any, store_options: Any, namespace: str, long_file: Any
) -> None:
    intercept(CommitsLate)
    ran = command("demo", "replay", long_file, "--json", "--namespace", namespace, *store_options)
    assert (ran.code, ran.document["summaries"]) == (1, 9)
    assert "line 4: session long-3: not summarised: fenced" in ran.err
    assert ran.document["identical_messages"] == ran.document["messages"]
