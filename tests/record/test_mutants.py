"""Break every line of the scripts of records and quarantine, one at a time: a scene must notice each fault."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re
from collections.abc import Iterator
from functools import partial

import pytest
import redis
import redis.asyncio
from support.mutants import Fault, find_survivors
from support.record_scenes import SCENES, Scene
from support.redis_server import RedisServer

from redismem import Memory
from redismem.errors import ScriptFailed
from redismem.protocol import scripts

NAMES = [name for name in scripts.names() if "record" in name or name in ("look", "set_aside", "restore")]
_numbers = itertools.count()
_KEEN = list(SCENES)
# No scene can tell these from the intact scripts: they save work, a second condition does the same, or they need a full
# memory (tests/store/test_out_of_memory.py).
SAME = (
    ("read_record", "always", "if range_suffix ~= '' then"),
    ("walk_record", "always", "if #open > 0 then"),
    ("drop_record", "always", "if sending then"),
    ("write_record", "always", "if sending then"),
    ("write_record", "always", "if change.is_checked or change.overtaking or not change.described then"),
    ("write_record", "always", "elseif change.described and redis.call('PTTL', record) >= 0 then"),
    ("write_record", "always", "if change.is_checked or overtaking or not described then"),
    ("restore", "removed", "redis.call('HDEL', note, '')"),
)
ENDLESS = ("if not size or #size > 7 then break", "visited, open, member =", "after_names = start + size")
"""Without these the script would not end."""


def faults(name: str) -> Iterator[Fault]:
    """Yield the script without each of its statements, and with each condition always true or always false."""
    lines = scripts.load(name).source.decode().split("\n")
    for number, line in enumerate(lines):
        text = line.strip()
        if not text or text.startswith(("--", "local ", *ENDLESS)) or text in ("end", "else"):
            continue
        condition = re.match(r"(\s*(?:else)?if )(.*?)( then.*)$", line)
        if condition is None:
            variants: dict[str, list[str]] = {"removed": []}
        else:
            before, _, after = condition.groups()
            variants = {"never": [f"{before}false{after}"], "always": [f"{before}true{after}"]}
        for kind, replaced in variants.items():
            if not any(name == same[0] and kind == same[1] and text.startswith(same[2]) for same in SAME):
                broken = "\n".join([*lines[:number], *replaced, *lines[number + 1 :]])
                yield Fault(f"{name}, line {number + 1} {kind}: {text}", name, broken)


def play(scene: Scene, server: RedisServer) -> None:
    async def run() -> None:
        namespace = f"record-fault-{next(_numbers)}"
        async with (
            redis.asyncio.Redis(port=server.port) as raw,
            Memory.connect(server.url, namespace=namespace) as memory,
        ):
            await scene(memory, raw)

    try:
        asyncio.run(run())
    except ScriptFailed:
        pytest.fail("the script cannot run")


def compiles(fault: Fault, client: redis.Redis) -> bool:
    with contextlib.suppress(redis.ResponseError):
        return bool(client.script_load(fault.source))
    return False


@pytest.mark.nightly
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("name", NAMES)
def test_each_fault_is_noticed(name: str, redis_server: RedisServer) -> None:
    with redis.Redis(port=redis_server.port) as client:
        played = [fault for fault in faults(name) if compiles(fault, client)]
        # They notice it by any error: a broken reply cannot be decoded, either.
        noticed = (Exception, pytest.fail.Exception)
        assert find_survivors(played, _KEEN, partial(play, server=redis_server), client, noticed) == []
    assert played
