"""The chat with an embedder: a question in other words finds an earlier message."""

from __future__ import annotations

import pytest
import redis
from support.commands import wait_for_exit
from support.example_processes import Places, start_example
from support.forks import Fork
from support.waiting import START_S, wait_until

from redismem import blocking
from redismem.protocol.keys import Keys


def say(chat: Fork, line: str) -> str:
    assert chat.stdin is not None
    assert chat.stdout is not None
    chat.stdin.write(f"{line}\n")
    chat.stdin.flush()
    return chat.stdout.readline()


@pytest.mark.nightly
def test_a_question_in_other_words_finds_the_message(places: Places) -> None:
    provider = places.provider
    provider.pieces = ["In", "deed."]
    originals = Keys(places.namespace, 64).session("anna").originals
    # One summary, in the fifth turn: a second one would replace the vectors of the first while the question is asked.
    settings = {"REDISMEM_THRESHOLD": "8", "REDISMEM_RECENT_LIMIT": "2", "REDISMEM_EMBED_TIMEOUT_S": "30"}
    with start_example("recall_chat.py", places, **settings) as chat, redis.Redis.from_url(places.redis_url) as raw:
        assert say(chat, "My puppy Rex is called after a king.") == "Indeed.\n"
        for number in range(4):
            assert say(chat, f"It rains again, for {number} hours.") == "Indeed.\n"
        wait_until(lambda: raw.hexists(originals, "v0"), "the summarised messages are embedded", START_S)
        assert say(chat, "Which dog?").startswith("(recalled: #1")  # perhaps with its neighbours
        ended = wait_for_exit(chat, "\n")
        assert (ended.code, ended.out) == (0, "Indeed.\n")
    chats = [body for body in provider.bodies if "messages" in body]
    (quoted,) = [message for message in chats[-1]["messages"] if "<recalled" in str(message["content"])]
    assert "My puppy Rex" in quoted["content"]
    with blocking.Memory.connect(places.redis_url, namespace=places.namespace) as memory:
        assert memory.session("anna").info().total_messages == 12
