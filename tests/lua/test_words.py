"""A refusal is a word and a detail: the server prefixes a single word with ERR."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from redismem.protocol import scripts

_REFUSAL = re.compile(r"error_reply\('([^']*)'")


@pytest.mark.parametrize("name", scripts.names())
def test_every_refusal_has_a_detail(name: str) -> None:
    texts = _REFUSAL.findall(scripts.load(name).source.decode())
    assert [text for text in texts if not re.match(r"[A-Z]+ ", text)] == []


@pytest.mark.parametrize(("text", "word"), [("FULL 7", "FULL"), ("FULL", "ERR")])
async def test_the_server_prefixes_a_single_word_with_err(redis_server: Any, text: str, word: str) -> None:
    """Read from the socket, because redis-py drops ERR."""
    reader, writer = await asyncio.open_connection("127.0.0.1", redis_server.port)
    writer.write(f"EVAL \"return redis.error_reply('{text}')\" 0\r\n".encode())
    assert (await reader.readline()).startswith(f"-{word} ".encode())
    writer.close()
    await writer.wait_closed()
