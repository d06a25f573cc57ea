"""Claude Agent SDK: `SessionStore` keeps the transcripts of sessions and their subagents in Redis."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from redismem import InvalidMessage, InvalidSessionId, Memory, RecordConflict
from redismem.adapters.sessions import (
    Closes,
    Opened,
    check_owner,
    check_prefix,
    decode_in_slices,
    quote_part,
    read_or_begin,
    resolve_owner,
    unquote_part,
)
from redismem.record import Change, Record, Retention
from redismem.record.pages import all_listed, all_members
from redismem.settings.extras import from_extra

with from_extra("claude-agent-sdk", __name__):
    import claude_agent_sdk as theirs
    from claude_agent_sdk import (
        SessionKey,
        SessionListSubkeysKey,
        SessionStoreEntry,
        SessionStoreListEntry,
        SessionSummaryEntry,
        fold_session_summary,
    )

_STATE, _BATCH, _UUID, _LAST = b"t:", b"e:", b"u:", b"n"
"""The fields of a session: the state of a transcript, a batch of its entries, a mark for the uuid of an entry, and the
time of the last entry of all transcripts in ns.

The first three end with the name of the transcript, which is empty for the session itself. Behind it and a colon comes
the number of the batch, or the uuid. States and batches are members too.
"""
_PAGE_COUNT = 1_000
_BATCH_COUNT, _BATCH_BYTES = 5_000, 16 << 20
"""The most entries of one write, and their bytes. Each uuid is two of the 20,000 names of a write."""
_STATES_COUNT = 1_024
"""The transcripts whose last state a store knows: their next batch takes one round trip instead of two."""


class _Encoded(NamedTuple):
    """An entry, its JSON, and the mark of its uuid; `None` without one."""

    entry: SessionStoreEntry
    value: bytes
    mark: bytes | None


class SessionStore(Closes, theirs.SessionStore):
    """A session store for the Claude Agent SDK: any machine can resume a session.

    >>> store = SessionStore("redis://127.0.0.1:6379/0")
    >>> options = ClaudeAgentOptions(session_store=store, resume=session_id)

    A session with its subagents is one record. A batch of entries is stored in one step, with the summary that lists
    show. An entry with a `uuid` is stored once, however often the SDK sends it. Any number of processes may append to
    one session: every entry is kept.

    Every method may raise StoreUnavailable, and InvalidSessionId if a part of a key is empty.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        memory: Memory | None = None,
        redis_client: Any = None,
        key_prefix: str = "claude",
        ttl: float | None = None,
        owner: str | Callable[[SessionKey], str | None] | None = None,
        keep_last: int | None = None,
        max_age: float | None = None,
    ) -> None:
        """Make a store. It connects on first use.

        Args:
            url: The URL of Redis. `None` means `REDISMEM_URL`.
            memory: A memory to use instead of a URL. The caller closes it.
            redis_client: A redis.asyncio client to use instead of a URL. The caller closes it.
            key_prefix: The session `s` of the project `p` is the record `<key_prefix>:p/s` of redismem.
            ttl: The seconds after its last use after which Redis removes a session. `None` keeps it.
            owner: The person whom the sessions that this store creates belong to, so that `memory.forget(owner=...)`
                removes them. If a store serves several persons: a function that returns the owner of a key, or `None`.
                A session of another person, or of nobody, is refused, and not listed.
            keep_last: The sessions that workers keep of a project and owner, those with the newest entries: 1 to 1,000.
                `None` keeps all.
            max_age: The seconds after its last entry after which workers remove a session. `None` means never.

        Raises:
            InvalidRecord: `ttl`, `keep_last` or `max_age` is out of range.
            InvalidSessionId: `key_prefix` is not a string, or the owner is invalid.
            InvalidSettings: URL, memory or client is invalid, or more than one of them is given.
        """
        check_prefix(key_prefix)
        self._retention = Retention("claude-agent-sdk", keep_last, max_age)
        self._opened = Opened(url, memory, redis_client)
        self._prefix, self._ttl_s, self._owner = f"{key_prefix}:" if key_prefix else "", ttl, owner
        self._states: dict[tuple[str, bytes], bytes] = {}
        try:  # refuses prefix, ttl and owner at the start of the program, not in its first turn
            check_owner(owner)
            self._opened.memory.record(f"{self._prefix}x", ttl_s=ttl)
        except BaseException:
            self._opened.close()
            raise

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        """Store the entries that the transcript does not have yet, in one step per 5,000 entries or 16 MiB.

        Raises:
            InvalidMessage: An entry cannot be written as JSON. No entry is stored.
            OwnerMismatch: The session belongs to another person, or to nobody.
            TooLarge: An entry is larger than 64 MiB.
        """
        record, name = self._open(key), _name(key)
        for batch in _batches([_encode(name, entry) for entry in entries]):
            await self._append(record, key, name, batch)

    async def _append(self, record: Record, key: SessionKey, name: bytes, batch: Sequence[_Encoded]) -> None:
        """Store a batch behind the last state that this store knows; read it first if another store has written."""
        place = record.id, name
        state = self._states.pop(place, None)
        new = _select_new(batch, ())
        while True:
            if state is None:
                marks = [each.mark for each in batch if each.mark is not None]
                state, *values = await record.get(_STATE + name, *marks)
                new = _select_new(batch, [mark for mark, value in zip(marks, values, strict=True) if value is not None])
            if not new:
                return
            changed = _next_state(key, name, state, [each.entry for each in new])
            try:
                await record.write(self._retention.add_to(_change(name, state, changed, new)))
            except RecordConflict:
                state = None
                continue
            self._states[place] = changed
            if len(self._states) > _STATES_COUNT:
                del self._states[next(iter(self._states))]
            return

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        """Return the entries of a transcript, oldest first; `None` if there is no such transcript.

        Raises:
            OwnerMismatch: The session belongs to another person, or to nobody.
        """
        record = self._open(key)
        values = await read_or_begin(record, partial(_read, record, _name(key)))
        return await decode_in_slices(values, _decode) or None

    async def list_sessions(self, project_key: str) -> list[SessionStoreListEntry]:
        """Return the sessions of a project, each with the time of its last entry."""
        rows = self._rows(project_key)
        return [{"session_id": session_id, "mtime": state["mtime"]} async for session_id, state in rows]

    async def list_session_summaries(self, project_key: str) -> list[SessionSummaryEntry]:
        """Return what the SDK lists of the sessions of a project, without reading their entries."""
        return [_summary(session_id, state) async for session_id, state in self._rows(project_key)]

    async def delete(self, key: SessionKey) -> None:
        """Remove a session with its subagents; or one transcript of a subagent.

        If it fails, the same call removes the rest.

        Raises:
            OwnerMismatch: The session belongs to another person, or to nobody.
        """
        record, name = self._open(key), _name(key)
        self._states.pop((record.id, name), None)
        if not name:
            await record.clear()
            return
        field = _STATE + name
        while (state := (await record.get(field))[0]) is not None:
            is_seen = {field: state}
            try:
                async for found in all_members(record, _BATCH + name + b":"):
                    marks = [_mark(name, entry) for entry in _decode([found.value or b"[]"])]
                    drops = [found.member, *(mark for mark in marks if mark is not None)]
                    await record.write(Change(equals=is_seen, drops=drops, removes=[found.member]))
                await record.write(Change(equals=is_seen, drops=[field], removes=[field]))
            except RecordConflict:
                pass  # another process has appended to it, or removed it

    async def list_subkeys(self, key: SessionListSubkeysKey) -> list[str]:
        """Return the names of the transcripts of a session's subagents.

        Raises:
            OwnerMismatch: The session belongs to another person, or to nobody.
        """
        record = self._open({"project_key": key["project_key"], "session_id": key["session_id"]})
        names = [found.member[len(_STATE) :] async for found in all_members(record, _STATE)]
        return [unquote_part(name.decode()) for name in names if name]

    async def _rows(self, project_key: str) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        """Yield the id and the state of each session of a project."""
        beginning = f"{self._prefix}{_quote(project_key)}/"
        async for page in all_listed(partial(self._opened.memory.records, beginning, _PAGE_COUNT, fields=(_STATE,))):
            for entry in page.records:
                session_id = unquote_part(entry.id[len(beginning) :])
                key: SessionKey = {"project_key": project_key, "session_id": session_id}
                is_like = quote_part(session_id) == entry.id[len(beginning) :]  # else of a longer prefix
                is_its_own = is_like and resolve_owner(self._owner, key) in (None, entry.owner)
                if is_its_own and (state := entry.values[0]) is not None:
                    yield session_id, json.loads(state)

    def _open(self, key: SessionKey) -> Record:
        project, session_id = _quote(key["project_key"]), _quote(key["session_id"])
        owner = resolve_owner(self._owner, key)
        return self._opened.memory.record(f"{self._prefix}{project}/{session_id}", owner=owner, ttl_s=self._ttl_s)


