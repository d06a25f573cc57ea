"""`redismem demo replay`: store real transcripts, time this, read them back and compare."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from redismem.cli.options import AsJson, OwnNamespace, Url, Yes, flag, within
from redismem.cli.place import HOW_TO_NAME_REDIS, open_memory
from redismem.cli.replay.replaying import Findings, Replay, Steps
from redismem.cli.streams import complain_all
from redismem.cli.terminal import Stop, ask, check_file, console, grid, print_json, progress
from redismem.events import Event
from redismem.inspection.figures import plural
from redismem.workers.strategies import from_settings

Concurrency = Annotated[int, within(1, 1_000, "Conversations replayed concurrently.")]
Keep = Annotated[bool, flag("Leave the sessions in the store until they time out.")]
Replace = Annotated[bool, flag("Clear a session that already exists instead of skipping its line.")]
NoSummaries = Annotated[bool, flag("Only store and compare.", "--no-summaries")]
# The conversations have ended: a tool call without a result will never get one.
_SUMMARISED = {"strategy": "summarize", "model_provider": "extractive", "keep_originals": True, "open_call_s": 0}


async def replay(
    file: Annotated[Path, Parameter(help='One conversation per line: `{"session_id": "…", "messages": [{…}, …]}`.')],
    /,
    *,
    concurrency: Concurrency = 64,
    keep: Keep = False,
    replace: Replace = False,
    yes: Yes = False,
    no_summaries: NoSummaries = False,
    url: Url = None,
    namespace: OwnNamespace = "replay",
    as_json: AsJson = False,
) -> int:
    """Store transcripts from a file turn by turn and time this; then summarise, read everything back and compare.

    A turn is one `append_and_read` of the messages up to and including the next user message. Messages after the last
    user message are one more turn. The turns of a conversation run in sequence, `--concurrency` conversations at once.
    The clock starts after the connections are open and the script is loaded; it includes reading the file.

    The extractive summariser then summarises the sessions in this process. Originals are kept, so every message can be
    read back and must equal the file: in order, with tool calls and nulls, 1 not 1.0. Each session must also satisfy
    the invariants of `redismem doctor --deep`.

    Sessions keep their ids from the file, in a separate namespace. A verified session is cleared, so the file can be
    replayed again; one counter per shard remains. `--keep` leaves the sessions. An existing session is never
    overwritten: its line is skipped unless you pass `--replace`, which asks. A session that differs or breaks an
    invariant is kept.

    A line that cannot be replayed (no JSON, no session_id, a refused message, a repeated session) is reported with its
    number and skipped. Summaries come after the last turn, so a transcript may have at most
    `REDISMEM_MAX_WINDOW_COUNT` (10,000) messages. Run no worker on the namespace meanwhile.
    Exit code 1: something is not identical or not sound, or a line was skipped.
    """
    check_file(file)
    settings: dict[str, Any] = {} if no_summaries else _SUMMARISED
    sent: Counter[str] = Counter()

    def count(event: Event) -> None:
        sent[event.op] += event.sent_count

    async with open_memory(url, namespace, count, **settings) as (memory, place):
        if keep and place.embedded:
            raise Stop(f"--keep needs a store that outlives this command: {HOW_TO_NAME_REDIS}", 2)
        if replace:
            ask(f"Clear the sessions of {file} that exist in namespace {namespace} on {place.name}?", yes=yes)
        strategy = None if no_summaries else from_settings(memory.settings)
        replaying = Replay(memory, file, strategy, sent, concurrency=concurrency, keep=keep, replace=replace)
        findings = await _run_with_progress(replaying)
    complain_all([(f"line {line}", text) for line, text in findings.problems], findings.problems_count)
    figures = _figures(findings)
    if as_json:
        where = {"file": str(file), "store": place.name, "namespace": namespace, "concurrency": concurrency}
        problems = [{"line": line, "problem": text} for line, text in findings.problems]
        print_json(where | figures | {"kept": keep, "problems": problems})
    else:
        rows = _rows(figures, findings.trips, concurrency)
        _print_report(findings, rows, f"{file.name}  into {place.name}, namespace {namespace}", keep)
    return 0 if findings.good else 1


def percentile(values: array[float], share: float) -> float | None:
    """Return the value that `share` of the values do not exceed; `None` if there are no values."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else None


