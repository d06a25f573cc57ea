"""Appends over HTTP: what is told while Redis is away."""

from __future__ import annotations

from typing import Any

from support.http_service import said, served
from support.proxy import Proxy

from redismem import Memory, Settings

URL = "/v1/sessions/s"
HASTY = Settings(deadline_s=2, reply_timeout_s=0.5, fallback_after_s=0.5)


async def test_what_is_served_while_redis_is_away_is_marked(proxy: Proxy, namespace: str) -> None:
    options: Any = {"namespace": namespace, "settings": HASTY, "fallback": True}
    async with Memory.connect(proxy.url, **options) as memory, served(memory) as http:
        sound = await http.ask("POST", f"{URL}/messages?read=true", json=said(1))
        assert [part["degraded"] for part in (sound.json(), sound.json()["receipt"], sound.json()["state"])] == [
            False
        ] * 3
        await proxy.refuse()
        key = {"Idempotency-Key": "turn-2"}
        for status in (201, 200):
            posted = await http.ask("POST", f"{URL}/messages", json=said(2), headers=key)
            assert (posted.status_code, posted.json()["degraded"], "etag" in posted.headers) == (status, True, False)
        read = await http.ask("POST", f"{URL}/messages?read=true", json=said(3))
        assert "etag" not in read.headers
        for found in (read.json(), (await http.ask("GET", f"{URL}/context")).json()):
            assert (found["degraded"], found["state"]["degraded"], found["last_seq"]) == (True, True, 3)
        assert read.json()["receipt"]["degraded"]
        assert (await http.ask("GET", f"{URL}/state")).json()["degraded"]
        assert (await http.ask("GET", URL)).json()["degraded"]
        refused = await http.ask("POST", f"{URL}/messages", json=said(4), headers={"If-Match": '"3"'})
        assert (refused.status_code, refused.json()["code"]) == (503, "store_unavailable")
        await proxy.accept_again()
