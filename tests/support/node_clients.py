"""Packages of npm, installed once for an environment, and the drivers of the JavaScript clients."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

DRIVERS = Path(__file__).parents[1] / "web" / "clients"
_INSTALL_S, _RUN_S = 300, 60


def install_packages(source: Path) -> Path:
    """Return a folder with the packages of a folder's `package.json`. The test is skipped if it cannot be made."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        pytest.skip("node and npm are not installed, so no JavaScript client is tried")
    wanted = (source / "package.json").read_bytes()
    folder = Path(sys.prefix) / "clients" / hashlib.sha256(wanted).hexdigest()[:16]
    if folder.exists():
        return folder
    new = folder.with_name(f"{folder.name}-{os.getpid()}")
    new.mkdir(parents=True)
    (new / "package.json").write_bytes(wanted)
    command = [npm, "install", "--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts", "--fetch-retries=1"]
    try:
        subprocess.run(command, cwd=new, check=True, capture_output=True, timeout=_INSTALL_S)
        with contextlib.suppress(OSError):  # another process was faster
            new.rename(folder)
    except (OSError, subprocess.SubprocessError) as error:
        pytest.skip(f"npm cannot install the JavaScript clients ({type(error).__name__}), so none is tried")
    finally:
        shutil.rmtree(new, ignore_errors=True)
    return folder


def prepare_drivers(folder: Path) -> Path:
    """Put the drivers into an empty folder beside the installed packages, where node finds both."""
    (folder / "node_modules").symlink_to(install_packages(DRIVERS) / "node_modules")
    for driver in DRIVERS.glob("*.mjs"):
        shutil.copy(driver, folder)
    return folder


class RunningDriver:
    """A driver that runs beside the test, and prints a line of JSON at each step."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def step(self) -> str:
        """Wait for the next step, and return its name."""
        return str((await self._line())["step"])

    async def answer(self) -> Any:
        """Wait for the end, and return what the driver prints last."""
        told = await self._line()
        while "step" in told:
            told = await self._line()
        return told["answer"]

    async def _line(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        async with asyncio.timeout(_RUN_S):
            line = await self._process.stdout.readline()
            assert line, (await self._process.stderr.read()).decode()
        return dict(json.loads(line))


@contextlib.asynccontextmanager
async def start_driver(drivers: Path, name: str, **options: Any) -> AsyncIterator[RunningDriver]:
    """Start a driver; it is killed at the end."""
    pipe, command = asyncio.subprocess.PIPE, ("node", f"{name}.mjs", json.dumps(options))
    process = await asyncio.create_subprocess_exec(*command, cwd=drivers, stdout=pipe, stderr=pipe, limit=1 << 24)
    try:
        yield RunningDriver(process)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def drive(drivers: Path, name: str, **options: Any) -> Any:
    """Run a driver and return what it prints."""
    command = ["node", f"{name}.mjs", json.dumps(options)]
    done = subprocess.run(command, cwd=drivers, check=False, capture_output=True, text=True, timeout=_RUN_S)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.rstrip("\n").rpartition("\n")[2])["answer"]
