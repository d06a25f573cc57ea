"""A replay checks the context that each turn returns, not only the messages it reads back at the end."""

import json
from typing import Any

import pytest
from support.commands import TransportLayer

from redismem.protocol import replies
from redismem.protocol.scripts import load

CHAT = [{"role": "user" if number % 2 else "assistant", "content": f"text {number}"} for number in range(6)]


class ChangesContexts(TransportLayer):
    """A store that changes the context returned by the appends to one conversation."""

    async def change_replies(self, commands: Any, answers: Any) -> Any:
        append = commands[0][0] == "EVALSHA" and commands[0][1] == load("append").sha and len(commands) == 3
        if append and b"chat-3" in commands[0] and isinstance(answers[0], bytes | list):
            reply, stored, elements = answers
            return [reply, *self.changed(replies.fields(stored), elements)]
        return answers


class GivesAnotherMessage(ChangesContexts):
    def changed(self, stored: Any, elements: Any) -> Any:
        return [stored, [*elements[:-1], elements[0]]]


class GivesOtherPlaces(ChangesContexts):
    def changed(self, stored: Any, elements: Any) -> Any:
        version, first_seq, total, *rest = stored[b"counters"].split()
        counters = b" ".join([version, b"%d" % (int(first_seq) + 1), b"%d" % (int(total) + 1), *rest])
        return [stored | {b"counters": counters}, elements]


@pytest.mark.parametrize("fault", [GivesAnotherMessage, GivesOtherPlaces])
def test_a_wrong_context_is_reported(
    command: Any, intercept: Any, store_options: Any, namespace: str, tmp_path: Any, fault: Any
) -> None:
    file = tmp_path / "chats.jsonl"
    file.write_text("".join(json.dumps({"session_id": f"chat-{n}", "messages": CHAT}) + "\n" for n in range(5)))
    intercept(fault)
    ran = command("demo", "replay", file, "--json", "--namespace", namespace, *store_options)
    found = ran.document
    assert (ran.code, found["good"]) == (1, False)
    assert {problem["line"] for problem in found["problems"]} == {4}
    assert "line 4: session chat-3: a turn returned a wrong context" in ran.err
    assert found["identical_messages"] == found["messages"] == 30, "the stored messages are right"
