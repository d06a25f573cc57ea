"""Find what a namespace stores of one person: sessions by owner or by the beginning of their ids. No I/O.

The indexes name most sessions at once; a scan of all keys also finds keys without a state, and copies in quarantine.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from redismem.errors import InvalidSessionId
from redismem.events import Op
from redismem.protocol import layout
from redismem.protocol.call import Call, independent
from redismem.protocol.keys import Keys, SessionKeys, is_session_id, plain
from redismem.protocol.namespace.calls import entries, name_of
from redismem.protocol.owners import check_same_owner, encode_owner, owner_score
from redismem.protocol.scanning import ScanStep, escape, scan_keys

_KEY = re.compile(rb"rm:\{[^{}]+:\d+[a-z]+\}:(messages|state|originals|turned|live|waiters):(.+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Wanted:
    """The sessions to find: those of an owner, or those whose id begins with `prefix`. Exactly one of both is set."""

    owner: str | None = None
    prefix: str | None = None

    def __post_init__(self) -> None:
        """Check both.

        Raises:
            InvalidSessionId: not exactly one is set, or it is no valid owner, or no beginning of a session id.
        """
        if (self.owner is None) == (self.prefix is None):
            raise InvalidSessionId("name either an owner or a prefix of session ids")
        if self.owner is not None:
            encode_owner(self.owner)
        elif not isinstance(self.prefix, str) or not is_session_id(self.prefix.rstrip(" ")):
            raise InvalidSessionId("a prefix is the beginning of a session id, at least one character")

    def is_prefix_of(self, session_id: str) -> bool:
        """True if the session's id begins with the prefix; False without a prefix."""
        return self.prefix is not None and session_id.startswith(self.prefix)

    def is_owner(self, field: bytes | None) -> bool:
        """True if this is the field `owner` of the owner's sessions."""
        return self.owner is not None and field == encode_owner(plain(self.owner))

    def pattern(self, keys: Keys) -> bytes:
        """Return the MATCH pattern of the keys that a scan must look at."""
        # A rate limit has the namespace alone in its tag.
        if self.prefix is None:
            return f"rm:{{{keys.namespace}[:}}]*:[rsq]*".encode()  # record, state and quarantine name the owner
        return f"rm:{{{keys.namespace}[:}}]*:".encode() + _match(self.prefix)

    def is_in_rate(self, name: str) -> bool:
        """True if the name of a rate limit is about the person: it begins so, or has the owner between colons."""
        if self.prefix is not None:
            return name.startswith(self.prefix)
        return f":{plain(self.owner or '')}:" in f":{name}:"


def _match(prefix: str) -> bytes:
    return escape(plain(prefix).encode()) + b"*"


def owned_sessions(keys: Keys, owner: str, limit: int) -> Call[list[str]]:
    """Build a call that reads sessions from the index of owners, at most `limit` per shard.

    Some may have another owner with an equal hash.
    """
    score = owner_score(owner)
    commands = tuple(("ZRANGEBYSCORE", shard.owners, score, score, "LIMIT", 0, limit) for shard in keys.shards())
    return independent(commands, lambda *answers: [name_of(each) for answer in answers for each in answer], Op.SESSIONS)


def named_sessions(index: bytes, prefix: str, cursor: int, count: int) -> Call[tuple[int, list[str]]]:
    """Build one scan step over an index: the next cursor (0 ends the scan), and the sessions with this prefix."""
    command = ("ZSCAN", index, cursor, "MATCH", _match(prefix), "COUNT", count)

    def decode(reply: Any) -> tuple[int, list[str]]:
        return int(reply[0]), [entry.session_id for entry in entries(reply[1])]

    return Call(None, (command,), decode, op=Op.SESSIONS)


def scan(wanted: Wanted, keys: Keys, cursor: int, count: int) -> Call[ScanStep]:
    """Build one scan step over about `count` keys of the node."""
    return scan_keys(wanted.pattern(keys), cursor, count, Op.SCAN)


def sessions_of(keys: Keys, scanned: Sequence[bytes]) -> dict[str, bytes]:
    """Return the sessions of this namespace that these keys belong to, each with its state. Other keys are ignored."""
    return dict(pair for key in scanned for pair in _session_of(keys, key))


def _session_of(keys: Keys, key: bytes) -> Iterator[tuple[str, bytes]]:
    match = _KEY.fullmatch(key)
    if match is None:
        return
    try:
        session = keys.session(name_of(match[2]))
    except InvalidSessionId:  # another program's key
        return
    if key == getattr(session, match[1].decode()):
        yield session.session_id, session.state


def rates_of(keys: Keys, scanned: Sequence[bytes]) -> dict[str, bytes]:
    """Return the rate limits of this namespace among these keys, by name."""
    beginning = keys.rate("")
    return {name_of(key[len(beginning) :]): key for key in scanned if key.startswith(beginning)}


def remove_keys(names: Sequence[bytes]) -> Call[int]:
    """Build a call that removes keys, and returns how many existed."""
    return independent(tuple(("DEL", name) for name in names), lambda *counts: sum(counts), Op.CLEAR)


def key_types(names: Sequence[bytes]) -> Call[list[bytes]]:
    """Build a call that reads the type of each key."""
    return independent(tuple(("TYPE", name) for name in names), lambda *types: list(types))


def owner_fields(hashes: Sequence[bytes]) -> Call[list[bytes | None]]:
    """Build a call that reads the field `owner` of each of these hashes."""
    return independent(tuple(("HGET", name, layout.OWNER) for name in hashes), lambda *fields: list(fields))


def owner_and_epoch(keys: SessionKeys) -> Call[tuple[bytes | None, str]]:
    """Build a call that reads the owner and the epoch of a session; the epoch is "" if there is no session."""

    def decode(reply: Any) -> tuple[bytes | None, str]:
        owner, epoch = reply
        check_same_owner(keys, owner, epoch)
        return owner, (epoch or b"").decode("utf-8", "replace")

    command = ("HMGET", keys.state, layout.OWNER, layout.EPOCH)
    return Call(keys.session_id, (command,), decode, op=Op.READ_EPOCH)
