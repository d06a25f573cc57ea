"""`redismem demo`: play a bundled support chat turn by turn, then recall an old message and read a project."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from redismem.cli.demo import filling
from redismem.cli.options import OwnNamespace, Url
from redismem.cli.place import HOW_TO_NAME_REDIS, open_memory
from redismem.cli.session_view import role_style, show_messages
from redismem.cli.terminal import Stop, console, one_line, text_of_message
from redismem.context.context import Context
from redismem.errors import RedismemError
from redismem.inspection.figures import printable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console

    from redismem.memory.memory import Memory
    from redismem.project.project import Project
    from redismem.session.session import Session

# The notes in the bundled conversation describe these values, so the environment must not change them.
SETTINGS: dict[str, Any] = {
    "threshold": 10,
    "recent_limit": 6,
    "strategy": "summarize",
    "model_provider": "extractive",
    "summary_tokens_total": 150,
    "keep_originals": True,
}
_LONG_COUNT = 200
_FACT = "Leave parcels at the blue kiosk beside the mill."
_QUESTION = "Where was my parcel to be left?"


async def demo(*, url: Url = None, namespace: OwnNamespace = "redismem-demo") -> int:
    """Play a bundled support chat turn by turn.

    Shows the window, the summaries and the state after each turn, and the context for the model at the end. Then a
    question recalls message 3 of 200, and a project gives its part of a prompt. Uses no model, and an embedded store
    unless you name a Redis, where it clears at the end what it wrote. `redismem serve --demo` shows a filled page.

    Exit code 1: a step failed.
    """
    out = console()
    async with open_memory(url, namespace, **SETTINGS) as (memory, place):
        name = f"demo-{memory.new_session_id()}"
        session, project = memory.session(name), memory.project(name)
        store = f"an embedded store, which ends with this command; for Redis: {HOW_TO_NAME_REDIS}"
        out.print(f"A support chat, played on {store if place.embedded else place.name}", style="bold", markup=False)
        try:
            await _play_chat(out, memory, session)
            await _recall(out, memory, session)
            await _show_project(out, project)
        finally:
            with contextlib.suppress(RedismemError):
                await session.clear()
                for items in (project.decisions, project.tasks, project.entities, project.conversations):
                    await items.clear()
    print("\nThe demo has ended. Next, a filled page:\n  pip install 'redismem[server]' && redismem serve --demo")
    return 0


async def _play_chat(out: Console, memory: Memory, session: Session) -> None:
    for number, turn in enumerate(filling.bundled_turns(), 1):
        out.print(f"\n{number}. {turn.note}", style="bold", markup=False)
        if turn.reads:
            context = await session.append_and_read(*turn.messages, id=turn.id, **turn.change)
        else:
            await session.append(*turn.messages, id=turn.id, **turn.change)
            context = await session.read()
        _show_lines(out, turn.messages)
        _show_window(out, context)
        if turn.summarise:
            await _summarise(memory, session)
            context = await session.read()
            out.print(f"\n   {turn.summarise}", style="bold", markup=False)
            out.print(printable(context.summaries[-1].text), style="blue", markup=False)
            _show_window(out, context)
    out.print("\nThe context for the model now, `context.to_openai()`:", style="bold")
    _show_lines(out, context.to_openai())


async def _summarise(memory: Memory, session: Session) -> None:
    if not await filling.summarise(memory, session):
        raise Stop("no summary was written: another worker may have the session")


def _show_lines(out: Console, messages: list[Any]) -> None:
    from rich.text import Text

    for message in messages:
        role, text = str(message["role"]), one_line(text_of_message(message), out.width - 14)
        out.print(Text.assemble((f"   {role:10}", role_style(role)), text))


def _show_window(out: Console, context: Context) -> None:
    """Print the seqs of each part of the window, and the state, on one line each."""
    parts: dict[str, list[int]] = {
        name: [message.seq for message in messages]
        for name, messages in (("pinned", context.pinned), ("pending", context.pending), ("recent", context.recent))
    }
    spans = [f"summary of {each.first_seq} to {each.last_seq}" for each in context.summaries]
    spans += [f"{name} {seqs[0]}" + f" to {seqs[-1]}" * (len(seqs) > 1) for name, seqs in parts.items() if seqs]
    out.print(f"   window: {' · '.join(spans)}", style="dim")
    if state := _state(context.state.params, context.state.waiting_for_param):
        out.print(f"   state: {state}", style="dim", markup=False)


def _state(params: Mapping[str, Any], waiting: str | None) -> str:
    values = [one_line(f"{name}={value}", 40) for name, value in params.items()]
    return " · ".join([*values, *([f"waiting for {waiting}"] if waiting else [])])


async def _recall(out: Console, memory: Memory, session: Session) -> None:
    """Ask about message 3 of a long conversation, whose messages have left the window."""
    await session.clear()
    chat = [{"role": "user", "content": f"Page {number} of the manual is read."} for number in range(_LONG_COUNT - 1)]
    chat[2] = {"role": "user", "content": _FACT}
    await session.append(*chat)
    await _summarise(memory, session)
    context = await session.append_and_read({"role": "user", "content": _QUESTION}, recall=100)
    if not any(message.content == _FACT for message in context.recalled):
        raise Stop("recall did not find the message that the question is about")
    out.print(f"\nIn a chat of {_LONG_COUNT} messages: {_QUESTION}", style="bold", markup=False)
    show_messages(out, "recalled for the model", context.recalled, full=False, redact=False)


async def _show_project(out: Console, project: Project) -> None:
    await filling.plan(project)
    out.print("\nA project's part of the prompt, from three weeks of decisions, tasks and entities:", style="bold")
    out.print(printable((await project.context(["tank", "parts"])).format(max_tokens=400)), markup=False)
