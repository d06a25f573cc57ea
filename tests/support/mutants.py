"""Scripts broken on purpose, one line at a time.

A mutant names the mark at the end of its line, `-- [mark]`, and a pattern to replace there. So names may change, and
the line may move into an included part. A test fails if the mark does not exist exactly once, or the line stays as it
was: a fault that was not seeded must not count as caught.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar

import pytest
import redis
from _pytest.mark import ParameterSet
from hypothesis.errors import Flaky

from redismem import RedismemError
from redismem.errors import ScriptFailed
from redismem.protocol import scripts

Scene = TypeVar("Scene")
_loaded: set[str] = set()
_scripts_of: dict[object, frozenset[str]] = {}
"""The scripts that each scene loaded when it passed."""


class Mutant(NamedTuple):
    script: str
    fault: str
    mark: str
    sound: str = ".+"
    """The pattern that `broken` replaces; the default is the whole line."""
    broken: str = ""


def sample(mutants: Sequence[Mutant]) -> list[ParameterSet]:
    """Return the mutants as parameters: every sixth for each run, the others for `make nightly`."""
    return [
        pytest.param(mutant, id=f"{mutant.script}: {mutant.fault}", marks=[pytest.mark.nightly] * (number % 6 > 0))
        for number, mutant in enumerate(mutants)
    ]


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


def install_mutant(mutant: Mutant, client: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every later call load the broken script.

    Raises:
        redis.ResponseError: The server cannot compile it.
    """
    sound = {name: scripts.load(name) for name in scripts.names()}
    broken = mutate(sound[mutant.script].source.decode(), mutant).encode()
    sha = hashlib.sha1(broken).hexdigest().encode()
    load_instead(sound | {mutant.script: replace(sound[mutant.script], source=broken, sha=sha)}, monkeypatch)
    assert client.script_load(broken) == sha.decode()


def load_instead(faulty: Mapping[str, scripts.Script], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every later call load these scripts, and note which."""

    def load(name: str) -> scripts.Script:
        _loaded.add(name)
        return faulty[name]

    monkeypatch.setattr(scripts, "load", load)


@contextlib.contextmanager
def expect_failure() -> Iterator[None]:
    """Check that the body fails, and not only because the script cannot run."""
    with pytest.raises((AssertionError, RedismemError, Flaky, pytest.fail.Exception)) as caught:
        yield
    assert not isinstance(caught.value, ScriptFailed), "the broken script cannot even run"


def play_keen_first(scenes: list[Scene], play: Callable[[Scene], None], script: str) -> None:
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
