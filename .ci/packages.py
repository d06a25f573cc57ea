"""Install Debian packages, where that is possible. Needs only Python."""

import os
import shutil
import subprocess
import sys


def root_prefix() -> list[str] | None:
    """Return the prefix that runs a command as root; `None` if there is no way."""
    if os.geteuid() == 0:
        return []
    if shutil.which("sudo") is None:
        return None
    silent = subprocess.run(["sudo", "-n", "true"], capture_output=True, check=False).returncode == 0
    return ["sudo"] if silent or sys.stdin.isatty() else None


def install(*names: str) -> str | None:
    """Install packages through apt. Returns `None` on success, else the error output."""
    prefix = root_prefix()
    if shutil.which("apt-get") is None or prefix is None:
        return "There is no apt-get here that may install anything."
    print(f"==> installing {', '.join(names)} with apt-get", flush=True)
    apt = [*prefix, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-o", "DPkg::Lock::Timeout=120"]
    for words in (["update"], ["install", "--yes", "--no-install-recommends", *names]):
        command = [*apt, *words]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else f"{done.stdout}{done.stderr}"
