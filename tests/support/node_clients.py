"""The JavaScript clients of the stream formats, installed once for an environment, and their drivers."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

DRIVERS = Path(__file__).parents[1] / "web" / "clients"
_INSTALL_S, _RUN_S = 300, 60


def install_clients() -> Path:
    """Return the folder with the packages of `package.json`. The test is skipped if they cannot be installed."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        pytest.skip("node and npm are not installed, so no JavaScript client reads the streams")
    wanted = (DRIVERS / "package.json").read_bytes()
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
        pytest.skip(f"npm cannot install the JavaScript clients ({type(error).__name__}), so none reads the streams")
    finally:
        shutil.rmtree(new, ignore_errors=True)
    return folder


def prepare_drivers(folder: Path) -> Path:
    """Put the drivers into an empty folder beside the installed packages, where node finds both."""
    (folder / "node_modules").symlink_to(install_clients() / "node_modules")
    for driver in DRIVERS.glob("*.mjs"):
        shutil.copy(driver, folder)
    return folder


def drive(drivers: Path, name: str, **options: Any) -> Any:
    """Run a driver and return what it prints."""
    command = ["node", f"{name}.mjs", json.dumps(options)]
    done = subprocess.run(command, cwd=drivers, check=False, capture_output=True, text=True, timeout=_RUN_S)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
