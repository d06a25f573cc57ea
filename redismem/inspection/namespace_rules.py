"""The doctor's rules on what a namespace stores and on the settings: one function per question. No I/O."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from redismem.inspection.figures import plural, printable
from redismem.inspection.findings import FAIL, OK, WARN, Finding
from redismem.settings.settings import Settings
from redismem.store.agreement import NEAR_LIMIT

_RECENT_MS = 3_600_000


def shards(recorded: int | None, set_to: int, *, embedded: bool) -> Finding:
    """Compare the number of shards recorded in Redis with the setting. An embedded store starts without a record."""
    if recorded is None:
        advice = (
            "Is its name right? `redismem list namespaces` lists the existing ones. The first process that uses a new "
            f"namespace records it, with {set_to} shards."
        )
        text = "this namespace was never used"
        return Finding("shards", OK, text) if embedded else Finding("shards", WARN, text, advice)
    if recorded == set_to:
        return Finding("shards", OK, f"{recorded}, same as in the settings")
    advice = f"Sessions would be sought in the wrong shard, so every call is refused. Set REDISMEM_SHARDS={recorded}."
    return Finding("shards", FAIL, f"{recorded} recorded, {set_to} in the settings", advice)


def room(sessions_count: int, max_sessions: int, recent_age_ms: int | None = None, records_count: int = 0) -> Finding:
    """Check how many sessions are left before the session limit, and if it removes sessions that are in use.

    Names the records, which have no limit: frameworks keep conversations in them.

    `recent_age_ms` is the time since it last evicted a session active within an hour before; `None` means never.
    """
    text = f"{plural(sessions_count, 'session')} of {max_sessions:,}"
    text += f"; {plural(records_count, 'record')}" if records_count else ""
    is_recent = recent_age_ms is not None and recent_age_ms <= _RECENT_MS
    if not is_recent and sessions_count < NEAR_LIMIT * max_sessions:
        return Finding("room", OK, text)
    if is_recent:
        text += "; within the last hour sessions were evicted that had been active in the hour before"
    advice = "Above it the least recently active sessions are evicted. Raise `REDISMEM_MAX_SESSIONS` for the workers."
    return Finding("room", WARN, text, advice)


@dataclass(frozen=True, slots=True)
class Sampled:
    """The expiry of a session's keys (-1 means never, -2 means no key), and the recorded length of its list."""

    session_id: str
    state_ms: int
    messages_ms: int
    element_count: int

    @property
    def is_gone(self) -> bool:
        """True if the session expired since it was listed."""
        return self.state_ms == self.messages_ms == -2

    @property
    def fault(self) -> str:
        """The fault of the session in words; "" means it has none."""
        if self.is_gone:
            return ""
        if self.state_ms == -2 or (self.messages_ms == -2 and self.element_count > 0):
            return "has lost some of its keys"
        if -1 in (self.state_ms, self.messages_ms):
            return "never expires"
        return "" if self.messages_ms in (self.state_ms, -2) else "has keys with different expiry times"


def expiry(sample: Sequence[Sampled]) -> Finding:
    """Check whether the keys of each sampled session expire together."""
    if not sample:
        return Finding("expiry", OK, "no sessions in this namespace yet")
    sessions, wrong = plural(len(sample), "session"), [session for session in sample if session.fault]
    if wrong:
        text = f"{len(wrong)} of {sessions}; {printable(wrong[0].session_id)} {wrong[0].fault}"
        advice = (
            "Something other than redismem deletes or changes its keys: an eviction policy, another program, a script."
        )
        return Finding("expiry", FAIL, text, advice)
    expired_count = sum(session.is_gone for session in sample)
    expired = f"; {expired_count} expired, listed until the next sweep" if expired_count else ""
    return Finding("expiry", OK, f"{sessions} checked: state and messages expire together{expired}")


def records(wrong: Sequence[tuple[str, str]], most_count: int) -> Finding:
    """Check whether records are whole: each violation is a record's id and a text."""
    if not wrong:
        return Finding("records", OK, f"no damage in the first {most_count:,} records")
    count = plural(len({record_id for record_id, _ in wrong}), "record")
    advice = "`redismem doctor --deep` lists all of them. `Record.clear()` removes one, with all that is in it."
    return Finding("records", FAIL, f"{count} damaged; {printable(wrong[0][0])}: {wrong[0][1]}", advice)


def quarantine(session_ids: Sequence[str], record_ids: Sequence[str], looked_at_count: int, *, is_all: bool) -> Finding:
    """Report the sessions and records in quarantine that the scan found. `is_all`: the scan was complete."""
    among = "" if is_all else f" among the first {looked_at_count:,} keys"
    if not (session_ids or record_ids):
        return Finding("quarantine", OK, f"no session or record in this namespace{among}")
    counts = {"session": len(session_ids), "record": len(record_ids)}
    counted = " and ".join(plural(count, word) for word, count in counts.items() if count)
    first = printable([*session_ids, *record_ids][0])
    advice = "They could not be read and were started anew. `redismem list quarantine` shows them until they expire."
    text = f"{counted} in this namespace{among}, first {first}"
    return Finding("quarantine", WARN, text, advice, session_ids=tuple(dict.fromkeys(session_ids)))


def dictionaries(versions: Sequence[int], readable: Collection[int], dropped: Collection[int] = ()) -> Finding:
    """Check whether every dictionary that originals may need is readable. Dictionaries are numbered from 1."""
    newest = max(versions, default=0)
    if lost := sorted(set(range(1, newest + 1)) - set(readable) - set(dropped)):
        advice = (
            "Originals compressed with it cannot be read and go into quarantine block by block. A worker that has it "
            "in memory restores it within minutes; else restore the key `rm:{<namespace>}:dictionaries` from a backup. "
            "`redismem doctor --deep` names the sessions."
        )
        return Finding("dictionaries", FAIL, f"missing or unreadable: {', '.join(map(str, lost))} of {newest}", advice)
    return Finding("dictionaries", OK, f"{newest} of {newest} present" if newest else "none trained")


def model(settings: Settings, refused: str) -> Finding:
    """Judge the settings of the summary model. `refused` is the error at a worker's start; "" means it starts."""
    if refused:
        advice = "`redismem worker` does not start with these settings, nor does a pod with workers."
        return Finding("model", FAIL, refused, advice)
    if settings.model_provider == "extractive":
        if not settings.unused_of_model:
            return Finding("model", OK, "no model is used")
        advice = "Summaries are written without it: set REDISMEM_MODEL_PROVIDER."
        return Finding("model", WARN, "a model is named, but not used", advice)
    name = f"{settings.model_provider}, {printable(settings.model or '')}"
    # A server at a configured address may need no key.
    if settings.model_api_key is not None or settings.model_base_url is not None:
        return Finding("model", OK, name)
    advice = "The provider will refuse every request: set REDISMEM_MODEL_API_KEY."
    return Finding("model", WARN, f"{name}: no key is set", advice)


def environment(warnings: Iterable[str]) -> Finding:
    """Report the unknown environment variables; each has a text."""
    if text := printable("; ".join(warnings)):
        return Finding("settings", WARN, text, "`redismem list settings` lists all settings and the values in use.")
    return Finding("settings", OK, "all REDISMEM_* variables are valid")
