"""`redismem doctor`: what the inspection finds, in words: what to change, and why."""

from __future__ import annotations

from collections.abc import Callable

from redismem.cli import doctor_words
from redismem.cli.place import HOW_TO_NAME_REDIS, Place, connect
from redismem.cli.terminal import AsJson, Namespace, Url, console, duration, plural, print_json, printable, size
from redismem.errors import InvalidSettings
from redismem.inspection import rules
from redismem.inspection.doctor import examine
from redismem.inspection.rules import FAIL, NOT_HERE, OK, WARN, Finding
from redismem.memory import make_embedder
from redismem.settings.environment import look
from redismem.settings.settings import Settings

_NOT_ALLOWED = "Let the user of the URL do what pods and workers need: the line at the end, with its name for USER."
_NTP = (
    "redismem goes by the server's clock alone, so sessions are safe; but a clock that is put right may end or "
    "prolong them at once. Synchronise both (NTP)."
)
_MEMORY_ADVICE = {
    "evicts": "It drops single keys, so half a conversation may go. Set `maxmemory-policy noeviction`.",
    "no_limit": "The system may end a server that grows without limit. Set `maxmemory` below the machine's memory.",
    "nearly_full": "At the limit, appends are refused. Raise `maxmemory`, or lower the timeout or the session limit.",
    "room": "",
}
_EXPIRY_WRONG = {
    "torn": "has lost a part of its keys",
    "never_expires": "never expires",
    "apart": "has keys that expire one before the other",
}
_EMBEDDED = {
    "version": ("fakeredis, running the same scripts", ""),
    "persistence": (
        "the embedded store has none of its own: it lives and ends with a process",
        f"For anything that must last, name a Redis: {HOW_TO_NAME_REDIS}.",
    ),
    "memory": ("limited by this process alone", ""),
    "replication": ("there is one copy, in this process", ""),
}


async def doctor(*, url: Url = None, namespace: Namespace = "default", as_json: AsJson = False) -> int:
    """Check the Redis server: what to change, and why.

    Looks at version, persistence, memory, replication, redis.conf, what lies on each node, clock, latency, the user's
    ACL, whether scripts may run, and in the namespace at the recorded shards, the room that the session limit leaves,
    the expiry of the 200 sessions active last, which pods tick for all, the providers that are paused, the sessions
    that wait for a summary for long, those that are dead, and those in quarantine; at the model that is to be asked,
    without asking it; and at the variables that cannot be used, by their names. Writes nothing.

    Each line is ok, warn or fail. Exit code: 1 if one failed, else 0.
    """
    memory, place = connect(url, namespace)
    try:
        found = await examine(memory.store, embedded=place.embedded)
        found += [rules.model(memory.settings, _refused(memory.settings)), rules.environment(look(Settings).complaints)]
    finally:
        await memory.aclose()
    failed = any(each.verdict == FAIL for each in found)
    if as_json:
        rows = [dict(zip(("name", "verdict", "seen", "advice"), _row(each), strict=True)) for each in found]
        answer = {"store": place.name, "namespace": namespace, "good": not failed, "findings": rows}
        print_json(answer | ({"acl": line} if (line := _acl(found)) else {}))
    else:
        _report(found, place, namespace)
    return 1 if failed else 0


def _refused(settings: Settings) -> str:
    """What is wrong with what these settings say of a model or an embedder; "" if nothing is. Asks nobody."""
    from redismem.workers import strategies

    try:
        strategies.from_settings(settings)
        strategies.model_from_settings(settings)
        make_embedder(None, settings)
    except InvalidSettings as error:
        return error.text
    return ""


def _row(finding: Finding) -> tuple[str, str, str, str]:
    return finding.name, str(finding.verdict), *words_of(finding)


def words_of(finding: Finding) -> tuple[str, str]:
    """What was seen, and what to change and why: "" if nothing."""
    if finding.case == "embedded":
        return _EMBEDDED[finding.name]
    if finding.case in ("not_allowed", "failed"):
        return str(finding.seen["error"]), _NOT_ALLOWED if finding.case == "not_allowed" else ""
    return _WORDS[finding.name](finding)


