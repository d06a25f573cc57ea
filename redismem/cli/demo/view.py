"""Output of the demo: a few lines per turn, 80 columns wide in a pipe, or one JSON document."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from redismem.cli.demo.expected import Drained, Played
from redismem.cli.demo.playing import Playing
from redismem.cli.place import HOW_TO_NAME_REDIS, Place
from redismem.cli.session_view import role_style
from redismem.cli.terminal import one_line, text_of_message
from redismem.context import Context, State
from redismem.info import SessionInfo
from redismem.inspection.figures import plural, printable
from redismem.memory import Memory

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text


def begin(out: Console, place: Place, memory: Memory, session_id: str) -> None:
    from rich.text import Text

    settings = memory.settings
    letters = (("S", "system"), ("U", "user"), ("A", "assistant"), ("C", "calls tools"), ("T", "tool"))
    rows = _rows()
    out.print(Text("redismem demo: a support chat, turn by turn", "bold"))
    store = "embedded: in this process, lost when it ends" if place.embedded else place.name
    rows.add_row("store", Text(store, "bold"))
    if place.embedded:
        rows.add_row("", Text(f"to use Redis: {HOW_TO_NAME_REDIS}"))
    rows.add_row("session", Text(f"{session_id}, namespace {memory.store.keys.namespace}"))
    limits = f"threshold {settings.threshold} · recent_limit {settings.recent_limit}, the defaults"
    rows.add_row("settings", Text(f"{limits} · summary_tokens_total {settings.summary_tokens_total}"))
    rows.add_row("", Text("keep_originals: summarised messages stay readable"))
    rows.add_row("summaries", Text(f"{settings.model_provider}: without a model"))
    rows.add_row("letters", _letters(letters))
    out.print(rows)


def _rows() -> Table:
    """Return a table of labels and values that breaks a long value within its column."""
    from rich.table import Table

    table = Table.grid(padding=(0, 1))
    table.add_column(style="dim", min_width=11, no_wrap=True)
    table.add_column(overflow="fold")
    return table


def _letters(meanings: tuple[tuple[str, str], ...]) -> Text:
    from rich.text import Text

    roles = {"calls tools": "assistant"}
    return Text("  ").join(
        Text.assemble((letter, f"bold {role_style(roles.get(role, role))}"), f" {role}") for letter, role in meanings
    )


def show_turn(out: Console, played: Played) -> None:
    from rich.rule import Rule
    from rich.text import Text

    turn, context = played.turn, played.context
    call = "append_and_read" if turn.reads else "append"
    cost = f"{plural(played.trips, 'round trip')}, {played.ms:.1f} ms"
    out.print()
    out.print(Rule(Text.assemble((f"{turn.number} {call}", "bold"), f" · {cost}"), align="left", style="dim"))
    out.print(Text(turn.note, "italic"))
    width = out.width - 18
    for seq, message in enumerate(turn.messages, played.receipt.first_seq):
        role = str(message["role"])
        out.print(
            Text.assemble(f"+ {seq:3} ", (f"{role:10}", role_style(role)), one_line(text_of_message(message), width))
        )
    rows = _rows()
    rows.add_row("window", _window(context))
    _add_state(rows, context.state, turn.change)
    _add_end(rows, context, played.info, played.wrong)
    out.print(rows)


def show_drain(out: Console, drained: Drained) -> None:
    """Print the new summary as the model will get it."""
    from rich.padding import Padding
    from rich.rule import Rule
    from rich.text import Text

    context = drained.context
    out.print()
    out.print(
        Rule(Text.assemble(("worker: drain", "bold blue"), f" · {drained.ms:.1f} ms"), align="left", style="blue")
    )
    out.print(Text(drained.note, "italic"))
    for summary in context.summaries[-1:]:
        message = summary.to_openai()
        out.print(Text.assemble("= ", (message["role"], role_style(message["role"])), " message for the model:"))
        out.print(Padding(Text(printable(message["content"]), "blue"), (0, 0, 0, 4)))
    rows = _rows()
    rows.add_row("window", _window(context))
    _add_end(rows, context, drained.info, drained.wrong)
    out.print(rows)


def _add_end(rows: Table, context: Context, info: SessionInfo, wrong: list[str]) -> None:
    from rich.text import Text

    rows.add_row("counters", _counters(context, info))
    for text in wrong:
        rows.add_row("WRONG", Text(text, "bold red"))


def _window(context: Context) -> Text:
    """Return the context for the model as one letter per message, oldest first."""
    from rich.text import Text

    text = Text()
    if context.pinned:
        text.append("pinned ", "yellow")
        text.append("".join(_letter(message.to_openai()) for message in context.pinned), "bold yellow").append("   ")
    for summary in context.summaries:
        text.append("summary ", "blue").append(f"{summary.first_seq}-{summary.last_seq}   ", "dim")
    for title, messages in (("pending", context.pending), ("recent", context.recent)):
        if messages:
            text.append(f"{title} ", "dim" if title == "pending" else "")
            for message in messages:
                style = role_style(message.role)
                text.append(_letter(message.to_openai()), f"dim {style}" if title == "pending" else f"bold {style}")
            span = f"{messages[0].seq}-{messages[-1].seq}" if len(messages) > 1 else str(messages[0].seq)
            text.append(f" {span}   ", "dim")
    return text


def _letter(message: dict[str, Any]) -> str:
    return "C" if message.get("tool_calls") else str(message["role"])[0].upper()


def _add_state(rows: Table, state: State, change: dict[str, Any]) -> None:
    """Add a row for each part of the state; changes of this turn are bold."""
    from rich.text import Text

    merged = change.get("merge", {})
    if state.params:
        params = (
            Text(f"{name}={one_line(str(value), 24)}", "bold" if name in merged else "")
            for name, value in state.params.items()
        )
        rows.add_row("params", Text(" · ").join(params))
    if state.waiting_for_param:
        rows.add_row("waiting", Text(f"for {state.waiting_for_param}", "bold yellow"))
    elif "waiting" in change:
        rows.add_row("waiting", Text("no longer: resumed", "green"))
    for label in ("last_intent", "last_result", "plan"):
        if label in change:
            value = getattr(state, label)
            rows.add_row(label, Text("removed" if value is None else json.dumps(value, ensure_ascii=False), "bold"))


def _counters(context: Context, info: SessionInfo) -> Text:
    from rich.text import Text

    text = Text(f"total {context.total_messages} · pending {len(context.pending)} · recent {len(context.recent)} · ")
    text.append(f"{info.window_tokens} tokens · queue: ")
    return text.append(info.queued or "none", "bold red" if info.queued else "")


def show_context(out: Console, context: Context) -> None:
    """Print the whole context for the model, one line per message."""
    from rich.rule import Rule
    from rich.table import Table
    from rich.text import Text

    out.print()
    out.print(Rule(Text("the context for the model now", "bold"), align="left", style="dim"))
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("seq", justify="right")
    for heading in ("part", "role", "message"):
        table.add_column(heading, no_wrap=True)
    for message in context.pinned:
        text = Text(one_line(text_of_message(message.to_openai()), out.width - 28))
        table.add_row(str(message.seq), "pinned", Text(str(message.role), role_style(message.role)), text)
    for summary in context.summaries:
        text = Text(one_line(text_of_message(summary.to_openai()), out.width - 28), "blue")
        table.add_row(f"{summary.first_seq}-{summary.last_seq}", "summary", Text("user", role_style("user")), text)
    for part, messages in (("pending", context.pending), ("recent", context.recent)):
        for message in messages:
            dim = "dim " if part == "pending" else ""
            text = Text(one_line(text_of_message(message.to_openai()), out.width - 28), dim)
            table.add_row(str(message.seq), part, Text(str(message.role), dim + role_style(message.role)), text)
    out.print(table)


def end(out: Console, playing: Playing, place: Place) -> None:
    from rich.rule import Rule
    from rich.text import Text

    show_context(out, playing.context)
    out.print()
    out.print(Rule(Text("further checks", "bold"), align="left", style="dim"))
    for check in playing.checks:
        out.print(Text(check.name, "italic"))
        out.print(
            Text.assemble(
                "  ", ("ok    " if check.good else "WRONG ", "green" if check.good else "bold red"), check.seen
            )
        )
    out.print()
    if playing.good:
        count = len(playing.played)
        out.print(Text(f"All {count} turns checked: messages, state, counters, one round trip each.", "bold green"))
        out.print(Text(f"{plural(len(playing.drained), 'drain')} checked: nothing lost, six recent.", "bold green"))
    else:
        out.print(Text("Some checks failed: see WRONG above.", "bold red"))
    if place.embedded:
        out.print("Next: redismem demo --url redis://…, and redismem replay FILE.jsonl with your own chats.")


def document(playing: Playing, place: Place, namespace: str) -> dict[str, Any]:
    turns = []
    for played in playing.played:
        context = played.context
        turns.append(
            {
                "turn": played.turn.number,
                "call": "append_and_read" if played.turn.reads else "append",
                "note": played.turn.note,
                "for_the_model": context.to_openai(),
                **_seqs(context),
                "state": asdict(context.state),
                "total_messages": context.total_messages,
                "window_tokens": played.info.window_tokens,
                "queue": played.info.queued,
                "round_trips": played.trips,
                "ms": round(played.ms, 3),
                "wrong": played.wrong,
                "drained": _drained(playing.drained.get(played.turn.number)),
            }
        )
    return {
        "store": place.name,
        "namespace": namespace,
        "session_id": playing.session.id,
        "turns": turns,
        "checks": [asdict(check) for check in playing.checks],
        "good": playing.good,
    }


def _seqs(context: Context) -> dict[str, Any]:
    return {
        "pinned": [message.seq for message in context.pinned],
        "summaries": [[summary.first_seq, summary.last_seq] for summary in context.summaries],
        "pending": [message.seq for message in context.pending],
        "recent": [message.seq for message in context.recent],
    }


def _drained(drained: Drained | None) -> dict[str, Any] | None:
    """Describe the drain after a turn; `None` if there was no drain."""
    if drained is None:
        return None
    return {
        "note": drained.note,
        "for_the_model": drained.context.to_openai(),
        **_seqs(drained.context),
        "summary": asdict(drained.context.summaries[-1]) if drained.context.summaries else None,
        "queue": drained.info.queued,
        "ms": round(drained.ms, 3),
        "wrong": drained.wrong,
    }
