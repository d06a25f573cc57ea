"""LangGraph: the messages in a thread's newest checkpoint, as `redismem.adapters.langgraph.RedismemSaver` keeps them.

A value is read without making an object of it, so no type of the graph needs to be installed or allowed. The layout is
that of `redismem.adapters.langgraph.layout`; this is the root graph's namespace, "".
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import msgspec

from redismem.protocol.record.heads import Head
from redismem.protocol.record.reads import Related, Trace, Traced
from redismem.record.record import Record
from redismem.record.transcripts.messages import escape, unescape
from redismem.record.transcripts.transcript import TOO_LARGE, Reading, Turned, Wanted, moment_ms

MARK, PREFIX = b"v", "langgraph:"
_CHECKPOINTS, _WRITES = b"c:\0", b"w:\0"
_MESSAGES, _CHANNEL = b"b:\0messages\0", b"8:messages"
_NO_MESSAGES = "no messages: the state of the graph has no channel of this name, or an empty one"
_FOREIGN = "encrypted: only the graph's own serializer reads these values"
_REMOVE_ALL = "__remove_all__"
_ARRAY, _SNAPSHOT = 6, 7
"""The msgpack extensions that LangGraph writes for arrays, and for the whole value of a delta channel."""


def name_of(record_id: str) -> str | None:
    """Return the id of a thread; `None` if the record is none: a saver always has a prefix."""
    return unescape(record_id) if ":" in record_id else None


def ids_of(name: str) -> list[str]:
    """Return the ids of the records of a thread with the default prefix."""
    return [PREFIX + escape(name)]


async def read(record: Record, wanted: Wanted) -> Reading | None:
    """Read the messages of a thread; `None` if it has no checkpoint. Raises ValueError if one is damaged."""
    newest = await record.newest(_CHECKPOINTS)
    if newest is None or newest.value is None:
        return None
    head = Head.decode(newest.value)
    oldest = (await record.page(_CHECKPOINTS, limit=1)).found
    reading = Reading(updated_ms=_time_of(head), is_whole=False)
    if oldest and oldest[0].value is not None:
        reading.created_ms = _time_of(Head.decode(oldest[0].value))
    name = next((name for name in head.names if name.startswith(_MESSAGES)), None)
    if name is None:
        reading.fault, reading.count, reading.is_whole = _NO_MESSAGES, 0, True
        return reading
    reading.size = (await wanted.sizes([name])).get(name, 0)
    if wanted.most_bytes is not None and reading.size > wanted.most_bytes:
        reading.fault = TOO_LARGE
    elif reading.size or not wanted.is_list:  # else a delta channel, which is spread over the parents
        await _read_messages(record, newest.member, name, reading, wanted)
    return reading


async def _read_messages(record: Record, member: bytes, name: bytes, reading: Reading, wanted: Wanted) -> None:
    """Read the messages in a field, or of a delta channel, which has none. Raises ValueError."""
    [value] = await record.get(name)
    traced = Traced() if value is not None else await _trace(record, member)
    try:
        found = await wanted.decode(partial(_replay, value, traced), reading.size)
    except _Foreign:
        reading.fault = _FOREIGN
        return
    if not found:
        reading.fault = _NO_MESSAGES
    newest = found if wanted.limit is None else found[-wanted.limit :]
    reading.messages = [_turned(message) for message in newest]
    reading.count, reading.is_whole = len(found), len(newest) == len(found)


class _Foreign(Exception):
    """The value is of a serializer that this module does not read."""


def _time_of(head: Head) -> int | None:
    """Return the time of a checkpoint; `None` if it is encrypted."""
    _, packed = _take(head.body)
    try:
        checkpoint = _unpack(packed)
    except _Foreign:
        return None
    return moment_ms(checkpoint.get("ts")) if isinstance(checkpoint, dict) else None


def _take(packed: bytes) -> tuple[bytes, bytes]:
    """Return the first length-prefixed text of bytes, and the rest. Raises ValueError."""
    size, _, rest = packed.partition(b":")
    return rest[: int(size)], rest[int(size) :]


def _unpack(packed: bytes) -> Any:
    """Return a value; an object becomes the dict of its fields. Raises ValueError or _Foreign."""
    kind, payload = _take(packed)
    if kind == b"null":
        return None
    if kind != b"msgpack":
        raise _Foreign
    try:
        return msgspec.msgpack.decode(payload, ext_hook=_fields_of)
    except (msgspec.MsgspecError, RecursionError):
        raise ValueError("a value is no msgpack") from None


def _fields_of(code: int, data: memoryview) -> Any:
    """Return the fields, or the argument, of an object: LangGraph writes module, name and these."""
    if code == _ARRAY:
        return None
    inner = msgspec.msgpack.decode(data, ext_hook=_fields_of)
    if code == _SNAPSHOT:
        return inner
    return inner[2] if isinstance(inner, list) and len(inner) > 2 else inner


async def _trace(record: Record, member: bytes) -> Traced:
    """Collect the last whole value of a delta channel, and what was written since."""
    related, trace = Related(_WRITES, b"\0"), Trace(_MESSAGES, _CHANNEL)
    walk = await record.walk(member, prefix=_CHECKPOINTS, related=related, traces=[trace], skip_start=True)
    return walk.traced[0] if walk.traced else Traced()


def _replay(value: bytes | None, traced: Traced) -> list[dict[str, Any]]:
    """Return the messages of a channel, from its whole value, and from what was written since."""
    whole = value if traced.seed is None else traced.seed[1]
    messages = [] if whole is None else _merge([], _unpack(whole))
    writes = []
    for name, written in traced.entries:
        _, checkpoint_id, task_id, idx = name.split(b"\0")
        path, packed = _take(_take(written or b"")[1])
        writes.append(((checkpoint_id, path, task_id, int(idx)), packed))
    for _, packed in sorted(writes):
        messages = _merge(messages, _unpack(packed))
    return messages


def _merge(messages: list[dict[str, Any]], written: Any) -> list[dict[str, Any]]:
    """Return messages with those of a write: one with a known id takes the place of the older one, as LangGraph's."""
    merged = {_key(message, at): message for at, message in enumerate(messages)}
    for message in _messages_in(written):
        if message.get("type") == "remove":
            merged = {} if message.get("id") == _REMOVE_ALL else merged
            merged.pop(message.get("id"), None)
        else:
            merged[_key(message, len(merged))] = message
    return list(merged.values())


def _key(message: dict[str, Any], place: int) -> Any:
    message_id = message.get("id")
    return message_id if isinstance(message_id, str) else place


def _messages_in(written: Any) -> Iterable[dict[str, Any]]:
    values = written if isinstance(written, list) else [written]
    return (value for value in values if isinstance(value, dict))


def _turned(message: dict[str, Any]) -> Turned:
    """Return a message of LangChain, or the dict of another framework, in the form that `forms` reads."""
    kind = message.get("type")
    is_langchain = isinstance(kind, str) and "role" not in message and "content" in message
    return Turned({"type": kind, "data": message} if is_langchain else message)
