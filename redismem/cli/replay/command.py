"""`redismem replay`: real transcripts through the memory, measured, read back and compared."""

from __future__ import annotations

import sys
from array import array
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter, validators

from redismem.cli.place import HOW_TO_NAME_REDIS, Place, open_memory
from redismem.cli.replay.replaying import Findings, Replay, Steps
from redismem.cli.terminal import AsJson, Namespace, Stop, Url, complain, console, plural, print_json
from redismem.workers.strategies import from_settings

Concurrency = Annotated[
    int, Parameter(validator=validators.Number(gte=1, lte=1_000), help="Conversations replayed at the same time.")
]
Keep = Annotated[
    bool, Parameter(negative=(), show_default=False, help="Leave the sessions in the store, until their timeout.")
]
Replace = Annotated[
    bool,
    Parameter(
        negative=(), show_default=False, help="Clear a session that exists already, instead of skipping its line."
    ),
]
NoSummaries = Annotated[
    bool, Parameter(name="--no-summaries", negative=(), show_default=False, help="Store and compare only.")
]
# The transcripts are over: a tool call without a result gets none any more.
_SUMMARISED = {"strategy": "summarize", "model_provider": "extractive", "keep_originals": True, "open_call_s": 0}


async def replay(
    file: Annotated[Path, Parameter(help='One conversation a line: `{"session_id": "…", "messages": [{…}, …]}`.')],
    /,
    *,
    concurrency: Concurrency = 64,
    keep: Keep = False,
    replace: Replace = False,
    no_summaries: NoSummaries = False,
    url: Url = None,
    namespace: Namespace = "replay",
    as_json: AsJson = False,
) -> int:
    """Feed transcripts from a file, measure, summarise, read all of it back and compare.

    A turn is one `append_and_read`: consecutive messages up to and with the next user message; the messages after the
    last user message are one more turn. A conversation's turns follow each other, `--concurrency` conversations run at
    once. Connections are open and the script is loaded before the clock starts; reading the file counts.

    Then the sessions are summarised in this process, by the extractive summariser. Originals are kept, so every message
    is read back, whether a summary covers it or not, and must equal its line: in order, tool calls and nulls included,
    1 not 1.0. Each session must keep the invariants that `redismem check` looks at.

    Sessions keep the ids of the file, in a namespace of their own, and are cleared once they are verified, so the
    same file can be replayed again; what remains is a counter a shard. `--keep` leaves them. A session that exists
    already is never overwritten or cleared: its line is skipped, unless `--replace` says otherwise. A session that
    did not come back equal, or breaks an invariant, is kept.

    A line that cannot be replayed (no JSON, no session_id, a refused message, a session named twice) is reported with
    its number and skipped. Summaries come after the last turn, so a transcript may have `REDISMEM_MAX_WINDOW_COUNT`
    (10,000) messages. No other worker may work on the namespace meanwhile. Exit code: 0 all is identical and nothing
    breaks an invariant, 1 something is not or was skipped, 2 wrong usage.
    """
    total = _file_bytes(file)
    given: dict[str, Any] = {} if no_summaries else _SUMMARISED
    async with open_memory(url, namespace, **given) as (memory, place):
        if keep and place.embedded:
            raise Stop(f"--keep needs a store that outlives this command: {HOW_TO_NAME_REDIS}", 2)
        strategy = None if no_summaries else from_settings(memory.settings)
        replaying = Replay(memory, file, strategy, concurrency=concurrency, keep=keep, replace=replace)
        found = await _with_progress(replaying, total)
    for line, text in found.problems:
        complain(f"line {line}: {text}")
    if found.problems_count > len(found.problems):
        complain(f"and {found.problems_count - len(found.problems):,} more")
    if as_json:
        print_json(_document(found, file, place, namespace, concurrency, keep))
    else:
        _report(found, file, place, namespace, concurrency, keep)
    return 0 if found.good else 1


