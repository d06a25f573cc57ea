"""Scripts broken on purpose, one line at a time: scenes must notice each fault.

A mutant names the mark at the end of its line, `-- [mark]`, and a pattern to replace there. So names may change, and
the line may move into an included part. A test fails if the mark does not exist exactly once, or the line stays as it
was: a fault that was not seeded must not count as caught.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import NamedTuple, TypeVar

import pytest
import redis
from hypothesis.errors import Flaky

from redismem import RedismemError
from redismem.errors import ScriptFailed
from redismem.protocol import scripts

Scene = TypeVar("Scene")
NOTICED = (AssertionError, RedismemError, Flaky, pytest.fail.Exception)
"""The errors by which a scene notices a fault."""
_loaded: set[str] = set()
_scripts_of: dict[object, frozenset[str]] = {}
"""The scripts that each scene loaded when it passed."""


class Fault(NamedTuple):
    name: str
    script: str
    source: str
    """The whole script with the fault."""


class Mutant(NamedTuple):
    script: str
    fault: str
    mark: str
    sound: str = ".+"
    """The pattern that `broken` replaces; the default is the whole line."""
    broken: str = ""

    def seed(self) -> Fault:
        """Return the fault in the script of the repository."""
        source = mutate(scripts.load(self.script).source.decode(), self)
        return Fault(f"{self.script}: {self.fault}", self.script, source)


def mutate(source: str, mutant: Mutant) -> str:
    """Return the script with the fault.

    Raises:
        AssertionError: The mark or the pattern does not exist.
    """
    lines = source.split("\n")
    mark = f" -- [{mutant.mark}]"
    places = [number for number, line in enumerate(lines) if line.endswith(mark)]
    assert len(places) == 1, f"{mutant.script}.lua has the mark [{mutant.mark}] {len(places)} times"
    sound = lines[places[0]].removesuffix(mark)
    broken = re.sub(mutant.sound, mutant.broken, sound)
    assert broken != sound, f"the pattern {mutant.sound!r} is not in the line [{mutant.mark}] of {mutant.script}.lua"
    return "\n".join([*lines[: places[0]], broken, *lines[places[0] + 1 :]])


def find_survivors(
    faults: Iterable[Fault],
    scenes: list[Scene],
    play: Callable[[Scene], None],
    client: redis.Redis,
    noticed: tuple[type[BaseException], ...] = NOTICED,
) -> list[str]:
    """Return the names of the faults that no scene notices, and of scripts that cannot even run.

    Raises:
        redis.ResponseError: The server cannot compile a script.
    """
    survivors = []
    for fault in faults:
        with pytest.MonkeyPatch.context() as patch:
            _install(fault, client, patch)
            try:
                _play_keen_first(scenes, play, fault.script)
            except noticed:
                continue
        survivors.append(fault.name)
    return survivors


def _install(fault: Fault, client: redis.Redis, patch: pytest.MonkeyPatch) -> None:
    """Let every later call load the broken script, and note which scripts are loaded."""
    known = {name: scripts.load(name) for name in scripts.names()}
    broken = fault.source.encode()
    sha = hashlib.sha1(broken).hexdigest().encode()
    known[fault.script] = replace(known[fault.script], source=broken, sha=sha)

    def load(name: str) -> scripts.Script:
        _loaded.add(name)
        return known[name]

    patch.setattr(scripts, "load", load)
    assert client.script_load(broken) == sha.decode()


def _play_keen_first(scenes: list[Scene], play: Callable[[Scene], None], script: str) -> None:
    """Play each scene, except those that passed before without the broken script.

    A scene that fails moves to the front, as it probably notices the next fault too.
    """
    for place, scene in enumerate(scenes):
        if script not in _scripts_of.get(scene, {script}):
            continue
        _loaded.clear()
        try:
            play(scene)
            _scripts_of[scene] = frozenset(_loaded)
        except ScriptFailed:
            continue  # another scene must notice it: a script that cannot run is not a fault of the protocol
        except BaseException:
            scenes.insert(0, scenes.pop(place))
            raise
