"""Calls about quarantine: move a session, record or block of originals aside; find, restore and drop copies. No I/O.

What is moved at `put_ms` lies at `…:quarantine:<name>:<put_ms>:<key>`. A note of that name tells of each copy.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from redismem.events import Op
from redismem.protocol import layout, replies
from redismem.protocol.birth import decode_id, encode_birth, encode_id, read_birth
from redismem.protocol.call import Argument, Call, Command, independent, script_call
from redismem.protocol.keys import Keys, SessionKeys, is_session_id, plain
from redismem.protocol.owners import is_owner_field
from redismem.protocol.scanning import escape


@dataclass(frozen=True, slots=True, eq=False)
class CopyKind:
    """A kind of data that can go into quarantine: sessions or records."""

    name: str
    types: Mapping[str, str]
    """The types of the keys. The first key is the head."""
    fields: tuple[bytes, ...]
    """The fields of the head to read before a move. The first one tells one life from another."""
    indexes: tuple[str, ...]
    removed: tuple[str, ...]
    """The keys that are removed: a restored session or record does not need them."""
    op: Op


SESSION = CopyKind(
    "session",
    {"state": "hash", "messages": "list", "originals": "hash"},
    (layout.EPOCH, layout.COUNTERS, layout.OWNER),
    (*layout.INDEXES, "owners", "turns"),
    ("turned", "live", "waiters"),
    Op.QUARANTINE,
)
RECORD = CopyKind(
    "record",
    {"record": "hash", "order": "zset"},
    (b"",),
    ("records", "records_owned", "records_updated"),
    (),
    Op.RECORD_QUARANTINE,
)
_KIND_OF = {name: kind for kind in (SESSION, RECORD) for name in (*kind.types, f"{kind.name}_copies")}
_KEY = re.compile(
    rb"(rm:\{[^{}]+:\d+[a-z]+\}):quarantine:(.+):(?:(\d{1,19}):(%b)|(session_copies|record_copies))"
    % "|".join((*SESSION.types, *RECORD.types)).encode(),
    re.DOTALL,
)


class Origin(NamedTuple):
    """The place of a session or a record: its shard, as its keys begin, and its id."""

    kind: CopyKind
    shard: bytes
    member: bytes

    @property
    def name(self) -> str:
        """The id of the session or record."""
        return self.member.decode("utf-8", "surrogatepass")

    @property
    def session_id(self) -> str | None:
        """The id of the session; `None` for a record."""
        return self.name if self.kind is SESSION else None

    @property
    def note(self) -> bytes:
        """The key of the note about the copies."""
        return b"%b:quarantine:%b:%b_copies" % (self.shard, self.member, self.kind.name.encode())

    def live(self) -> dict[str, bytes]:
        """Return the keys that are not in quarantine, by their names."""
        return {name: self.key(name) for name in self.kind.types}

    def copies(self, put_ms: int) -> dict[str, bytes]:
        """Return the keys of a copy, by their names."""
        beginning = b"%b:quarantine:%b:%d:" % (self.shard, self.member, put_ms)
        return {name: beginning + name.encode() for name in self.kind.types}

    def key(self, name: str) -> bytes:
        """Return a key that is not in quarantine."""
        return b"%b:%b:%b" % (self.shard, name.encode(), self.member)


class Copy(NamedTuple):
    """A session, a record or a block of originals in quarantine since `put_ms`, and what its note tells of it."""

    place: Origin
    put_ms: int
    lasts: bool = False
    """True if the record had no time to live."""
    knows_owner: bool = False
    """False if neither the data nor the caller that found it unreadable named an owner: it may have one."""
    birth: bytes = b"0:0:"
    """Owner and tag, as the description of a record ends."""

    @property
    def owner(self) -> bytes | None:
        """The owner as stored; `None` if there is none, or none is known."""
        return read_birth(self.birth)[0]


class StoredKey(NamedTuple):
    """A key that exists. `entry_count` counts its entries; -1 means that the key has a foreign type."""

    name: str
    type: str
    entry_count: int
    expires_ms: int

    @property
    def is_sound(self) -> bool:
        """True if the key has the expected type."""
        return self.entry_count >= 0


class Seen(NamedTuple):
    """The existing keys of a session, a record or a copy, and fields of its head."""

    keys: Sequence[StoredKey]
    fields: Mapping[bytes, bytes | None]


class Revival(NamedTuple):
    """The writes of a restoration: scores in the indexes, `-` for none, and changed fields of the head."""

    mark: bytes
    """A part of the head's first field, which identifies this restoration."""
    expires_ms: int | str
    """The expiry; 0 lets the keys persist, `-` leaves their time to live."""
    scores: Sequence[int | str | bytes]
    sets: Mapping[bytes, bytes]
    drops: Sequence[bytes] = ()


def of_session(keys: SessionKeys) -> Origin:
    """Return the place of a session."""
    return Origin(SESSION, keys.shard.fences.removesuffix(b":fences"), keys.session)


def pattern(keys: Keys, name: str | None = None) -> bytes:
    """Return the MATCH pattern of quarantine keys, of one name or of all."""
    member = b"" if name is None else escape(encode_id(plain(name))) + b":"
    return b"rm:{%b:*}:quarantine:%b*" % (keys.namespace.encode(), member)


def find_copies(keys: Keys, scanned: Sequence[bytes]) -> dict[Origin, set[int]]:
    """Return the places in this namespace that have a note or a copy among these keys, with the times of the copies."""
    shards = frozenset(keys.prefixes())
    found: dict[Origin, set[int]] = {}
    for match in filter(None, map(_KEY.fullmatch, scanned)):
        shard, member, put_ms, part, note = match.groups()
        place = Origin(_KIND_OF[(part or note).decode()], shard, member)
        if shard in shards and _is_place(keys, place):
            found.setdefault(place, set()).update([] if put_ms is None else [int(put_ms)])
    return found