def percentile(values: array[float], share: float) -> float | None:
    """The value that `share` of the values do not exceed."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else None


def _file_bytes(file: Path) -> int:
    if not file.is_file():
        raise Stop(f"{file} is not a file that can be read twice" if file.exists() else f"there is no file {file}", 2)
    return file.stat().st_size


async def _with_progress(replay: Replay, total: int) -> Findings:
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description:13}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console(stderr=True), disable=not sys.stderr.isatty()) as bar:
        storing = bar.add_task("storing", total=total)
        summarising = bar.add_task("summarising", total=None, start=False)
        comparing = bar.add_task("reading back", total=total, start=False)

        def summarised(count: int) -> None:
            bar.start_task(summarising)
            bar.update(summarising, advance=count, total=replay.found.sessions)

        def compared(count: int) -> None:
            bar.start_task(comparing)
            bar.advance(comparing, count)

        return await replay.run(Steps(lambda count: bar.advance(storing, count), summarised, compared))


def _document(
    found: Findings, file: Path, place: Place, namespace: str, concurrency: int, keep: bool
) -> dict[str, Any]:
    each = found.stored_bytes / found.messages if found.stored_bytes is not None and found.messages else None
    return {
        "file": str(file),
        "store": place.name,
        "namespace": namespace,
        "concurrency": concurrency,
        "sessions": found.sessions,
        "messages": found.messages,
        "turns": found.turns,
        "seconds": round(found.seconds, 4),
        "turns_per_s": round(found.turns / found.seconds, 1) if found.turns else None,
        "p50_ms": percentile(found.latencies_ms, 0.50),
        "p99_ms": percentile(found.latencies_ms, 0.99),
        "round_trips_per_turn": round(found.trips / found.turns, 4) if found.turns else None,
        "raw_bytes": found.raw_bytes,
        "stored_bytes": found.stored_bytes,
        "bytes_per_message": None if each is None else round(each, 1),
        "stored_to_raw": round(found.stored_bytes / found.raw_bytes, 4) if found.stored_bytes else None,
        "summaries": found.summaries,
        "covered_messages": found.covered_messages,
        "summaries_per_s": round(found.summaries / found.summarising_seconds, 1) if found.summaries else None,
        "checked_sessions": found.checked,
        "violations": found.violations,
        "identical_messages": found.identical_messages,
        "good": found.good,
        "kept": keep,
        "problems_count": found.problems_count,
        "problems": [{"line": line, "problem": text} for line, text in found.problems],
    }


def _report(found: Findings, file: Path, place: Place, namespace: str, concurrency: int, keep: bool) -> None:
    from rich.table import Table
    from rich.text import Text

    out = console()
    out.print(Text.assemble((file.name, "bold"), f"  into {place.name}, namespace {namespace}"))
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(style="dim", overflow="fold")
    for row in _rows(found, concurrency):
        table.add_row("  " + row[0], *row[1:])
    out.print(table)
    if found.good:
        verdict = Text(
            f"identical: all {plural(found.messages, 'message')} read back as the file has them", "bold green"
        )
    elif not found.sessions:
        verdict = Text("nothing was replayed", "bold red")
    else:
        skipped = f"; {plural(found.problems_count, 'problem')}, see above" if found.problems_count else ""
        verdict = Text(f"{found.identical_messages:,} of {found.messages:,} messages identical{skipped}", "bold red")
    out.print(verdict)
    if found.sessions:
        out.print(Text("the sessions are kept" if keep else "the sessions were cleared again (--keep leaves them)"))


def _rows(found: Findings, concurrency: int) -> list[tuple[str, str, str]]:
    rows = [
        ("sessions", f"{found.sessions:,}", ""),
        ("messages", f"{found.messages:,}", ""),
        ("turns", f"{found.turns:,}", "one append_and_read: up to and with a user's message"),
    ]
    if not found.turns:
        return rows
    p50, p99 = (percentile(found.latencies_ms, share) or 0.0 for share in (0.50, 0.99))
    rows += [
        ("turns a second", f"{found.turns / found.seconds:,.0f}", f"{concurrency} at a time"),
        ("latency p50", f"{p50:.2f} ms", "waiting for each other included"),
        ("latency p99", f"{p99:.2f} ms", ""),
        ("round trips a turn", f"{found.trips / found.turns:.3f}", f"{found.trips:,} counted, retries too"),
    ]
    if found.stored_bytes is None:
        rows.append(("bytes a message", "—", "this store cannot tell"))
    elif found.messages:
        rows += [
            ("bytes a message", f"{found.stored_bytes / found.messages:,.0f}", "MEMORY USAGE of all keys and indexes"),
            ("to the raw text", f"{found.stored_bytes / found.raw_bytes:.2f} ×", "the messages as compact JSON"),
        ]
    if found.summaries:
        per_s = found.summaries / found.summarising_seconds
        covers = f"of {plural(found.covered_messages, 'message')}, {per_s:,.0f} written a second"
        rows.append(("summaries", f"{found.summaries:,}", covers))
    broken = plural(found.violations, "violation")
    return [*rows, ("invariants", f"{found.checked:,}", f"sessions checked against them: {broken}")]
