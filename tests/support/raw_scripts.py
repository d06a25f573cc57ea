"""Scripts by EVALSHA, with keys and arguments by the names in their headers."""

from __future__ import annotations

import re
from itertools import accumulate
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


LISTS = ("replaced", "blocks", "pushed", "new", "originals", "gone", "sets", "drops")
"""The lists of edit.lua, in their order."""
EDIT: dict[str, Any] = {
    "now_ms": NOW_MS,
    "limits": "-",
    "token": b"edited.1newepochab",
    "epoch": "1-ab",
    "first_seq": 1,
    "last_seq": "*",
    "edited": "-",
    "committed": "*",
    "place": "-",
    "seen": "",
    "nonce": "e1",
    "pins": "-",
    "next_seq": 1,
    "changes": "0 0 0 0 0",
    "block": "-",
    "bodies": "-",
    "kept": "-",
    "log": "-",
    "starts": "21 21 21 21 21 21 21",
}
"""An edit that changes nothing."""
LEAVE: dict[str, Any] = {
    "place": 1,
    "seen": stored_element("b"),
    "nonce": "-",
    "next_seq": 3,
    "changes": "0 -4 0 0 0",
    "kept": "2 -1",
}
"""Two messages leave the head of the window."""
PRUNE: dict[str, Any] = LEAVE | {"block": 0, "sets": ("pruned", "p1")}
REWRITE: dict[str, Any] = {
    "limits": " ".join(map(str, LIMITS.values())),
    "last_seq": 3,
    "place": -1,
    "seen": stored_element("c"),
    "changes": "2 -6 1 -1 0",
    "kept": "0 0",
    "pushed": ("gap",),
    "new": (element("d"), element("e")),
}
"""Two messages take the place of two others."""


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
        given = {
            "session": session_id,
            "owner": "-",
            "sending": SENDING,
            "zone": "",
            "fence": "-",
        } | arguments
        keys = [self.key(key, session_id) for key in head.keys[: arguments.get("keys_count")]]
        values = [given[argument] for argument in head.arguments]
        await self.raw.script_load(script.source)
        return await self.raw.evalsha(script.sha.decode(), len(keys), *keys, *values, *tail)

    async def edit(self, **changed: Any) -> Any:
        """Run edit.lua; `changed` replaces values of EDIT, and has the lists by their names."""
        lists = [tuple(changed.pop(name, ())) for name in LISTS]
        assert changed.keys() <= EDIT.keys()
        starts = list(accumulate(map(len, lists), initial=21))[1:-1]
        tail = [argument for part in lists for argument in part]
        return await self.run("edit", *tail, **EDIT | {"starts": " ".join(map(str, starts))} | changed)

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
