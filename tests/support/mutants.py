"""Scripts broken on purpose, one line at a time.

A fault is pinned to a mark, which stands behind the line that it breaks: `-- [mark]`. What it changes there is a
pattern of what means something, so that a name may change, and the line may move into a part that scripts include. A
mark that is not there exactly once, or a line that stays as it is, fails the test: a fault that is not seeded must not
count as caught.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

import pytest
import redis
from hypothesis.errors import Flaky

from redismem import RedismemError
from redismem.errors import ScriptFailed
from redismem.protocol import scripts

Scene = TypeVar("Scene")


class Mutant(NamedTuple):
    script: str
    fault: str
    mark: str
    sound: str = ".+"
    """A pattern of what `broken` is put in the place of; without it, that is the whole line."""
    broken: str = ""


def seeded(source: str, mutant: Mutant) -> str:
    """Gives the script with the fault in it. Raises AssertionError if it cannot be seeded."""
    lines = source.split("\n")
    mark = f" -- [{mutant.mark}]"
    places = [number for number, line in enumerate(lines) if line.endswith(mark)]
    assert len(places) == 1, f"{mutant.script}.lua has the mark [{mutant.mark}] {len(places)} times"
    sound = lines[places[0]].removesuffix(mark)
    broken = re.sub(mutant.sound, mutant.broken, sound)
    assert broken != sound, f"the pattern {mutant.sound!r} is not in the line [{mutant.mark}] of {mutant.script}.lua"
    return "\n".join([*lines[: places[0]], broken, *lines[places[0] + 1 :]])


def seed(mutant: Mutant, client: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets every call load the broken script from here on. Raises redis.ResponseError if the server cannot read it."""
    sound = {name: scripts.load(name) for name in scripts.names()}
    broken = seeded(sound[mutant.script].source.decode(), mutant).encode()
    sha = hashlib.sha1(broken).hexdigest().encode()
    faulty = sound | {mutant.script: scripts.Script(mutant.script, broken, sha)}
    monkeypatch.setattr(scripts, "load", faulty.__getitem__)
    assert client.script_load(broken) == sha.decode()


@contextlib.contextmanager
def noticed() -> Iterator[None]:
    """Fails if nothing is noticed within, or only that the script cannot run."""
    with pytest.raises((AssertionError, RedismemError, Flaky, pytest.fail.Exception)) as caught:
        yield
    assert not isinstance(caught.value, ScriptFailed), "the broken script cannot even run"


def keen_first(scenes: list[Scene], play: Callable[[Scene], None]) -> None:
    """Plays each scene. One that notices something is the first from then on: likely it notices the next fault too."""
    for place, scene in enumerate(scenes):
        try:
            play(scene)
        except ScriptFailed:
            continue  # another has to notice it: that a script cannot run is no fault of the protocol
        except BaseException:
            scenes.insert(0, scenes.pop(place))
            raise
