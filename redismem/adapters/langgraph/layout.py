"""The fields and members of a thread's record, and the checkpoints that they are decoded to. No I/O.

The parts of a name are separated by NUL. A checkpoint is a member whose value is a head: it names its parent and the
blobs of its channels.

    c:<namespace> <checkpoint id>                  member: metadata and checkpoint, without the values of its channels
    b:<namespace> <channel> <version>              field: one value of a channel
    w:<namespace> <checkpoint id> <task id> <idx>  member: one pending write
    r:<run id> <namespace> <checkpoint id>         member: a checkpoint of a run
    v                                              field: random bytes, new with each change of the checkpoints
    d                                              field: set once a checkpoint has a delta channel
    x                                              field: set while a worker removes checkpoints
    t                                              field: the generation of the last turn, which fences its writes
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    PendingWrite,
    get_checkpoint_id,
    get_checkpoint_metadata,
    writes_sort_key,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from redismem.errors import InvalidRecord
from redismem.record import Change, Found, Head, Related, Trace

CHECKPOINTS = b"c:"
WRITES = b"w:"
RUNS = b"r:"
REVISION = b"v"
TURN = b"t"
DELTA = b"d"
Entry = tuple[bytes, bytes | None]


def new_revision() -> bytes:
    """Return a revision that no thread has had before."""
    return os.urandom(8)


def join(kind: bytes, *parts: str) -> bytes:
    """Return the name with these parts.

    Raises:
        InvalidRecord: a part is no string, or has a NUL, which would end it.
    """
    for part in parts:
        if not isinstance(part, str) or "\0" in part:
            raise InvalidRecord("ids, namespaces, channels and versions of LangGraph are strings without NUL")
    return kind + b"\0".join(part.encode("utf-8", "surrogatepass") for part in parts)


def split(kind: bytes, name: bytes) -> list[str]:
    """Return the parts of a name."""
    return [part.decode("utf-8", "surrogatepass") for part in name[len(kind) :].split(b"\0")]


def pack(typed: tuple[str, bytes]) -> bytes:
    """Return a serialized value as bytes."""
    type_ = typed[0].encode()
    return b"%d:%b%b" % (len(type_), type_, typed[1])


def unpack(packed: bytes) -> tuple[str, bytes]:
    """Return a value as its serializer made it."""
    type_, payload = take(packed)
    return type_.decode(), payload


def take(packed: bytes) -> tuple[bytes, bytes]:
    """Return the first length-prefixed text of bytes, and the rest."""
    size, _, rest = packed.partition(b":")
    return rest[: int(size)], rest[int(size) :]


def netstring(text: str) -> bytes:
    """Return a text with its length in front."""
    encoded = text.encode("utf-8", "surrogatepass")
    return b"%d:%b" % (len(encoded), encoded)


def version_name(version: object) -> str:
    """Return a version of a channel as part of a name. Versions that are equal have one name, such as 1 and 1.0.

    Raises:
        InvalidRecord: it is neither a string nor a number.
    """
    if isinstance(version, str):
        return f"s{version}"
    if isinstance(version, int | float):
        return f"i{int(version)}" if version == version // 1 else f"f{version!r}"
    raise InvalidRecord("the version of a channel is a string or a number")


@dataclass(frozen=True, slots=True)
class ThreadNamespace:
    """One namespace of a thread."""

    thread_id: Any
    checkpoint_ns: str

    @property
    def prefix(self) -> bytes:
        """The beginning of its checkpoints."""
        return join(CHECKPOINTS, self.checkpoint_ns, "")

    @property
    def related(self) -> Related:
        """The writes of a checkpoint."""
        return Related(join(WRITES, self.checkpoint_ns, ""), b"\0")

    def member(self, checkpoint_id: str) -> bytes:
        """Return the name of a checkpoint."""
        return join(CHECKPOINTS, self.checkpoint_ns, checkpoint_id)

    def blob(self, channel: str, version: object) -> bytes:
        """Return the field of a channel's value."""
        return join(b"b:", self.checkpoint_ns, channel, version_name(version))

    def write(self, checkpoint_id: str, task_id: str, idx: int) -> bytes:
        """Return the name of a pending write."""
        return join(WRITES, self.checkpoint_ns, checkpoint_id, task_id, str(idx))

    def run(self, run_id: str, checkpoint_id: str) -> bytes:
        """Return the name of a checkpoint among those of a run."""
        return join(RUNS, run_id, self.checkpoint_ns, checkpoint_id)

    def trace(self, channel: str) -> Trace:
        """Return the part of a walk that belongs to a channel: its writes, back to its nearest stored value."""
        return Trace(join(b"b:", self.checkpoint_ns, channel, ""), netstring(channel))

    def config(self, checkpoint_id: str) -> RunnableConfig:
        """Return the config that names a checkpoint."""
        return {
            "configurable": {
                "thread_id": self.thread_id,
                "checkpoint_ns": self.checkpoint_ns,
                "checkpoint_id": checkpoint_id,
            }
        }


