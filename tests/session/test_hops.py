"""The functions between a method and the socket: a call takes a short way, which a contributor can read in one go."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from support.redis_server import RedisServer

import redismem
from redismem import Memory
from redismem.record import Change

ROOT = Path(redismem.__file__).parent
# The rooms that a call passes once it is built. The others build it: they encode its messages or its change.
ON_THE_WAY = ("session/", "record/", "store/", "transport/", "concurrency/", "protocol/call.py: Call.")
MOST = 10
USER = {"role": "user", "content": "What is the weather in Oslo?"}


async def functions_to_socket(work: Coroutine[Any, Any, object]) -> list[str]:
    """The functions that are called after the method itself, up to the first write to a socket."""
    names, is_sent = list[str](), False

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal is_sent
        if event == "c_call" and isinstance(getattr(argument, "__self__", None), socket.socket):
            is_sent = is_sent or argument.__name__ == "send"
        path = Path(frame.f_code.co_filename)
        if event == "call" and not is_sent and ROOT in path.parents and frame.f_code.co_name[0] != "<":
            name = f"{path.relative_to(ROOT).as_posix()}: {frame.f_code.co_qualname}"
            if name.startswith(ON_THE_WAY):
                names.append(name)

    sys.setprofile(profile)
    try:
        await work
    finally:
        sys.setprofile(None)
    assert is_sent
    return names[1:]


CALLS: dict[str, Callable[[Memory], Coroutine[Any, Any, object]]] = {
    "append_and_read": lambda memory: memory.session("a").append_and_read(USER),
    "append": lambda memory: memory.session("a").append(USER),
    "write": lambda memory: memory.record("r").write(Change(sets={b"field": b"value"})),
    "get": lambda memory: memory.record("r").get(b"field"),
}


@pytest.mark.parametrize("name", CALLS)
async def test_a_warm_call_passes_at_most_ten_functions_on_its_way_to_the_socket(
    name: str, redis_server: RedisServer, namespace: str
) -> None:
    async with Memory.connect(redis_server.url, namespace=namespace) as memory:
        call = CALLS[name]
        for _ in range(3):
            await call(memory)
        names = await functions_to_socket(call(memory))
    assert names[-1] == "transport/lane/connection.py: Connection.send"
    assert len(names) <= MOST, "\n".join(names)
