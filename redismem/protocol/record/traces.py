"""Find the records of one person: by the index of owners, by the beginning of their ids, by a scan of keys. No I/O."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

from redismem.events import Op
from redismem.protocol.birth import decode_id, encode_id
from redismem.protocol.call import Call, independent
from redismem.protocol.keys import Keys
from redismem.protocol.namespace.traces import Wanted
from redismem.protocol.owners import owner_score
from redismem.protocol.record.keys import DESCRIPTION, RecordKeys, keys_in_shard
from redismem.protocol.record.reads import bounds_of

_KEY = re.compile(rb"(rm:\{[^{}]+:\d+[a-z]+\}):(?:record|order):(.+)", re.DOTALL)


class Listed(NamedTuple):
    """Records that an index names, and whether it may name more."""

    records: list[RecordKeys]
    has_more: bool


def indexed_records(wanted: Wanted, shard: bytes, after: bytes, limit: int) -> Call[Listed]:
    """Build a call that reads wanted records of a shard from its indexes, at most `limit`, after one of them.

    Some may have another owner with an equal hash.
    """
    if wanted.owner is not None:
        score = owner_score(wanted.owner)
        index: tuple[bytes | str | int, ...] = ("ZRANGEBYSCORE", shard + b":records_owned", score, score)
    else:
        bounds = bounds_of(encode_id(wanted.prefix or ""), after=after or None)
        index = ("ZRANGE", shard + b":records", *bounds, "BYLEX", "LIMIT", 0, limit)

    def decode(members: Sequence[bytes]) -> Listed:
        found = [keys_in_shard(shard, name) for name in map(decode_id, members) if name is not None]
        return Listed(found, wanted.owner is None and len(members) == limit)

    return Call(None, (index,), decode, op=Op.RECORD_LIST)


def records_of(keys: Keys, scanned: Sequence[bytes], wanted: Wanted) -> list[RecordKeys]:
    """Return the records of this namespace that scanned keys belong to, and that may be wanted."""
    shards = frozenset(keys.prefixes())
    return list({record.record: record for key in scanned for record in _record_of(shards, key, wanted)}.values())


def _record_of(shards: Collection[bytes], key: bytes, wanted: Wanted) -> Iterator[RecordKeys]:
    match = _KEY.fullmatch(key)
    if match is None or match[1] not in shards:
        return
    name = decode_id(match[2])
    if name is not None and (wanted.prefix is None or name.startswith(wanted.prefix)):
        yield keys_in_shard(match[1], name)


def key_types(records: Sequence[RecordKeys]) -> Call[list[bytes]]:
    """Build a call that reads the type of the hash of each record."""
    return independent(tuple(("TYPE", keys.record) for keys in records), lambda *types: list(types), Op.RECORD_LIST)


def descriptions(records: Sequence[RecordKeys]) -> Call[list[Any]]:
    """Build a call that reads the description of each record, whose keys are hashes."""
    commands = tuple(("HGET", keys.record, DESCRIPTION) for keys in records)
    return independent(commands, lambda *fields: list(fields), Op.RECORD_LIST)