def _figures(findings: Findings) -> dict[str, Any]:
    """Return the figures as JSON values; `None` stands for a figure that could not be measured."""

    def ratio(part: float | None, whole: float, digits: int) -> float | None:
        return round(part / whole, digits) if part and whole else None

    return {
        "sessions": findings.sessions,
        "messages": findings.messages,
        "turns": findings.turns,
        "seconds": round(findings.seconds, 4),
        "turns_per_s": ratio(findings.turns, findings.seconds, 1),
        "p50_ms": percentile(findings.latencies_ms, 0.50),
        "p99_ms": percentile(findings.latencies_ms, 0.99),
        "round_trips_per_turn": ratio(findings.trips, findings.turns, 4),
        "raw_bytes": findings.raw_bytes,
        "stored_bytes": findings.stored_bytes,
        "bytes_per_message": ratio(findings.stored_bytes, findings.messages, 1),
        "stored_to_raw": ratio(findings.stored_bytes, findings.raw_bytes, 4),
        "summaries": findings.summaries,
        "covered_messages": findings.covered_messages,
        "summaries_per_s": ratio(findings.summaries, findings.summarising_seconds, 1),
        "checked_sessions": findings.checked,
        "violations": findings.violations,
        "identical_messages": findings.identical_messages,
        "good": findings.good,
        "problems_count": findings.problems_count,
    }


def _print_report(findings: Findings, rows: Sequence[tuple[str, str, str]], where: str, keep: bool) -> None:
    from rich.text import Text

    out = console()
    out.print(Text(where, "bold"))
    out.print(grid(rows, numbers=True))
    if findings.good:
        verdict = Text(f"identical: all {plural(findings.messages, 'message')} read back as in the file", "bold green")
    elif not findings.sessions:
        verdict = Text("nothing was replayed", "bold red")
    else:
        problems = f"; {plural(findings.problems_count, 'problem')}, see above" if findings.problems_count else ""
        counts = f"{findings.identical_messages:,} of {findings.messages:,} messages identical"
        verdict = Text(f"{counts}{problems}", "bold red")
    out.print(verdict)
    if findings.sessions:
        out.print(Text("the sessions are kept" if keep else "the sessions were cleared (--keep leaves them)"))


def _rows(figures: dict[str, Any], trips: int, concurrency: int) -> list[tuple[str, str, str]]:
    def row(name: str, key: str, form: str, note: str = "") -> list[tuple[str, str, str]]:
        return [] if not figures[key] else [(f"  {name}", form.format(figures[key]), note)]

    no_sizes = [("  bytes per message", "—", "not available on this store")] if figures["stored_bytes"] is None else []
    covered = f"of {plural(figures['covered_messages'], 'message')}, {figures['summaries_per_s'] or 0:,.0f} per second"
    return [
        *row("sessions", "sessions", "{:,}"),
        *row("messages", "messages", "{:,}"),
        *row("turns", "turns", "{:,}", "one append_and_read each, up to a user message"),
        *row("turns per second", "turns_per_s", "{:,.0f}", f"{concurrency} at a time"),
        *row("latency p50", "p50_ms", "{:.2f} ms", "includes waiting for concurrent turns"),
        *row("latency p99", "p99_ms", "{:.2f} ms"),
        *row("round trips per turn", "round_trips_per_turn", "{:.3f}", f"{trips:,} counted, with retries"),
        *row("bytes per message", "bytes_per_message", "{:,.0f}", "MEMORY USAGE of all keys, indexes included"),
        *no_sizes,
        *row("stored to raw", "stored_to_raw", "{:.2f} ×", "raw: the messages as compact JSON"),
        *row("summaries", "summaries", "{:,}", covered),
        *row("invariants", "checked_sessions", "{:,}", f"sessions, {plural(figures['violations'], 'violation')}"),
    ]


async def _run_with_progress(replay: Replay) -> Findings:
    with progress("bytes stored") as stored, progress("sessions summarised") as done, progress("bytes read") as read:
        return await replay.run(Steps(_adder(stored), _adder(done), _adder(read)))


def _adder(show: Callable[[int], None]) -> Callable[[int], None]:
    """Return a function that shows the sum of the numbers that it was called with."""
    total = 0

    def add(count: int) -> None:
        nonlocal total
        total += count
        show(total)

    return add
