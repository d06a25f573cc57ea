"""Read conversations from the stores of frameworks. Each source is a row of `SOURCES`."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from redismem.adapters.sessions import encode_item
from redismem.cli import transcripts
from redismem.cli.transcripts import BadLine
from redismem.inspection import foreign
from redismem.messages.message import Message
from redismem.store.store import Store

Payload = dict[str, Any]


class Unreadable(Exception):
    """A conversation cannot be imported. The text gives the reason and never quotes an entry."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation of a source. `name` is its key, or its line; `load` reads its entries, oldest first.

    `owner` is the person whom it belongs to. Only the lines of a file name this person.
    """

    name: str
    session_id: str
    load: Callable[[], Awaitable[list[Payload]]]
    expires: bool = False
    owner: str | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """A way to store conversations in Redis. The conversation's id is the key between `prefix` and `ending`."""

    prefix: str | None
    """The beginning of the keys by default; `None` means that the user must give it."""
    key_prefix: str
    """The `key_prefix` of the framework's adapter."""
    check: Callable[[Payload], bool]
    encode: Callable[..., Message | Payload]
    """Returns an entry as the adapter stores it. `summarise` is True if workers may summarise it."""
    ending: str = ""
    newest_first: bool = False
    has_documents: bool = False
    has_whole_keys: bool = False
    """True if the whole key is the conversation's id."""
    is_file: bool = False


def _opaque(payload: Payload, summarise: bool) -> Message | Payload:
    return payload if summarise else Message.opaque(payload)


def _unchanged(payload: Payload, summarise: bool) -> Payload:
    del summarise
    return payload


def _langchain(payload: Payload, summarise: bool) -> Payload:
    return payload | {"role": "system"} if summarise and payload["type"] == "system" else payload


def _is_langchain(payload: Payload) -> bool:
    return isinstance(payload.get("type"), str) and isinstance(payload.get("data"), dict)


SOURCES = {
    "openai-agents": Source("agents:session:", "agents:session", bool, encode_item, ending=":messages"),
    "langchain": Source("message_store:", "langchain", _is_langchain, _langchain, newest_first=True),
    "langchain-redis": Source("chat:", "langchain", _is_langchain, _langchain, has_documents=True),
    "llama-index": Source(
        None, "llama_index", lambda payload: isinstance(payload.get("role"), str), _opaque, has_whole_keys=True
    ),
    "jsonl": Source(None, "", bool, _unchanged, is_file=True),
}
_DOCUMENT_KEY = re.compile(r"(.+):[0-9A-HJKMNP-TV-Z]{26}", re.DOTALL)


async def conversations(store: Store, source: Source, prefix: str) -> AsyncIterator[Conversation]:
    """Yield the conversations of a Redis. Raises StoreUnavailable, NotAllowed."""
    if source.has_documents:
        async for conversation in _documents(store, source, prefix):
            yield conversation
        return
    seen: set[bytes] = set()
    async for keys in foreign.scan_keys(store, prefix, source.ending):
        for key in await foreign.lists_among(store, [key for key in keys if key not in seen]):
            seen.add(key)
            name = key.decode("utf-8", "surrogateescape")
            session_id = name if source.has_whole_keys else name[len(prefix) : len(name) - len(source.ending)]
            yield Conversation(name, session_id, _reader(store, source, key), await foreign.expires(store, key))


def _reader(store: Store, source: Source, key: bytes) -> Callable[[], Awaitable[list[Payload]]]:
    async def load() -> list[Payload]:
        return _parse(source, await foreign.read_list(store, key, newest_first=source.newest_first))

    return load


async def _documents(store: Store, source: Source, prefix: str) -> AsyncIterator[Conversation]:
    """Yield the conversations of a store with one document per message, whose keys end in the message's id."""
    keys_of: defaultdict[str, set[bytes]] = defaultdict(set)
    async for keys in foreign.scan_keys(store, prefix):
        for key in keys:
            if match := _DOCUMENT_KEY.fullmatch(key.decode("utf-8", "surrogateescape")[len(prefix) :]):
                keys_of[match[1]].add(key)
    for session_id, keys_set in keys_of.items():
        keys = sorted(keys_set)
        load = _document_reader(store, source, keys)
        yield Conversation(f"{prefix}{session_id}", session_id, load, await foreign.expires(store, keys[0]))


def _document_reader(store: Store, source: Source, keys: Sequence[bytes]) -> Callable[[], Awaitable[list[Payload]]]:
    async def load() -> list[Payload]:
        documents = _parse(source, await foreign.read_documents(store, keys))
        try:
            documents.sort(key=lambda document: (float(document["timestamp"]), str(document["message_id"])))
        except (KeyError, TypeError, ValueError):
            raise Unreadable("a document has no timestamp or message_id") from None
        return [{"type": document["type"], "data": document["data"]} for document in documents]

    return load


def _parse(source: Source, entries: Sequence[bytes]) -> list[Payload]:
    payloads = []
    for number, entry in enumerate(entries, 1):
        try:
            payload = json.loads(entry)
        except (ValueError, RecursionError):
            raise Unreadable(f"entry {number} is not JSON") from None
        if not isinstance(payload, dict) or not source.check(payload):
            raise Unreadable(f"entry {number} is no message of this framework")
        payloads.append(payload)
    return payloads


async def lines(file: Path, check_id: Callable[[str], object]) -> AsyncIterator[Conversation]:
    """Yield the conversations of a file, one per line."""
    for number, line in transcripts.lines(file):
        yield _line(number, line, check_id)


def _line(number: int, line: bytes, check_id: Callable[[str], object]) -> Conversation:
    try:
        transcript = transcripts.parse(number, line, check_id)
    except BadLine as bad:
        reason = str(bad)

        async def refuse() -> list[Payload]:
            raise Unreadable(reason)

        return Conversation(f"line {number}", "", refuse)

    async def load() -> list[Payload]:
        if b'"stored_pinned":' in line:
            raise Unreadable("a line of an archive: an import would lose its summaries and pins")
        return transcript.messages

    return Conversation(f"line {number}", transcript.session_id, load, owner=transcript.owner)
