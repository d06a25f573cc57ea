"""The tests that a run leaves out, and the process of each test file."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import cache
from itertools import chain
from pathlib import Path

import pytest
from xdist.scheduler import EachScheduling

TESTS = Path(__file__).parents[1]
EVERYTHING = "EVERYTHING" in os.environ

OF_SDKS = (
    *("adapters/", "cli/importing/", "examples/", "formats/", "mcp/", "record/"),
    "cli/test_record_view.py",
    "messages/test_coercion.py",
    "models/test_tool_calls.py",
    "repository/test_api.py",
    "repository/test_docs.py",
    "session/test_pin_properties.py",
    "test_canaries.py",
    "web/api/test_formats.py",
    "web/api/test_records.py",
    "web/chat/test_chat.py",
    "web/chat/test_tools.py",
)
"""Tests that load SDKs of providers and frameworks, which takes seconds."""

SECONDS: dict[tuple[str, ...], float] = {
    ("web/page/",): 135,
    OF_SDKS: 170,
    ("live/", "nodes/", "transport/"): 115,
    ("cli/bench/test_bench.py",): 5,
    ("cli/test_app.py",): 12,
    ("cli/test_serve.py",): 12,
    ("cli/test_worker.py",): 5,
    ("cli/tune/test_tune.py",): 8,
    ("metrics/test_alerts.py",): 6,
    ("project/files/test_import.py",): 5,
    ("repository/test_lengths.py",): 5,
    ("session/test_rewrite.py",): 6,
    ("settings/test_extras.py",): 12,
    ("store/fallback/test_fallback.py",): 6,
    ("store/fallback/test_lost_replies.py",): 5,
    ("store/test_confirm.py",): 7,
    ("store/test_crashes.py",): 6,
    ("store/test_edit_crashes.py",): 6,
    ("store/test_faults.py",): 11,
    ("store/test_not_allowed.py",): 8,
    ("store/test_removal_crashes.py",): 5,
    ("store/test_server_words.py",): 6,
    ("store/test_turn_calls.py",): 9,
    ("web/api/test_sessions.py",): 6,
    ("web/api/test_turns.py",): 10,
    ("web/chat/test_faults.py",): 5,
    ("web/chat/test_outages.py",): 11,
    ("web/test_access.py",): 5,
    ("web/test_edge.py",): 7,
}
"""Seconds, beside three other processes, of tests that share a browser, SDKs or a cluster, and of the slowest files."""

BYTES_PER_S = 6_600
"""The length of other files, per second that they take."""

ON_BOTH_STORES = (
    "blocking/",
    "lua/",
    "project/kinds/test_decisions.py",
    "project/test_context.py",
    "project/test_scenes.py",
    "record/test_scenes.py",
    "session/test_append.py",
    "session/test_edits.py",
    "session/test_state.py",
    "memory/test_memory.py",
    "transport/test_contract.py",
    "workers/test_summaries.py",
)
"""Tests that every run plays on Redis and on the embedded store; `make nightly` plays all others on both too.

Both stores run the same scripts, and the tests of lua/ compare the replies of each script on both.
"""

NOT_QUICK = (
    "cli/",
    "examples/",
    "formats/test_agent_loops.py",
    "formats/test_odd_messages.py",
    "lua/session/test_append_ids.py",
    "model_check/",
    "nodes/",
    "project/files/",
    "project/test_races.py",
    "project_model/",
    "repository/",
    "session/test_model.py",
    "store/",
    "test_misleading.py",
    "text/test_linear.py",
    "transport/",
    "typed/",
    "web/",
    "workers/test_clocks.py",
    "workers/test_eviction_properties.py",
    "workers/test_eviction_scale.py",
    "workers/test_fault_properties.py",
    "workers/test_outage_processes.py",
    "workers/test_outages.py",
    "workers/test_recall_mutants.py",
    "workers/test_summary_properties.py",
    "workers/test_worker_faults.py",
    "workers/test_worker_processes.py",
)
"""Folders and files that start processes or servers of their own, or wait for something: not for `make quick`."""


assert all((TESTS / name).exists() for name in (*chain(*SECONDS), *ON_BOTH_STORES, *NOT_QUICK)), "a file was renamed"


@cache
def shares(count: int) -> dict[str, int]:
    """Return the process of each test file, of so many processes: the costliest first, each to the one with least.

    So each process imports its own files alone. If tests were handed out as they run, each would import all of them.
    """
    files: dict[tuple[str, ...], list[str]] = {}
    seconds = dict(SECONDS)
    for path in TESTS.rglob("test_*.py"):
        name = path.relative_to(TESTS).as_posix()
        places = next((places for places in SECONDS if name.startswith(places)), (name,))
        files.setdefault(places, []).append(name)
        if places not in SECONDS:
            seconds[places] = path.stat().st_size / BYTES_PER_S
    loads = [0.0] * count
    found = {}
    for places in sorted(files, key=lambda places: (-seconds[places], places)):
        process = loads.index(min(loads))
        loads[process] += seconds[places]
        found.update(dict.fromkeys(files[places], process))
    return found


class EachItsShare(EachScheduling):
    """Lets each process run all that it has collected."""

    def schedule(self) -> None:
        """Count the tests of all processes: xdist counts those of the one that collected last, which may be none."""
        session = self.config.pluginmanager.getplugin("session")
        session.testscollected = sum(map(len, self.node2collection.values()))
        super().schedule()


def is_of_another_process(path: Path, config: pytest.Config) -> bool:
    """True if the tests are shared out, with `--dist each`, and another process has this file."""
    given = getattr(config, "workerinput", {})
    if "share" not in given or not path.name.startswith("test_"):
        return False
    share: int = given["share"]
    return share != shares(given["workercount"]).get(path.relative_to(TESTS).as_posix(), 0)


def is_not_quick(path: Path) -> bool:
    """True if QUICK is set and the path is not for it."""
    return "QUICK" in os.environ and is_within(path, NOT_QUICK)


def is_within(path: Path, places: Iterable[str]) -> bool:
    """True if `path` is one of the files, or in one of the folders, which end with a slash."""
    name = path.relative_to(TESTS).as_posix()
    return any(f"{name}/".startswith(place) if place.endswith("/") else name == place for place in places)


def is_embedded_half(item: pytest.Item) -> bool:
    """True if the test is the embedded half of a pair whose other half runs on Redis."""
    callspec = getattr(item, "callspec", None)
    return callspec is not None and "embedded" in callspec.params.values()


def is_left_out(item: pytest.Item) -> bool:
    """True if this run leaves out the test. A run with EVERYTHING set leaves out no test."""
    if EVERYTHING:
        return False
    is_elsewhere = is_embedded_half(item) and ("QUICK" in os.environ or not is_within(item.path, ON_BOTH_STORES))
    return is_elsewhere or item.get_closest_marker("nightly") is not None
