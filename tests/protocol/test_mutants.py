"""The machine against scripts that are broken on purpose."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import pytest
import redis
from hypothesis import HealthCheck, Phase, Verbosity, settings
from hypothesis.errors import Flaky
from hypothesis.stateful import run_state_machine_as_test
from protocol.machine import Machine
from protocol.mutants import MUTANTS, Mutant, seeded
from protocol.tour import tour
from support.redis_server import RedisServer

from redismem import RedismemError
from redismem.errors import ScriptFailed
from redismem.protocol import scripts

UNTIL_CAUGHT = settings(
    max_examples=1000,
    stateful_step_count=20,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    report_multiple_bugs=False,
    verbosity=Verbosity.quiet,
    suppress_health_check=list(HealthCheck),
)


class Unkilled(Machine):
    """On a server that writes nothing to disk."""

    restarts_limit = 0


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[type[Machine]]:
    server = RedisServer(tmp_path_factory.mktemp("mutants")).start()
    Unkilled.server = server
    yield Unkilled
    server.stop()


def play(machine: type[Machine]) -> None:
    """The directed rules first, then chance."""
    tour(machine)
    run_state_machine_as_test(machine, settings=UNTIL_CAUGHT)


@pytest.mark.parametrize("mutant", MUTANTS, ids=[f"{mutant.script}: {mutant.fault}" for mutant in MUTANTS])
def test_a_broken_script_is_noticed(mutant: Mutant, machine: type[Machine], monkeypatch: pytest.MonkeyPatch) -> None:
    sound = {name: scripts.load(name) for name in scripts.names()}
    broken = seeded(sound[mutant.script].source.decode(), mutant).encode()
    sha = hashlib.sha1(broken).hexdigest().encode()
    faulty = sound | {mutant.script: scripts.Script(mutant.script, broken, sha)}
    monkeypatch.setattr(scripts, "load", faulty.__getitem__)
    with redis.Redis(port=machine.server.port) as client:
        assert client.script_load(broken) == sha.decode(), "a script it must be all the same"
    with pytest.raises((AssertionError, RedismemError, Flaky)) as noticed:
        play(machine)
    assert not isinstance(noticed.value, ScriptFailed), "a script that cannot run is no fault of the protocol"


def test_a_fault_survives_a_rename_and_is_missed_where_it_has_no_place() -> None:
    mutant = Mutant("extend", "no longer than before", "lease", r" \+ \w+", "")
    script = "redis.call('ZADD', leased, now + lease_ms, session) -- [lease]\nreturn 1\n"
    assert seeded(script, mutant) == "redis.call('ZADD', leased, now, session)\nreturn 1\n"
    renamed = script.replace("lease_ms", "more_ms").replace("session", "name")
    assert seeded(renamed, mutant) == "redis.call('ZADD', leased, now, name)\nreturn 1\n"
    for lost in (script.replace("[lease]", "[other]"), script * 2, script.replace(" + lease_ms", "")):
        with pytest.raises(AssertionError):
            seeded(lost, mutant)
