"""Read a window in parts, if it is too large for one reply. No I/O.

A server with an output buffer limit closes the connection on a reply over it, and so fails all other calls of the
process. https://redis.io/docs/latest/operate/oss_and_stack/management/config/ (client-output-buffer-limit)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from redismem.errors import UnsupportedFormat
from redismem.events import Op
from redismem.messages.values import Undecodable
from redismem.protocol import layout, replies, scripts
from redismem.protocol.call import Call, evalsha

T = TypeVar("T")
PART_BYTES = 8 * 1024 * 1024
"""The size of a part: half of the soft limit that docs/operations.md recommends."""


@dataclass(frozen=True, slots=True)
class Part:
    """The first messages of a window, and the state beside the last of them."""

    fields: Mapping[bytes, bytes]
    elements: Sequence[bytes]


def read_part(
    session_id: str | None, messages: bytes, state: bytes, whole: Callable[..., T], before: Part | None = None
) -> Call[T | Part]:
    """Build a call that reads state and window, or a part that goes on behind `before`.

    The call returns `whole(fields, elements)`, or a part if there are more messages. An empty part begins again,
    because earlier messages have changed in between.
    """
    script = scripts.load("read_window")

    def decode(reply: Sequence[Any]) -> T | Part:
        fields, elements = replies.fields(reply[0]), reply[1]
        if before is not None:
            if _life(fields) != _life(before.fields):
                return Part(fields, [])
            elements = [*before.elements, *elements]
        return Part(fields, elements) if reply[1] and _has_more(fields, elements) else whole(fields, elements)

    command = evalsha(script, (messages, state), (0 if before is None else len(before.elements), PART_BYTES))
    return Call(session_id, (command,), decode, script, op=Op.READ_WINDOW)


def window_keys(call: Call[Any]) -> tuple[bytes, bytes] | None:
    """Return the keys of messages and state, if a call ends with the two commands that read state and whole window."""
    *_, state, messages = ((), *call.commands)
    if messages[0] == "LRANGE" and messages[2:] == (0, -1) and state[:1] == ("HGETALL",):
        return cast(bytes, messages[1]), cast(bytes, state[1])
    return None


def _life(fields: Mapping[bytes, bytes]) -> tuple[bytes | None, ...]:
    """Return the values that stay as they are while the window only grows at its end."""
    first_seq = fields.get(layout.COUNTERS, b"").split(b" ", 2)[1:2]
    return (fields.get(layout.EPOCH), fields.get(layout.EDITED), *first_seq)


def _has_more(fields: Mapping[bytes, bytes], elements: Sequence[bytes]) -> bool:
    """True if the counters tell of more messages. If they cannot be read, `whole` refuses them."""
    try:
        return len(elements) < layout.counters(fields.get(layout.COUNTERS, b"")).element_count
    except (Undecodable, UnsupportedFormat):
        return False
