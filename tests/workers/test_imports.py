"""The short import path `redismem.workers`, which loads APScheduler only when it is used."""

from __future__ import annotations

import subprocess
import sys

import pytest

import redismem.workers
from redismem.workers import DROPPED, Dropped, Scheduler, Strategy, scheduler, strategies


def test_the_short_path_leads_to_the_same_objects() -> None:
    assert Scheduler is scheduler.Scheduler
    assert (DROPPED, Dropped, Strategy) == (strategies.DROPPED, strategies.Dropped, strategies.Strategy)


def test_an_unknown_name_raises_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"'redismem\.workers' has no attribute 'Shedule'"):
        _ = redismem.workers.Shedule


def test_apscheduler_is_loaded_with_the_scheduler_alone() -> None:
    imports = (
        "import sys, redismem, redismem.workers",
        "from redismem.workers import DROPPED",
        "from redismem.workers import Scheduler",
    )
    program = "\n".join(f"{line}; print('apscheduler' in sys.modules)" for line in imports)
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["False", "False", "True"]
