"""The embedded store forgets what has expired, though nobody asks for it again: fakeredis looks at no key by itself."""

from __future__ import annotations

from typing import Any

import fakeredis
import pytest
from support.checks import until

from redismem.transport.redis_py.client import RedisPy


@pytest.mark.parametrize("make", [fakeredis.FakeAsyncRedis, fakeredis.FakeRedis])
@pytest.mark.parametrize("call", ["run", "run_independent"])
async def test_an_expired_key_is_removed_by_any_later_call(
    make: Any, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redismem.transport.redis_py.given_client._EXPIRY_S", 0)
    server = fakeredis.FakeServer()
    client = make(server=server)
    transport: Any = RedisPy(client, owned=True, blocks=make is fakeredis.FakeRedis)
    await transport.run([("SET", "expires", "x" * 1_000, "PX", 1)], 60)
    await transport.run([("SET", "stays", "x")], 60)

    async def is_removed() -> bool:
        await getattr(transport, call)([("EXISTS", "other")], 60)
        return list(server.dbs[0]._dict) == [b"stays"]

    await until(is_removed)
    await transport.aclose()
