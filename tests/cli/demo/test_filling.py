"""`redismem serve --demo`: what it fills a namespace with, and that it leaves other namespaces alone."""

from __future__ import annotations

import signal
from typing import Any

from support.commands import start_command, wait_for_exit, wait_for_line

from redismem import Memory
from redismem.cli.demo import filling


async def test_the_demo_has_conversations_a_waiting_chat_a_summary_and_a_project(memory: Memory) -> None:
    for _ in range(2):  # the second time adds nothing
        await filling.fill(memory)
        listed = (await memory.sessions(newest=True)).sessions
        assert {each.owner for each in listed} == {"mila", "lena", "theo", "noor", "jun"}
        assert "A cracked water tank, BL-20817" in {each.title for each in listed}
        chat = await memory.session(filling.CHAT).read()
        assert chat.total_messages == 20
        assert [(each.first_seq, each.last_seq) for each in chat.summaries] == [(2, 14)]
        assert any(message.to_openai().get("tool_calls") for message in chat.messages)
        waiting = await memory.session(filling.WAITING).read()
        assert (waiting.state.waiting_for_param, waiting.total_messages) == ("order_id", 2)
        step = filling.demo_slots().step(waiting.state, "BL-20901")
        assert (step.say, step.changes["waiting"]) == ("What is the reason?", "reason")
        in_a_sentence = filling.demo_slots().step(waiting.state, "It is BL-20901").say or ""
        assert "Type only its number, which begins with BL." in in_a_sentence
        project = memory.project(filling.PROJECT)
        statuses = [task.status for task in await project.tasks.list()]
        assert sorted(statuses) == ["backlog", "backlog", "blocked", "in_progress", "planned"]
        assert len(await project.decisions.list()) == 2
        assert len(await project.entities.list()) == 2


def test_the_demo_serves_a_namespace_of_its_own(namespace: str) -> None:
    with start_command("serve", "--demo", "--port", "0", "--namespace", namespace) as running:
        wait_for_line(running.stdout, f"/#/s/{filling.CHAT}")
        running.send_signal(signal.SIGTERM)
        ran = wait_for_exit(running)
    assert ran.code == 0
    assert f"--demo serves the namespace {filling.NAMESPACE}, not {namespace}" in ran.err


def test_the_demo_is_refused_with_keys(command: Any) -> None:
    ran = command("serve", "--demo", "--url", "memory://", "--keys", "some key")
    assert (ran.code, ran.err) == (2, "redismem: --demo serves one namespace of its own, without keys\n")
