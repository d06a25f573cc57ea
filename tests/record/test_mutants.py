"""Break every line of the scripts of records, one at a time: a scene must notice each fault."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import pytest
import redis
import redis.asyncio
from support.mutants import load_instead, play_keen_first
from support.record_scenes import SCENES, Scene
from support.redis_server import RedisServer
from support.selection import EVERYTHING

from redismem import Memory
from redismem.errors import ScriptFailed
from redismem.protocol import scripts

NAMES = [name for name in scripts.names() if "record" in name]
_numbers = itertools.count()
_KEEN = list(SCENES)
# No run can tell these from the intact scripts: they save work, or a second condition does the same.
SAME = (
    ("read_record", "always", "if range_suffix ~= '' then"),
    ("walk_record", "always", "if #open > 0 then"),
    ("drop_record", "always", "if sending then"),
    ("write_record", "always", "if sending then"),
    ("write_record", "always", "if change.is_checked or change.overtaking or not change.described then"),
    ("write_record", "always", "elseif change.described then"),
)
ENDLESS = ("if not size or #size > 7 then break", "visited, open, member =", "after_names = start + size")
"""Without these the script would not end."""


class Fault(NamedTuple):
    script: str
    number: int
    kind: str
    line: str
    broken: str

    def __str__(self) -> str:
        return f"{self.script}, line {self.number} {self.kind}: {self.line.strip()}"


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
                yield Fault(name, number + 1, kind, line, "\n".join([*lines[:number], *replaced, *lines[number + 1 :]]))


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


def is_noticed(script: str, server: RedisServer) -> bool:
    try:
        play_keen_first(_KEEN, partial(play, server=server), script)
    except (Exception, pytest.fail.Exception):  # also a reply that cannot be decoded
        return True
    return False


@pytest.mark.parametrize("name", NAMES)
def test_each_fault_is_noticed(name: str, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each run breaks every ninth line, `make nightly` all of them."""
    sound = {each: scripts.load(each) for each in scripts.names()}
    played, survivors = 0, []
    with redis.Redis(port=redis_server.port) as client:
        for fault in itertools.islice(faults(name), 0, None, 1 if EVERYTHING else 9):
            broken = fault.broken.encode()
            with contextlib.suppress(redis.ResponseError), monkeypatch.context() as patch:
                client.script_load(broken)  # unless it does not compile
                faulty = replace(sound[name], source=broken, sha=hashlib.sha1(broken).hexdigest().encode())
                load_instead({**sound, name: faulty}, patch)
                survivors += [] if is_noticed(name, redis_server) else [str(fault)]
                played += 1
    assert survivors == []
    assert played > 0
