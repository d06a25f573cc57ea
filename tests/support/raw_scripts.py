"""Scripts by EVALSHA, with keys and arguments by the names in their headers."""

from __future__ import annotations

import re
from typing import Any

from redismem.messages.encoding import encode_message
from redismem.protocol import scripts
from redismem.protocol.keys import Keys, SessionKeys
from support.script_text import header
from support.stored import COUNTERS, read_namespace, set_counters

NOW_MS = 4_000_000_000_000  # in the future, or the server would drop keys at once
TIMEOUT_MS = 1_600_000
EXPIRES_MS = NOW_MS + TIMEOUT_MS

LIMITS = {
    "kept_ms": TIMEOUT_MS,
    "threshold": 5,
    "token_limit": "-",
    "recent_limit": 3,
    "window_limit": 20,
    "params_limit": 30,
    "bytes_limit": 100_000,
    "new_policy": "",
}
REQUEST = {"fresh": 0, "message_count": 0, "set_count": 0, "tokens": 10, "expect": "-", "now_ms": NOW_MS, "pins": "-"}


def element(content: str) -> bytes:
    """Return the element of a message without its timestamp, as a caller sends it."""
    return encode_message({"role": "user", "content": content})[0]


def stored_element(content: str) -> bytes:
    """Return the element of a message that was appended at NOW_MS."""
    return element(content) + b"\xcf" + NOW_MS.to_bytes(8, "big")


SENDING = b"sender\0\0\0\0\0\1"
"""The first sending of a process."""


def resending(number: int, process: bytes = b"sender") -> bytes:
    """Return a sending of a call that was sent before."""
    return process + (number | 1 << 47).to_bytes(6)


PRUNE: dict[str, Any] = {
    "epoch": "1-ab",
    "first_seq": 1,
    "edited": "-",
    "next_seq": 3,
    "count": 2,
    "newest": stored_element("b"),
    "uncounted_count": 0,
    "tokens": 4,
    "nonce": "p1",
}
ARCHIVE: dict[str, Any] = {
    "token": b"archiv1newepoch",
    **{name: value for name, value in PRUNE.items() if name != "nonce"},
    "merged": "-",
    "moved_count": 0,
}
REPLACE: dict[str, Any] = {
    "now_ms": NOW_MS,
    "limits": " ".join(map(str, LIMITS.values())),
    "token": b"replace1newepoch",
    "epoch": "1-ab",
    "first_seq": 1,
    "place": 1,
    "nonce": "e1",
    "old": b"old",
    "new": b"new",
    "more_tokens": 0,
    "more_uncounted": 0,
    "pins": "-",
    "last_seq": "-",
    "pinned_field": "-",
    "new_field": "-",
    "block": "-",
    "old_block": "",
    "new_block": "",
    "new_signature": "",
    "gone": "",
}
REWRITE: dict[str, Any] = {
    "limits": " ".join(map(str, LIMITS.values())),
    "now_ms": NOW_MS,
    "token": b"rewritenewepochab",
    "epoch": "1-ab",
    "first_seq": 1,
    "last_seq": 3,
    "edited": "-",
    "newest": stored_element("c"),
    "nonce": "e1",
    "pins": "-",
    "committed": "-",
    "next_seq": 1,
    "left": "4+1-1",
    "block": "-",
    "sizes": "1 1 2 3",
    "from_seq": 2,
    "more": "0 0",
}
FORGET: dict[str, Any] = {
    "token": b"forget..1newepoch",
    "epoch": "1-ab",
    "first_seq": 1,
    "edited": "-",
    "committed": "-",
    "nonce": "e1",
    "pins": "-",
    "more": "-2 1 0",
    "gone": "",
    "sizes": "1 0 0",
}
"""Removes one message; then place, element as read and gap."""
MOVE_BODIES: dict[str, Any] = {"epoch": "1-ab", "first_seq": 1, "edited": "-", "nonce": "e1", "more_tokens": -9}
"""Then per message: place, size, stamp, field and shorter element."""


