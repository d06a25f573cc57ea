"""The tests that a run leaves out, the tests that it starts first, and those that share a process."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import pytest
from xdist.scheduler import LoadFileScheduling

TESTS = Path(__file__).parents[1]
EVERYTHING = "EVERYTHING" in os.environ

LONGEST_FIRST = (
    "web/page/test_page_access.py",
    "web/page/test_page_faults.py",
    "web/page/test_page_chat.py",
    "web/page/test_page_support.py",
    "web/page/test_page_project.py",
    "workers/test_worker_processes.py",
    "model_check/test_mutants.py",
    "workers/test_outages.py",
    "nodes/test_outages.py",
    "nodes/test_parted.py",
    "repository/test_benchmarks.py",
    "project_model/test_models.py",
    "workers/test_outage_processes.py",
    "nodes/test_sentinel.py",
    "store/test_outages.py",
    "project_model/test_mutants.py",
    "workers/test_eviction_properties.py",
    "session/test_model.py",
)
"""Files that start first: started last, one of them would run alone at the end."""

IN_ONE_PROCESS = ("formats/", "repository/", "web/page/")
"""Folders whose files run in one process: its browser, SDKs of providers or frameworks take seconds to load."""

ON_BOTH_STORES = (
    "blocking/",
    "lua/",
    "project/kinds/test_decisions.py",
    "project/test_context.py",
    "project/test_scenes.py",
    "recall/test_recall.py",
    "record/test_scenes.py",
    "session/test_append.py",
    "session/test_edits.py",
    "session/test_pins.py",
    "session/test_state.py",
    "memory/test_memory.py",
    "transport/test_contract.py",
    "web/chat/test_chat.py",
    "workers/test_beginning.py",
    "workers/test_eviction.py",
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


assert all((TESTS / name).exists() for name in (*LONGEST_FIRST, *IN_ONE_PROCESS, *ON_BOTH_STORES, *NOT_QUICK)), (
    "a file was renamed"
)


def place_of(item: pytest.Item) -> int:
    """Return the place in the order of the run."""
    name = item.path.relative_to(TESTS).as_posix()
    return LONGEST_FIRST.index(name) if name in LONGEST_FIRST else len(LONGEST_FIRST)


class FolderScheduling(LoadFileScheduling):
    """Hands out whole files, and all files of a folder in `IN_ONE_PROCESS` to one process."""

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return next((folder for folder in IN_ONE_PROCESS if file.startswith(f"{TESTS.name}/{folder}")), file)


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
