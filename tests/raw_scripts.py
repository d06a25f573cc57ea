"""Scripts run raw: EVALSHA, with keys and arguments by the names in their headers."""

from __future__ import annotations

from typing import Any

from script_header import header
from stored import everything

from redismem import scripts
from redismem.keys import Keys, SessionKeys
from redismem.messages import encode_message

NOW_MS = 4_000_000_000_000  # in the future, or the server would drop keys at once
TIMEOUT_MS = 1_600_000
EXPIRES_MS = NOW_MS + TIMEOUT_MS + TIMEOUT_MS // 16

APPEND = {
    "now_ms": NOW_MS,
    "token": b"token..1",
    "nonce": "ab",
    "timeout_ms": TIMEOUT_MS,
    "threshold": 5,
    "token_limit": "",
    "recent_limit": 3,
    "window_limit": 20,
    "params_limit": 30,
    "expect": "",
    "tokens": 10,
}


def element(content: str) -> bytes:
    """A message as a caller sends it: without its stamp."""
    return encode_message({"role": "user", "content": content})[0]


class Scripts:
    """The scripts on one store, in one namespace, for one session after another."""

    def __init__(self, raw: Any, namespace: str) -> None:
        self.raw = raw
        self._namespace = namespace
        self._keys = Keys(namespace, 1)

    def session(self, session_id: str = "s") -> SessionKeys:
        return self._keys.session(session_id)

    def key(self, name: str, session_id: str = "s") -> bytes:
        keys = self.session(session_id)
        if name.startswith("corrupt_"):
            return b"%s:77:%s" % (keys.corrupt, name.removeprefix("corrupt_").encode())
        return bytes(getattr(keys, name) if hasattr(keys, name) else getattr(keys.shard, name))

    async def run(self, name: str, /, *tail: Any, session_id: str = "s", **arguments: Any) -> Any:
        """Raises KeyError for an argument that is missing, and what redis-py raises."""
        script = scripts.load(name)
        head = header(script.source.decode())
        given = {"session": session_id} | arguments
        keys = [self.key(key, session_id) for key in head.keys]
        values = [given[argument] for argument in head.arguments]
        await self.raw.script_load(script.source)
        return await self.raw.evalsha(script.sha.decode(), len(keys), *keys, *values, *tail)

    async def append(
        self, *contents: str, session_id: str = "s", sets: dict[str, Any] | None = None, drops: Any = (), **changed: Any
    ) -> Any:
        """append.lua with messages of these contents."""
        pairs = [part for pair in (sets or {}).items() for part in pair]
        counts = {"message_count": len(contents), "set_count": len(sets or {})}
        tail = [*(element(content) for content in contents), *pairs, *drops]
        return await self.run("append", *tail, session_id=session_id, **APPEND | counts | changed)

    async def everything(self) -> dict[bytes, tuple[Any, int]]:
        return await everything(self.raw, self._namespace)

    async def fields(self, session_id: str = "s") -> dict[bytes, bytes]:
        return dict(await self.raw.hgetall(self.key("state", session_id)))

    async def queue(self, name: str) -> dict[bytes, float]:
        return dict(await self.raw.zrange(self.key(name), 0, -1, withscores=True))