def _connection(finding: Finding) -> tuple[str, str]:
    if finding.case == "answers":
        return "the server answers", ""
    advice = "Is the server up, is the address right, may this user connect? Nothing else could be looked at."
    return str(finding.seen["error"]), advice


def _server(finding: Finding) -> tuple[str, str]:
    del finding
    return "INFO is not allowed", "Version, persistence and memory were not looked at."


def _version(finding: Finding) -> tuple[str, str]:
    seen = f"{finding.seen['make'].capitalize()} {finding.seen['version'] or 'of unknown version'}"
    if finding.case == "too_old":
        return seen, "redismem needs 7.0 or newer: update the server."
    if finding.case == "fixed":
        return f"{seen}, Lua fixes of October 2025 included", ""
    wanted = finding.seen["wanted"]
    newest = f"update to {wanted}" if wanted else "update to a newer line"
    return (
        f"{seen}: without the Lua fixes of October 2025",
        f"CVE-2025-49844 lets who may run scripts run code on the server: {newest}, unless your distribution has "
        "patched this version (Debian: 7.0.15-1~deb12u6), and let only those you trust connect.",
    )


def _persistence(finding: Finding) -> tuple[str, str]:
    seen = finding.seen
    if finding.case == "cannot_save":
        advice = "The server refuses writes while it cannot save (MISCONF): look at its disk and its log."
        return f"{seen['field']} is {seen['status']}", advice
    if finding.case == "aof_off":
        why = "A restart loses every session since the last snapshot."
        if seen["replicas_count"]:
            why = "A primary that restarts empty empties its replicas too."
        return "AOF is off", f"{why} Set `appendonly yes` and `appendfsync everysec`."
    if finding.case == "fsync_no":
        return (
            "AOF on, appendfsync no",
            "A power cut loses what the system has not written yet. Set `appendfsync everysec`.",
        )
    fsync = seen["appendfsync"]
    return "AOF on" + (f", appendfsync {fsync}" if fsync else ""), ""


def _memory(finding: Finding) -> tuple[str, str]:
    seen, limit = finding.seen, finding.seen["limit_bytes"]
    room = f"limit {size(limit)}" if limit else "no limit"
    return f"{size(seen['used_bytes'])} used, {room}, {seen['policy']}", _MEMORY_ADVICE[finding.case]


def _replication(finding: Finding) -> tuple[str, str]:
    if finding.case == "is_replica":
        return "this is a replica", "It refuses writes: name the primary in the URL."
    advice = "A primary that is cut off goes on taking writes that a failover loses. Set `min-replicas-to-write 1`."
    seen = f"primary, {plural(finding.seen['replicas_count'], 'replica')}"
    return seen, advice if finding.case == "writes_alone" else ""


def _expiry(finding: Finding) -> tuple[str, str]:
    seen = finding.seen
    sessions = plural(seen["sessions_count"], "session")
    if finding.case == "wrong":
        return (
            f"{seen['wrong_count']} of {sessions}; {printable(seen['session_id'])} {_EXPIRY_WRONG[seen['wrong']]}",
            "Something else than redismem deletes or changes its keys: an eviction policy, another program, a script.",
        )
    if finding.case == "no_sessions":
        return "no sessions in this namespace yet", ""
    expired = f"; {seen['expired_count']} expired, still listed until swept" if seen["expired_count"] else ""
    return f"{sessions} looked at: state and messages expire together{expired}", ""


def _clock(finding: Finding) -> tuple[str, str]:
    difference_ms, trip_ms = finding.seen["difference_ms"], finding.seen["trip_ms"]
    if finding.case == "near":
        return f"within {duration(max(1, abs(difference_ms) + trip_ms))} of this machine's", ""
    word = "ahead of" if difference_ms > 0 else "behind"
    return f"{duration(difference_ms)} {word} this machine's", _NTP


