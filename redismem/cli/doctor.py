"""`redismem doctor`: the findings of the inspection in words, with advice; with `--deep` every violation too."""

from __future__ import annotations

from typing import Annotated

from redismem.cli.check import check
from redismem.cli.options import DEFAULT, On, flag, within
from redismem.cli.place import ChosenStore, open_unchecked
from redismem.cli.terminal import UNREACHABLE, console, grid, print_json
from redismem.inspection.doctor import examine
from redismem.inspection.figures import plural
from redismem.inspection.findings import FAIL, NOT_HERE, OK, WARN, Finding, acl_of

Deep = Annotated[bool, flag("Also test every session, project and record against the invariants.")]
Limit = Annotated[int, within(1, None, "With --deep: violations to list; all are counted.")]


async def doctor(*, deep: Deep = False, limit: Limit = 100, on: On = DEFAULT) -> int:
    """Check server, namespace and settings, and advise; `--deep`.

    Server: version, persistence, memory, replication, redis.conf, load per node, clock, latency, the user's ACL,
    scripts. Namespace: recorded shards, room below the session limit, expiry of the 200 most recently active sessions,
    running workers, paused providers, late summaries, dead sessions, quarantine. Settings: the model, without calling
    it, and the names of invalid variables. Read-only.

    With `--deep` it also tests every session, project and record against the invariants: a session's messages,
    counters, summaries, queues, leases and expiry must be consistent; so must a project's items, versions, links, names
    and indexes, and a record's keys, expiry and indexes. Workers and appends may run meanwhile. It
    prints no message text. Use the settings of the pods: threshold, strategy and limits matter.

    Each line is ok, warn or fail. Exit code 1: a line is fail, or there is a violation.
    """
    async with open_unchecked(on.url, on.namespace) as (memory, place):
        found = await examine(memory.store, embedded=place.embedded)
    can_read = (found[0].name, found[0].verdict) != ("connection", FAIL)
    checked = await check(on) if deep and can_read else None
    failed = any(each.verdict == FAIL for each in found) or bool(checked and checked.violations)
    if on.as_json:
        rows = [each.document() for each in found]
        answer = {"store": place.name, "namespace": on.namespace, "good": not failed, "findings": rows}
        answer |= {"acl": line} if (line := acl_of(found)) else {}
        print_json(answer | ({} if checked is None else checked.document(limit)))
    else:
        _report(found, place, on.namespace)
        if checked is not None:
            checked.report(limit)
    if not can_read:
        return UNREACHABLE
    return 1 if failed else 0


def _report(found: list[Finding], place: ChosenStore, namespace: str) -> None:
    from rich.text import Text

    out = console()
    out.print(Text.assemble(("redismem doctor", "bold"), f"  {place.name}, namespace {namespace}"))
    styles = {OK: "green", WARN: "bold yellow", FAIL: "bold red", NOT_HERE: "dim"}
    rows = list[tuple[Text | str, str, Text | str]]()
    for each in found:
        rows.append((Text(f"  {each.verdict:4}", styles[each.verdict]), each.name, Text(each.text)))
        if each.advice:
            rows.append(("", "", each.advice))
    out.print(grid(rows))
    if line := acl_of(found):
        out.print(Text(line), soft_wrap=True)
    counts = {verdict: sum(each.verdict == verdict for each in found) for verdict in (FAIL, WARN)}
    if not any(counts.values()):
        out.print(Text("no problems found", "bold green"))
    else:
        style = styles[FAIL if counts[FAIL] else WARN]
        out.print(Text(f"{counts[FAIL]} failed, {plural(counts[WARN], 'warning')}", style))
