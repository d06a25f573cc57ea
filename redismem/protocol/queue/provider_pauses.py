"""Calls about paused providers of a namespace. No I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from redismem.events import Op
from redismem.protocol import layout
from redismem.protocol.call import Call, script_call
from redismem.protocol.keys import Keys
from redismem.protocol.replies import fields

_KEEP_MS = 86_400_000
"""The time to live of pauses that no worker renews."""
_PAUSE = re.compile(rb"%b (\d{1,9}) [0-9a-f]+ ([ -~]{1,120})" % b" ".join([rb"(%b)" % layout.NUMBER] * 3))


@dataclass(frozen=True, slots=True)
class Pause:
    """A pause of a provider. At its end, one worker extends the pause for the other workers and sends a probe."""

    since_ms: int
    """The time of the first failure, in milliseconds since 1970."""
    failed_ms: int
    """The time of the last failure."""
    until_ms: int
    failures_count: int
    reason: str

    def encode(self, nonce: bytes) -> bytes:
        """Encode the pause. The nonce makes the value unlike every earlier one."""
        numbers = f"{self.since_ms} {self.failed_ms} {self.until_ms} {self.failures_count}"
        return f"{numbers} {nonce.decode()} {self.reason}".encode()

    @classmethod
    def decode(cls, value: bytes) -> Pause | None:
        """Decode a pause. None means that the value is not a pause, so that the provider counts as not paused."""
        match = _PAUSE.fullmatch(value)
        if match is None:
            return None
        since, failed, until, count, reason = match.groups()
        return cls(int(since), int(failed), int(until), int(count), reason.decode())


def read_pause(keys: Keys, provider: str) -> Call[bytes]:
    """Build a call that reads a provider's stored pause. Empty bytes mean that it is not paused."""
    command = ("HGET", keys.providers, provider.encode())
    return Call(None, (command,), lambda answer: answer or b"", op=Op.PROVIDER)


def write_pause(keys: Keys, provider: str, seen: bytes, value: bytes) -> Call[bytes]:
    """Build a compare-and-set of a provider's pause, from `seen` to `value`. It returns the value then stored.

    Empty bytes mean no pause.
    """
    named = {"provider": provider.encode(), "seen": seen, "value": value, "keep_ms": _KEEP_MS}
    return script_call(Op.PAUSE, keys, bytes, named)


def list_pauses(keys: Keys) -> Call[dict[str, Pause]]:
    """Build a call that reads all pauses, by provider."""

    def decode(answer: Any) -> dict[str, Pause]:
        values: Mapping[bytes, bytes] = fields(answer)
        pauses = {name.decode(): Pause.decode(value) for name, value in sorted(values.items())}
        return {name: pause for name, pause in pauses.items() if pause is not None}

    return Call(None, (("HGETALL", keys.providers),), decode)
