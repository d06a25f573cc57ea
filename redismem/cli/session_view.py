"""The views of a session: text for a terminal of 80 columns, and a JSON document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from redismem.cli.depths import failures_line
from redismem.cli.terminal import one_line, text_of_message
from redismem.context.context import Context
from redismem.context.info import Policy, SessionInfo
from redismem.context.results import Summary
from redismem.inspection.figures import duration, plural, printable
from redismem.inspection.sessions import hash_of
from redismem.messages.message import moment
from redismem.messages.values import replace_non_finite

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from redismem.messages.message import Message

_STYLES = {"user": "cyan", "assistant": "green", "tool": "magenta", "system": "yellow", "developer": "yellow"}
SHORT_CHARS = 240


def role_style(role: object) -> str:
    return _STYLES.get(role, "") if isinstance(role, str) else ""


def document(
    context: Context, info: SessionInfo, namespace: str, key: str, *, redact: bool, originals: Sequence[Message] = ()
) -> dict[str, Any]:
    """Return a session as JSON, without the values of its state."""

    def message(each: Message) -> dict[str, Any]:
        row: dict[str, Any] = {"seq": each.seq, "tokens": each.tokens, "stored_ms": each.stored_ms}
        if redact:
            return row | {"role": each.role}
        beside = dict(each.beside or {})
        if beside.pop("timestamp_us", None) is not None:
            beside["timestamp"] = each.timestamp.isoformat()
        return {**row, **replace_non_finite(beside), "message": replace_non_finite(each.to_openai())}

    summaries = [asdict(summary) for summary in context.summaries]
    for summary in summaries if redact else ():
        del summary["text"]
    return {
        "namespace": namespace,
        "hash": hash_of(info.session_id),
        "key": key,
        **asdict(replace(info, title=None) if redact else info),
        "state": {"params": sorted(context.state.params), "set": state_names(context)},
        "summaries": summaries,
        "pinned": [message(each) for each in context.pinned],
        **({"originals": [message(each) for each in originals]} if originals else {}),
        "pending": [message(each) for each in context.pending],
        "recent": [message(each) for each in context.recent],
    }


def state_names(context: Context) -> list[str]:
    """Return the names of the state values that are set, except params and waiting_for_param."""
    state = context.state
    others = {"last_intent": state.last_intent, "last_result": state.last_result, "plan": state.plan}
    return [name for name, value in others.items() if value is not None]


def show(
    out: Console,
    context: Context,
    info: SessionInfo,
    now_ms: int,
    where: str,
    key: str,
    full: bool,
    redact: bool,
    originals: Sequence[Message] = (),
) -> None:
    from rich.rule import Rule
    from rich.text import Text

    out.print(Text.assemble((printable(info.session_id), "bold"), f"  {where}"))
    for line in _numbers(context, info, now_ms, key):
        out.print(Text(f"  {line}"))
    show_messages(out, "pinned", context.pinned, full, redact)
    show_messages(out, "originals", originals, full, redact)
    for summary in context.summaries:
        out.print(Rule(f"summary: {summary.first_seq} to {summary.last_seq}", align="left", style="blue"))
        out.print(Text(_provenance(summary), "dim"))
        out.print(Text("(redacted)" if redact else printable(summary.text)))
    show_messages(out, "pending", context.pending, full, redact)
    show_messages(out, "recent", context.recent, full, redact)


def show_messages(out: Console, title: str, messages: Sequence[Message], full: bool, redact: bool) -> None:
    """Print messages in a table, with their seqs and roles, below a line with the title."""
    from rich.rule import Rule
    from rich.table import Table

    if not messages:
        return
    span = f"{title}: {messages[0].seq} to {messages[-1].seq}"
    out.print(Rule(span, align="left", style={"pinned": "yellow", "pending": "dim"}.get(title, "green")))
    table = Table.grid(padding=(0, 1))
    table.add_column(justify="right", style="dim", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for message in messages:
        _add(table, message, full, redact)
    out.print(table)


def _provenance(summary: Summary) -> str:
    """Describe a summary: its messages, its tokens and its model."""
    start, end = moment(summary.start_ms), moment(summary.end_ms)
    until = f"{end:%H:%M:%S}" if start.date() == end.date() else f"{end:%Y-%m-%d %H:%M:%S}"
    count = summary.last_seq - summary.first_seq + 1
    of = f"of {plural(count, 'message')}, {start:%Y-%m-%d %H:%M:%S} to {until} UTC"
    return f"{of} · {summary.tokens:,} tokens · by {printable(summary.model)}"


def policy_line(policy: Policy) -> str:
    """Return the policy of a session on one line; "" if it sets nothing."""
    timeout_s = policy.idle_timeout_s
    timeout = "" if timeout_s is None else f"expires {duration(timeout_s * 1000)} after its last use"
    rules = ("kept whole" * policy.keep_whole, timeout, "exempt from the session limit" * policy.exempt, policy.zone)
    return " · ".join(filter(None, rules))


def _numbers(context: Context, info: SessionInfo, now_ms: int, key: str) -> list[str]:
    queue = f" · queue: {info.queued}" if info.queued else ""
    queue += f" · turn: {info.turn}" if info.turn else ""
    lines = [
        f"{plural(info.total_messages, 'message')} ever · window {info.window_count} ({info.window_tokens:,} tokens) · "
        f"summaries {info.summaries_count}{queue}",
        *([printable(line)] if (line := failures_line(info, now_ms)) else []),
        f"active {duration(now_ms - info.active_ms)} ago · expires in {duration(info.expires_ms - now_ms)} · "
        f"epoch {info.epoch}",
        *([f"policy: {line}"] if (line := policy_line(info.policy)) else []),
        *([f"owner: {printable(info.owner)}"] if info.owner is not None else []),
        f"in logs: {hash_of(info.session_id)}",
        f"in Redis: {printable(key)}",
    ]
    names = [*sorted(context.state.params), *(f"({name})" for name in state_names(context))]
    if names:
        lines.append(f"state: {', '.join(map(printable, names))}")
    if info.waiting_for_param:
        lines.append(f"waiting for: {printable(info.waiting_for_param)}")
    return lines


def _add(table: Table, message: Message, full: bool, redact: bool) -> None:
    from rich.text import Text

    role = str(message.role)
    text = text_of_message(message.visible)
    if redact:
        shown = f"(redacted, {message.tokens} tokens)" if message.tokens else "(redacted)"
    elif full or len(text) <= SHORT_CHARS:
        shown = printable(text)
    else:
        shown = f"{one_line(text, SHORT_CHARS)} (+{len(text) - SHORT_CHARS:,} characters)"
    table.add_row(str(message.seq), Text(one_line(role, 12), role_style(role)), Text(shown))
