"""Play the machine against the real scripts for some seconds, or for `MODEL_SECONDS` (`make model`)."""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test
from support.claims import printed_by
from support.redis_server import RedisServer

from model_check.scene_machine import EVERY_SCENE, SceneMachine, play_one
from model_check.steps import volume

SECONDS = float(os.environ.get("MODEL_SECONDS", "0"))
SEED = int(os.environ.get("MODEL_SEED", random.SystemRandom().randrange(1_000_000)))
OUTCOMES = {
    "claim": ["job", "none", "notdue", "leased", "gone", "noop", "dead"],
    "claim again": ["job", "noop"],
    "commit": ["ok", "already", "gone", "fenced", "stale"],
    "release": ["ok", "dead", "fenced"],
    **{
        script: ["True", "False"]
        for script in (
            *("extend", "requeue", "queue_eviction", "claim_eviction", "claim_eviction again", "evict", "note"),
            *(
                "prune",
                "archive",
                "pop",
                "rewrite",
                "replace",
                "unpin",
                "forget",
                "touch",
                "set_policy",
                "clear",
                "late clear",
            ),
        )
    },
}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    # Redis writes the log before each reply, so a killed server loses no acknowledged write. `everysec` may delay a
    # write while the disk is slow.
    server = RedisServer(tmp_path, aof=True, options=("--appendfsync", "no", "--auto-aof-rewrite-min-size", "8mb"))
    yield server.start()
    server.stop()


def play(steps: int, number: int) -> None:
    """Play the machine, and raise its first failure, shrunk."""
    try:
        run_state_machine_as_test(
            seed(number)(SceneMachine),
            settings=settings(
                stateful_step_count=steps,
                database=None,
                phases=[Phase.generate, Phase.shrink],
                suppress_health_check=list(HealthCheck),
            ),
        )
    except Exception as error:
        error.add_note(f"MODEL_SEED={number}")
        raise


@pytest.mark.timeout(SECONDS * 1.5 + 300)
def test_no_order_of_events_breaks_the_protocol(server: RedisServer, capsys: pytest.CaptureFixture[str]) -> None:
    SceneMachine.server = server
    volume.clear()
    started = time.monotonic()
    for scene in EVERY_SCENE:
        play_one(SceneMachine, scene)
    number = SEED
    while True:
        play(50 if SECONDS else 15, number)
        seconds = time.monotonic() - started
        if seconds >= SECONDS:
            break
        number += 1
    report = (
        f"model check: {volume['examples']} examples, {volume['steps']} checked steps, {volume['calls']} calls, "
        f"{volume['restarts']} restarts after kill -9, {seconds:.0f} s, seeds {SEED} to {number}"
    )
    assert printed_by("make model").search(report)
    with capsys.disabled():
        sys.stdout.write(f"\n{report}\n")
    reached = {f"{script} {outcome}" for script, outcomes in OUTCOMES.items() for outcome in outcomes}
    assert reached <= set(volume), "every outcome must occur"
    assert volume["restarts"]
    assert volume["owner recalls"]
