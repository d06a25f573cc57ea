"""Benchmarks as processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run_benchmark(*words: str) -> str:
    """Run `python -m` in the root of the checkout, without settings in the environment, and return what it prints."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("REDISMEM_")}
    command = [sys.executable, "-m", *words]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=580)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout
