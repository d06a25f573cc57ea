"""Archive the transcripts of evicted sessions: write them to a JSON Lines file and read them back."""

from __future__ import annotations

import asyncio
import base64
import errno
import inspect
import json
import logging
import os
import threading
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from redismem.concurrency.forks import reset_after_fork
from redismem.context.context import Context
from redismem.context.info import Policy
from redismem.context.results import State, Summary
from redismem.errors import InvalidSettings
from redismem.messages.message import Message
from redismem.messages.values import Undecodable, decode_value, pack_unchecked, replace_non_finite

log = logging.getLogger("redismem.worker")

OnEvict = Callable[[str, Context], Awaitable[None]]
"""A callback that receives a session's id and its full context before the session is removed.

It may be called more than once for a session: if the worker crashed, or if a message arrived meanwhile and the session
stayed. The newest transcript of an epoch is the most complete one.
"""


def validate_on_evict(on_evict: OnEvict) -> OnEvict:
    """Return `on_evict`, or raise InvalidSettings if it is unusable, since then no session could be evicted."""
    expected = "on_evict must be an `async def on_evict(session_id, context)`"
    is_function = inspect.isroutine(on_evict) or isinstance(on_evict, partial)
    if not inspect.iscoroutinefunction(on_evict if is_function else type(on_evict).__call__):
        problem = "is not async" if is_function else f"is of the type {type(on_evict).__name__}"
        raise InvalidSettings(f"{expected}; this one {problem}")
    try:
        inspect.signature(on_evict).bind("", None)
    except TypeError as wrong:
        raise InvalidSettings(f"{expected}; this one does not take these arguments: {wrong}") from None
    return on_evict


_NUMBERS = ("total_messages", "first_seq", "last_seq", "recent_limit")
_BEGINNING = b'{"session_id": '
_TEXTS = ("session_id", "epoch", "summary_version", "window_version")
_TYPES: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(_TEXTS, (str,)),
    **dict.fromkeys(_NUMBERS, (int,)),
    **dict.fromkeys(("messages", "stored", "pinned", "stored_pinned", "summaries"), (list,)),
    "state": (dict,),
}
_STORED_TYPES: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("seq", "tokens", "stored_ms"), (int,)),
    "beside": (dict, type(None)),
}
_BESIDE_TYPES: dict[str, tuple[type, ...]] = {
    "metadata": (dict,),
    "timestamp_us": (int,),
    "id": (str,),
    "shortened": (int,),
    **dict.fromkeys(("pinned", "opaque", "replaced"), (bool,)),
}
_POLICY_TYPES: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("keep_whole", "exempt"), (bool,)),
    "idle_timeout_s": (float, int, type(None)),
    "zone": (str, type(None)),
}
_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)  # Windows has no such flag
_SUMMARY_TYPES: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("id", "text", "model"), (str,)),
    **dict.fromkeys(("first_seq", "last_seq", "start_ms", "end_ms", "tokens", "created_ms"), (int,)),
    "message_ids": (list,),
}


class JsonlArchive:
    """An `on_evict` that appends sessions to a file, one line of JSON each; `read_archive` reads them back.

    A line has session_id, epoch, summary_version, window_version, total_messages, first_seq, last_seq, recent_limit,
    summaries, state, policy, owner, `messages` (the dicts as appended) and, in the same order, `stored`: seq,
    tokens, stored_ms and `beside` (metadata, timestamp_us, id, pinned; or null) per message. `pinned` and
    `stored_pinned` are the same for pinned messages. If JSON in UTF-8 cannot represent a string or number exactly (lone
    surrogates), the line approximates it and adds `exact`: the whole line as msgpack in base64.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self.reset()
        reset_after_fork(self)

    def reset(self) -> None:
        """Unlock the file in a forked process, which has no thread that writes."""
        self._lock = threading.Lock()

    async def __call__(self, session_id: str, context: Context) -> None:
        document = _build_document(context) | {"session_id": session_id}
        await asyncio.to_thread(self._write, document)

    def _write(self, document: dict[str, Any]) -> None:
        line = _encode_line(document)
        # Unbuffered: one write per line, so that several processes can share the file.
        with self._lock, open(self._path, "a+b", buffering=0, opener=_open_private) as file:
            if file.seekable() and file.tell() and (file.seek(-1, os.SEEK_END), file.read(1))[1] != b"\n":
                line = b"\n" + line  # a crashed write left an unfinished line
            if file.write(line) != len(line):
                raise OSError("only a part of the line was written to the archive")


def read_archive(path: str | Path) -> Iterator[Context]:
    """Yield the sessions in an archive, oldest line first, each equal to the context handed over.

    An unfinished line is skipped with a warning. Nothing is lost by this: the session was not removed, and was archived
    again.

    Raises:
        OSError: The file cannot be read.
        ValueError: A line does not belong to an archive.
    """
    with Path(path).open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                document = json.loads(line)
            except (ValueError, RecursionError):
                if not line.startswith(_BEGINNING) and not _BEGINNING.startswith(line.rstrip()):
                    raise ValueError(f"line {number} is no line of an archive") from None
                log.warning("line %d of the archive was never finished and is skipped", number)
                continue
            try:
                yield _decode_context(document)
            except (Undecodable, KeyError, ValueError, TypeError, AttributeError):
                raise ValueError(f"line {number} is no line of an archive") from None


def _build_document(context: Context) -> dict[str, Any]:
    return {
        **{name: getattr(context, name) for name in (*_TEXTS, *_NUMBERS)},
        "summaries": [asdict(summary) | {"message_ids": list(summary.message_ids)} for summary in context.summaries],
        "messages": [message.to_openai() for message in context.messages],
        "stored": _message_rows(context.messages),
        "pinned": [message.to_openai() for message in context.pinned],
        "stored_pinned": _message_rows(context.pinned),
        "state": {name: getattr(context.state, name) for name in State.__slots__},
        "policy": None if context.policy is None else asdict(context.policy),
        "owner": context.owner,
    }


def _message_rows(messages: list[Message]) -> list[dict[str, Any]]:
    """Return, for each message, the stored attributes that are not in its dict."""
    return [
        {"seq": each.seq, "tokens": each.tokens, "stored_ms": each.stored_ms, "beside": each.beside}
        for each in messages
    ]


def _restore(payloads: list[Any], stored: list[Any], epoch: str) -> list[Message]:
    return [
        Message.restored(payload, row["beside"], row["seq"], row["tokens"], row["stored_ms"], epoch)
        for payload, row in zip(payloads, stored, strict=True)
    ]


def _encode_line(document: dict[str, Any]) -> bytes:
    try:
        return json.dumps(document, ensure_ascii=False, allow_nan=False).encode() + b"\n"
    except ValueError:
        exact = base64.b64encode(pack_unchecked(document)).decode()
    shown = json.dumps(replace_non_finite(document) | {"exact": exact}, ensure_ascii=False, allow_nan=False)
    return shown.encode("utf-8", "backslashreplace") + b"\n"


def _decode_context(line: Any) -> Context:
    if "exact" in line:
        line = decode_value(base64.b64decode(line["exact"], validate=True))
    _check(line, _TYPES)
    for row in (*line["stored"], *line["stored_pinned"]):
        _check(row, _STORED_TYPES)
        beside = row["beside"] or {}
        _check(beside, {name: _BESIDE_TYPES[name] for name in beside})
    for each in line["summaries"]:
        _check(each, _SUMMARY_TYPES)
    if {type(payload) for payload in (*line["messages"], *line["pinned"])} - {dict}:
        raise TypeError("messages")
    _check(line["state"], {"params": (dict,), "waiting_for_param": (str, type(None))})
    epoch = line["epoch"]
    context = Context(
        line["session_id"],
        [Summary(**each | {"message_ids": tuple(each["message_ids"])}) for each in line["summaries"]],
        _restore(line["messages"], line["stored"], epoch),
        State(**line["state"]),
        *(
            line[name]
            for name in ("total_messages", "first_seq", "last_seq", "epoch", "recent_limit", "summary_version")
        ),
    )
    context.window_version = line["window_version"]
    context.pinned = _restore(line["pinned"], line["stored_pinned"], epoch)
    if (policy := line.get("policy")) is not None:
        _check(policy, _POLICY_TYPES)
        context.policy = Policy(**policy)
    if (owner := line.get("owner")) is not None:
        _check(line, {"owner": (str,)})
        context.owner = owner
    return context


def _check(document: Any, types: dict[str, tuple[type, ...]]) -> None:
    """Raise TypeError for a value of another type, KeyError for a missing one."""
    for name, kinds in types.items():
        if type(document[name]) not in kinds:
            raise TypeError(name)


def _open_private(path: str, flags: int) -> int:
    """Open the archive for its owner alone. Raises PermissionError if another user has put a link in its place."""
    try:
        return os.open(path, flags | _NOFOLLOW, mode=0o600)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
    if os.lstat(path).st_uid not in (0, os.geteuid()):
        raise PermissionError(errno.EPERM, "the archive is a link of another user")
    return os.open(path, flags, mode=0o600)
