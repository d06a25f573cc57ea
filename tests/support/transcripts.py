"""Files of conversations to replay."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import redis

CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1.0'}}
CHAT: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hello"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": '{"n": null}', "more": [1, 1.0, True, None, 2**70]},
    {"role": "assistant", "content": "Done."},
    {"role": "user", "content": "Thanks"},
    {"role": "assistant", "content": ""},
]


def write(path: Path, *rows: object) -> Path:
    path.write_bytes(b"".join(row if isinstance(row, bytes) else json.dumps(row).encode() + b"\n" for row in rows))
    return path


def chat(session_id: str, messages: list[dict[str, Any]] = CHAT) -> dict[str, Any]:
    return {"session_id": session_id, "messages": messages}


def namespace_keys(url: str, namespace: str) -> set[bytes]:
    """Return every key of a namespace, without those that remember a clear for a while."""
    with redis.Redis.from_url(url) as raw:
        found = raw.scan_iter(match=f"rm:{{{namespace}[:}}]*", count=1000)
        return {key for key in found if b"}:cleared:" not in key}


LONG: list[dict[str, Any]] = [*CHAT * 3, *({"role": "user", "content": f"Order {n}, please."} for n in range(9))]