def _select_new(batch: Sequence[_Encoded], stored: Iterable[bytes]) -> list[_Encoded]:
    """Return the entries of a batch whose uuids were neither stored before nor are in the batch twice."""
    seen, new = set(stored), list[_Encoded]()
    for each in batch:
        if each.mark is None or each.mark not in seen:
            new.append(each)
        if each.mark is not None:
            seen.add(each.mark)
    return new


def _summary(session_id: str, state: dict[str, Any]) -> SessionSummaryEntry:
    return {"session_id": session_id, "mtime": state["mtime"], "data": state["data"]}


def _next_state(key: SessionKey, name: bytes, state: bytes | None, new: list[SessionStoreEntry]) -> bytes:
    """Return the state of a transcript with one batch more: the number of batches, the time, and the SDK's summary."""
    its: dict[str, Any] = {"batches": 0, "mtime": 0} if state is None else json.loads(state)
    if not name:
        summary = None if state is None else _summary(key["session_id"], its)
        its["data"] = fold_session_summary(summary, key, new)["data"]
    its["batches"] += 1
    its["mtime"] = max(time.time_ns() // 1_000_000, its["mtime"] + 1)
    return json.dumps(its).encode()


def _change(name: bytes, state: bytes | None, changed: bytes, new: Sequence[_Encoded]) -> Change:
    """Return the change that stores a batch, unless the state has changed or one of the uuids is stored."""
    field, its = _STATE + name, json.loads(changed)
    batch = b"%b%b:%012d" % (_BATCH, name, its["batches"])
    at_ns = time.time_ns()
    marks = [each.mark for each in new if each.mark is not None]
    sets = dict.fromkeys(marks, b"") | {field: changed, batch: b"[" + b",".join(each.value for each in new) + b"]"}
    sets[_LAST] = b"%d" % at_ns
    if state is None:
        return Change(absent=[field, *marks], sets=sets, adds=[field, batch], updated_us=at_ns // 1_000)
    return Change(equals={field: state}, absent=marks, sets=sets, adds=[batch], updated_us=at_ns // 1_000)


async def _read(record: Record, name: bytes) -> list[bytes]:
    members = all_members(record, _BATCH + name + b":", renew=True)
    return [found.value async for found in members if found.value is not None]


def _encode(name: bytes, entry: SessionStoreEntry) -> _Encoded:
    try:
        value = json.dumps(entry, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
    except (TypeError, ValueError, RecursionError):
        raise InvalidMessage("an entry cannot be written as JSON") from None
    return _Encoded(entry, value, _mark(name, entry))


def _mark(name: bytes, entry: SessionStoreEntry) -> bytes | None:
    uuid = entry.get("uuid")
    return b"%b%b:%b" % (_UUID, name, _quote(uuid).encode()) if isinstance(uuid, str) and uuid.strip() else None


def _decode(values: Sequence[bytes]) -> list[SessionStoreEntry]:
    return [entry for value in values for entry in json.loads(value)]


def _batches(encoded: Sequence[_Encoded]) -> Iterator[list[_Encoded]]:
    """Yield the entries in groups that fit into one write."""
    batch, size = list[_Encoded](), 0
    for each in encoded:
        if batch and (len(batch) == _BATCH_COUNT or size + len(each.value) > _BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(each)
        size += len(each.value)
    if batch:
        yield batch


def _name(key: SessionKey) -> bytes:
    """Return the name of a transcript in the fields of its session, without colons; b"" for the session itself."""
    return _quote(key["subpath"]).encode() if "subpath" in key else b""


def _quote(part: str) -> str:
    if not isinstance(part, str) or not part.strip():
        raise InvalidSessionId("a part of the key is empty or not a string: name a project and a session")
    return quote_part(part)