def _shards(finding: Finding) -> tuple[str, str]:
    recorded, set_to = finding.seen["recorded"], finding.seen["set_to"]
    if finding.case == "not_recorded":
        advice = (
            "Is its name right? `redismem namespaces` lists those that there are. A new one is recorded by the first "
            f"process that uses it, with {set_to} shards."
        )
        return "nothing has used this namespace yet", advice if finding.verdict == WARN else ""
    if finding.case == "same":
        return f"{recorded}, as in the settings", ""
    advice = f"A session would be looked for where it is not; every call is refused. Set REDISMEM_SHARDS={recorded}."
    return f"recorded {recorded}, the settings say {set_to}", advice


def _latency(finding: Finding) -> tuple[str, str]:
    seen = finding.seen
    text = f"median {seen['median_ms']:.2f} ms, slowest {seen['slowest_ms']:.2f} ms of {seen['pings_count']} pings"
    advice = "A turn costs one round trip: move the server nearer to those who call it."
    return text, advice if finding.case == "far" else ""


def _room(finding: Finding) -> tuple[str, str]:
    seen = finding.seen
    text = f"{plural(seen['sessions_count'], 'session')} of {seen['max_sessions']:,}"
    advice = "Beyond the limit the least recently active are removed. Raise `REDISMEM_MAX_SESSIONS` where workers run."
    return text, advice if finding.case != "left" else ""


def _commands(finding: Finding) -> tuple[str, str]:
    del finding
    return "this user may run all that pods and workers use here", ""


def _scripts(finding: Finding) -> tuple[str, str]:
    if finding.case == "not_loaded":
        advice = "Let `redismem deploy --watch` run, as a user that may load them."
        return "the server does not know them, and this user may not load them", advice
    if finding.case == "run_only":
        return "one run; this user may load none, as an application should", ""
    return f"{plural(finding.seen['scripts_count'], 'script')} loaded, one run", ""


_WORDS: dict[str, Callable[[Finding], tuple[str, str]]] = {
    "connection": _connection,
    "server": _server,
    "version": _version,
    "persistence": _persistence,
    "memory": _memory,
    "replication": _replication,
    "config": doctor_words.config,
    "nodes": doctor_words.nodes,
    "clock": _clock,
    "latency": _latency,
    "commands": _commands,
    "scripts": _scripts,
    "shards": _shards,
    "room": _room,
    "expiry": _expiry,
    "ticks": doctor_words.ticks,
    "dictionaries": doctor_words.dictionaries,
    "providers": doctor_words.providers,
    "summaries": doctor_words.summaries,
    "dead": doctor_words.dead,
    "quarantine": doctor_words.quarantine,
    "model": doctor_words.model,
    "settings": doctor_words.settings,
}


def _acl(found: list[Finding]) -> str:
    """What an administrator has to say, if something was not allowed; else "".

    It takes nothing away from the user.
    """
    return next((f"ACL SETUSER USER {each.seen['acl']}" for each in found if each.case == "not_allowed"), "")


def _report(found: list[Finding], place: Place, namespace: str) -> None:
    from rich.table import Table
    from rich.text import Text

    out = console()
    out.print(Text.assemble(("redismem doctor", "bold"), f"  {place.name}, namespace {namespace}"))
    styles = {OK: "green", WARN: "bold yellow", FAIL: "bold red", NOT_HERE: "dim"}
    table = Table.grid(padding=(0, 2))
    for _ in range(2):
        table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for each in found:
        name, verdict, seen, advice = _row(each)
        table.add_row(Text(f"  {verdict:4}", styles[each.verdict]), name, Text(seen))
        if advice:
            table.add_row("", "", Text(advice, "dim"))
    out.print(table)
    if line := _acl(found):
        out.print(Text(line), soft_wrap=True)
    counts = {verdict: sum(each.verdict == verdict for each in found) for verdict in (FAIL, WARN)}
    if not any(counts.values()):
        out.print(Text("all is well", "bold green"))
    else:
        style = styles[FAIL if counts[FAIL] else WARN]
        out.print(Text(f"{counts[FAIL]} failed, {plural(counts[WARN], 'warning')}", style))
