"""Calls about the providers of a namespace: which of them is paused, since when, and who may ask it again. No I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from redismem.events import Op
from redismem.protocol import layout, scripts
from redismem.protocol.call import Call, evalsha
from redismem.protocol.keys import Keys
from redismem.protocol.replies import fields

_KEEP_MS = 86_400_000
"""What is noted of a provider that nobody asks any more goes after this time."""
_PAUSE = re.compile(rb"%b (\d{1,9}) [0-9a-f]+ ([ -~]{1,120})" % b" ".join([rb"(%b)" % layout.NUMBER] * 3))


@dataclass(frozen=True, slots=True)
class Pause:
    """Why and until when nobody asks a provider. After it one worker does, and has until the next `until_ms` for it."""

    since_ms: int
    """When it failed first, in milliseconds since 1970."""
    failed_ms: int
    """When it failed last."""
    until_ms: int
    failures_count: int
    reason: str

    def encode(self, nonce: bytes) -> bytes:
        """What is noted of it. The nonce makes it unlike all that was noted before."""
        numbers = f"{self.since_ms} {self.failed_ms} {self.until_ms} {self.failures_count}"
        return f"{numbers} {nonce.decode()} {self.reason}".encode()

    @classmethod
    def decode(cls, noted: bytes) -> Pause | None:
        """None for what `encode` did not write: then the provider is asked."""
        match = _PAUSE.fullmatch(noted)
        if match is None:
            return None
        since, failed, until, count, reason = match.groups()
        return cls(int(since), int(failed), int(until), int(count), reason.decode())


def noted(keys: Keys, provider: str) -> Call[bytes]:
    """What is noted of a provider; empty for nothing."""
    command = ("HGET", keys.providers, provider.encode())
    return Call(None, (command,), lambda answer: answer or b"", op=Op.PROVIDER)


def note(keys: Keys, provider: str, seen: bytes, value: bytes) -> Call[bytes]:
    """Notes the value, empty for nothing, if what is noted is still as it was seen. Gives what is noted then."""
    script = scripts.load("pause")
    command = evalsha(script, (keys.providers,), (provider.encode(), seen, value, _KEEP_MS))
    return Call(None, (command,), bytes, script, op=Op.PAUSE)


def paused(keys: Keys) -> Call[dict[str, Pause]]:
    """All providers that are paused, by name."""

    def decode(answer: Any) -> dict[str, Pause]:
        found: Mapping[bytes, bytes] = fields(answer)
        pauses = {name.decode(): Pause.decode(value) for name, value in sorted(found.items())}
        return {name: pause for name, pause in pauses.items() if pause is not None}

    return Call(None, (("HGETALL", keys.providers),), decode)
