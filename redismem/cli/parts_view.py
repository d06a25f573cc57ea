"""The parts of a damaged session: its faults, and the summaries and messages that can be read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redismem.cli.terminal import one_line, text_of_message
from redismem.inspection.figures import printable
from redismem.inspection.quarantine import Restoration
from redismem.messages.values import replace_non_finite

if TYPE_CHECKING:
    from rich.console import Console

_SHOWN_CHARS = 240


def show_parts(out: Console, read: Restoration, full: bool, redact: bool) -> None:
    """Print the faults of a session, and what can be read."""
    for fault in dict.fromkeys(read.faults):
        out.print(f"  fault: {fault}", style="yellow", markup=False)
    for summary in read.summaries:
        text = "(redacted)" if redact else _short(summary.text, full)
        out.print(f"  summary of {summary.first_seq} to {summary.last_seq}: {text}", markup=False)
    for message in read.messages:
        text = f"(redacted, {message.tokens} tokens)" if redact else _short(text_of_message(message.visible), full)
        out.print(f"  {message.seq} {one_line(str(message.role), 12)}: {text}", markup=False)


def _short(text: str, full: bool) -> str:
    return printable(text) if full or len(text) <= _SHOWN_CHARS else one_line(text, _SHOWN_CHARS)


def parts_document(read: Restoration, redact: bool) -> dict[str, Any]:
    """Return the faults of a session and what can be read, as JSON values."""
    messages = [
        {"seq": each.seq, "tokens": each.tokens, "role": replace_non_finite(each.role)}
        | ({} if redact else {"message": replace_non_finite(each.to_openai())})
        for each in read.messages
    ]
    summaries = [
        {"first_seq": each.first_seq, "last_seq": each.last_seq} | ({} if redact else {"text": each.text})
        for each in read.summaries
    ]
    faults = list(dict.fromkeys(read.faults))
    return {"faults": faults, "epoch": read.epoch, "summaries": summaries, "messages": messages}
