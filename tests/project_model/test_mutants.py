"""Break one line of a project's scripts at a time: a scene must notice each fault, none by chance.

support/mutants.py pins a fault to its line.
"""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest
import redis
import redis.asyncio
from support import import_scenes, project_scenes
from support.clock import ProjectClock
from support.mutants import Mutant, find_survivors
from support.project_scenes import Scene

from redismem import Memory

SCENES = [*project_scenes.SCENES, *import_scenes.SCENES]
_numbers = itertools.count(1)

MISSES = ("another writer's version is overwritten", "version", r"not made and found_version ~= .*? then", "false then")
SEVERAL = ("version", r"stale or id .. ' ' .. found_version", "at > first_write and stale or nil")
FIRST = ("made earlier", r"version == '1' and .*? or delta", "delta")
MUTANTS = [
    Mutant("change", *MISSES),
    Mutant("change", "sent again, it is refused", "made before"),
    Mutant("change", "sent again, it is known by its body alone", "made earlier", r"made = .*", "made = false"),
    Mutant("change", "sent again, the first version is not known", *FIRST),
    Mutant("change", "one of several is written all the same", *SEVERAL),
    Mutant("change", "an index that has grown is no matter", "size", r"~= tonumber\(.*?\) then", "== -1 then"),
    Mutant("change", "what was only looked at may change", "unchanged", r"found_version ~= .*? then", "false then"),
    Mutant("change", "a name is taken away", "name", r"if found and .*? then", "if false then"),
    Mutant("change", "a name that nobody has is taken", "name", r" and redis.call\(.*?\) == 1", ""),
    Mutant("change", "an item stands in no index", "places taken"),
    Mutant("change", "always last in the order", "scores", r"= score, member", "= 0, member"),
    Mutant("change", "the last of an index alone", "scores", r"run\[#run \+ 1\], run\[#run \+ 2\]", "run[1], run[2]"),
    Mutant("change", "a name is never noted", "name taken", r"if .*", ""),
    Mutant("change", "what is erased stays", "erased"),
    Mutant("change", "versions of what is erased stay", "versions erased"),
    Mutant("change", "the first version is lost", "first version", r"if .*", ""),
    Mutant("change", "the first version with its number", "first version", r"string.sub\(.*?, 3\)", "bodies[id]"),
    Mutant("change", "later versions are lost", "versions", r"if .*", ""),
    Mutant("change", "a version under the number before", "versions", r"versions, version,", "versions, version - 1,"),
    Mutant("change", "nothing is changed", "bodies"),
    Mutant("change", "one item alone is changed", "bodies", r"unpack\(heads\)", "heads[1], heads[2]"),
    Mutant("change", "a name goes on finding what has another", "name left", r"if .*", ""),
    Mutant("change", "what an item was is still found", "places left"),
    Mutant("change", "a word stays when nobody has it", "vocabulary", r"if .*", ""),
    Mutant("change", "a word goes while others have it", "vocabulary", r" and redis.call\(.*?\) == 0", ""),
    Mutant("change", "an import that counts is overtaken", "an import first"),
    Mutant("change", "a change is not counted", "counted"),
    Mutant("import", "sent again, it is refused", "counted before", r"if .*", ""),
    Mutant("import", "what was never staged counts", "staged for too long", r"return .*", "return 1"),
    Mutant("import", "one takes the place of another", "one at a time", r"if .*", ""),
    Mutant("import", "what changed meanwhile is lost", "nothing has changed", r"if count .*? then", "if false then"),
    Mutant("import", "cut off, it is refused", "nothing has changed", r" and not \(.*?\) then", " then"),
    Mutant("import", "cut off, it overtakes others", "nothing has changed", r" and count == following", ""),
    Mutant("import", "it does not count as a change", "noted", r"'count', following, ", ""),
    Mutant("import", "it is not known again", "noted", r", 'imported', nonce", ""),
    Mutant("import", "what counts goes by itself", "kept"),
    Mutant("piece", "a late piece undoes a change", "once", r"if .*", ""),
    Mutant("piece", "no place is taken", "places taken", r"if .*", ""),
    Mutant("piece", "no place is left", "places left", r"if .*", ""),
    Mutant("piece", "nothing is set", "set", r"if .*", ""),
    Mutant("piece", "nothing is taken away", "taken away", r"if .*", ""),
    Mutant("piece", "nothing is erased", "erased", r"if .*", ""),
    Mutant("piece", "it never ends", "done"),
    Mutant("find", "goes through the largest group", "smallest", r"<", ">"),
    Mutant("find", "bounds are none", "bounds", r"or tonumber\(.*\)\)", "or true)"),
    Mutant("find", "the greatest is left out", "bounds", "<=", "<"),
    Mutant("find", "any group will do", "in every group", r"if .*", ""),
    Mutant("find", "the last of a page again", "behind the page before", r" and comes_before\(.*\) then", " then"),
    Mutant("find", "found twice", "behind the page before", r"id ~= last_id and ", ""),
    Mutant("find", "the first page is the last", "goes on"),
    Mutant("find", "the last page is never reached", "goes on", r"if .*? then", "if true then"),
]


async def play_scene(scene: Scene, port: int) -> None:
    namespace = f"mutant-{next(_numbers)}"
    async with redis.asyncio.Redis(port=port) as raw, Memory.connect(client=raw, namespace=namespace) as memory:
        clock = ProjectClock()
        await scene(clock.set_in(memory).project("apollo"), clock, raw)


@pytest.mark.nightly
@pytest.mark.timeout(1_800)
def test_every_broken_script_is_noticed(redis_server: Any) -> None:
    port, faults = redis_server.port, [mutant.seed() for mutant in MUTANTS]
    with redis.Redis(port=port) as client:
        assert find_survivors(faults, SCENES, lambda scene: asyncio.run(play_scene(scene, port)), client) == []


def test_there_are_faults_enough() -> None:
    assert len(MUTANTS) >= 20
    assert {mutant.script for mutant in MUTANTS} == {"change", "find", "import", "piece"}


def test_each_fault_has_its_place() -> None:
    """They are played at night, so a place that is gone is noticed here."""
    for mutant in MUTANTS:
        mutant.seed()
