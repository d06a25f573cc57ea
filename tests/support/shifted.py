"""Processes with a wrong clock: clock_shift.c is compiled and preloaded."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from support.redis_server import RedisServer

HOUR_S = 3_600
_SOURCE = Path(__file__).with_name("clock_shift.c")


class ShiftedClock:
    """A clock that `shift` moves at any time, also in running processes. Needs a C compiler."""

    def __init__(self, folder: Path) -> None:
        compiler = shutil.which("cc")
        if compiler is None:
            pytest.skip("no C compiler to build clock_shift.c with")
        self._file, library = folder / "shift", folder / "clock_shift.so"
        subprocess.run([compiler, "-shared", "-fPIC", "-o", str(library), str(_SOURCE)], check=True)
        self.variables = {"LD_PRELOAD": str(library), "CLOCK_SHIFT_FILE": str(self._file)}
        """The environment variables of a process with this clock."""
        self.shift(0)

    def shift(self, seconds: int) -> None:
        written = self._file.with_suffix(".new")
        written.write_text(str(seconds))
        written.replace(self._file)


class ShiftedServer(RedisServer):
    """A server with a shifted clock."""

    clock: ShiftedClock

    def command(self) -> list[str]:
        """Return the command that starts the server."""
        return ["env", *(f"{name}={value}" for name, value in self.clock.variables.items()), *super().command()]