def encode_checkpoint(
    serde: SerializerProtocol,
    place: ThreadNamespace,
    config: RunnableConfig,
    checkpoint: Checkpoint,
    metadata: CheckpointMetadata,
) -> Change:
    """Return the change that adds a checkpoint, without the values of its channels.

    The config names its parent, which must exist if delta channels are rebuilt from it.
    """
    parent_id, saved_metadata = get_checkpoint_id(config), get_checkpoint_metadata(config, metadata)
    parent = place.member(parent_id) if parent_id else b""
    names = tuple(place.blob(*each) for each in checkpoint["channel_versions"].items())
    packed = pack(serde.dumps_typed(saved_metadata))
    bare = {key: value for key, value in checkpoint.items() if key != "channel_values"}
    head = Head(parent, names, b"%d:%b%b" % (len(packed), packed, pack(serde.dumps_typed(bare)))).encode()
    member, run_id = place.member(checkpoint["id"]), saved_metadata.get("run_id")
    delta = {DELTA: b""} if saved_metadata.get("counters_since_delta_snapshot") else {}
    return Change(
        present=[parent] if parent and saved_metadata.get("counters_since_delta_snapshot") else [],
        sets={member: head, REVISION: new_revision(), **delta},
        adds=[member, *([place.run(str(run_id), checkpoint["id"])] if run_id else [])],
    )


def value_names(place: ThreadNamespace, checkpoint: Checkpoint, versions: ChannelVersions) -> set[bytes]:
    """Return the fields of a checkpoint's values that have these versions."""
    return {place.blob(*each) for each in versions.items() if each[0] in checkpoint["channel_values"]}


def encode_values(
    serde: SerializerProtocol, place: ThreadNamespace, checkpoint: Checkpoint, versions: ChannelVersions
) -> dict[bytes, bytes]:
    """Return the fields of a checkpoint's values that have these versions, with the values."""
    values = checkpoint["channel_values"]
    return {
        place.blob(*each): pack(serde.dumps_typed(values[each[0]])) for each in versions.items() if each[0] in values
    }


def decode_metadata(serde: SerializerProtocol, value: bytes) -> dict[str, Any]:
    """Return the metadata of a checkpoint's value."""
    metadata, _ = take(Head.decode(value).body)
    decoded: dict[str, Any] = serde.loads_typed(unpack(metadata))
    return decoded


def encode_write(channel: str, task_path: str, packed: bytes) -> bytes:
    """Return the value of a pending write."""
    return netstring(channel) + netstring(task_path) + packed


def decode_writes(serde: SerializerProtocol, entries: Iterable[Entry]) -> list[PendingWrite]:
    """Return the writes of one checkpoint, in the order in which a run applies them."""
    found = []
    for name, value in entries:
        if value is not None:
            task_id, idx = split(b"", name)[-2:]
            channel, rest = take(value)
            task_path, packed = take(rest)
            key = writes_sort_key(task_path.decode("utf-8", "surrogatepass"), task_id, int(idx))
            found.append((key, channel.decode("utf-8", "surrogatepass"), packed))
    found.sort(key=lambda each: each[0])
    return [(key[1], channel, serde.loads_typed(unpack(packed))) for key, channel, packed in found]


def decode_tuple(
    serde: SerializerProtocol, place: ThreadNamespace, found: Found, writes: Sequence[Entry]
) -> CheckpointTuple:
    """Return a checkpoint with its values and writes."""
    head = Head.decode(found.value or b"")
    metadata, packed = take(head.body)
    checkpoint: dict[str, Any] = serde.loads_typed(unpack(packed))
    values = {}
    for channel, version in checkpoint["channel_versions"].items():
        blob = found.named.get(place.blob(channel, version))
        if blob:
            values[channel] = serde.loads_typed(unpack(blob))
    return CheckpointTuple(
        config=place.config(split(CHECKPOINTS, found.member)[-1]),
        checkpoint={**checkpoint, "channel_values": values},  # type: ignore[typeddict-item]
        metadata=serde.loads_typed(unpack(metadata)),
        parent_config=place.config(split(CHECKPOINTS, head.parent)[-1]) if head.parent else None,
        pending_writes=decode_writes(serde, writes),
    )
