"""`redismem demo replay`: store real transcripts, time this, read them back and compare."""

from __future__ import annotations

import sys
from array import array
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from redismem.cli.options import flag, within
from redismem.cli.place import HOW_TO_NAME_REDIS, ChosenStore, open_memory
from redismem.cli.replay.replaying import Findings, Replay, Steps
from redismem.cli.streams import complain
from redismem.cli.terminal import AsJson, OwnNamespace, Stop, Url, Yes, ask, console, grid, print_json
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
    Exit code: 0 if everything is identical and sound, 1 if not or if a line was skipped.
    """
    total = _file_bytes(file)
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
        findings = await _run_with_progress(replaying, total)
    for line, text in findings.problems:
        complain(f"line {line}: {text}")
    if findings.problems_count > len(findings.problems):
        complain(f"and {findings.problems_count - len(findings.problems):,} more problems")
    if as_json:
        print_json(_document(findings, file, place, namespace, concurrency, keep))
    else:
        _print_report(findings, file, place, namespace, concurrency, keep)
    return 0 if findings.good else 1


def percentile(values: array[float], share: float) -> float | None:
    """Return the value that `share` of the values do not exceed; `None` if there are no values."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else None


def _file_bytes(file: Path) -> int:
    if not file.is_file():
        raise Stop(f"{file} is not a regular file" if file.exists() else f"there is no file {file}", 2)
    return file.stat().st_size


async def _run_with_progress(replay: Replay, total: int) -> Findings:
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description:13}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console(stderr=True), disable=not sys.stderr.isatty()) as bar:
        storing = bar.add_task("storing", total=total)
        summarising = bar.add_task("summarising", total=None, start=False)
        comparing = bar.add_task("reading back", total=total, start=False)

        def advance_summarising(count: int) -> None:
            bar.start_task(summarising)
            bar.update(summarising, advance=count, total=replay.findings.sessions)

        def advance_comparing(count: int) -> None:
            bar.start_task(comparing)
            bar.advance(comparing, count)

        steps = Steps(lambda count: bar.advance(storing, count), advance_summarising, advance_comparing)
        return await replay.run(steps)


def _document(
    findings: Findings, file: Path, place: ChosenStore, namespace: str, concurrency: int, keep: bool
) -> dict[str, Any]:
    per_message = (
        findings.stored_bytes / findings.messages if findings.stored_bytes is not None and findings.messages else None
    )
    return {
        "file": str(file),
        "store": place.name,
        "namespace": namespace,
        "concurrency": concurrency,
        "sessions": findings.sessions,
        "messages": findings.messages,
        "turns": findings.turns,
        "seconds": round(findings.seconds, 4),
        "turns_per_s": round(findings.turns / findings.seconds, 1) if findings.turns else None,
        "p50_ms": percentile(findings.latencies_ms, 0.50),
        "p99_ms": percentile(findings.latencies_ms, 0.99),
        "round_trips_per_turn": round(findings.trips / findings.turns, 4) if findings.turns else None,
        "raw_bytes": findings.raw_bytes,
        "stored_bytes": findings.stored_bytes,
        "bytes_per_message": None if per_message is None else round(per_message, 1),
        "stored_to_raw": round(findings.stored_bytes / findings.raw_bytes, 4) if findings.stored_bytes else None,
        "summaries": findings.summaries,
        "covered_messages": findings.covered_messages,
        "summaries_per_s": round(findings.summaries / findings.summarising_seconds, 1) if findings.summaries else None,
        "checked_sessions": findings.checked,
        "violations": findings.violations,
        "identical_messages": findings.identical_messages,
        "good": findings.good,
        "kept": keep,
        "problems_count": findings.problems_count,
        "problems": [{"line": line, "problem": text} for line, text in findings.problems],
    }


def _print_report(
    findings: Findings, file: Path, place: ChosenStore, namespace: str, concurrency: int, keep: bool
) -> None:
    from rich.text import Text

    out = console()
    out.print(Text.assemble((file.name, "bold"), f"  into {place.name}, namespace {namespace}"))
    out.print(grid((("  " + name, *cells) for name, *cells in _rows(findings, concurrency)), numbers=True))
    if findings.good:
        verdict = Text(f"identical: all {plural(findings.messages, 'message')} read back as in the file", "bold green")
    elif not findings.sessions:
        verdict = Text("nothing was replayed", "bold red")
    else:
        problems = f"; {plural(findings.problems_count, 'problem')}, see above" if findings.problems_count else ""
        verdict = Text(
            f"{findings.identical_messages:,} of {findings.messages:,} messages identical{problems}", "bold red"
        )
    out.print(verdict)
    if findings.sessions:
        out.print(Text("the sessions are kept" if keep else "the sessions were cleared (--keep leaves them)"))


def _rows(findings: Findings, concurrency: int) -> list[tuple[str, str, str]]:
    rows = [
        ("sessions", f"{findings.sessions:,}", ""),
        ("messages", f"{findings.messages:,}", ""),
        ("turns", f"{findings.turns:,}", "one append_and_read each, up to a user message"),
    ]
    if not findings.turns:
        return rows
    p50, p99 = (percentile(findings.latencies_ms, share) or 0.0 for share in (0.50, 0.99))
    rows += [
        ("turns per second", f"{findings.turns / findings.seconds:,.0f}", f"{concurrency} at a time"),
        ("latency p50", f"{p50:.2f} ms", "includes waiting for concurrent turns"),
        ("latency p99", f"{p99:.2f} ms", ""),
        ("round trips per turn", f"{findings.trips / findings.turns:.3f}", f"{findings.trips:,} counted, with retries"),
    ]
    if findings.stored_bytes is None:
        rows.append(("bytes per message", "—", "not available on this store"))
    elif findings.messages:
        per_message = f"{findings.stored_bytes / findings.messages:,.0f}"
        rows += [
            ("bytes per message", per_message, "MEMORY USAGE of all keys, indexes included"),
            (
                "stored to raw",
                f"{findings.stored_bytes / findings.raw_bytes:.2f} ×",
                "raw: the messages as compact JSON",
            ),
        ]
    if findings.summaries:
        per_s = findings.summaries / findings.summarising_seconds
        covers = f"of {plural(findings.covered_messages, 'message')}, {per_s:,.0f} written per second"
        rows.append(("summaries", f"{findings.summaries:,}", covers))
    violations = plural(findings.violations, "violation")
    return [*rows, ("invariants", f"{findings.checked:,}", f"sessions checked: {violations}")]