def _is_place(keys: Keys, place: Origin) -> bool:
    name = decode_id(place.member)
    return name is not None and (
        place.kind is RECORD or (is_session_id(name) and of_session(keys.session(name)) == place)
    )


def read_copies(found: Mapping[Origin, set[int]]) -> Call[list[Copy]]:
    """Build a call that reads the notes of places. Returns the noted copies, and those at the times given beside."""

    def decode(*answers: Any) -> list[Copy]:
        copies = []
        for (place, times_ms), answer in zip(found.items(), answers, strict=True):
            noted = {int(put_ms): about for put_ms, about in replies.fields(answer).items() if put_ms.isdigit()}
            copies += [_read_note(place, put_ms, noted.get(put_ms, b"")) for put_ms in sorted(noted.keys() | times_ms)]
        return copies

    return independent(tuple(("HGETALL", place.note) for place in found), decode)


def _read_note(place: Origin, put_ms: int, about: bytes) -> Copy:
    try:
        owner, _ = read_birth(about[2:])
    except ValueError:
        return Copy(place, put_ms)
    is_known = about[1:2] == b"1" and (owner is None or is_owner_field(owner))
    return Copy(place, put_ms, about[:1] == b"1", is_known, about[2:])


def encode_note(birth: bytes, *, lasts: bool, knows_owner: bool) -> bytes:
    """Encode what a note tells of a copy."""
    return b"%d%d%b" % (lasts, knows_owner, birth)


def look(place: Origin, names: Mapping[str, bytes]) -> Call[Seen]:
    """Build a call that describes the keys of a session or record, or of a copy."""
    kind, (head, *others) = place.kind, names.values()

    def decode(reply: Sequence[Any]) -> Seen:
        keys = []
        for (name, expected), (found, expires_ms, count) in zip(kind.types.items(), reply[:-1], strict=True):
            if found != b"none":
                keys.append(StoredKey(name, found.decode(), count if found.decode() == expected else -1, expires_ms))
        return Seen(keys, dict(zip(kind.fields, reply[-1], strict=False)))

    return script_call(Op.LOOK, None, decode, {"head": head}, more_keys=others, more=kind.fields)


def set_aside(place: Origin, put_ms: int, seen: Seen, note: bytes, kept_ms: int) -> Call[bool]:
    """Build a call that moves a session or record into quarantine. False means that it has changed since `seen`."""
    head, field = next(iter(place.kind.types)), place.kind.fields[0]
    named = {
        "about": note,
        "kind": next((key.type for key in seen.keys if key.name == head), "none"),
        "field": field,
        "seen": seen.fields.get(field) or b"",
        "kept_ms": kept_ms,
    }
    return _move("set_aside", place, put_ms, place.kind.op, named)


def set_block_aside(
    keys: SessionKeys, put_ms: int, block: tuple[int, bytes], beside: Sequence[str], owner: bytes | None, kept_ms: int
) -> Call[bool]:
    """Build a call that moves a block of originals, a number and its content, into quarantine.

    `beside` names the fields of its signature and vectors, which are removed. False means that it has changed since it
    was read.
    """
    place, (number, stored) = of_session(keys), block
    named = {
        "head": keys.originals,
        "put_ms": put_ms,
        "pair_count": 1,
        "index_count": 0,
        "about": encode_note(encode_birth(owner, b""), lasts=False, knows_owner=True),
        "kind": "hash",
        "field": number,
        "seen": stored,
        "kept_ms": kept_ms,
    }
    moved = (keys.originals, place.copies(put_ms)["originals"])
    more: Sequence[Argument] = (number, *beside)
    return script_call(Op.QUARANTINE_BLOCK, place, bool, named, script="set_aside", more_keys=moved, more=more)


def restore_copy(place: Origin, put_ms: int, revival: Revival) -> Call[bool]:
    """Build a call that restores a copy. False means that it is no longer in quarantine.

    The script refuses it if there is a session or record with this id: SessionExists.
    """
    mark, expires_ms, scores, sets, drops = revival
    types, fields = " ".join(place.kind.types.values()), [part for pair in sets.items() for part in pair]
    named = {"field": place.kind.fields[0], "mark": mark, "expires_ms": expires_ms, "types": types}
    more = (*scores, *fields, *drops)
    return _move("restore", place, put_ms, Op.RESTORE, named | {"set_count": len(sets)}, more)


def drop_copy(place: Origin, *times_ms: int) -> Call[bool]:
    """Build a call that removes copies for good. False means that all were gone."""
    copies = [key for put_ms in times_ms for key in place.copies(put_ms).values()]
    commands: tuple[Command, ...] = (("UNLINK", *copies), ("HDEL", place.note, *times_ms))
    # No transaction, because a Redis whose memory is full refuses it.
    return Call(place.session_id, commands, lambda count, _: count > 0, is_independent=True, op=Op.DROP)


def _move(
    script: str, place: Origin, put_ms: int, op: Op, named: Mapping[str, Any], more: Sequence[Argument] = ()
) -> Call[bool]:
    kind, live = place.kind, place.live().values()
    pairs = [key for pair in zip(live, place.copies(put_ms).values(), strict=True) for key in pair]
    others = [b"%b:%b" % (place.shard, index.encode()) for index in kind.indexes] + [*map(place.key, kind.removed)]
    counts = {"put_ms": put_ms, "pair_count": len(live), "index_count": len(kind.indexes)}
    named = {"head": pairs[0], **counts, **named}
    return script_call(op, place, bool, named, script=script, more_keys=(*pairs, *others), more=more)