def counters(
    message_count: int, tokens: int, first_seq: int = 1, active_ms: int = NOW_MS, expires_ms: int = EXPIRES_MS
) -> bytes:
    """Return the counters as stored in the state."""
    return b"v1 %d %d %d %d %d" % (first_seq, message_count, tokens, active_ms, expires_ms)


class Scripts:
    """The scripts on a store, in one namespace."""

    def __init__(self, raw: Any, namespace: str) -> None:
        self.raw = raw
        self._namespace = namespace
        self._keys = Keys(namespace, 1)

    def session(self, session_id: str = "s") -> SessionKeys:
        return self._keys.session(session_id)

    def key(self, name: str, session_id: str = "s") -> bytes:
        keys = self.session(session_id)
        if name == "cleared":
            return keys.shard.active.removesuffix(b"active") + b"cleared:c1"
        return bytes(getattr(keys, name) if hasattr(keys, name) else getattr(keys.shard, name))

    async def run(self, name: str, /, *tail: Any, session_id: str = "s", **arguments: Any) -> Any:
        """Run a script, with its first `keys_count` keys if that is among the arguments, and return its reply.

        Raises:
            KeyError: An argument is missing.
            redis.RedisError: The script fails.
        """
        script = scripts.load(name)
        head = header(script.source.decode())
        given = {"session": session_id, "owner": "-", "sending": SENDING, "zone": ""} | arguments
        keys = [self.key(key, session_id) for key in head.keys[: arguments.get("keys_count")]]
        values = [given[argument] for argument in head.arguments]
        await self.raw.script_load(script.source)
        return await self.raw.evalsha(script.sha.decode(), len(keys), *keys, *values, *tail)

    async def append(
        self,
        *contents: str,
        session_id: str = "s",
        sets: dict[str, Any] | None = None,
        drops: Any = (),
        token: bytes = b"token..1",
        nonce: str = "ab",
        own: bytes = b"\0\0\0",
        sending: bytes = SENDING,
        keys_count: int | None = None,
        **changed: Any,
    ) -> Any:
        """Run append.lua with messages of these contents; `changed` replaces values of LIMITS and REQUEST.

        `keys_count` is the number of keys, None for all.

        Return the reply without the epoch.
        """
        pairs = [part for pair in (sets or {}).items() for part in pair]
        changed |= {"message_count": len(contents), "set_count": len(sets or {})}
        assert changed.keys() <= LIMITS.keys() | REQUEST.keys()
        limits, request = (
            " ".join(str(changed.get(name, value)) for name, value in defaults.items())
            for defaults in (LIMITS, REQUEST)
        )
        tail = [*(element(content) for content in contents), *pairs, *drops]
        names = {"limits": limits, "request": request, "token": token[-7:] + own + sending + bytes.fromhex(nonce)}
        reply = await self.run("append", *tail, session_id=session_id, keys_count=keys_count, **names)
        if isinstance(reply, bytes):
            return reply.partition(b"@")[0]
        return reply if len(reply) == 3 else reply[:5]

    async def set_counters(self, **changed: Any) -> None:
        """Change some counters without a script."""
        await set_counters(self.raw, self.key("state"), **changed)

    async def counters(self) -> dict[str, int]:
        _, *numbers = (await self.fields())[b"counters"].split()
        plain = (re.match(rb"\d+", number) for number in numbers[:5])
        return {name: int(match[0]) for name, match in zip(COUNTERS, plain, strict=False) if match}

    async def read_namespace(self) -> dict[bytes, tuple[Any, int]]:
        return await read_namespace(self.raw, self._namespace)

    async def fields(self, session_id: str = "s") -> dict[bytes, bytes]:
        return dict(await self.raw.hgetall(self.key("state", session_id)))

    async def queue(self, name: str) -> dict[bytes, float]:
        return dict(await self.raw.zrange(self.key(name), 0, -1, withscores=True))
